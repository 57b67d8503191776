// SPDX-License-Identifier: Apache-2.0
// What is said on boards, and summed of it. See board_exchange.h.
#include "collectives/board_exchange.h"

#include "aggregate/row_kernels.h"
#include "base/check.h"

namespace parallax {

namespace {

// The sum of at least one addend in their order, in no addend's memory.
template <typename Sum>
void sum_in_order(std::span<const std::byte* const> addends, uint64_t elements, Sum* sum) {
  if (addends.size() == 1) return start_sum<Sum, Sum>(sum, addends[0], elements);
  start_sum_of_two(sum, addends[0], addends[1], elements);
  for (const std::byte* next : addends.subspan(2)) add_to_sum<Sum, Sum>(sum, next, elements);
}

}  // namespace

BoardExchange::BoardExchange(const Columns& columns, const Partition& partition, Entries& entries,
                             const EntryPlace& place, const ExchangeOptions& options)
    : rank_(columns.rank()),
      world_(columns.world()),
      elements_(partition.elements()),
      row_elements_(partition.row_elements()),
      dtype_(dtype_of(options.sum)),
      element_bytes_(bytes_of_sum(options.sum)),
      sum_(options.sum),
      entries_(entries),
      place_(place) {
  PARALLAX_CHECK(place.exists() && world_ <= kEntryRanksMax);
}

// ---- memory

// For results that nobody has a place for, in the sum's type.
void BoardExchange::lay_out(Arena& arena) {
  for (StepBuffer& buffer : step_buffers_) {
    buffer.own_result = arena.take<std::byte>(elements_ * element_bytes_);
  }
}

size_t BoardExchange::needed_bytes() {
  Arena measure;
  lay_out(measure);
  return measure.used_bytes();
}

Status BoardExchange::reserve() {
  PARALLAX_RETURN_IF_ERROR(arena_.reserve(needed_bytes()));
  lay_out(arena_);
  return {};
}

void BoardExchange::open(uint64_t step) {
  StepBuffer& buffer = step_buffer(step);
  buffer.step = step;
  buffer.ended = buffer.contributed = buffer.delivered = false;
  buffer.next = buffer.addends = 0;
  buffer.result = buffer.own_result.data();
}

// ---- this rank

void BoardExchange::contribute(uint64_t step, const Contribution& slice, uint32_t*) {
  StepBuffer& buffer = step_buffer(step);
  buffer.ended = buffer.contributed = true;
  const RowValues& own = slice.elements;
  convert_or_copy(converter(own.dtype, dtype_), own.rows, entries_.own(place_, step), elements_,
                  element_bytes_);
  entries_.publish(place_, step, EntryKind::kValues);
  if (slice.result.values != nullptr && slice.result.dtype == dtype_) {
    buffer.result = slice.result.values;
  }
  read(buffer);
  if (buffer.delivered || awaits_) return;
  awaits_ = true;
  entries_.await(this);
}

void BoardExchange::end(uint32_t from, uint64_t step) {
  StepBuffer& buffer = step_buffer(step);
  if (from != rank_ || buffer.ended) return;
  // Who gives nothing gets nothing back.
  buffer.ended = buffer.delivered = true;
  entries_.publish(place_, step, EntryKind::kNothing);
}

// ---- the others

EntryReader::News BoardExchange::read_entries() {
  News news;
  for (StepBuffer& buffer : step_buffers_) {
    if (!buffer.contributed || buffer.delivered) continue;
    news.moved |= read(buffer);
    news.awaits |= !buffer.delivered;
  }
  awaits_ = news.awaits;
  return news;
}

// Goes on in the order of ranks as far as they have said what they give. True: that was all.
bool BoardExchange::read(StepBuffer& buffer) {
  for (; buffer.next < world_; ++buffer.next) {
    // Its own it knows.
    const EntryKind kind =
        buffer.next == rank_ ? EntryKind::kValues : entries_.kind(buffer.next, place_, buffer.step);
    if (kind == EntryKind::kNone) return false;
    if (kind == EntryKind::kNothing) continue;
    buffer.from[buffer.addends++] = entries_.of(buffer.next, place_, buffer.step);
  }
  const auto addends = std::span<const std::byte* const>(buffer.from).first(buffer.addends);
  with_sum_type(sum_, [&](auto tag) {
    using Sum = typename decltype(tag)::type;
    sum_in_order(addends, elements_, reinterpret_cast<Sum*>(buffer.result));
  });
  buffer.delivered = true;
  return true;
}

// ---- results

MissingRanks BoardExchange::missing(uint64_t step) const {
  const StepBuffer& buffer = step_buffer(step);
  MissingRanks missing;
  if (buffer.delivered) return missing;
  for (uint32_t rank = buffer.next; rank < world_; ++rank) {
    const bool said = entries_.kind(rank, place_, step) != EntryKind::kNone;
    if (!said && rank != rank_) missing.to_give.push_back(rank);
  }
  return missing;
}

ReducedGradient BoardExchange::whole(uint64_t step) const {
  const StepBuffer& buffer = step_buffer(step);
  ReducedGradient all;
  all.sum = sum_;
  all.row_elements = row_elements_;
  all.contributed = all.has_values = buffer.contributed;
  all.contributors = buffer.addends;
  all.values = buffer.result;
  all.count = elements_;
  return all;
}

}  // namespace parallax
