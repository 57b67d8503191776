// SPDX-License-Identifier: Apache-2.0
// What subcommands share: options read, tables and sentences printed.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstring>
#include <memory>
#include <set>

#include "base/text.h"
#include "tool/tool.h"

namespace parallax::tool {

namespace {

// As CLI11's, but a type is followed by nothing: bounds and what an option excludes are said in
// words behind its description.
class Formatter : public CLI::Formatter {
  std::string make_option_opts(const CLI::Option* option) const override {
    const std::string type = option->get_type_name();
    const bool many = option->get_expected_max() == CLI::detail::expected_max_vector_size;
    const size_t bounds = type.find(kBounds) == std::string::npos ? type.size() : type.find(':');
    return (type.empty() ? "" : " ") + type.substr(0, bounds) + (many ? " ..." : "") +
           (option->get_required() ? " REQUIRED" : "");
  }

  std::string make_option_desc(const CLI::Option* option) const override {
    std::string text = option->get_description();
    const std::string type = option->get_type_name();
    if (const size_t bounds = type.find(kBounds); bounds != std::string::npos) {
      text += "; in " + type.substr(bounds + std::strlen(kBounds) - 1);
    }
    std::set<std::string> others;
    for (const CLI::Option* each : option->get_excludes()) others.insert(each->get_name());
    return text + (others.empty() ? "" : "; not with " + CLI::detail::join(others, ", "));
  }

  static constexpr const char* kBounds = " in [";  // of CLI::Range
};

std::string failure_sentence(const CLI::App* app, const CLI::Error& error) {
  return app->get_name() + ": " + error.what() + "; " + app->get_name() + " --help says more\n";
}

}  // namespace

std::string mebibytes(uint64_t bytes) { return std::to_string(bytes >> 20) + " MiB"; }

bool parse_command_line(CLI::App& app, int argc, char** argv, int* exit_status) {
  app.formatter(std::make_shared<Formatter>());
  app.failure_message(failure_sentence);
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
  std::fprintf(stderr, "parallax %s: %s\n", subcommand, printable(sentence).c_str());
  return exit_status;
}

}  // namespace parallax::tool
