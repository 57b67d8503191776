// SPDX-License-Identifier: Apache-2.0
#include "server/adam_of_tables.h"

#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "variable/fused_tables.h"

namespace parallax::testkit {
namespace {

constexpr uint64_t kWidth = 3;

// What a row becomes, from the same values and state.
template <typename T>
std::vector<T> updated_by(const AdamRule<T>& rule) {
  std::array<T, kWidth> value = {1, -2, 3}, first = {0.5, 0, -1}, second = {1, 2, 0.25};
  const std::array<T, kWidth> gradient = {0.5, 4, -0.125};
  rule.apply({value.data(), first.data(), second.data(), gradient.data(), kWidth},
             ScaledGradient<T>{1});
  std::vector<T> all(value.begin(), value.end());
  all.insert(all.end(), first.begin(), first.end());
  all.insert(all.end(), second.begin(), second.end());
  return all;
}

// Given rows of tables in any order, expect each to be updated as a table by itself that was
// updated as often.
template <typename T>
void expect_own_t() {
  std::array<Variable, 3> tables;
  std::array<FusedMember, 3> members;
  Variable whole;
  for (size_t i = 0; i < tables.size(); ++i) {
    members[i] = {.variable = &tables[i], .first_row = whole.rows};
    whole.rows += tables[i].rows = 2 + i;
  }
  whole.fused = members;
  UpdateCounts counts(whole);
  const std::array<uint64_t, 3> updates = {1, 7, 2};
  for (size_t i = 0; i < updates.size(); ++i) counts.set(members[i].first_row, updates[i]);
  const UpdateArguments with = {
      .learning_rate = 0.1, .epsilon = 1e-8, .beta1 = 0.9, .beta2 = 0.999};
  std::array<AdamTime, 3> times;
  const AdamOfTables<T> rule(with, counts, kWidth, times);
  for (const uint64_t row : {8, 0, 1, 2, 4, 3, 5, 8, 1}) {
    UpdateArguments own = with;
    own.updates = counts.of_row(row).count;
    EXPECT_EQ(updated_by(rule.at(row * kWidth)), updated_by(AdamRule<T>(own))) << row;
  }
  EXPECT_NE(updated_by(rule.at(0)), updated_by(rule.at(2 * kWidth))) << "t matters";
}

TEST(AdamOfTables, EachRowByTheTOfItsTable) {
  expect_own_t<float>();
  expect_own_t<double>();
}

}  // namespace
}  // namespace parallax::testkit
