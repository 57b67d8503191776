// SPDX-License-Identifier: Apache-2.0
// What slices are refused for, without a job. engine_calls_test.cc has the same by calls.
#include "engine/slice_checks.h"

#include <gtest/gtest.h>

#include <limits>
#include <utility>
#include <vector>

#include "support/registries.h"
#include "support/words.h"

namespace parallax::testkit {
namespace {

class SliceChecksTest : public testing::Test {
 protected:
  enum : uint32_t { kDense, kRows, kHeld, kParts };

  SliceChecksTest() {
    std::vector<Variable> variables;
    for (const char* name : {"dense", "rows", "held", "parts"}) {
      Variable& variable = variables.emplace_back();
      variable.name = name;
      variable.rows = 10;
      variable.row_elements = 2;
      variable.rule = PARALLAX_RULE_SGD;
    }
    variables[kRows].rows_max = 10;
    variables[kHeld].rule = PARALLAX_RULE_NONE;
    variables[kParts].rows_max = 3;
    variables[kParts].accumulate = true;
    add_all(registry_, variables);
    registry_.number_new();
  }

  parallax_slice_t dense(uint32_t variable) {
    parallax_slice_t slice = {};
    slice.variable = variable;
    slice.form = PARALLAX_FORM_DENSE;
    slice.values = values_;
    return slice;
  }
  parallax_slice_t rows(uint32_t variable, uint32_t count = 2) {
    parallax_slice_t slice = dense(variable);
    slice.form = PARALLAX_FORM_ROWS;
    slice.ids = ids_;
    slice.row_count = count;
    return slice;
  }
  Status check(const parallax_slice_t& slice) { return checks_.check({&slice, 1}, "push"); }

