// SPDX-License-Identifier: Apache-2.0
// What subcommands share: options read, tables and sentences printed.
#include <CLI/CLI.hpp>
#include <algorithm>

#include "tool/tool.h"

namespace parallax::tool {

bool parse_command_line(CLI::App& app, int argc, char** argv, int* exit_status) {
  try {
    app.parse(argc, argv);
    return true;
  } catch (const CLI::ParseError& error) {
    const bool help = error.get_exit_code() == 0;
    app.exit(error);
    *exit_status = help ? kExitOk : kExitUsage;
    return false;
  }
}

void print_table(const Table& table, std::FILE* out, const char* indent) {
  std::vector<size_t> widths;
  for (const auto& row : table) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  for (const auto& row : table) {
    std::string line = indent;
    for (size_t i = 0; i < row.size(); ++i) {
      line += row[i];
      if (i + 1 < row.size()) line.append(widths[i] - row[i].size() + 2, ' ');
    }
    line.erase(line.find_last_not_of(' ') + 1);
    std::fprintf(out, "%s\n", line.c_str());
  }
}

int complain(const char* subcommand, const std::string& sentence, int exit_status) {
  std::fprintf(stderr, "parallax %s: %s\n", subcommand, sentence.c_str());
  return exit_status;
}

}  // namespace parallax::tool
