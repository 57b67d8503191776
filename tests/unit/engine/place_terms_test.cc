// SPDX-License-Identifier: Apache-2.0
#include "engine/place_terms.h"

#include <gtest/gtest.h>

namespace parallax {
namespace {

constexpr uint64_t kPrint = 77;

PlaceTerms said(uint32_t rank, const std::vector<uint64_t>& prints) {
  PlaceTerms terms;
  terms.rank = rank;
  for (const uint64_t print : prints) terms.windows.push_back({.print = print, .rank = rank});
  return terms;
}

HostMap one_host(uint32_t ranks) { return map_hosts(std::vector<std::string>(ranks, "h")); }

std::string why_of(const std::vector<PlaceTerms>& all) {
  PlaceTerms merged = all[0];
  for (size_t i = 1; i < all.size(); ++i) merged.merge(all[i]);
  return merged.why_not(one_host(static_cast<uint32_t>(all.size())));
}

TEST(PlaceTerms, ReadsBackWhatItWroteAndRefusesWhatIsCutOrUnknown) {
  PlaceTerms terms = said(3, {kPrint, PlaceTerms::kPlain});
  terms.windows.push_back({.print = PlaceTerms::kDiffer, .rank = 3, .other = 9});
  terms.more = true;
  std::string text;
  terms.encode(&text);
  for (size_t size = 0; size < text.size(); ++size) {
    auto in = std::as_bytes(std::span(text)).first(size);
    PlaceTerms read;
    EXPECT_FALSE(read.decode(&in)) << size;
  }
  auto in = std::as_bytes(std::span(text));
  PlaceTerms read;
  ASSERT_TRUE(read.decode(&in));
  EXPECT_TRUE(in.empty());
  EXPECT_EQ(read.rank, 3u);
  EXPECT_TRUE(read.more);
  ASSERT_EQ(read.windows.size(), 3u);
  EXPECT_EQ(read.windows[0].print, kPrint);
  EXPECT_EQ(read.windows[2].other, 9u);
  EXPECT_TRUE(read.fits(10));
  EXPECT_FALSE(read.fits(9)) << "a rank that is none";
  for (const auto& [at, value] : {std::pair<size_t, char>{4, 2}, {8, 9}, {12, 5}}) {
    std::string wrong = text;
    wrong[at] = value;
    if (at == 12) wrong.replace(12, 8, std::string("\5\0\0\0\0\0\0\0", 8));
    in = std::as_bytes(std::span(wrong));
    EXPECT_FALSE(read.decode(&in)) << at;
  }
}

TEST(PlaceTerms, WhatAllSayAlikeIsAgreed) {
  PlaceTerms merged = said(0, {kPrint, kPrint + 1});
  merged.merge(said(1, {kPrint, kPrint + 1}));
  EXPECT_TRUE(merged.agreed(0) && merged.agreed(1));
  EXPECT_FALSE(merged.agreed(2));
  EXPECT_EQ(merged.why_not(one_host(2)), "");
}

TEST(PlaceTerms, WhatDiffersIsToldWithTwoRanks) {
  EXPECT_NE(why_of({said(0, {kPrint}), said(1, {kPrint}), said(2, {kPrint + 1})})
                .find("buffer 1 of those that places of the commit lie in differs on rank 0 (host "
                      "h) and rank 2 (host h): its size"),
            std::string::npos);
  // One that another rank has not.
  EXPECT_NE(why_of({said(0, {}), said(1, {kPrint})}).find("differs on rank 0 (host h) and rank 1"),
            std::string::npos);
  EXPECT_NE(why_of({said(0, {kPrint}), said(1, {})}).find("differs on rank 0 (host h) and rank 1"),
            std::string::npos);
  EXPECT_NE(why_of({said(0, {kPrint}), said(1, {PlaceTerms::kPlain})})
                .find("not of NCCL's memory on rank 1"),
            std::string::npos);
  EXPECT_NE(why_of({said(0, {PlaceTerms::kOtherDevice}), said(1, {kPrint})})
                .find("the device that rank 0 (host h) takes part with"),
            std::string::npos);
}

// What one subtree found stays found.
TEST(PlaceTerms, ADifferenceIsNotMergedAway) {
  PlaceTerms left = said(0, {kPrint}), right = said(2, {kPrint});
  left.merge(said(1, {kPrint + 1}));
  right.merge(left);
  EXPECT_FALSE(right.agreed(0));
  left.merge(said(3, {kPrint}));
  EXPECT_FALSE(left.agreed(0));
}

}  // namespace
}  // namespace parallax
