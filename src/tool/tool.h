// SPDX-License-Identifier: Apache-2.0
// The tool `parallax`: a table of subcommands, each one main function in a file of its own. A new
// one is its file, its declaration here and its row in main.cc. The tool holds libparallax's code
// itself, so that it can say what is wrong where libparallax.so is missing or of another version.
//
// Exit statuses: 0, 1 for "no" (a check failed), 2 for wrong usage; `run` passes on its ranks'.
#ifndef PARALLAX_TOOL_TOOL_H_
#define PARALLAX_TOOL_TOOL_H_

#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "base/status.h"

namespace CLI {
class App;
}

namespace parallax::tool {

inline constexpr int kExitOk = 0;
inline constexpr int kExitNo = 1;
inline constexpr int kExitUsage = 2;

// argv[0] is the subcommand's name.
int info_main(int argc, char** argv);
int doctor_main(int argc, char** argv);
int run_main(int argc, char** argv);
int bench_main(int argc, char** argv);

// False: --help was printed or the usage was wrong, and *exit_status is what to end with.
bool parse_command_line(CLI::App& app, int argc, char** argv, int* exit_status);

// Rows of cells as columns; the last column is as long as it is.
using Table = std::vector<std::vector<std::string>>;
void print_table(const Table& table, std::FILE* out, const char* indent = "  ");

std::string mebibytes(uint64_t bytes);  // "64 MiB"

// "parallax run: SENTENCE" on standard error; returns `exit_status`.
int complain(const char* subcommand, const std::string& sentence, int exit_status);

// What this tool was built from.
struct BuildInfo {
  const char* version;
  const char* git;  // "" if it was not built from a repository
  const char* compiler;
  const char* build_type;
  const char* options;
};
const BuildInfo& build_info();

}  // namespace parallax::tool

#endif  // PARALLAX_TOOL_TOOL_H_
