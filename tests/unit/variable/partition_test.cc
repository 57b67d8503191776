// SPDX-License-Identifier: Apache-2.0
#include "variable/partition.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <vector>

#include "support/slot_maps.h"

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

// Given some rows at once, of any size and with every set of vector instructions that there is,
// expect the row keys that each has by itself.
TEST(RowPermutation, SomeAtOnceAreAsEachByItself) {
  const VectorLevel before = vector_level();
  for (const VectorLevel level : vector_levels()) {
    set_vector_level(level);
    for (const uint64_t size : sizes()) {
      for (const uint64_t of : {size, uint64_t{UINT32_MAX} - size}) {
        const RowPermutation permutation(of);
        for (const size_t count : {0u, 1u, 31u, 32u, 33u, 100u}) {
          std::vector<uint32_t> rows(count), row_keys(count + 1, 77);
          for (uint64_t i = 0; i < count; ++i) {
            rows[i] = static_cast<uint32_t>(i % 2 == 0 ? i % of : of - 1 - i % of);
          }
          permutation.row_keys(rows.data(), count, row_keys.data());
          for (size_t i = 0; i < count; ++i) {
            ASSERT_EQ(row_keys[i], permutation.row_key(rows[i])) << "size " << of;
          }
          ASSERT_EQ(row_keys[count], 77u) << "behind the last one";
          permutation.row_keys(rows.data(), count, rows.data());
          ASSERT_TRUE(std::equal(rows.begin(), rows.end(), row_keys.begin())) << "in place";
        }
      }
    }
  }
  set_vector_level(before);
}

// Given the most frequent rows of a vocabulary (the first ones), expect owners to share them.
TEST(RowPermutation, SpreadsNeighbours) {
  constexpr uint32_t kWorld = 8;
  const Partition partition(793470, 64, true, SlotMap::of_ranks(kWorld, kSlotsPerOwner), 0);
  std::vector<uint32_t> owned(kWorld);
  for (uint64_t row = 0; row < 8000; ++row) ++owned[partition.owner_of(partition.row_key_of(row))];
  EXPECT_GT(*std::min_element(owned.begin(), owned.end()), 800u);
  EXPECT_LT(*std::max_element(owned.begin(), owned.end()), 1200u);
}

