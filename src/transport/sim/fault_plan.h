// SPDX-License-Identifier: Apache-2.0
// FaultPlan: what goes wrong in one simulated run, drawn from a seed, and FaultCounts: what of it
// was felt, by kind and phase. Plain values; nothing here acts, FaultInjector does.
#ifndef PARALLAX_TRANSPORT_SIM_FAULT_PLAN_H_
#define PARALLAX_TRANSPORT_SIM_FAULT_PLAN_H_

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"

namespace parallax {

enum class FaultKind : uint8_t {
  kDelay,          // a rank's messages are late, each by another amount
  kSilenceOneWay,  // one direction of one connection carries nothing for a while
  kSilenceBothWays,
  kCutOneWay,  // the same, for ever
  kCutBothWays,
  kPartition,  // hosts fall into two groups that do not hear each other, for a while
  kSplit,      // the same, for ever
  kClose,      // a connection breaks and both sides are told
  kKill,       // a process dies and its peers' transports see it
  kPowerOff,   // it dies and nobody sees anything
  kStop,       // SIGSTOP, and SIGCONT within the lease
  kFreeze,     // SIGSTOP for longer than the lease, or for ever
  kSlow,       // a rank computes and wakes slowly
  kStray,      // bytes that nobody sent: random, cut short, or from a rank that does not exist
  kReplay,     // a message that was delivered is delivered again
  kOtherJob,   // the same, disguised as one of another generation of the job
};
inline constexpr size_t kFaultKinds = 16;

std::string_view fault_name(FaultKind kind);

// True if ranks may have to be told of a loss; false if training must go on and end as if nothing
// had been.
bool is_fatal(FaultKind kind);

enum class FaultTrigger : uint8_t {
  kAtTime,       // at: nanoseconds from the start
  kAtOperation,  // at: the rank's at-th send, counted from 1
  kAtPhase,      // at: the rank's at-th entry into `phase`, counted from 1, plus after_ns
};

struct Fault {
  FaultKind kind = FaultKind::kDelay;
  uint32_t rank = 0;
  uint32_t peer = 0;         // of a link; of a stray, the rank it claims to be from
  uint64_t peer_choice = 0;  // if rank never talked to peer: the choice among those it did
  FaultTrigger trigger = FaultTrigger::kAtTime;
  int64_t at = 0;
  std::string phase;
  int64_t after_ns = 0;
  int64_t duration_ns = 0;         // kNever: for good
  int64_t amount_ns = 0;           // spike, run delay, or what a kill takes to be seen
  std::vector<bool> side_of_host;  // of a partition
  uint64_t seed = 0;               // of the bytes of a stray
};

struct FaultPlanOptions {
  uint64_t seed = 1;
  std::vector<uint32_t> host_of;
  int64_t lease_ns = 0;
  int64_t horizon_ns = 0;           // about how long a run without faults takes
  int64_t operations = 0;           // about how many messages one rank sends in it
  std::vector<std::string> phases;  // labels that set_phase will be given
  uint32_t faults_max = 3;
  // The first fault of a plan goes through all kinds and phases in turn, by this number; the rest
  // are drawn. UINT64_MAX: all are drawn.
  uint64_t turn = UINT64_MAX;
  bool fatal = true;  // false: only faults that must go unnoticed
};

struct FaultPlan {
  std::vector<Fault> faults;

  static FaultPlan generate(const FaultPlanOptions& options);
  bool fatal() const;
  std::string describe() const;  // one line
};

class FaultCounts {
 public:
  void add(FaultKind kind, const std::string& phase, uint64_t count = 1);
  void merge(const FaultCounts& other);
  uint64_t of(FaultKind kind) const;
  uint64_t of(FaultKind kind, const std::string& phase) const;
  std::string table(const std::vector<std::string>& phases) const;

 private:
  std::map<std::pair<FaultKind, std::string>, uint64_t> counts_;
};

}  // namespace parallax

#endif  // PARALLAX_TRANSPORT_SIM_FAULT_PLAN_H_
