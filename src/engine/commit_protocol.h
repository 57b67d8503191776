// SPDX-License-Identifier: Apache-2.0
// CommitProtocol: how ranks find out that they agree on what they registered and on the options
// that must be alike, or what it is that they disagree on. They compare digests, up the tree. If
// these differ, rank 0 broadcasts its registry, first the size and then the bytes, and a second
// round brings one sentence to all: the variable, the field and two ranks.
//
// One for a job: start() once this rank is ready, advance() in every pass, reports and answers of
// TreeKind::kCommit as they come. Engine's owner only; nothing blocks.
#ifndef PARALLAX_ENGINE_COMMIT_PROTOCOL_H_
#define PARALLAX_ENGINE_COMMIT_PROTOCOL_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "collectives/broadcast.h"
#include "engine/commit_report.h"
#include "engine/job_failure.h"
#include "group/trees.h"
#include "variable/variable.h"

namespace parallax {

class CommitProtocol {
 public:
  // What this rank says beside the registry. All references outlive this; the registry is fixed
  // from start() on, and nobody else broadcasts until the ranks agree.
  CommitProtocol(const CommitTerms& terms, const std::vector<Variable>& registry, Trees& trees,
                 Broadcast& broadcast)
      : terms_(terms), registry_(registry), trees_(trees), broadcast_(broadcast) {}

  void start();
  bool started() const { return phase_ != Phase::kIdle; }
  bool agreed() const { return phase_ == Phase::kAgreed; }

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

  CommitReport my_report() const;
  JobFailure advance_detail();

  const CommitTerms terms_;
  const std::vector<Variable>& registry_;
  Trees& trees_;
  Broadcast& broadcast_;
  Phase phase_ = Phase::kIdle;
  std::vector<CommitReport> reports_;  // of the children
  uint64_t detail_bytes_ = 0;
  std::string detail_;  // the registry of rank 0; then what differs here
};

}  // namespace parallax

#endif  // PARALLAX_ENGINE_COMMIT_PROTOCOL_H_
