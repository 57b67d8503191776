// SPDX-License-Identifier: Apache-2.0
#include "base/sentence.h"

#include <gtest/gtest.h>

#include <string>

namespace parallax {
namespace {

TEST(Sentence, HoldsWhatFits) {
  Sentence sentence;
  EXPECT_STREQ(sentence.c_str(), "");
  sentence.assign("push: out of memory");
  EXPECT_STREQ(sentence.c_str(), "push: out of memory");
  sentence.assign("pull");
  sentence.append(": late");
  EXPECT_STREQ(sentence.c_str(), "pull: late");
  const std::string full(Sentence::kBytesMax, 'x');
  sentence.assign(full);
  EXPECT_EQ(sentence.c_str(), full);
  sentence.assign({});
  EXPECT_STREQ(sentence.c_str(), "");
}

TEST(Sentence, CutsWhatDoesNot) {
  Sentence sentence;
  sentence.assign(std::string(Sentence::kBytesMax + 1, 'x'));
  EXPECT_EQ(sentence.c_str(), std::string(Sentence::kBytesMax - 3, 'x') + "...");
  sentence.append("more");
  EXPECT_EQ(std::string(sentence.c_str()).size(), Sentence::kBytesMax);
}

// Given characters of two, three and four bytes at every distance from the end, expect none cut in
// two.
TEST(Sentence, CutsBetweenCharacters) {
  for (const std::string character : {"\u00fc", "\u20ac", "\U0001f600"}) {
    for (size_t before = 0; before < 8; ++before) {
      std::string text(before, 'x');
      while (text.size() <= Sentence::kBytesMax) text += character;
      Sentence sentence;
      sentence.assign(text);
      std::string kept = sentence.c_str();
      ASSERT_TRUE(kept.ends_with("..."));
      kept.resize(kept.size() - 3);
      EXPECT_EQ(text.compare(0, kept.size(), kept), 0);
      EXPECT_EQ((kept.size() - before) % character.size(), 0u);
      EXPECT_GT(kept.size() + 3 + character.size(), Sentence::kBytesMax);
    }
  }
}

TEST(Sentence, TakesAPartOfItself) {
  Sentence sentence;
  sentence.assign("close: the job failed");
  sentence.assign(sentence.c_str() + 7);
  EXPECT_STREQ(sentence.c_str(), "the job failed");
}

}  // namespace
}  // namespace parallax
