// SPDX-License-Identifier: Apache-2.0
// Summing of rows and dense slices. See accumulator.h.
#include "aggregate/accumulator.h"

#include <algorithm>
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

bool ReorderBuffer::hold(uint32_t source, uint64_t first, uint32_t count,
                         std::span<const std::byte> payload) {
  const size_t bytes = bytes_for_part(payload.size());
  if (bytes > bytes_.size() - used_) return false;
  const uint64_t at = used_;
  used_ += bytes;
  Node& node = *reinterpret_cast<Node*>(bytes_.data() + at);
  node = {first, kEnd, count, static_cast<uint32_t>(payload.size())};
  if (!payload.empty()) {
    // Copied: a message is there only while it is being delivered.
    std::memcpy(bytes_.data() + at + sizeof(Node), payload.data(), payload.size());
  }
  if (heads_[source] == kEnd) {
    heads_[source] = at;
  } else {
    reinterpret_cast<Node*>(bytes_.data() + tails_[source])->next = at;
  }
  tails_[source] = at;
  return true;
}

void AccumulatorSources::lay_out(Arena& arena, std::vector<uint64_t> most, bool ordered) {
  most_ = std::move(most);
  left_ = arena.take<uint64_t>(most_.size());
  ended_ = arena.take<uint8_t>(most_.size());
  ordered_ = ordered;
}

void AccumulatorSources::clear() {
  std::copy(most_.begin(), most_.end(), left_.begin());
  std::fill(ended_.begin(), ended_.end(), uint8_t{0});
  ended_count_ = 0;
  turn_ = 0;
}

bool AccumulatorSources::end(uint32_t source) {
  if (ended_[source] != 0) return false;
  ended_[source] = 1;
  ++ended_count_;
  return true;
}

bool AccumulatorSources::advance() {
  if (!ordered_ || turn_ == ended_.size() || ended_[turn_] == 0) return false;
  return ++turn_ < ended_.size();
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
  sources_.lay_out(arena, std::move(most), options.ordered);
  index_.lay_out(arena, options.rows_max);
  row_keys_ = arena.take<uint32_t>(options.rows_max);
  values_ = arena.take<std::byte>(options.rows_max * row_bytes_);
  // Each message held back is a part of its own, and a message has one row at least: room for the
  // worst case.
  const size_t part_bytes = ReorderBuffer::bytes_for_part(sizeof(uint32_t) + row_bytes_);
  reorder_.lay_out(arena, options.sources, held_rows * part_bytes);
}

void RowAccumulator::clear() {
  sources_.clear();
  index_.clear();
  reorder_.clear();
}

bool RowAccumulator::add(uint32_t source, uint32_t count, std::span<const std::byte> payload) {
  if (payload.size() != count * (sizeof(uint32_t) + row_bytes_) || !sources_.known(source))
    return false;
  if (sources_.ended(source)) return false;
  if (count == 0) return true;
  // On arrival, though it may be held back: see the header.
  if (!sources_.spend(source, count)) return false;
  if (sources_.admits(source)) return sum(count, payload);
  return reorder_.hold(source, 0, count, payload);
}

bool RowAccumulator::sum(uint32_t count, std::span<const std::byte> payload) {
  return with_sum_type(
      options_.sum, [&](auto tag) { return sum_as<typename decltype(tag)::type>(count, payload); });
}

template <typename T>
bool RowAccumulator::sum_as(uint32_t count, std::span<const std::byte> payload) {
  const std::byte* row_keys = payload.data();
  const std::byte* values = row_keys + sizeof(uint32_t) * count;
  const size_t elements = options_.row_elements;
  for (uint32_t i = 0; i < count; ++i) {
    uint32_t row_key;
    // By memcpy: messages promise no alignment.
    std::memcpy(&row_key, row_keys + i * sizeof row_key, sizeof row_key);
    bool inserted;
    const uint32_t slot = index_.find_or_insert(row_key, &inserted);
    // More distinct rows than the ranks registered for.
    if (slot == kNoSlot) return false;
    T* row = reinterpret_cast<T*>(values_.data()) + slot * elements;
    const std::byte* addend = values + i * elements * sizeof(T);
    if (inserted) {
      row_keys_[slot] = row_key;
      start_sum<T>(row, addend, elements);
    } else {
      add_to_sum<T>(row, addend, elements);
    }
  }
  return true;
}

void RowAccumulator::end(uint32_t source) {
  if (!sources_.end(source)) return;
  // The next in turn may have ended long ago, or not yet: what it sent so far is added now, what it
  // sends from now on as it comes.
  while (sources_.advance()) {
    reorder_.drain(sources_.turn(), [this](const ReorderBuffer::Part& part) {
      // Checked when it came: it must fit.
      PARALLAX_CHECK(sum(part.count, part.payload));
    });
  }
}

// ---- dense

