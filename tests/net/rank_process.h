// SPDX-License-Identifier: Apache-2.0
// RankProcess: one rank as a process that runs a program of net/programs, in a network namespace if
// one is named; and RankJob: all ranks of one job with their rendezvous. What they
// write is kept as lines. A process dies with its object, and with the thread that made it. Every
// wait has a bound. Tests only, one thread per job.
#ifndef PARALLAX_TESTS_NET_RANK_PROCESS_H_
#define PARALLAX_TESTS_NET_RANK_PROCESS_H_

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "support/temporary_folder.h"

namespace parallax::net {

inline constexpr int kExitPeerLost = 15;  // of net/programs/trainer
inline constexpr int64_t kLeaseMs = 4000;
inline constexpr int64_t kSlackMs = 20000;  // of a machine with other things to do

class RankProcess {
 public:
  // arguments[0] is the program's name: "trainer".
  RankProcess(std::vector<std::string> arguments, const std::string& net_namespace);
  ~RankProcess();
  RankProcess(const RankProcess&) = delete;
  RankProcess& operator=(const RankProcess&) = delete;

  void signal(int number);
  void poll();  // reads what it wrote and asks for its state; never blocks
  bool running() const { return !exit_.has_value(); }
  bool stopped() const { return stopped_; }
  // The exit status, or 128 + signal.
  std::optional<int> exit() const { return exit_; }
  // What follows `prefix` in the first line that begins so.
  std::optional<std::string> line(const std::string& prefix) const;
  std::vector<std::string> lines(const std::string& prefix) const;  // of every such line
  bool said(const std::string& prefix) const { return line(prefix).has_value(); }
  // The last lines, for a failed test.
  std::string tail() const;

 private:
  pid_t pid_ = -1;
  int output_ = -1;
  bool stopped_ = false;
  std::optional<int> exit_;
  std::string partial_;
  std::vector<std::string> lines_;
};

struct RankJobOptions {
  std::vector<uint32_t> host_of;            // by rank
  std::vector<std::string> arguments;       // of every rank
  std::vector<std::string> net_namespaces;  // by host; empty: this process's own
  std::string program = "trainer";          // of net/programs
};

class RankJob {
 public:
  explicit RankJob(RankJobOptions options);
  RankJob(const RankJob&) = delete;
  RankJob& operator=(const RankJob&) = delete;

  uint32_t world() const { return static_cast<uint32_t>(options_.host_of.size()); }
  // "rank 2 (host host1)", as the library names it.
  std::string name(uint32_t rank) const;
  void start(uint32_t rank, const std::vector<std::string>& more = {});
  void start_all();
  RankProcess& rank(uint32_t rank) { return *ranks_[rank]; }

  // Polls all ranks until `done` or the patience is over; true if done.
  bool wait_until(const std::function<bool()>& done, std::chrono::milliseconds patience);
  bool wait_exit(std::chrono::milliseconds patience);  // of every rank started

 private:
  const RankJobOptions options_;
  const testkit::TemporaryFolder folder_;  // outlives the ranks
  std::vector<std::unique_ptr<RankProcess>> ranks_;
};

// The executable of a program of net/programs, beside this one.
std::string program_path(const std::string& name);

// Milliseconds of the monotonic clock, which the training program prints too.
int64_t monotonic_ms();

}  // namespace parallax::net

#endif  // PARALLAX_TESTS_NET_RANK_PROCESS_H_
