// SPDX-License-Identifier: Apache-2.0
// Coalescers with their memory, and slices for them.
#ifndef PARALLAX_TESTS_UNIT_AGGREGATE_COALESCING_H_
#define PARALLAX_TESTS_UNIT_AGGREGATE_COALESCING_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

#include "aggregate/coalesced_ids.h"
#include "aggregate/row_coalescer.h"
#include "aggregate/row_scratch.h"
#include "base/arena.h"
#include "base/seeded_random.h"

namespace parallax::testkit {

inline constexpr uint32_t kGroups = 3;

// Those that have kernels of their own, and others.
inline uint32_t draw_width(SeededRandom& random) {
  constexpr uint32_t kNarrow[] = {8, 16, 32, 64};
  return random.chance(30) ? kNarrow[random.below(4)] : static_cast<uint32_t>(1 + random.below(5));
}

inline uint32_t group_of(uint32_t row_key) { return row_key * 7 % kGroups; }

// Of so many rows at most, some of them padding.
inline std::vector<int64_t> draw_ids(SeededRandom& random, uint64_t rows_max, uint64_t rows) {
  std::vector<int64_t> ids(random.below(rows_max + 1));
  for (int64_t& id : ids) {
    id = random.chance(10) ? kPaddingId : static_cast<int64_t>(random.below(rows));
  }
  return ids;
}

// Or no scratch.
inline RowScratch* lend(SeededRandom& random, RowScratch* scratch) {
  return random.chance(50) ? scratch : nullptr;
}

// A coalescer and the block that it writes, with a mark behind the last byte that it may touch.
template <typename Sum = float>
struct Coalescing {
  Coalescing(const Partition& partition, uint64_t rows_max, RowCoalescerOptions options)
      : width(options.row_elements + (options.counted ? 1 : 0)) {
    options.rows_max = rows_max;
    options.groups = kGroups;
    options.sum = std::is_same_v<Sum, double> ? SumType::kF64 : SumType::kF32;
    Arena measure;
    coalescer.lay_out(measure, options);
    EXPECT_TRUE(arena.reserve(measure.used_bytes()).ok());
    coalescer.lay_out(arena, options);
    if (options.scratch != nullptr) {
      EXPECT_TRUE(options.scratch->reserve(rows_max).ok());
    }
    bytes = RowCoalescer::block_bytes(RowCoalescer::distinct_max(rows_max, partition),
                                      width * sizeof(Sum));
    EXPECT_TRUE(block_arena.reserve(Arena::bytes_for<std::byte>(bytes + 1)).ok());
    block = block_arena.take<std::byte>(bytes + 1);
    std::fill(block.begin(), block.end(), std::byte{0xff});  // not a number
    block[bytes] = std::byte{0x5a};
  }
  const Sum* row(uint32_t item) const {
    return reinterpret_cast<const Sum*>(block.data()) + coalescer.order()[item] * width;
  }

  const size_t width;
  Arena arena, block_arena;
  RowCoalescer coalescer;
  size_t bytes = 0;
  std::span<std::byte> block;
};

struct OfIdsAlone {
  explicit OfIdsAlone(uint64_t rows_max, RowScratch* scratch = nullptr) {
    if (scratch != nullptr) {
      EXPECT_TRUE(scratch->reserve(rows_max).ok());
    }
    Arena measure;
    coalescer.lay_out(measure, rows_max, kGroups, scratch);
    EXPECT_TRUE(arena.reserve(measure.used_bytes()).ok());
    coalescer.lay_out(arena, rows_max, kGroups, scratch);
  }
  Arena arena;
  CoalescedIds coalescer;
};

template <typename T>
RowSlice slice_of(const std::vector<int64_t>& ids, const std::vector<T>& values,
                  uint32_t dtype = PARALLAX_F32) {
  return {.ids = {.wide = ids.data()},
          .count = static_cast<uint32_t>(ids.size()),
          .values = {.rows = reinterpret_cast<const std::byte*>(values.data()), .dtype = dtype}};
}
inline RowSlice narrow_slice_of(const std::vector<int32_t>& ids, const std::vector<float>& values) {
  return {.ids = {.narrow = ids.data()},
          .count = static_cast<uint32_t>(ids.size()),
          .values = {.rows = reinterpret_cast<const std::byte*>(values.data())}};
}

}  // namespace parallax::testkit

#endif  // PARALLAX_TESTS_UNIT_AGGREGATE_COALESCING_H_
