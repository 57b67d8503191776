// SPDX-License-Identifier: Apache-2.0
// Merging and encoding of votes and decisions. See vote.h.
#include "group/vote.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"

namespace parallax {

namespace {

// Both heads travel as they lie in memory: ranks prove equal byte order at the rendezvous.
struct VoteHead {
  uint32_t contributors, found_inf, disagree, norm_kinds, counts_first, counts_size;
  uint32_t dense_variable, left_out_words;
  StepScalars scalars, other;
  std::array<uint32_t, kStepPhases> longest_us;
  uint32_t longest_rank;
  std::array<uint64_t, kStepPhases> sum_us;
};

struct DecisionHead {
  uint32_t outcome, contributors, settled, entry_count, dense_variable, left_out_words;
  double gradient_norm, clip_scale;
  uint64_t clipped_groups;  // bit by bit: the scales that follow; the others are 1
  StepScalars first, second;
  RatesDifference difference;
  uint32_t late_rank, late_phase, late_ms, late_steps;
};
static_assert(sizeof(VoteHead) == 104 && sizeof(DecisionHead) == 128, "no padding");

struct WireEntry {
  uint32_t variable;
  uint8_t placement, method;
  uint16_t reserved;
  float touched, union_rows, pulled;
};

constexpr size_t kLeftOutBytesMax = TablesLeftOut::kWordsMax * sizeof(uint64_t);
static_assert(sizeof(VoteHead) + kReductionKinds * sizeof(ExactSum) +
                  kCountsPerVote * sizeof(RowCounts) + kLeftOutBytesMax <=
              kVoteBytesMax);
static_assert(sizeof(DecisionHead) + kRatesMax * sizeof(double) +
                  kEntriesPerDecision * sizeof(WireEntry) + kLeftOutBytesMax <=
              kVoteBytesMax);
static_assert(kRatesMax <= 64, "a bit for each group");

class Writer {
 public:
  explicit Writer(std::span<std::byte> out) : out_(out) {}
  template <typename T>
  void put(const T& value) {
    PARALLAX_CHECK(sizeof value <= out_.size() - used_);
    std::memcpy(out_.data() + used_, &value, sizeof value);
    used_ += sizeof value;
  }
  size_t used() const { return used_; }

 private:
  std::span<std::byte> out_;
  size_t used_ = 0;
};

class Reader {
 public:
  explicit Reader(std::span<const std::byte> in) : in_(in) {}
  template <typename T>
  bool take(T* value) {
    if (in_.size() < sizeof *value) return false;
    std::memcpy(value, in_.data(), sizeof *value);
    in_ = in_.subspan(sizeof *value);
    return true;
  }
  bool take_left_out(uint32_t words, TablesLeftOut* left_out) {
    if (words > TablesLeftOut::kWordsMax) return false;
    for (uint64_t& word : left_out->resize(words)) {
      if (!take(&word)) return false;
    }
    return true;
  }
  bool empty() const { return in_.empty(); }

