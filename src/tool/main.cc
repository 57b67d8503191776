// SPDX-License-Identifier: Apache-2.0
// The table of subcommands, and what they share.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstring>

#include "tool/tool.h"

namespace parallax::tool {

namespace {

struct Subcommand {
  const char* name;
  const char* help;
  int (*main)(int argc, char** argv);
};

constexpr Subcommand kSubcommands[] = {
    {"info", "what this build is, and what it finds on this machine", info_main},
    {"doctor", "checks this machine, or all ranks of a job, and says how to mend", doctor_main},
    {"run", "starts a command as N ranks, here or on other hosts", run_main},
};

void print_usage(std::FILE* out) {
  std::fputs(
      "Usage: parallax SUBCOMMAND [options]\n"
      "       parallax --help | --version\n\n",
      out);
  Table table;
  for (const Subcommand& each : kSubcommands) table.push_back({each.name, each.help});
  print_table(table, out);
  std::fputs("\nparallax SUBCOMMAND --help says more; so does man parallax-SUBCOMMAND.\n", out);
}

int dispatch(int argc, char** argv) {
  const std::string name = argc > 1 ? argv[1] : "";
  if (name == "--help" || name == "-h") return print_usage(stdout), kExitOk;
  if (name == "--version") return std::printf("parallax %s\n", build_info().version), kExitOk;
  for (const Subcommand& each : kSubcommands) {
    if (name == each.name) return each.main(argc - 1, argv + 1);
  }
  if (!name.empty()) std::fprintf(stderr, "parallax: there is no subcommand %s\n\n", name.c_str());
  print_usage(stderr);
  return kExitUsage;
}

}  // namespace

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

int main(int argc, char** argv) {
  try {
    const int exit_status = parallax::tool::dispatch(argc, argv);
    if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return exit_status;
    std::fprintf(stderr,
                 "parallax: the output cannot be written: %s; make room, or write elsewhere\n",
                 std::strerror(errno));
    return std::max(exit_status, parallax::tool::kExitNo);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "parallax: %s\n", error.what());
    return parallax::tool::kExitNo;
  }
}
