// SPDX-License-Identifier: Apache-2.0
// Which variables may have a ceiling, and that all ranks give the same.
#include "variable/ceiling.h"

#include <gtest/gtest.h>

#include "support/words.h"
#include "variable/variable.h"

namespace parallax {
namespace {

using testkit::has;

parallax_variable_t capped(uint64_t bytes_max) {
  parallax_variable_t variable = {};
  variable.size = sizeof variable;
  variable.name = "capped";
  variable.rows = 100;
  variable.row_elements = 4;
  variable.tag = PARALLAX_SPARSE;
  variable.rows_max = 10;
  variable.exchange_bytes_max = bytes_max;
  return variable;
}

TEST(Ceiling, IsOfRowsThatTheFrameworkHolds) {
  Variable variable;
  ASSERT_TRUE(make_variable(capped(5000), &variable).ok());
  EXPECT_EQ(variable.exchange_bytes_max, 5000u);
  parallax_variable_t managed = capped(5000);
  managed.rule = PARALLAX_RULE_SGD;
  const Status of_managed = make_variable(managed, &variable);
  EXPECT_EQ(of_managed.code(), PARALLAX_INVALID);
  EXPECT_TRUE(has(of_managed.message(),
                  "variable 'capped': exchange_bytes_max is 5000, but it has an update rule"))
      << of_managed.message();
  EXPECT_EQ(of_managed.facts().field, "exchange_bytes_max");
  parallax_variable_t dense = capped(5000);
  dense.tag = PARALLAX_DENSE;
  dense.rows_max = 0;
  const Status of_dense = make_variable(dense, &variable);
  EXPECT_EQ(of_dense.code(), PARALLAX_INVALID);
  EXPECT_TRUE(has(of_dense.message(), "its slices carry every row")) << of_dense.message();
  managed.exchange_bytes_max = dense.exchange_bytes_max = 0;
  EXPECT_TRUE(make_variable(managed, &variable).ok());
  EXPECT_TRUE(make_variable(dense, &variable).ok());
}

// Given two ranks with other ceilings, expect variable, field and ranks named.
TEST(Ceiling, IsTheSameOnEveryRank) {
  Variable first, second;
  ASSERT_TRUE(make_variable(capped(5000), &first).ok());
  ASSERT_TRUE(make_variable(capped(6000), &second).ok());
  const Variable* of_first[] = {&first};
  const Variable* of_second[] = {&second};
  const RegistryDifference difference =
      compare_registries(encode_registry(of_first), of_second, "rank 0", "rank 1");
  EXPECT_EQ(difference.sentence,
            "variable 'capped', field exchange_bytes_max: rank 0 has 5000, rank 1 has 6000");
  EXPECT_EQ(difference.field, "exchange_bytes_max");
}

}  // namespace
}  // namespace parallax
