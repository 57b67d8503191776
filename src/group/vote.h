// SPDX-License-Identifier: Apache-2.0
// Vote and Decision: what ends a step. Votes are merged on their way up the tree; the decision that
// the root makes of them goes down unchanged. Both are plain values with an encoding of bounded
// size; decoding checks it, since the bytes are a peer's.
#ifndef PARALLAX_GROUP_VOTE_H_
#define PARALLAX_GROUP_VOTE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/exact_sum.h"
#include "group/pace.h"
#include "group/step_rates.h"
#include "planner/plan.h"
#include "variable/tables_left_out.h"

namespace parallax {

// A vote carries row counts of so many variables at most; with more of them, steps take turns.
inline constexpr uint32_t kCountsPerVote = 48;
// A decision announces the plan of so many variables at most.
inline constexpr uint32_t kEntriesPerDecision = 96;
inline constexpr uint32_t kReductionKinds = 3;
inline constexpr uint32_t kNoVariable = UINT32_MAX;

struct RowCounts {
  uint64_t touched = 0;     // coalesced rows, summed over hosts
  uint64_t union_rows = 0;  // distinct rows over all hosts
  uint64_t pulled = 0;      // distinct pulled rows, of several hosts those of others; summed
};

// What every rank must say alike, with one rank that said it.
struct StepScalars {
  uint32_t learning_rate_bits = 0;
  uint32_t clip_norm_bits = 0;
  uint32_t rank = 0;
  uint32_t rates_count = 0;  // which rates is in RatesBallot
  bool same_as(const StepScalars& other) const {
    return learning_rate_bits == other.learning_rate_bits &&
           clip_norm_bits == other.clip_norm_bits && rates_count == other.rates_count;
  }
};

// It is large, and most votes say little: clear() and merge() touch no more than is used. What no
// bit of norm_kinds tells of is 0 in `norms`, and what is behind counts_size in `counts` says
// nothing.
struct Vote {
  bool any = false;  // holds anything yet
  uint32_t contributors = 0;
  uint32_t found_inf = 0;
  StepScalars scalars;
  bool disagree = false;
  StepScalars other;
  uint32_t norm_kinds = 0;  // bit k: norms[k] is used
  // Squared norms by parallax_reduction_t; of rows that are divided by their own counts with the
  // sums. Those of groups that clip their own gradients are in RatesBallot.
  std::array<ExactSum, kReductionKinds> norms = {};
  uint32_t dense_variable = kNoVariable;  // the first with row ids that got a dense slice
  TablesLeftOut left_out;
  PaceVote pace;
  uint32_t counts_first = 0;  // among the variables with ids
  uint32_t counts_size = 0;
  std::array<RowCounts, kCountsPerVote> counts = {};

  void clear();
  void merge(const Vote& other_vote);
};

struct PlanEntry {
  uint32_t variable = 0;
  VariablePlan plan;
  float touched_rows_per_host = 0;
  float union_rows = 0;
  float pulled_rows_per_host = 0;
};

enum class Outcome : uint32_t { kCommit = 0, kDiscard = 1, kMismatch = 2 };

struct Decision {
  Outcome outcome = Outcome::kDiscard;
  uint32_t contributors = 0;
  double gradient_norm = 0;
  double clip_scale = 1;
  // By group of rates: what it clips its own gradients by, before clip_scale; from 0 to 1, or NaN.
  std::array<double, kRatesMax> group_scales = [] {
    std::array<double, kRatesMax> ones;
    ones.fill(1);
    return ones;
  }();
  TablesLeftOut left_out;      // by all ranks
  StepScalars first, second;   // kMismatch: who said what,
  RatesDifference difference;  // or of which rates
  LateRank late;
  bool settled = false;                   // with these entries the plan is complete
  uint32_t dense_variable = kNoVariable;  // has row ids, got a dense slice: dense from now on
  uint32_t entry_count = 0;
  std::array<PlanEntry, kEntriesPerDecision> entries = {};

  // As it begins, but for entries that entry_count does not count.
  void clear();
};

// Votes and decisions are control, which is never cut: Outbox::kControlBytesMax.
inline constexpr size_t kVoteBytesMax = 3584;

// Encoding returns the bytes used of `out`. Decoding refuses what names a rank that a job of
// `world` ranks has not.
size_t encode_vote(const Vote& vote, std::span<std::byte, kVoteBytesMax> out);
[[nodiscard]] bool decode_vote(std::span<const std::byte> in, uint32_t world, Vote* vote);
size_t encode_decision(const Decision& decision, std::span<std::byte, kVoteBytesMax> out);
[[nodiscard]] bool decode_decision(std::span<const std::byte> in, uint32_t world,
                                   Decision* decision);

}  // namespace parallax

#endif  // PARALLAX_GROUP_VOTE_H_