TEST(Partition, RowsHaveOneOwnerEachAndOwnersAreBalanced) {
  for (const uint64_t rows : {1u, 2u, 3u, 7u, 64u, 100u, 1009u, 4097u}) {
    for (uint32_t world = 1; world <= 64; ++world) {
      const Partition partition(rows, 3, true, SlotMap::of_ranks(world, kSlotsPerOwner), 5);
      std::vector<uint64_t> owned(world);
      for (uint64_t row = 0; row < rows; ++row) {
        const uint32_t row_key = partition.row_key_of(row);
        const uint32_t owner = partition.owner_of(row_key);
        ASSERT_LT(owner, world);
        ASSERT_EQ(partition.row_of(row_key), row);
        ASSERT_EQ(partition.home_of(row_key).owner, owner);
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

// ---- slots

// Every row key has one owner, and is one of its local rows, which have no gaps.
void expect_bijection(const Partition& partition, uint32_t world) {
  const uint64_t rows = partition.rows();
  std::vector<std::vector<uint8_t>> taken;
  uint64_t owned = 0;
  for (uint32_t owner = 0; owner < world; ++owner) {
    taken.emplace_back(partition.rows_owned(owner));
    owned += partition.rows_owned(owner);
  }
  ASSERT_EQ(owned, rows);
  for (uint32_t row_key = 0; row_key < rows; ++row_key) {
    const uint32_t owner = partition.owner_of(row_key);
    const uint64_t local_row = partition.local_row(row_key);
    ASSERT_LT(owner, world);
    ASSERT_LT(local_row, partition.rows_owned(owner));
    ASSERT_EQ(partition.row_key_at(owner, local_row), row_key);
    ASSERT_EQ(taken[owner][local_row]++, 0) << "two rows in one place";
  }
}

TEST(PartitionSlots, EveryRowKeyHasOneOwnerAndOnePlace) {
  for (uint32_t world = 1; world <= 64; ++world) {
    for (uint64_t seed = 1; seed <= 6; ++seed) {
      const SlotMap slots = testkit::uneven_slots(world, seed);
      for (const uint64_t rows :
           {uint64_t{1}, uint64_t{slots.slots()}, uint64_t{5 + 3 * world}, uint64_t{777}}) {
        SCOPED_TRACE(std::to_string(rows) + " rows, world " + std::to_string(world) + ", seed " +
                     std::to_string(seed));
        ASSERT_NO_FATAL_FAILURE(expect_bijection(Partition(rows, 3, true, slots, 2), world));
        for (const uint32_t spread : {1u, 2u, 3u}) {
          ASSERT_NO_FATAL_FAILURE(
              expect_bijection(Partition(rows, 3, true, slots, 2, spread), world));
        }
      }
    }
  }
}

// Given some row keys at once, in place or not, expect what is said of the owner of each.
TEST(PartitionSlots, OwnersOfSomeAtOnceAreAsOfEach) {
  const VectorLevel before = vector_level();
  for (const VectorLevel level : vector_levels()) {
    set_vector_level(level);
    for (const uint32_t world : {1u, 2u, 3u, 7u, 64u}) {
      for (const uint32_t each : {1u, 3u, kSlotsPerOwner}) {
        const SlotMap slots = SlotMap::of_ranks(world, each).with_owner(0, world - 1);
        const Partition partition(1009, 3, true, slots, 5);
        std::vector<uint32_t> row_keys(1009), of_owner(world), numbers(1009);
        std::iota(row_keys.begin(), row_keys.end(), 0u);
        std::iota(of_owner.rbegin(), of_owner.rend(), 100u);
        const auto number_of = [&](uint32_t owner) { return of_owner[owner]; };
        for (const size_t count : {0u, 1u, 15u, 16u, 17u, 31u, 32u, 33u, 48u, 49u, 1009u}) {
          std::vector<uint32_t> in_place = row_keys;
          partition.look_up_owners(row_keys.data(), count, number_of, numbers.data());
          partition.look_up_owners(in_place.data(), count, number_of, in_place.data());
          for (uint32_t row_key = 0; row_key < count; ++row_key) {
            ASSERT_EQ(numbers[row_key], of_owner[partition.owner_of(row_key)]);
            ASSERT_EQ(in_place[row_key], numbers[row_key]);
          }
          for (size_t behind = count; behind < 1009; ++behind) ASSERT_EQ(in_place[behind], behind);
          partition.turns_of(row_keys.data(), count, numbers.data());
          for (uint32_t row_key = 0; row_key < count; ++row_key) {
            ASSERT_EQ(numbers[row_key], partition.turn_of(row_key).turn);
          }
        }
      }
    }
  }
  set_vector_level(before);
}

// Given slots that every rank owns alike, however many, expect rows where they would lie without
// slots: row key k at rank k % world, there the (k / world)-th.
TEST(PartitionSlots, OfAllRanksAlikeTheirNumberChangesNothing) {
  for (uint32_t world = 1; world <= 64; ++world) {
    for (const uint32_t each : {1u, 2u, 3u, kSlotsPerOwner, 100u}) {
      const Partition partition(1009, 3, true, SlotMap::of_ranks(world, each), 5);
      for (uint32_t row_key = 0; row_key < 1009; ++row_key) {
        ASSERT_EQ(partition.owner_of(row_key), row_key % world);
        ASSERT_EQ(partition.local_row(row_key), row_key / world);
      }
      for (uint32_t owner = 0; owner < world; ++owner) {
        ASSERT_EQ(partition.rows_owned(owner), (1009 - owner + world - 1) / world);
      }
    }
  }
}

// Given a slot that moves, expect the rows of that slot elsewhere, and all others with their owner
// and in their order.
TEST(PartitionSlots, ASlotThatMovesTakesItsRowsAlone) {
  constexpr uint32_t kSlot = 11;
  const SlotMap slots = testkit::even_slots(4);
  const Partition before(1000, 2, true, slots, 0);
  const Partition after(1000, 2, true, slots.with_owner(kSlot, 0), 0);
  for (uint32_t owner = 0; owner < 4; ++owner) {
    std::vector<uint32_t> stayed_before, stayed_after;
    for (uint64_t row = 0; row < before.rows_owned(owner); ++row) {
      const uint32_t row_key = before.row_key_at(owner, row);
      if (row_key % slots.slots() != kSlot) stayed_before.push_back(row_key);
    }
    for (uint64_t row = 0; row < after.rows_owned(owner); ++row) {
      const uint32_t row_key = after.row_key_at(owner, row);
      if (row_key % slots.slots() != kSlot) stayed_after.push_back(row_key);
      EXPECT_TRUE(row_key % slots.slots() != kSlot || owner == 0);
    }
    EXPECT_EQ(stayed_after, stayed_before) << "owner " << owner;
    for (const Partition& partition : {before, after}) {
      for (uint64_t row = 1; row < partition.rows_owned(owner); ++row) {
        ASSERT_LT(partition.row_key_at(owner, row - 1), partition.row_key_at(owner, row));
      }
    }
  }
}

// A copy outlives what it was copied from.
TEST(PartitionSlots, CopiesKeepTheSlots) {
  std::vector<Partition> copies;
  {
    const Partition partition(100, 2, true, testkit::uneven_slots(7, 2), 0);
    copies.push_back(partition);
  }
  ASSERT_NO_FATAL_FAILURE(expect_bijection(copies[0], 7));
}

std::vector<Range> sorted_ranges(const Partition& partition, uint32_t world) {
  std::vector<Range> ranges;
  for (uint32_t owner = 0; owner < world; ++owner) ranges.push_back(partition.range_of(owner));
  std::sort(ranges.begin(), ranges.end(), [](const Range& a, const Range& b) {
    return a.first < b.first || (a.first == b.first && a.count < b.count);
  });
  return ranges;
}

// Given a variable cut to fewer rows, expect what a variable of so many has, among the same owners.
TEST(Partition, OfFewerRowsHasTheSameOwners) {
  const SlotMap slots = SlotMap::of_ranks(3, 4);
  for (const uint64_t rows : {1u, 12u, 13u, 500u}) {
    const Partition cut = Partition(1000, 7, true, slots, 2).of_rows(rows);
    const Partition whole(rows, 7, true, slots, 2);
    EXPECT_EQ(cut.rows(), rows);
    EXPECT_EQ(cut.elements(), rows * 7);
    for (uint32_t owner = 0; owner < 3; ++owner) {
      EXPECT_EQ(cut.rows_owned(owner), whole.rows_owned(owner));
    }
    for (uint32_t row = 0; row < rows; ++row) {
      EXPECT_EQ(cut.row_key_of(row), whole.row_key_of(row));
      EXPECT_EQ(cut.owner_of(row), whole.owner_of(row));
    }
  }
}

TEST(Partition, RangesTileTheElements) {
  const std::pair<uint64_t, uint64_t> shapes[] = {{1, 1},   {1, 255}, {1, 256},  {1, 257},
                                                  {7, 100}, {3, 600}, {513, 64}, {100, 1}};
  for (const auto& [rows, width] : shapes) {
    for (uint32_t world = 1; world <= 64; ++world) {
      for (const bool ids : {false, true}) {
        for (uint32_t variable : {0u, 1u, 37u}) {
          const Partition partition(rows, width, ids, SlotMap::of_ranks(world, kSlotsPerOwner),
                                    variable);
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

// Given ranks without slots, expect them to have no range, and the others to tile the elements.
TEST(PartitionSlots, RangesAreTheOwnersAlone) {
  for (uint32_t world = 1; world <= 64; ++world) {
    const SlotMap slots = testkit::uneven_slots(world, 1);
    for (const bool ids : {false, true}) {
      for (const uint32_t spread : {0u, 2u}) {
        const Partition partition(700, 30, ids, slots, 3, spread);
        uint64_t at = 0;
        for (const Range& range : sorted_ranges(partition, world)) {
          if (range.count == 0) continue;
          ASSERT_EQ(range.first, at);
          at += range.count;
        }
        ASSERT_EQ(at, partition.elements()) << "world " << world;
        for (uint32_t rank = 0; rank < world; ++rank) {
          if (slots.slots_of(rank).empty()) {
            ASSERT_EQ(partition.range_of(rank).count, 0u);
          }
        }
        for (uint32_t row_key = 0; ids && row_key < 700; ++row_key) {
          const Range range = partition.range_of(partition.range_owner_of(row_key));
          ASSERT_GE(row_key * 30u, range.first);
          ASSERT_LE(row_key * 30u + 30, range.end());
        }
      }
    }
  }
}

TEST(Partition, RangesDifferByOneBlockAtMost) {
  for (const uint32_t world : {2u, 3u, 7u, 64u}) {
    const Partition partition(1000, 300, false, SlotMap::of_ranks(world, kSlotsPerOwner), 3);
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
    const Partition partition(10, 10, false, SlotMap::of_ranks(kWorld, kSlotsPerOwner), variable);
    for (uint32_t owner = 0; owner < kWorld; ++owner) {
      owned[owner] += partition.range_of(owner).count > 0 ? 1 : 0;
    }
  }
  for (const uint32_t count : owned) EXPECT_EQ(count, 10u);
}

TEST(Partition, RangeOwnerAgreesWithRanges) {
  for (const uint64_t rows : {1u, 2u, 5u, 63u, 64u, 65u, 1000u}) {
    for (uint32_t world = 1; world <= 70; ++world) {
      const Partition partition(rows, 4, true, SlotMap::of_ranks(world, kSlotsPerOwner), 0);
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

// Given ids by Zipf's law that are sorted by how often they come, expect owners of the same number
// of rows a step within a tenth, where every rank merges its 2,560 ids. (Of 40 owners, each of 40
// rows, one has 1.14 of the mean.)
TEST(Partition, OwnersOfIdsSortedByFrequencyAreBalanced) {
  constexpr uint64_t kRows = 793470;  // of LM-1B
  constexpr double kTokens = 2560;
  std::vector<double> expected(kRows);  // ranks' chance to give a row in a step
  double harmonic = 0;
  for (uint64_t row = 0; row < kRows; ++row) harmonic += 1.0 / static_cast<double>(row + 1);
  for (uint64_t row = 0; row < kRows; ++row) {
    expected[row] = 1 - std::pow(1 - 1 / (harmonic * static_cast<double>(row + 1)), kTokens);
  }
  for (const uint32_t world : {2u, 3u, 4u, 8u, 16u}) {
    const Partition partition(kRows, 512, true, SlotMap::of_ranks(world, kSlotsPerOwner), 0);
    std::vector<double> of_owner(world);
    for (uint64_t row = 0; row < kRows; ++row) {
      of_owner[partition.owner_of(partition.row_key_of(row))] += expected[row];
    }
    const double mean = std::accumulate(of_owner.begin(), of_owner.end(), 0.0) / world;
    EXPECT_LE(*std::max_element(of_owner.begin(), of_owner.end()), 1.10 * mean)
        << world << " owners";
  }
}

TEST(Partition, LargestShapesDoNotOverflow) {
  const Partition rows(UINT32_MAX, 1, true, SlotMap::of_ranks(1000, kSlotsPerOwner), 0);
  EXPECT_EQ(rows.range_of(999).end(), UINT32_MAX);
  EXPECT_EQ(rows.range_owner_of(UINT32_MAX - 1), 999u);
  uint64_t owned = 0;
  for (uint32_t owner = 0; owner < 1000; ++owner) owned += rows.rows_owned(owner);
  EXPECT_EQ(owned, UINT32_MAX);
  const Partition dense(1 << 26, 1 << 20, false, SlotMap::of_ranks(1000, kSlotsPerOwner), 999);
  uint64_t elements = 0;
  for (uint32_t owner = 0; owner < 1000; ++owner) elements += dense.range_of(owner).count;
  EXPECT_EQ(elements, uint64_t{1} << 46);
}

}  // namespace
}  // namespace parallax
