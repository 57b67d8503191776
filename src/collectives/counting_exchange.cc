// SPDX-License-Identifier: Apache-2.0
// Who gave: up the tree and down. See counting_exchange.h.
#include "collectives/counting_exchange.h"

#include <algorithm>
#include <utility>

namespace parallax {

CountingExchange::CountingExchange(const Columns& columns, Outbox& outbox, uint32_t variable,
                                   std::unique_ptr<Exchange> carrier)
    : columns_(columns),
      outbox_(outbox),
      variable_(variable),
      carrier_(std::move(carrier)),
      parent_(tree_parent(columns.map(), 0, columns.rank())),
      children_(tree_children(columns.map(), 0, columns.rank())) {
  for (Round& each : rounds_) each.arrived.resize(children_.size());
}

void CountingExchange::open(uint64_t step) {
  Round& opened = round(step);
  opened.count = opened.reported = 0;
  opened.joined = opened.passed_on = opened.answered = false;
  std::fill(opened.arrived.begin(), opened.arrived.end(), uint8_t{0});
  carrier_->open(step);
}

// ---- this rank

void CountingExchange::contribute(uint64_t step, const Contribution& slice, uint32_t* pending) {
  join(step, true);
  carrier_->contribute(step, slice, pending);
}

void CountingExchange::end(uint32_t from, uint64_t step) {
  if (from == columns_.rank() && !round(step).joined) join(step, false);
  carrier_->end(from, step);
}

void CountingExchange::join(uint64_t step, bool gave) {
  round(step).joined = true;
  round(step).count += gave ? 1 : 0;
  pass_on_if_complete(step);
}

// ---- the others

bool CountingExchange::on_section(uint32_t from, const Section& section) {
  const SectionHeader& header = section.header;
  const bool up = header.kind == SectionKind::kContributorsUp;
  if (!up && header.kind != SectionKind::kContributorsDown) {
    return carrier_->on_section(from, section);
  }
  const bool bare = header.encoding == Encoding::kBytes && header.count == 0;
  if (!bare || !section.payload.empty() || header.first > columns_.world()) return false;
  return up ? on_report(from, header) : on_answer(from, header);
}

bool CountingExchange::on_report(uint32_t from, const SectionHeader& header) {
  const auto found = std::find(children_.begin(), children_.end(), from);
  if (found == children_.end()) return false;
  Round& reported = round(header.step);
  uint8_t& arrived = reported.arrived[static_cast<size_t>(found - children_.begin())];
  if (arrived != 0) return false;
  arrived = 1;
  ++reported.reported;
  reported.count += static_cast<uint32_t>(header.first);
  pass_on_if_complete(header.step);
  return true;
}

bool CountingExchange::on_answer(uint32_t from, const SectionHeader& header) {
  const Round& asked = round(header.step);
  // All contain those below this rank.
  if (from != parent_ || !asked.passed_on || asked.answered || header.first < asked.count) {
    return false;
  }
  answer(header.step, static_cast<uint32_t>(header.first));
  return true;
}

void CountingExchange::pass_on_if_complete(uint64_t step) {
  Round& passing = round(step);
  if (!passing.joined || passing.reported < children_.size()) return;
  passing.passed_on = true;
  if (parent_ == kNoRank) return answer(step, passing.count);
  tell(parent_, SectionKind::kContributorsUp, step, passing.count);
}

void CountingExchange::answer(uint64_t step, uint32_t count) {
  round(step).answered = true;
  round(step).count = count;
  for (const uint32_t child : children_) tell(child, SectionKind::kContributorsDown, step, count);
}

void CountingExchange::tell(uint32_t to, SectionKind kind, uint64_t step, uint32_t count) {
  outbox_.send_bytes(to, {.kind = kind, .tag = variable_, .step = step, .first = count}, {});
}

// ---- what is asked of it

ExchangeState CountingExchange::state(uint64_t step) const {
  ExchangeState state = carrier_->state(step);
  state.delivered &= round(step).answered;
  return state;
}

MissingRanks CountingExchange::missing(uint64_t step) const {
  MissingRanks missing = carrier_->missing(step);
  const Round& under_way = round(step);
  if (!missing.empty() || under_way.answered) return missing;
  for (size_t i = 0; i < children_.size(); ++i) {
    if (under_way.arrived[i] == 0) missing.to_tell.push_back(children_[i]);
  }
  if (under_way.passed_on) missing.to_tell.push_back(parent_);
  std::sort(missing.to_tell.begin(), missing.to_tell.end());
  return missing;
}

ReducedGradient CountingExchange::whole(uint64_t step) const {
  ReducedGradient whole = carrier_->whole(step);
  whole.contributors = round(step).count;
  return whole;
}

}  // namespace parallax
