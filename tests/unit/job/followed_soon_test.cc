// SPDX-License-Identifier: Apache-2.0
// Which calls are taken for such that another one follows at once.
#include "job/followed_soon.h"

#include <gtest/gtest.h>

namespace parallax {
namespace {

// A call about `key` at `at_ns`, and the next pass so much later.
void follow(FollowedSoon& followed, uint32_t key, int64_t at_ns, int64_t later_ns) {
  followed.passed(at_ns, false);
  followed.left(key, at_ns);
  followed.passed(at_ns + later_ns, false);
}

TEST(FollowedSoon, IsExpectedAfterSomeTimesInARow) {
  FollowedSoon followed;
  for (int i = 0; i < FollowedSoon::kTimes; ++i) {
    EXPECT_FALSE(followed.expects(2)) << i;
    follow(followed, 2, 1000, FollowedSoon::kSoonNs);
  }
  EXPECT_TRUE(followed.expects(2));
  EXPECT_FALSE(followed.expects(1)) << "of another call";
  EXPECT_FALSE(followed.expects(3)) << "of one that never was";
  follow(followed, 1, 1000, FollowedSoon::kSoonNs + 1);
  EXPECT_TRUE(followed.expects(2)) << "whatever others do";
  follow(followed, 2, 1000, FollowedSoon::kSoonNs + 1);
  for (int i = 0; i < FollowedSoon::kTimes; ++i) {
    EXPECT_FALSE(followed.expects(2)) << "late once, " << i;
    follow(followed, 2, 1000, 0);
  }
  EXPECT_TRUE(followed.expects(2));
}

// A pass that follows no such call says nothing.
TEST(FollowedSoon, IsToldByTheFirstPassAlone) {
  FollowedSoon followed;
  for (int i = 0; i < FollowedSoon::kTimes; ++i) follow(followed, 0, 0, 0);
  followed.passed(1'000'000'000, false);
  EXPECT_TRUE(followed.expects(0));
}

// Given many calls in a row that hold back what they send, expect one to send in between.
TEST(FollowedSoon, SoManyAreHeldAndNoMore) {
  FollowedSoon followed;
  for (int i = 0; i < FollowedSoon::kTimes; ++i) follow(followed, 0, 0, 0);
  for (uint32_t i = 0; i < FollowedSoon::kHeldMax; ++i) {
    EXPECT_TRUE(followed.expects(0)) << i;
    followed.passed(0, true);
    followed.left(0, 0);
  }
  EXPECT_FALSE(followed.expects(0));
  followed.passed(0, false);
  EXPECT_TRUE(followed.expects(0));
}

}  // namespace
}  // namespace parallax
