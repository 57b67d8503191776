// SPDX-License-Identifier: Apache-2.0
// When rows are coded: on slow links, and where there is something to spare.
#include "planner/row_coding.h"

#include <gtest/gtest.h>

namespace parallax {
namespace {

// Of which each of two ranks of a host gives so many.
VariableFacts table(uint64_t rows, uint64_t width, double given) {
  return {.name = "table",
          .rows = rows,
          .row_elements = width,
          .element_bytes = 4,
          .pulled = {.bytes = 4, .has_code = true},
          .pushed = {.bytes = 4, .has_code = true},
          .managed = true,
          .ids_declared = true,
          .touched_rows_per_host = 2 * given};
}

TopologyFacts hosts(uint64_t mbit, RowCodingMode mode = RowCodingMode::kAuto) {
  TopologyFacts facts = {.hosts = 2, .ranks = 4, .row_coding = mode};
  facts.costs.between.byte_ps = 8'000'000 / mbit;
  return facts;
}

TEST(RowCoding, SlowLinksAlone) {
  const VariableFacts wide = table(793470, 512, 2560);
  for (const uint64_t mbit : {100u, 200u, 500u}) {
    const RowCodingChoice choice = choose_row_coding(wide, hosts(mbit));
    EXPECT_TRUE(choice.row_keys && choice.pushed && choice.pulled) << mbit << ": " << choice.why;
  }
  for (const uint64_t mbit : {10'000u, 100'000u}) {
    const RowCodingChoice choice = choose_row_coding(wide, hosts(mbit));
    EXPECT_FALSE(choice.row_keys || choice.pushed || choice.pulled) << mbit << ": " << choice.why;
  }
}

// Given a processor that copies much faster than it codes, and a link of 10 Gbit/s, which is faster
// than coding: expect rows to go as they are; over one of 1 Gbit/s, coded.
TEST(RowCoding, CopiesSayNothingOfCoding) {
  const VariableFacts wide = table(793470, 512, 2560);
  for (const uint64_t mbit : {1'000u, 10'000u}) {
    TopologyFacts facts = hosts(mbit);
    facts.costs.copy_byte_ps = 11;
    facts.costs.row_sort_ps = 32'000;
    EXPECT_EQ(choose_row_coding(wide, facts).pushed, mbit == 1'000) << mbit;
  }
}

TEST(RowCoding, RowKeysThatLieFarApartSpareLess) {
  EXPECT_TRUE(choose_row_coding(table(4000, 16, 2560), hosts(700)).row_keys);
  EXPECT_FALSE(choose_row_coding(table(4'000'000'000, 16, 10), hosts(700)).row_keys);
}

TEST(RowCoding, OfNumbersWithExponents) {
  VariableFacts facts = table(1000, 16, 100);
  facts.pushed = {.bytes = 8};
  EXPECT_FALSE(choose_row_coding(facts, hosts(100)).pushed);
  EXPECT_TRUE(choose_row_coding(facts, hosts(100)).pulled);
  EXPECT_FALSE(choose_row_coding(facts, hosts(100, RowCodingMode::kOn)).pushed);
  facts.pushed = {.bytes = 2, .has_code = true};
  EXPECT_TRUE(choose_row_coding(facts, hosts(100)).pushed);
  facts.managed = false;
  EXPECT_FALSE(choose_row_coding(facts, hosts(100)).pulled) << "nobody pulls it";
}

TEST(RowCoding, ASettingGoesBeforeFigures) {
  const VariableFacts wide = table(793470, 512, 2560);
  const RowCodingChoice off = choose_row_coding(wide, hosts(10, RowCodingMode::kOff));
  EXPECT_FALSE(off.row_keys || off.pushed || off.pulled);
  EXPECT_EQ(off.why, "row_coding is off");
  const RowCodingChoice on = choose_row_coding(wide, hosts(400'000, RowCodingMode::kOn));
  EXPECT_TRUE(on.row_keys && on.pushed && on.pulled);
}

TEST(RowCoding, SaysItsFigures) {
  const std::string why = choose_row_coding(table(1000, 16, 100), hosts(1000)).why;
  EXPECT_NE(why.find("a row key would spare "), std::string::npos) << why;
  EXPECT_NE(why.find(" ns of link for "), std::string::npos) << why;
}

}  // namespace
}  // namespace parallax
