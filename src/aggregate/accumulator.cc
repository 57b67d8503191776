// SPDX-License-Identifier: Apache-2.0
// Summing of rows. See accumulator.h.
#include "aggregate/accumulator.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "aggregate/row_kernels.h"
#include "base/check.h"

namespace parallax {

void fill_no_row(SumType sum, std::byte* values, size_t count) {
  with_sum_type(sum, [&](auto tag) {
    using T = typename decltype(tag)::type;
    std::fill_n(reinterpret_cast<T*>(values), count, kNoRowOf<T>);
  });
}

void ReorderBuffer::lay_out(Arena& arena, uint32_t sources, size_t bytes_max) {
  bytes_ = arena.take<std::byte>(bytes_max);
  heads_ = arena.take<uint64_t>(sources);
  tails_ = arena.take<uint64_t>(sources);
}

void ReorderBuffer::clear() {
  used_ = 0;
  std::fill(heads_.begin(), heads_.end(), kEnd);
  std::fill(tails_.begin(), tails_.end(), kEnd);
}

bool ReorderBuffer::hold(uint32_t source, uint32_t count, std::span<const std::byte> payload,
                         std::span<const std::byte> rest) {
  const size_t payload_bytes = payload.size() + rest.size();
  const size_t bytes = bytes_for_part(payload_bytes);
  if (bytes > bytes_.size() - used_) return false;
  const uint64_t at = used_;
  used_ += bytes;
  Node& node = *reinterpret_cast<Node*>(bytes_.data() + at);
  node = {kEnd, count, static_cast<uint32_t>(payload_bytes)};
  // Copied: a message is there only while it is being delivered.
  std::byte* const held = bytes_.data() + at + sizeof(Node);
  std::copy(rest.begin(), rest.end(), std::copy(payload.begin(), payload.end(), held));
  if (heads_[source] == kEnd) {
    heads_[source] = at;
  } else {
    reinterpret_cast<Node*>(bytes_.data() + tails_[source])->next = at;
  }
  tails_[source] = at;
  return true;
}

void AccumulatorSources::lay_out(Arena& arena, std::span<const uint64_t> most, bool ordered) {
  ordered_ = ordered;
  sources_ = arena.take<Source>(most.size());
  if (sources_.data() == nullptr) return;  // measuring
  for (size_t i = 0; i < most.size(); ++i) sources_[i].most = most[i];
}

void AccumulatorSources::clear() {
  for (Source& each : sources_) {
    each.left = each.most;
    each.ended = false;
  }
  ended_count_ = 0;
  turn_ = 0;
}

bool AccumulatorSources::end(uint32_t source) {
  if (sources_[source].ended) return false;
  sources_[source].ended = true;
  ++ended_count_;
  return true;
}

bool AccumulatorSources::advance() {
  if (!ordered_ || turn_ == sources_.size() || !sources_[turn_].ended) return false;
  return ++turn_ < sources_.size();
}

// ---- rows

void RowAccumulator::lay_out(Arena& arena, const RowAccumulatorOptions& options) {
  options_ = options;
  row_bytes_ = size_t{bytes_of_sum(options.sum)} * options.row_elements;
  std::vector<uint64_t> most = options.rows_max_of;
  if (most.empty()) most.assign(options.sources, options.source_rows_max);
  PARALLAX_CHECK(most.size() == options.sources);
  // All but the first may be held back.
  const uint64_t held_rows =
      options.ordered ? std::accumulate(most.begin() + 1, most.end(), uint64_t{0}) : 0;
  sources_.lay_out(arena, most, options.ordered);
  index_.lay_out(arena, options.rows_max);
  row_keys_ = arena.take<uint32_t>(options.rows_max);
  values_ = arena.take<std::byte>(options.rows_max * row_bytes_);
  if (options.rows_stay) places_ = arena.take<const std::byte*>(options.rows_max);
  // Each message held back is a part of its own, and a message has one row at least: room for the
  // worst case.
  const size_t part_bytes = ReorderBuffer::bytes_for_part(sizeof(uint32_t) + row_bytes_);
  reorder_.lay_out(arena, options.sources, held_rows * part_bytes);
}

void RowAccumulator::clear() {
  sources_.clear();
  likely_rows_ = room_for(count_);
  index_.clear_for(likely_rows_);
  indexed_ = Indexed::kHere;
  joined_max_ = 0;
  count_ = 0;
  reorder_.clear();
  rows_here_ = 0;
}

bool RowAccumulator::add(uint32_t source, uint32_t count, std::span<const std::byte> row_keys,
                         std::span<const std::byte> values) {
  if (row_keys.size() != sizeof(uint32_t) * count || values.size() != row_bytes_ * count ||
      !sources_.known(source)) {
    return false;
  }
  if (sources_.ended(source)) return false;
  if (count == 0) return true;
  // On arrival, though it may be held back: see the header.
  if (!sources_.spend(source, count)) return false;
  if (sources_.admits(source)) return sum(count, row_keys.data(), values.data());
  return reorder_.hold(source, count, row_keys, values);
}

bool RowAccumulator::sum(uint32_t count, const std::byte* row_keys, const std::byte* values) {
  std::array<uint32_t, kRowsTogether> keys = {};
  std::array<const std::byte*, kRowsTogether> rows = {};
  RowIndex* index =
      indexed_ == Indexed::kHere ? &index_ : &index_for(std::max(likely_rows_, room_for(count_)));
  return with_sum_type(options_.sum, [&](auto tag) {
    using T = typename decltype(tag)::type;
    for (uint32_t first = 0; first < count; first += kRowsTogether) {
      const uint32_t together = std::min(count - first, kRowsTogether);
      // By memcpy: messages promise no alignment.
      std::memcpy(keys.data(), row_keys + first * sizeof(uint32_t), together * sizeof(uint32_t));
      for (uint32_t i = 0; i < together; ++i, values += row_bytes_) rows[i] = values;
      if (!sum_some<T>(&index, std::span(keys).first(together), rows.data(), false)) return false;
    }
    return true;
  });
}

bool RowAccumulator::join(std::span<const uint32_t> row_keys, const std::byte* const* rows) {
  RowIndex* index = &index_for(std::min(joined_max_, options_.rows_max));
  return with_sum_type(options_.sum, [&](auto tag) {
    return sum_some<typename decltype(tag)::type>(&index, row_keys, rows, options_.rows_stay);
  });
}

void RowAccumulator::join_distinct(std::span<const uint32_t> row_keys,
                                   const std::byte* const* rows) {
  PARALLAX_CHECK(options_.rows_stay && (count_ == 0 || indexed_ == Indexed::kNowhere) &&
                 row_keys.size() <= options_.rows_max - count_);
  std::copy(row_keys.begin(), row_keys.end(), row_keys_.begin() + count_);
  std::copy_n(rows, row_keys.size(), places_.begin() + count_);
  count_ += static_cast<uint32_t>(row_keys.size());
  indexed_ = Indexed::kNowhere;
}

void RowAccumulator::join_rows_of(uint32_t source, const RowAccumulator& other,
                                  std::span<const uint32_t> row_keys,
                                  std::span<const uint32_t> slots) {
  std::array<const std::byte*, kRowsTogether> rows;
  PARALLAX_CHECK(spend(source, static_cast<uint32_t>(slots.size())));
  const bool first_source = count_ == 0 || indexed_ == Indexed::kNowhere;
  for (size_t first = 0; first < slots.size(); first += kRowsTogether) {
    const size_t together = std::min<size_t>(slots.size() - first, kRowsTogether);
    for (size_t i = 0; i < together; ++i) rows[i] = other.row(slots[first + i]);
    const std::span<const uint32_t> some = row_keys.subspan(first, together);
    if (first_source) {
      join_distinct(some, rows.data());
    } else {
      PARALLAX_CHECK(join(some, rows.data()));
    }
  }
}

// Of an index: steps are much alike, and what they use of it is to stay in the cache.
uint64_t RowAccumulator::room_for(uint64_t rows) const {
  constexpr uint64_t kRowsMin = 64;
  return std::min(options_.rows_max, kRowsMin + rows + rows / 4);
}

// The one that the rows are in; where they are in none, one that is to have so many. Rows that come
// through here are many at a time, and most often no others come in between. Who has lost the
// scratch goes on with an index of its own, lest two take it from each other in every turn.
RowIndex& RowAccumulator::index_for(uint64_t rows) {
  if (indexed_ == Indexed::kInScratch) {
    RowIndex* const index = options_.scratch->of(this);
    return index != nullptr ? *index : own_index();
  }
  if (options_.scratch == nullptr || index_.size() > 0) return own_index();
  RowIndex* const index = options_.scratch->begin(this, rows);
  if (index == nullptr) return own_index();
  insert_all(*index);
  indexed_ = Indexed::kInScratch;
  return *index;
}

RowIndex& RowAccumulator::own_index() {
  if (indexed_ != Indexed::kHere) {
    if (count_ > index_.slots_max()) index_.clear_for(room_for(count_));
    insert_all(index_);
  }
  indexed_ = Indexed::kHere;
  return index_;
}

// For so many rows; as many as there may be have room. Rows that are there stay.
RowIndex& RowAccumulator::larger(RowIndex& index, uint64_t rows) {
  const uint64_t room = std::min(options_.rows_max, 2 * rows);
  if (indexed_ == Indexed::kHere || options_.scratch->begin(this, room) == nullptr) {
    index_.clear_for(room);
    indexed_ = Indexed::kHere;
  }
  RowIndex& used = indexed_ == Indexed::kHere ? index_ : index;
  insert_all(used);
  return used;
}

// The rows that are there, into an index that is empty.
void RowAccumulator::insert_all(RowIndex& index) {
  std::array<uint32_t, kRowsTogether> slots;
  for (uint32_t first = 0; first < count_; first += kRowsTogether) {
    const uint32_t together = std::min(count_ - first, kRowsTogether);
    for (uint32_t i = 0; i < together; ++i) index.prefetch(row_keys_[first + i]);
    PARALLAX_CHECK(index.find_or_insert_each(&row_keys_[first], together, slots.data()));
  }
  PARALLAX_CHECK(index.size() == count_);  // they are distinct
}

template <typename T>
bool RowAccumulator::sum_some(RowIndex** index, std::span<const uint32_t> row_keys,
                              const std::byte* const* rows, bool stay) {
  const auto count = static_cast<uint32_t>(row_keys.size());
  const uint64_t room = (*index)->slots_max();
  if (count > room - (*index)->size() && room < options_.rows_max) {
    *index = &larger(**index, uint64_t{count_} + count);
  }
  // What is small of the scratch is near: it was used just now.
  if (*index == &index_ || (*index)->is_far()) {
    for (const uint32_t row_key : row_keys) (*index)->prefetch(row_key);
  }
  std::array<uint32_t, kRowsTogether> slots;
  // More distinct rows than the ranks registered for.
  if (!(*index)->find_or_insert_each(row_keys.data(), count, slots.data())) return false;
  add_rows<T>(row_keys, slots.data(), rows, stay);
  return true;
}

template <typename T>
void RowAccumulator::add_rows(std::span<const uint32_t> row_keys, const uint32_t* slots,
                              const std::byte* const* rows, bool stay) {
  if (stay) return add_staying_rows<T>(row_keys, slots, rows);
  const size_t elements = options_.row_elements;
  for (size_t i = 0; i < row_keys.size(); ++i) {
    const uint32_t slot = slots[i];
    if (slot == count_) {
      ++count_;
      row_keys_[slot] = row_keys[i];
      start_sum<T>(new_row<T>(slot), rows[i], elements);
    } else if (options_.rows_stay && !is_here(places_[slot])) {
      const std::byte* const first = places_[slot];
      start_sum_of_two(new_row<T>(slot), first, rows[i], elements);
    } else {
      add_to_sum<T>(reinterpret_cast<T*>(const_cast<std::byte*>(row(slot))), rows[i], elements);
    }
  }
}

// Those that came before are listed, and added behind.
template <typename T>
void RowAccumulator::add_staying_rows(std::span<const uint32_t> row_keys, const uint32_t* slots,
                                      const std::byte* const* rows) {
  std::array<T*, kRowsTogether> to;
  std::array<const std::byte*, kRowsTogether> first, second;
  const size_t elements = options_.row_elements;
  uint32_t listed = 0;
  for (size_t i = 0; i < row_keys.size(); ++i) {
    const uint32_t slot = slots[i];
    if (slot == count_) {
      ++count_;
      row_keys_[slot] = row_keys[i];
      places_[slot] = rows[i];
      continue;
    }
    const std::byte* const before = places_[slot];
    first[listed] = before;
    to[listed] =
        is_here(before) ? reinterpret_cast<T*>(const_cast<std::byte*>(before)) : new_row<T>(slot);
    second[listed++] = rows[i];
  }
  if constexpr (std::is_same_v<T, float>) {
    const bool narrow = with_narrow_width(elements, [&](auto width) {
      add_row_pairs<width>(to.data(), first.data(), second.data(), listed);
    });
    if (narrow) return;
  }
  for (uint32_t i = 0; i < listed; ++i) {
    if (first[i] == reinterpret_cast<const std::byte*>(to[i])) {
      add_to_sum<T>(to[i], second[i], elements);
    } else {
      start_sum_of_two(to[i], first[i], second[i], elements);
    }
  }
}

template <typename T>
T* RowAccumulator::new_row(uint32_t slot) {
  const uint32_t at = options_.rows_stay ? rows_here_++ : slot;
  std::byte* const row = &values_[at * row_bytes_];
  if (options_.rows_stay) places_[slot] = row;
  return reinterpret_cast<T*>(row);
}

void RowAccumulator::end(uint32_t source) {
  if (!sources_.end(source)) return;
  // The next in turn may have ended long ago, or not yet: what it sent so far is added now, what it
  // sends from now on as it comes.
  while (sources_.advance()) {
    reorder_.drain(sources_.turn(), [this](const ReorderBuffer::Part& part) {
      // Checked when it came: it must fit.
      const std::byte* const row_keys = part.payload.data();
      PARALLAX_CHECK(sum(part.count, row_keys, row_keys + sizeof(uint32_t) * part.count));
    });
  }
}

}  // namespace parallax