 private:
  std::span<const std::byte> in_;
};

}  // namespace

void Vote::clear() {
  any = disagree = false;
  contributors = found_inf = 0;
  scalars = other = {};
  for (uint32_t kind = 0; kind < kReductionKinds; ++kind) {
    if ((norm_kinds >> kind & 1) != 0) norms[kind] = {};
  }
  norm_kinds = 0;
  dense_variable = kNoVariable;
  left_out.clear();
  pace = {};
  counts_first = counts_size = 0;
}

void Vote::merge(const Vote& from) {
  if (!any) {
    any = true;
    disagree = from.disagree;
    scalars = from.scalars;
    other = from.other;
    dense_variable = from.dense_variable;
    left_out = from.left_out;
    pace = from.pace;
    counts_first = from.counts_first;
    counts_size = from.counts_size;
    std::fill_n(counts.begin(), counts_size, RowCounts());
  } else {
    // One pair that disagrees is enough for the error: it names two ranks and what each said.
    if (!disagree && (from.disagree || !scalars.same_as(from.scalars))) {
      disagree = true;
      other = scalars.same_as(from.scalars) ? from.other : from.scalars;
    }
    dense_variable = std::min(dense_variable, from.dense_variable);
    left_out.keep_those_of(from.left_out);
    pace.merge(from.pace);
  }
  contributors += from.contributors;
  found_inf += from.found_inf;
  for (uint32_t kind = 0; kind < kReductionKinds; ++kind) {
    // Exact, so that the order in which votes come changes no bit.
    if ((from.norm_kinds >> kind & 1) != 0) norms[kind].add(from.norms[kind]);
  }
  norm_kinds |= from.norm_kinds;
  // All ranks count the same variables in a step; a vote that does not is left out.
  if (from.counts_first != counts_first || from.counts_size != counts_size) return;
  for (uint32_t i = 0; i < counts_size; ++i) {
    counts[i].touched += from.counts[i].touched;
    counts[i].union_rows += from.counts[i].union_rows;
    counts[i].pulled += from.counts[i].pulled;
  }
}

void Decision::clear() {
  outcome = Outcome::kDiscard;
  contributors = 0;
  gradient_norm = 0;
  clip_scale = 1;
  group_scales.fill(1);
  left_out.clear();
  first = second = {};
  difference = {};
  late = {};
  settled = false;
  dense_variable = kNoVariable;
  entry_count = 0;
}

size_t encode_vote(const Vote& vote, std::span<std::byte, kVoteBytesMax> out) {
  Writer writer(out);
  writer.put(VoteHead{vote.contributors, vote.found_inf, vote.disagree, vote.norm_kinds,
                      vote.counts_first, vote.counts_size, vote.dense_variable,
                      static_cast<uint32_t>(vote.left_out.words().size()), vote.scalars, vote.other,
                      vote.pace.longest_us, vote.pace.rank, vote.pace.sum_us});
  for (uint32_t kind = 0; kind < kReductionKinds; ++kind) {
    // Those in use alone: an exact sum is large, and most steps have one kind or none.
    if ((vote.norm_kinds >> kind & 1) != 0) writer.put(vote.norms[kind]);
  }
  for (uint32_t i = 0; i < vote.counts_size; ++i) writer.put(vote.counts[i]);
  for (const uint64_t word : vote.left_out.words()) writer.put(word);
  return writer.used();
}

bool decode_vote(std::span<const std::byte> in, uint32_t world, Vote* vote) {
  Reader reader(in);
  VoteHead head;
  // counts_size bounds the reads below; norm_kinds says which sums follow; ranks are named to
  // users.
  if (!reader.take(&head) || head.norm_kinds >> kReductionKinds != 0 ||
      head.counts_size > kCountsPerVote || head.scalars.rank >= world || head.other.rank >= world ||
      head.longest_rank >= world) {
    return false;
  }
  vote->clear();
  vote->any = true;
  vote->contributors = head.contributors;
  vote->found_inf = head.found_inf;
  vote->disagree = head.disagree != 0;
  vote->scalars = head.scalars;
  vote->other = head.other;
  vote->norm_kinds = head.norm_kinds;
  vote->counts_first = head.counts_first;
  vote->counts_size = head.counts_size;
  vote->dense_variable = head.dense_variable;
  vote->pace = {head.longest_us, head.longest_rank, head.sum_us};
  for (uint32_t kind = 0; kind < kReductionKinds; ++kind) {
    if ((head.norm_kinds >> kind & 1) != 0 && !reader.take(&vote->norms[kind])) return false;
  }
  for (uint32_t i = 0; i < head.counts_size; ++i) {
    if (!reader.take(&vote->counts[i])) return false;
  }
  return reader.take_left_out(head.left_out_words, &vote->left_out) && reader.empty();
}

size_t encode_decision(const Decision& decision, std::span<std::byte, kVoteBytesMax> out) {
  Writer writer(out);
  uint64_t clipped = 0;
  for (uint32_t group = 0; group < kRatesMax; ++group) {
    if (decision.group_scales[group] != 1) clipped |= uint64_t{1} << group;
  }
  writer.put(DecisionHead{static_cast<uint32_t>(decision.outcome), decision.contributors,
                          decision.settled, decision.entry_count, decision.dense_variable,
                          static_cast<uint32_t>(decision.left_out.words().size()),
                          decision.gradient_norm, decision.clip_scale, clipped, decision.first,
                          decision.second, decision.difference, decision.late.rank,
                          static_cast<uint32_t>(decision.late.phase), decision.late.late_ms,
                          decision.late.steps});
  for (uint32_t group = 0; group < kRatesMax; ++group) {
    if ((clipped >> group & 1) != 0) writer.put(decision.group_scales[group]);
  }
  for (uint32_t i = 0; i < decision.entry_count; ++i) {
    const PlanEntry& entry = decision.entries[i];
    writer.put(WireEntry{entry.variable, static_cast<uint8_t>(entry.plan.placement),
                         static_cast<uint8_t>(entry.plan.method), 0, entry.touched_rows_per_host,
                         entry.union_rows, entry.pulled_rows_per_host});
  }
  for (const uint64_t word : decision.left_out.words()) writer.put(word);
  return writer.used();
}

bool decode_decision(std::span<const std::byte> in, uint32_t world, Decision* decision) {
  Reader reader(in);
  DecisionHead head;
  // What becomes an enum, a bound or a rank is checked first.
  if (!reader.take(&head) || head.outcome > static_cast<uint32_t>(Outcome::kMismatch) ||
      head.entry_count > kEntriesPerDecision || head.late_phase >= kStepPhases ||
      !names_a_field(head.difference, world) || head.first.rank >= world ||
      head.second.rank >= world || head.late_rank >= world) {
    return false;
  }
  decision->clear();
  decision->outcome = static_cast<Outcome>(head.outcome);
  decision->contributors = head.contributors;
  decision->gradient_norm = head.gradient_norm;
  decision->clip_scale = head.clip_scale;
  decision->first = head.first;
  decision->second = head.second;
  decision->difference = head.difference;
  decision->late = {head.late_rank, static_cast<StepPhase>(head.late_phase), head.late_ms,
                    head.late_steps};
  decision->settled = head.settled != 0;
  decision->dense_variable = head.dense_variable;
  decision->entry_count = head.entry_count;
  for (uint32_t group = 0; group < kRatesMax; ++group) {
    if ((head.clipped_groups >> group & 1) == 0) continue;
    // One that is 1 is not sent.
    double& scale = decision->group_scales[group];
    if (!reader.take(&scale) || scale == 1) return false;
  }
  for (uint32_t i = 0; i < head.entry_count; ++i) {
    WireEntry wire;
    if (!reader.take(&wire) || wire.placement > static_cast<uint8_t>(Placement::kSharded) ||
        wire.method > static_cast<uint8_t>(Method::kPushPull)) {
      return false;
    }
    decision->entries[i] = {
        wire.variable,
        {static_cast<Placement>(wire.placement), static_cast<Method>(wire.method)},
        wire.touched,
        wire.union_rows,
        wire.pulled};
  }
  return reader.take_left_out(head.left_out_words, &decision->left_out) && reader.empty();
}

}  // namespace parallax