  Registry registry_;
  SliceChecks checks_{registry_};
  float values_[20] = {};
  int64_t ids_[4] = {1, 9, -1, 0};
};

TEST_F(SliceChecksTest, TakesWhatFits) {
  EXPECT_TRUE(check(dense(kDense)).ok());
  EXPECT_TRUE(check(rows(kRows, 4)).ok()) << "-1 is padding";
  EXPECT_TRUE(check(dense(kRows)).ok()) << "all rows, of which there is room for all";
  const parallax_slice_t both[] = {dense(kRows), rows(kRows)};
  EXPECT_TRUE(checks_.check(both, "push").ok()) << "one of each form";
  EXPECT_TRUE(checks_.check({}, "push").ok());
}

TEST_F(SliceChecksTest, AVariableIsKnownByItsNumberBehindTheChecks) {
  // By name: dense, held, parts, rows.
  const std::pair<uint32_t, uint32_t> numbers[] = {
      {kDense, 0}, {kRows, 3}, {kHeld, 1}, {kParts, 2}};
  for (const auto& [id, number] : numbers) {
    EXPECT_EQ(checks_.slice_of(dense(id)).variable, number);
    EXPECT_EQ(checks_.number_of(dense(id)), number);
  }
}

TEST_F(SliceChecksTest, WhatNoCommitBroughtInIsRefused) {
  Variable late = registry_[kDense];
  late.name = "late";
  add_all(registry_, {late});
  const Status refused = check(dense(4));
  EXPECT_EQ(refused.code(), PARALLAX_STATE);
  EXPECT_EQ(refused.message(),
            "push, slice 0 (variable 'late'): it was registered after the last commit; call commit "
            "on every rank first");
  EXPECT_EQ(refused.facts().variable, 4u);
  EXPECT_TRUE(check(dense(kDense)).ok());
  registry_.number_new();
  EXPECT_TRUE(check(dense(4)).ok());
}

TEST_F(SliceChecksTest, NamesTheCallTheSliceAndTheVariable) {
  const parallax_slice_t slices[] = {dense(kDense), rows(kParts, 4)};
  const Status refused = checks_.check(slices, "reduce");
  EXPECT_EQ(refused.code(), PARALLAX_LIMIT);
  EXPECT_EQ(refused.message(),
            "reduce, slice 1 (variable 'parts'): row_count is 4, rows_max 3; register a larger "
            "rows_max");
}

TEST_F(SliceChecksTest, RefusesEachFieldThatIsWrong) {
  const auto expect = [this](const parallax_slice_t& slice, const char* word) {
    const Status refused = check(slice);
    EXPECT_FALSE(refused.ok()) << word;
    EXPECT_TRUE(has(refused, word)) << refused.message();
  };
  expect(dense(4), "variable is 4, the job has 4");
  parallax_slice_t slice = dense(kDense);
  slice.form = 7;
  expect(slice, "form is 7");
  expect(rows(kDense), "declared no row ids");
  expect(dense(kParts), "form is DENSE");
  slice = dense(kDense);
  slice.as_dtype = PARALLAX_AS(PARALLAX_I64);
  expect(slice, "as_dtype is");
  slice = dense(kDense);
  slice.more = 1;
  expect(slice, "more is 1");
  slice = dense(kDense);
  slice.values = nullptr;
  expect(slice, "values is null");
  slice.values = reinterpret_cast<std::byte*>(values_) + 1;
  expect(slice, "not aligned");
  slice = rows(kRows);
  slice.ids = nullptr;
  expect(slice, "ids is null");
  ids_[1] = 10;
  expect(rows(kRows), "ids[1] is 10");
  ids_[1] = -2;
  expect(rows(kRows), "ids[1] is -2");
}

// Given one id that is none, or the last that is, at any place of a long slice, expect it named,
// and the first of two.
TEST_F(SliceChecksTest, AWrongIdIsFoundWhereverItIs) {
  std::vector<Variable> variables(1);
  variables[0].name = "long";
  variables[0].rows = 10;
  variables[0].rows_max = 70;
  Registry registry;
  add_all(registry, variables);
  registry.number_new();
  SliceChecks checks(registry);
  for (const int64_t bad : {int64_t{9}, int64_t{10}, int64_t{-2}, INT64_MIN, INT64_MAX}) {
    for (size_t at = 0; at < 70; ++at) {
      std::vector<int64_t> ids(70, kPaddingId);
      ids[at] = bad;
      if (at + 1 < ids.size()) ids.back() = bad;
      parallax_slice_t slice = rows(0, 70);
      slice.ids = ids.data();
      const Status status = checks.check({&slice, 1}, "push");
      EXPECT_EQ(status.ok(), bad == 9);
      const std::string named = "ids[" + std::to_string(at) + "] is " + std::to_string(bad);
      EXPECT_EQ(status.message().find(named) != std::string::npos, bad != 9) << status.message();
    }
  }
}

// `more` is the variable's in the call, not a slice's.
TEST_F(SliceChecksTest, SlicesOfAVariableAgreeOnWhetherMoreFollow) {
  parallax_slice_t twice[] = {rows(kParts), dense(kHeld), rows(kParts)};
  SliceTies ties;
  EXPECT_TRUE(checks_.check(twice, "push", &ties).ok());
  twice[0].more = twice[2].more = 1;
  EXPECT_TRUE(checks_.check(twice, "push", &ties).ok());
  twice[0].more = 0;
  const Status refused = checks_.check(twice, "push", &ties);
  EXPECT_EQ(refused.code(), PARALLAX_INVALID);
  EXPECT_TRUE(has(refused, "variable 'parts' is in slices 0 and 2 with more = 0 and 1"))
      << refused.message();
  EXPECT_EQ(refused.facts().field, "more");
  EXPECT_EQ(refused.facts().slice, 2u);
}

// Given calls one after the other, expect each to be judged by its own slices alone.
TEST_F(SliceChecksTest, WhatAnEarlierCallHadIsForgotten) {
  const parallax_slice_t all[] = {dense(kDense), dense(kHeld), rows(kRows), rows(kParts)};
  const parallax_slice_t reversed[] = {rows(kParts), rows(kRows), dense(kHeld), dense(kDense)};
  const parallax_slice_t both[] = {dense(kHeld), rows(kRows), dense(kDense), dense(kRows)};
  const parallax_slice_t thrice[] = {rows(kRows), dense(kRows), rows(kRows)};
  for (int round = 0; round < 2; ++round) {
    SliceTies ties;
    EXPECT_TRUE(checks_.check(all, "push", &ties).ok());
    EXPECT_TRUE(checks_.check(reversed, "push", &ties).ok());
    for (size_t i = 0; i < 4; ++i) EXPECT_FALSE(ties.tied(i) || ties.again(i));
    EXPECT_TRUE(checks_.check(both, "push", &ties).ok());
    EXPECT_EQ(ties.next(1), 3u);
    EXPECT_TRUE(ties.again(3) && ties.tied(1) && !ties.tied(0) && !ties.tied(2));
    EXPECT_TRUE(checks_.check(thrice, "push", &ties).ok());
    EXPECT_TRUE(ties.next(0) == 1 && ties.next(1) == 2 && ties.next(2) == 0);
    EXPECT_TRUE(checks_.check(all, "push", &ties).ok());
    EXPECT_FALSE(ties.tied(0));
  }
}

TEST_F(SliceChecksTest, APairIsOneAsLongAsItsCallIs) {
  const parallax_slice_t both[] = {dense(kHeld), dense(kRows), rows(kRows)};
  SliceTies ties;
  ASSERT_TRUE(checks_.check(both, "push", &ties).ok());
  EXPECT_FALSE(ties.paired(1));
  ties.pair(1);
  EXPECT_TRUE(ties.paired(1) && ties.paired(2) && !ties.paired(0));
  EXPECT_TRUE(ties.again(2) && !ties.again(1));
  ASSERT_TRUE(checks_.check(both, "push", &ties).ok());
  EXPECT_FALSE(ties.paired(1) || ties.paired(2));
}

TEST_F(SliceChecksTest, APullAsksForManagedVariables) {
  const parallax_slice_t held[] = {dense(kHeld)};
  EXPECT_TRUE(has(checks_.check_pull(held), "framework-held"));
  const parallax_slice_t both[] = {dense(kRows), rows(kRows)};
  EXPECT_TRUE(checks_.check_pull(both).ok());
  parallax_slice_t more[] = {rows(kParts)};
  EXPECT_TRUE(checks_.check_pull(more).ok());
  more[0].more = 1;
  EXPECT_TRUE(has(checks_.check_pull(more), "more is of push and reduce"));
}

TEST_F(SliceChecksTest, AnAggregateGoesOverTheGradientOrApartFromIt) {
  float apart[20] = {};
  parallax_slice_t slice = dense(kHeld);
  EXPECT_EQ(checks_.slice_of(slice).into, reinterpret_cast<std::byte*>(values_));
  slice.into = apart;
  EXPECT_TRUE(check(slice).ok());
  EXPECT_EQ(checks_.slice_of(slice).into, reinterpret_cast<std::byte*>(apart));
  slice.into = values_;
  EXPECT_TRUE(check(slice).ok());
  float both[40] = {};
  slice.values = both;
  slice.into = both + 20;
  EXPECT_TRUE(check(slice).ok()) << "they touch, and do not overlap";
  for (const int overlap : {1, 19}) {
    slice.into = both + overlap;
    EXPECT_TRUE(has(check(slice), "into overlaps values"));
    std::swap(slice.values, slice.into);
    EXPECT_TRUE(has(check(slice), "into overlaps values"));
    std::swap(slice.values, slice.into);
  }
  slice.into = reinterpret_cast<char*>(apart) + 1;
  EXPECT_TRUE(has(check(slice), "into is not aligned"));
  parallax_slice_t other = rows(kRows);
  other.into = apart;
  EXPECT_TRUE(has(check(other), "takes the aggregate of a reduce"));
  other = dense(kDense);  // managed
  other.into = apart;
  const Status refused = check(other);
  EXPECT_TRUE(has(refused, "takes the aggregate of a reduce"));
  EXPECT_EQ(refused.facts().field, "into");
}

TEST_F(SliceChecksTest, InfinitiesAreRefusedWhereTheVariableSaysSo) {
  values_[3] = std::numeric_limits<float>::infinity();
  const parallax_slice_t slice = rows(kRows);
  EXPECT_TRUE(checks_.check_finite(slice, "push").ok());
  changeable(registry_, kRows).refuse_nonfinite = true;
  const Status refused = checks_.check_finite(slice, "push");
  EXPECT_EQ(refused.code(), PARALLAX_INVALID);
  EXPECT_TRUE(has(refused, "variable 'rows', row 1 of the slice (id 9), column 1"))
      << refused.message();
  ids_[1] = -1;
  EXPECT_TRUE(checks_.check_finite(slice, "push").ok()) << "padding has no values";
}

TEST_F(SliceChecksTest, FillsInWhatASliceLeavesOut) {
  PullSlice slice = checks_.slice_of(rows(kRows));
  EXPECT_EQ(slice.count, 2u);
  EXPECT_EQ(slice.dtype, uint32_t{PARALLAX_F32});
  EXPECT_EQ(slice.ids.at(1), 9);
  EXPECT_FALSE(slice.every_row);
  slice = checks_.slice_of(dense(kRows));
  EXPECT_TRUE(slice.every_row);
  EXPECT_EQ(slice.count, 10u);
  parallax_slice_t half = dense(kDense);
  half.as_dtype = PARALLAX_AS(PARALLAX_F16);
  EXPECT_EQ(checks_.slice_of(half).dtype, uint32_t{PARALLAX_F16});
}

}  // namespace
}  // namespace parallax::testkit
