// SPDX-License-Identifier: Apache-2.0
#include "group/mirror.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "unit/group/group_world.h"

namespace parallax::testkit {
namespace {

class MirrorTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(world_.build().ok());
    world_.fill();
  }
  // From host memory: all is there at once.
  static void read(const VariableRuntime& runtime, const PullSlice& slice) {
    uint32_t left = 0;
    read_mirror(runtime, slice, &left);
    EXPECT_EQ(left, 0u);
  }
  const VariableRuntime& runtime(uint32_t variable) { return world_[1].group.runtime(variable); }

  GroupWorld world_{
      {0, 1}, {managed("dense", 4), managed("rows", 9, 5)}, {.plan_mode = PARALLAX_PLAN_AR}};
};

TEST_F(MirrorTest, ADenseVariableIsCopiedWhole) {
  std::vector<float> values(8), expected(8);
  read(runtime(0),
       {.variable = 0, .ids = {}, .values = reinterpret_cast<std::byte*>(values.data())});
  std::memcpy(expected.data(), runtime(0).table->element(0), 8 * sizeof(float));
  EXPECT_EQ(values, expected);
  EXPECT_NE(values[7], 0.0f);
}

TEST_F(MirrorTest, RowsComeByTheirIdsAndPaddingIsZero) {
  const int64_t ids[] = {8, -1, 3, 8};
  std::vector<float> values(8, 77.0f);
  read(runtime(1), {.variable = 1,
                    .ids = {ids, nullptr},
                    .count = 4,
                    .values = reinterpret_cast<std::byte*>(values.data())});
  for (size_t i = 0; i < 4; ++i) {
    std::vector<float> row(2);
    if (ids[i] >= 0) {
      const uint32_t row_key = runtime(1).partition.row_key_of(static_cast<uint64_t>(ids[i]));
      std::memcpy(row.data(), runtime(1).table->row(row_key), 2 * sizeof(float));
      EXPECT_NE(row[0], 0.0f);
    }
    EXPECT_EQ(std::vector<float>(&values[2 * i], &values[2 * i] + 2), row) << "slice row " << i;
  }
}

TEST_F(MirrorTest, ValuesComeAsTheDtypeThatIsAskedFor) {
  std::vector<double> values(8);
  read(runtime(0), {.variable = 0,
                    .ids = {},
                    .values = reinterpret_cast<std::byte*>(values.data()),
                    .dtype = PARALLAX_F64});
  float last = 0;
  std::memcpy(&last, runtime(0).table->element(7), sizeof last);
  EXPECT_EQ(values[7], static_cast<double>(last));
}

}  // namespace
}  // namespace parallax::testkit
