// SPDX-License-Identifier: Apache-2.0
#include "variable/partition.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <vector>

namespace parallax {
namespace {

const std::vector<uint64_t>& sizes() {
  static const std::vector<uint64_t> all = [] {
    std::vector<uint64_t> some = {1, 2, 3, 5, 7, 11, 13, 97, 101, 1009, 7919, 65537, 793470};
    for (uint64_t power = 4; power <= (1u << 17); power *= 2) {
      some.insert(some.end(), {power - 1, power, power + 1});
    }
    return some;
  }();
  return all;
}

TEST(RowPermutation, IsABijectionWithAnExactInverse) {
  for (const uint64_t size : sizes()) {
    const RowPermutation permutation(size);
    std::vector<bool> taken(size);
    for (uint64_t row = 0; row < size; ++row) {
      const uint64_t row_key = permutation.row_key(row);
      ASSERT_LT(row_key, size);
      ASSERT_FALSE(taken[row_key]) << "size " << size << ", row " << row;
      taken[row_key] = true;
      ASSERT_EQ(permutation.row(row_key), row) << "size " << size;
    }
  }
}

TEST(RowPermutation, InvertsNearTheLargestSize) {
  const RowPermutation permutation(UINT32_MAX);
  for (uint64_t row = UINT32_MAX - 1000; row < UINT32_MAX; ++row) {
    const uint64_t row_key = permutation.row_key(row);
    ASSERT_LT(row_key, UINT32_MAX);
    ASSERT_EQ(permutation.row(row_key), row);
  }
}

// Given the most frequent rows of a vocabulary (the first ones), expect owners to share them.
TEST(RowPermutation, SpreadsNeighbours) {
  constexpr uint32_t kWorld = 8;
  const Partition partition(793470, 64, true, kWorld, 0);
  std::vector<uint32_t> owned(kWorld);
  for (uint64_t row = 0; row < 8000; ++row) ++owned[partition.owner_of(partition.row_key_of(row))];
  EXPECT_GT(*std::min_element(owned.begin(), owned.end()), 800u);
  EXPECT_LT(*std::max_element(owned.begin(), owned.end()), 1200u);
}

TEST(Partition, RowsHaveOneOwnerEachAndOwnersAreBalanced) {
  for (const uint64_t rows : {1u, 2u, 3u, 7u, 64u, 100u, 1009u, 4097u}) {
    for (uint32_t world = 1; world <= 64; ++world) {
      const Partition partition(rows, 3, true, world, 5);
      std::vector<uint64_t> owned(world);
      for (uint64_t row = 0; row < rows; ++row) {
        const uint32_t row_key = partition.row_key_of(row);
        const uint32_t owner = partition.owner_of(row_key);
        ASSERT_LT(owner, world);
        ASSERT_EQ(partition.row_of(row_key), row);
        ASSERT_LT(partition.local_row(row_key), partition.rows_owned(owner));
        ASSERT_EQ(partition.row_key_at(owner, partition.local_row(row_key)), row_key);
        ++owned[owner];
      }
      for (uint32_t owner = 0; owner < world; ++owner) {
        ASSERT_EQ(owned[owner], partition.rows_owned(owner)) << rows << " rows, world " << world;
        ASSERT_LE(owned[owner], (rows + world - 1) / world);
        ASSERT_GE(owned[owner] + 1, (rows + world - 1) / world);
      }
    }
  }
}

std::vector<Range> sorted_ranges(const Partition& partition, uint32_t world) {
  std::vector<Range> ranges;
  for (uint32_t owner = 0; owner < world; ++owner) ranges.push_back(partition.range_of(owner));
  std::sort(ranges.begin(), ranges.end(), [](const Range& a, const Range& b) {
    return a.first < b.first || (a.first == b.first && a.count < b.count);
  });
  return ranges;
}

TEST(Partition, RangesTileTheElements) {
  const std::pair<uint64_t, uint64_t> shapes[] = {{1, 1},   {1, 255}, {1, 256},  {1, 257},
                                                  {7, 100}, {3, 600}, {513, 64}, {100, 1}};
  for (const auto& [rows, width] : shapes) {
    for (uint32_t world = 1; world <= 64; ++world) {
      for (const bool ids : {false, true}) {
        for (uint32_t variable : {0u, 1u, 37u}) {
          const Partition partition(rows, width, ids, world, variable);
          uint64_t at = 0;
          for (const Range& range : sorted_ranges(partition, world)) {
            ASSERT_EQ(range.first, range.count == 0 ? range.first : at);
            ASSERT_EQ(
                range.first % (ids ? width : kBlockElements),
                range.first == rows * width ? rows * width % (ids ? width : kBlockElements) : 0u);
            at += range.count;
          }
          ASSERT_EQ(at, rows * width) << rows << " x " << width << ", world " << world;
        }
      }
    }
  }
}

TEST(Partition, RangesDifferByOneBlockAtMost) {
  for (const uint32_t world : {2u, 3u, 7u, 64u}) {
    const Partition partition(1000, 300, false, world, 3);
    const uint64_t fair = partition.elements() / world;
    for (uint32_t owner = 0; owner < world; ++owner) {
      EXPECT_LE(partition.range_of(owner).count, fair + 2 * kBlockElements);
      EXPECT_GE(partition.range_of(owner).count + 2 * kBlockElements, fair);
    }
  }
}

TEST(Partition, SmallVariablesTakeTurns) {
  constexpr uint32_t kWorld = 5;
  std::vector<uint32_t> owned(kWorld);
  for (uint32_t variable = 0; variable < 50; ++variable) {
    const Partition partition(10, 10, false, kWorld, variable);
    for (uint32_t owner = 0; owner < kWorld; ++owner) {
      owned[owner] += partition.range_of(owner).count > 0 ? 1 : 0;
    }
  }
  for (const uint32_t count : owned) EXPECT_EQ(count, 10u);
}

TEST(Partition, RangeOwnerAgreesWithRanges) {
  for (const uint64_t rows : {1u, 2u, 5u, 63u, 64u, 65u, 1000u}) {
    for (uint32_t world = 1; world <= 70; ++world) {
      const Partition partition(rows, 4, true, world, 0);
      for (uint32_t row_key = 0; row_key < rows; ++row_key) {
        const uint32_t owner = partition.range_owner_of(row_key);
        ASSERT_LT(owner, world);
        const Range range = partition.range_of(owner);
        ASSERT_GE(row_key * 4u, range.first) << rows << " rows, world " << world;
        ASSERT_LE(row_key * 4u + 4, range.end());
      }
    }
  }
}

TEST(Partition, LargestShapesDoNotOverflow) {
  const Partition rows(UINT32_MAX, 1, true, 1000, 0);
  EXPECT_EQ(rows.range_of(999).end(), UINT32_MAX);
  EXPECT_EQ(rows.range_owner_of(UINT32_MAX - 1), 999u);
  uint64_t owned = 0;
  for (uint32_t owner = 0; owner < 1000; ++owner) owned += rows.rows_owned(owner);
  EXPECT_EQ(owned, UINT32_MAX);
  const Partition dense(1 << 26, 1 << 20, false, 1000, 999);
  uint64_t elements = 0;
  for (uint32_t owner = 0; owner < 1000; ++owner) elements += dense.range_of(owner).count;
  EXPECT_EQ(elements, uint64_t{1} << 46);
}

}  // namespace
}  // namespace parallax
