// SPDX-License-Identifier: Apache-2.0
// Guard: a process beside the launcher that outlives it, however it ends, and then kills the
// process groups that are left and removes a folder. It learns of groups through a pipe; the end of
// the pipe is the end of the launcher.
#ifndef PARALLAX_TOOL_GUARD_H_
#define PARALLAX_TOOL_GUARD_H_

#include <sys/types.h>

#include <string>

#include "base/status.h"

namespace parallax::tool {

class Guard {
 public:
  Guard() = default;
  ~Guard() { finish(); }
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;

  // Forks: call it before there are threads or descriptors to be inherited. LIMIT.
  Status start(const std::string& remove_folder);
  // Called by the launcher or, before it executes anything, by the leader of the group itself.
  void watch(pid_t group) const;
  void forget(pid_t group) const;
  // Waits until the guard has done its work.
  void finish();

 private:
  int pipe_ = -1;
  pid_t pid_ = 0;
};

}  // namespace parallax::tool

#endif  // PARALLAX_TOOL_GUARD_H_
