// SPDX-License-Identifier: Apache-2.0
// Launcher: starts processes, passes their output on line by line, and ends all when one fails.
//
// Each process leads a process group of its own. When its leader ends, the rest of the group is
// killed; when the launcher itself is killed, a guard process kills every group, so nothing is left
// behind but what made itself a session of its own. SIGINT, SIGTERM and SIGHUP are passed on to all
// groups; whoever is still there after the grace is killed.
//
// One thread, one launch at a time in a process: signals are its.
#ifndef PARALLAX_TOOL_LAUNCHER_H_
#define PARALLAX_TOOL_LAUNCHER_H_

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"

namespace parallax::tool {

struct ProcessPlan {
  uint32_t rank = 0;
  std::string host;
  std::vector<std::string> argv;
  std::vector<std::pair<std::string, std::string>> environment;  // over the launcher's own
  // True: its standard input carries the lines of ended_file as they are added, and ends when the
  // launcher ends. False: it is empty.
  bool hold_stdin = false;
};

struct LaunchOptions {
  bool tag_output = true;
  int64_t grace_ms = 5000;
  std::string remove_folder;  // at the end, however it ends; "" for none
  std::string ended_file;     // made here, lists the ranks that ended (ended_ranks.h); "" for none
};

// *exit_status: 0; the status of the first process that failed (128 + its signal); 128 + the signal
// that ended the launch; or 1 if all went well but output could not be written. LIMIT, IO: nothing
// runs.
Status launch(std::span<const ProcessPlan> plans, const LaunchOptions& options, int* exit_status);

}  // namespace parallax::tool

#endif  // PARALLAX_TOOL_LAUNCHER_H_
