// SPDX-License-Identifier: Apache-2.0
// CommitProtocol: how ranks find out that they agree on what they registered and on the options
// that must be alike, or what it is that they disagree on. They compare digests, up the tree. If
// these differ, rank 0 broadcasts what it registered, first the size and then the bytes, and a
// second round brings one sentence to all: the variable, the field and two ranks. What an earlier
// commit has agreed on is not compared again.
//
// One for a job, for one commit after another: start() once this rank is ready, advance() in every
// pass, reports and answers of TreeKind::kCommit as they come, end() once all agree. Engine's owner
// only; nothing blocks.
#ifndef PARALLAX_ENGINE_COMMIT_PROTOCOL_H_
#define PARALLAX_ENGINE_COMMIT_PROTOCOL_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "collectives/broadcast.h"
#include "engine/commit_report.h"
#include "engine/job_failure.h"
#include "group/trees.h"
#include "variable/registry.h"
#include "world/host_map.h"

namespace parallax {

class CommitProtocol {
 public:
  // What this rank says beside the registry. All references outlive this. What is compared is the
  // newest of the registry, fixed from start() to end(); until then nobody else broadcasts.
  // `given`: of the root, the constants that hold whatever ranks measure.
  CommitProtocol(const CommitTerms& terms, const Registry& registry, const HostMap& hosts,
                 Trees& trees, Broadcast& broadcast, const CostSetting& given)
      : terms_(terms),
        registry_(registry),
        hosts_(hosts),
        trees_(trees),
        broadcast_(broadcast),
        given_(given) {}

  // Another round of a commit says the same as the one before, but for costs.
  void start();
  // What this rank says of reductions among devices in the rounds to come; rank 0 makes what ranks
  // find each other by, once for a commit, where all can; null: they have it.
  using MakeId = std::function<Status(CommunicatorId* id)>;
  void start(DeviceTerms devices, const CostTerms& costs, MakeId make_id);
  void end() { phase_ = Phase::kIdle; }
  bool started() const { return phase_ != Phase::kIdle; }
  bool agreed() const { return phase_ == Phase::kAgreed; }
  // Once agreed: what all can.
  const DeviceTerms& devices_agreed() const { return devices_agreed_; }
  const CostTerms& costs_agreed() const { return costs_agreed_; }

  // Moves on what can be moved.
  JobFailure advance();
  // A child's report; false if it cannot be read.
  [[nodiscard]] bool merge_report(std::span<const std::byte> payload);
  // What the root found.
  JobFailure on_answer(std::span<const std::byte> payload);

 private:
  // Comparing digests, and, if they differ, finding out where.
  enum class Phase : uint8_t {
    kIdle,
    kCompare,
    kDetailSize,
    kDetailBlob,
    kDetailReport,
    kAgreed,
  };

  uint32_t world() const { return static_cast<uint32_t>(hosts_.host_of.size()); }
  CommitReport my_report() const;
  JobFailure advance_detail();
  void add_id(CommitReport* report);
  JobFailure differing(const std::string& told) const;

  const CommitTerms terms_;
  const Registry& registry_;
  const HostMap& hosts_;
  Trees& trees_;
  Broadcast& broadcast_;
  Phase phase_ = Phase::kIdle;
  std::vector<CommitReport> reports_;  // of the children
  uint64_t detail_bytes_ = 0;
  const CostSetting given_;
  DeviceTerms devices_, devices_agreed_;
  CostTerms costs_, costs_agreed_;
  MakeId make_id_;
  std::string detail_;  // what rank 0 registered; then what differs here
};

}  // namespace parallax

#endif  // PARALLAX_ENGINE_COMMIT_PROTOCOL_H_
