// SPDX-License-Identifier: Apache-2.0
// DeviceTable: what of a variable lies in its store, and where.
#include "server/device_table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "support/held_table_queue.h"
#include "support/slot_maps.h"

namespace parallax::testkit {
namespace {

class DeviceTableTest : public testing::Test {
 protected:
  static Variable variable(uint64_t rows, uint64_t width, bool ids) {
    Variable made;
    made.name = "v";
    made.rows = rows;
    made.row_elements = width;
    made.rows_max = ids ? rows : 0;
    made.rule = PARALLAX_RULE_ADAGRAD;
    made.table_memory = PARALLAX_MEMORY_CUDA;
    return made;
  }
  std::vector<float> read(const DeviceTable& table, const StoreUnits& units, uint64_t width) {
    std::vector<float> values(units.count * width, 77);
    uint32_t left = 1;
    table.store()->read(
        {.units = units, .to = reinterpret_cast<std::byte*>(values.data()), .left = &left});
    while (left > 0) {
      devices_.state.run();
      EXPECT_TRUE(table.store()->advance().ok());
    }
    return values;
  }
  DeviceShare share() { return {&devices_, &pinned_}; }

  TableDevices devices_;
  PinnedPool pinned_{devices_, 0};
};

// Given initial values that come in pieces which end in mid-row, expect on each of three owners its
// rows, and all rows in a mirror.
TEST_F(DeviceTableTest, PiecesThatEndInARow) {
  constexpr uint64_t kRows = 40, kWidth = 3;
  const Variable of = variable(kRows, kWidth, true);
  const SlotMap slots = even_slots(3);
  const Partition partition(kRows, kWidth, true, slots, 0);
  std::vector<float> values(kRows * kWidth);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  uint64_t seen = 0;
  for (const bool sharded : {true, false}) {
    for (uint32_t rank = 0; rank < 3; ++rank) {
      DeviceTable table(of, partition, rank, sharded);
      ASSERT_FALSE(table.holds_nothing());
      ASSERT_TRUE(table.reserve(share(), rank).ok());
      for (uint64_t first = 0; first < values.size(); first += 7) {
        const auto piece =
            std::span(values).subspan(first).first(std::min<uint64_t>(7, values.size() - first));
        table.take_values(first, std::as_bytes(piece));
      }
      const uint64_t here = sharded ? partition.rows_owned(rank) : kRows;
      EXPECT_EQ(table.needed_bytes(), here * kWidth * 2 * sizeof(float));
      const std::vector<float> found = read(table, {.count = here}, kWidth);
      for (uint64_t i = 0; i < here; ++i) {
        const uint32_t key = sharded ? partition.row_key_at(rank, i) : static_cast<uint32_t>(i);
        for (uint64_t e = 0; e < kWidth; ++e) {
          EXPECT_EQ(found[i * kWidth + e], values[partition.row_of(key) * kWidth + e]);
        }
      }
      seen += here;
    }
  }
  EXPECT_EQ(seen, 4 * kRows);
}

// Of a variable without row ids an owner has a range of elements, which may begin within a row.
TEST_F(DeviceTableTest, ElementsOfARange) {
  constexpr uint64_t kRows = 301, kWidth = 5;
  const Variable of = variable(kRows, kWidth, false);
  const SlotMap slots = even_slots(2);
  const Partition partition(kRows, kWidth, false, slots, 0);
  std::vector<float> values(kRows * kWidth);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  for (uint32_t rank = 0; rank < 2; ++rank) {
    DeviceTable table(of, partition, rank, true);
    ASSERT_TRUE(table.reserve(share(), rank).ok());
    table.take_values(0, std::as_bytes(std::span(values)));
    const Range here = partition.range_of(rank);
    ASSERT_GT(here.count, 10u);
    const uint64_t first = here.first + 3;
    EXPECT_EQ(read(table, table.elements_from(0, first, 4), 1),
              std::vector<float>(&values[first], &values[first] + 4));
    // A step, of elements from the middle on.
    uint32_t left = 0;
    const std::vector<float> gradient(here.count, 1);
    ReducedGradient reduced = {.contributed = true, .has_values = true};
    reduced.values = reinterpret_cast<const std::byte*>(gradient.data());
    reduced.first = here.first;
    reduced.count = here.count;
    table.apply(reduced, {.rule = PARALLAX_RULE_ADAGRAD}, &left);
    EXPECT_EQ(left, 1u);
    EXPECT_EQ(read(table, table.elements_from(0, first, 1), 1)[0], values[first] - 1);
    EXPECT_EQ(left, 0u);
  }
}

TEST_F(DeviceTableTest, AnOwnerOfNothingHasNone) {
  const Variable of = variable(10, 1, false);  // fewer elements than a block
  const SlotMap slots = even_slots(4);
  const Partition partition(10, 1, false, slots, 0);
  uint32_t holders = 0;
  for (uint32_t rank = 0; rank < 4; ++rank) {
    holders += DeviceTable(of, partition, rank, true).holds_nothing() ? 0 : 1;
    EXPECT_FALSE(DeviceTable(of, partition, rank, false).holds_nothing());
  }
  EXPECT_EQ(holders, 1u);
}

}  // namespace
}  // namespace parallax::testkit
