// SPDX-License-Identifier: Apache-2.0
#include "message/told_failure.h"

#include <gtest/gtest.h>

#include <string>

namespace parallax {
namespace {

TEST(ToldFailure, ReadsBackWhatItWrote) {
  ToldFailure told;
  told.sentence = "variable 'x', field rows";
  told.facts.rank = 3;
  told.facts.peer = 5;
  told.group = 7;
  told.facts.slice = 9;
  told.facts.step = 1ull << 40;
  told.facts.row = -2;
  told.facts.field = "rows";
  told.variable = "x";
  const std::string bytes = told.encode();
  EXPECT_LE(bytes.size(), told.sentence.size() + ToldFailure::kFactsBytesMax);
  const ToldFailure read = ToldFailure::decode(bytes);
  EXPECT_EQ(read.sentence, told.sentence);
  EXPECT_EQ(read.facts.rank, 3u);
  EXPECT_EQ(read.facts.peer, 5u);
  EXPECT_EQ(read.group, 7u);
  EXPECT_EQ(read.variable, "x");
  EXPECT_EQ(read.facts.variable, PARALLAX_NO_VARIABLE) << "each rank numbers them itself";
  EXPECT_EQ(read.facts.slice, 9u);
  EXPECT_EQ(read.facts.step, 1ull << 40);
  EXPECT_EQ(read.facts.row, -2);
  EXPECT_EQ(read.facts.field, "rows");
}

TEST(ToldFailure, WhatIsCutShortNamesNothing) {
  ToldFailure told;
  told.sentence = "burns";
  told.facts.peer = 1;
  const std::string whole = told.encode();
  for (size_t size = 0; size < whole.size(); ++size) {
    const ToldFailure read = ToldFailure::decode(std::string_view(whole).substr(0, size));
    EXPECT_EQ(read.sentence, std::string("burns").substr(0, size));
    EXPECT_EQ(read.facts.peer, PARALLAX_NO_RANK) << size << " bytes";
  }
  EXPECT_EQ(ToldFailure::decode("").sentence, "");
}

TEST(ToldFailure, ANameHasNoMoreThanItMay) {
  ToldFailure told;
  told.variable.assign(500, 'v');
  EXPECT_EQ(ToldFailure::decode(told.encode()).variable, std::string(PARALLAX_NAME_MAX, 'v'));
}

TEST(ToldFailure, AFieldIsCutAndMadePrintable) {
  ToldFailure told;
  told.facts.field.assign(100, 'f');
  EXPECT_EQ(ToldFailure::decode(told.encode()).facts.field, std::string(PARALLAX_FIELD_MAX, 'f'));
  told.facts.field = "a\nb";
  EXPECT_EQ(ToldFailure::decode(told.encode()).facts.field.find('\n'), std::string::npos);
}

}  // namespace
}  // namespace parallax