void DenseAccumulator::lay_out(Arena& arena, std::span<const Range> ranges,
                               const DenseAccumulatorOptions& options) {
  options_ = options;
  element_bytes_ = bytes_of_sum(options.sum);
  ranges_.assign(ranges.begin(), ranges.end());
  offsets_.clear();
  blocks_.clear();
  uint64_t elements = 0;
  uint64_t blocks = 0;
  for (const Range& range : ranges_) {
    offsets_.push_back(elements);
    blocks_.push_back(blocks);
    // Each range begins a block of its own, so that a block is touched as a whole or not at all.
    const uint64_t range_blocks = (range.count + kBlockElements - 1) / kBlockElements;
    blocks += range_blocks;
    elements += range_blocks * kBlockElements;
  }
  sources_.lay_out(arena, std::vector<uint64_t>(options.sources, blocks), options.ordered);
  values_ = arena.take<std::byte>(elements * element_bytes_);
  touched_ = arena.take<uint8_t>(blocks);
  // Source 0 is never held back.
  const uint64_t held_blocks = options.ordered ? (options.sources - 1) * blocks : 0;
  reorder_.lay_out(arena, options.sources,
                   held_blocks * ReorderBuffer::bytes_for_part(kBlockElements * element_bytes_));
}

void DenseAccumulator::clear() {
  sources_.clear();
  reorder_.clear();
  std::fill(touched_.begin(), touched_.end(), uint8_t{0});
  contributed_ = false;
}

size_t DenseAccumulator::find_range(uint64_t first, uint32_t count) const {
  const auto after =
      std::upper_bound(ranges_.begin(), ranges_.end(), first,
                       [](uint64_t element, const Range& range) { return element < range.first; });
  if (after == ranges_.begin()) return ranges_.size();
  // The last range that begins at or before `first`; a subtraction, so that nothing can wrap.
  const Range& range = *(after - 1);
  const uint64_t offset = first - range.first;
  const bool inside = offset < range.count && count <= range.count - offset;
  // Half a block would leave the other half unwritten behind a flag that says it is there.
  const bool whole_blocks = offset % kBlockElements == 0 &&
                            (count % kBlockElements == 0 || offset + count == range.count);
  return inside && whole_blocks ? static_cast<size_t>(after - 1 - ranges_.begin()) : ranges_.size();
}

bool DenseAccumulator::add(uint32_t source, uint64_t first, uint32_t count,
                           std::span<const std::byte> payload) {
  if (payload.size() != count * element_bytes_ || !sources_.known(source)) return false;
  if (sources_.ended(source)) return false;
  if (count == 0) return true;
  const size_t at = find_range(first, count);
  const uint64_t blocks = (count + kBlockElements - 1) / kBlockElements;
  if (at == ranges_.size() || !sources_.spend(source, blocks)) return false;
  if (!sources_.admits(source)) return reorder_.hold(source, first, count, payload);
  sum(at, first, count, payload);
  return true;
}

void DenseAccumulator::sum(size_t at, uint64_t first, uint32_t count,
                           std::span<const std::byte> payload) {
  contributed_ = true;
  with_sum_type(options_.sum, [&](auto tag) {
    sum_as<typename decltype(tag)::type>(at, first - ranges_[at].first, count, payload.data());
  });
}

template <typename T>
void DenseAccumulator::sum_as(size_t range, uint64_t offset, uint32_t count,
                              const std::byte* addend) {
  T* values = reinterpret_cast<T*>(values_.data()) + offsets_[range] + offset;
  uint8_t* touched = &touched_[blocks_[range] + offset / kBlockElements];
  for (uint64_t done = 0; done < count; done += kBlockElements, ++touched) {
    const size_t elements = std::min<uint64_t>(kBlockElements, count - done);
    // The first addend is written, not added: no pass is needed to clear the sums of a step.
    if (*touched == 0) {
      *touched = 1;
      if (options_.made_dense) {  // as it is: kNoRow must stay, and no sum of rows is -0
        std::memcpy(values + done, addend + done * sizeof(T), elements * sizeof(T));
      } else {
        start_sum<T>(values + done, addend + done * sizeof(T), elements);
      }
    } else {
      add_to_sum<T>(values + done, addend + done * sizeof(T), elements);
    }
  }
}

void DenseAccumulator::end(uint32_t source) {
  if (!sources_.end(source)) return;
  while (sources_.advance()) {
    reorder_.drain(sources_.turn(), [this](const ReorderBuffer::Part& part) {
      sum(find_range(part.first, part.count), part.first, part.count, part.payload);
    });
  }
  // What nobody sent is filled in only now: mostly that is nothing.
  if (!complete() || !contributed_) return;
  for (size_t block = 0; block < touched_.size(); ++block) {
    if (touched_[block] != 0) continue;
    std::byte* values = &values_[block * kBlockElements * element_bytes_];
    if (options_.made_dense) {
      fill_no_row(options_.sum, values, kBlockElements);
    } else {
      std::memset(values, 0, kBlockElements * element_bytes_);
    }
  }
}

}  // namespace parallax
