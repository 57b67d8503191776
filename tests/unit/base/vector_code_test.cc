// SPDX-License-Identifier: Apache-2.0
// Levels of vector code: the baseline first, the best in use, and each runs the loop once.
#include "base/vector_code.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "support/vector_levels.h"

namespace parallax {
namespace {

TEST(VectorCode, TheBestLevelIsInUse) {
  ASSERT_FALSE(vector_levels().empty());
  EXPECT_EQ(vector_levels().front(), VectorLevel::kBaseline);
  for (size_t i = 1; i < vector_levels().size(); ++i) {
    EXPECT_LT(vector_levels()[i - 1], vector_levels()[i]);
    EXPECT_STRNE(vector_level_name(vector_levels()[i - 1]), vector_level_name(vector_levels()[i]));
  }
  EXPECT_EQ(vector_level(), vector_levels().back());
}

TEST(VectorCode, EachLevelRunsTheLoopOnce) {
  int runs = 0;
  testkit::at_each_vector_level([&] { in_vectors([&] { ++runs; }); });
  EXPECT_EQ(runs, static_cast<int>(vector_levels().size()));
}

}  // namespace
}  // namespace parallax
