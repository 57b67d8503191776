// SPDX-License-Identifier: Apache-2.0
// Progress of an answer: the next piece, and nothing else.
#include "server/answer_progress.h"

#include <gtest/gtest.h>

namespace parallax {
namespace {

TEST(AnswerProgress, ReceiveTheNextPieces) {
  AnswerProgress answer = {.due = 10};
  EXPECT_FALSE(answer.complete());
  EXPECT_TRUE(answer.take(0, 4));
  EXPECT_TRUE(answer.take(4, 1));
  EXPECT_FALSE(answer.complete());
  EXPECT_TRUE(answer.take(5, 5));
  EXPECT_TRUE(answer.complete());
}

// Receive a piece again (past), one further on (future), none, or more than is due: expect it
// refused, and the next one taken all the same.
TEST(AnswerProgress, ReceiveAnythingElse) {
  AnswerProgress answer = {.due = 10};
  EXPECT_TRUE(answer.take(0, 4));
  EXPECT_FALSE(answer.take(0, 4)) << "again";
  EXPECT_FALSE(answer.take(3, 2)) << "in part again";
  EXPECT_FALSE(answer.take(5, 1)) << "one was left out";
  EXPECT_FALSE(answer.take(4, 0)) << "nothing";
  EXPECT_FALSE(answer.take(4, 7)) << "more than is due";
  EXPECT_FALSE(answer.take(4, UINT64_MAX));
  EXPECT_FALSE(answer.take(UINT64_MAX, 1));
  EXPECT_TRUE(answer.take(4, 6));
  EXPECT_FALSE(answer.take(10, 1)) << "all of it came";
  EXPECT_FALSE(answer.take(10, 0));
}

TEST(AnswerProgress, NothingIsDue) {
  AnswerProgress answer;
  EXPECT_TRUE(answer.complete());
  EXPECT_FALSE(answer.take(0, 1));
  EXPECT_FALSE(answer.take(0, 0));
  EXPECT_FALSE(answer.skip_and_take(0));
}

// Given items of which others have some, expect each that is further on to be taken, once.
TEST(AnswerProgress, ItemsOfOthersAreLeftOut) {
  AnswerProgress answer = {.due = 10};
  EXPECT_TRUE(answer.skip_and_take(2));
  EXPECT_FALSE(answer.skip_and_take(2)) << "again";
  EXPECT_FALSE(answer.skip_and_take(1)) << "before it";
  EXPECT_TRUE(answer.skip_and_take(3));
  EXPECT_FALSE(answer.skip_and_take(10)) << "beyond";
  EXPECT_FALSE(answer.skip_and_take(UINT64_MAX));
  EXPECT_TRUE(answer.skip_and_take(9));
  EXPECT_FALSE(answer.skip_and_take(9));
}

}  // namespace
}  // namespace parallax
