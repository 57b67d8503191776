// SPDX-License-Identifier: Apache-2.0
// The table of subcommands.
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
    {"bench", "times operations among ranks and checks every element of them", bench_main},
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
