// SPDX-License-Identifier: Apache-2.0
// Process: one rank as a process of its own, which executes this test program again in a role (see
// ucx_programs.cc). Exec, not fork alone: UCX does not survive a fork. Ranks meet over files in a
// folder; what a role reports it writes as lines to its standard output. Tests only, one thread;
// every wait has a bound.
#ifndef PARALLAX_TESTS_NET_UCX_PROCESS_H_
#define PARALLAX_TESTS_NET_UCX_PROCESS_H_

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "support/temporary_folder.h"

namespace parallax::net {

inline constexpr std::chrono::seconds kProcessPatience{60};

using RendezvousFolder = testkit::TemporaryFolder;

struct ProcessOptions {
  std::string role;
  uint32_t rank = 0;
  uint32_t world = 0;
};

class Process {
 public:
  Process(const RendezvousFolder& folder, const ProcessOptions& options);
  ~Process();  // kills it
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  void signal(int number);
  // The rest of the next line that begins with `prefix`; others are skipped. Empty: none in time.
  std::optional<std::string> wait_line(const std::string& prefix,
                                       std::chrono::milliseconds patience = kProcessPatience);
  // The exit status, or 128 + signal; -1: still running. Prints what a failed child wrote.
  int wait_exit(std::chrono::milliseconds patience = kProcessPatience);

 private:
  bool read_some(std::chrono::milliseconds patience);

  pid_t pid_ = -1;
  int output_ = -1;
  std::string buffer_;  // not yet looked at
  std::string log_;     // everything it wrote
};

// The child's side.
bool is_role(const std::string& role);
uint32_t own_rank();
uint32_t own_world();
void put_blob(const std::string& name, const std::string& bytes);
std::string get_blob(const std::string& name);  // waits for it
void say(const std::string& line);

}  // namespace parallax::net

#endif  // PARALLAX_TESTS_NET_UCX_PROCESS_H_
