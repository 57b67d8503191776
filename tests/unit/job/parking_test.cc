// SPDX-License-Identifier: Apache-2.0
// When the progress thread drives, by the callers that come and go and a clock set by hand.
#include "job/parking.h"

#include <gtest/gtest.h>

#include <vector>

namespace parallax {
namespace {

using Thread = Parking::Thread;

constexpr int64_t kRestNs = Parking::kRestNs;

class ParkingTest : public testing::Test {
 protected:
  Thread next(bool needed = false) { return parking_.next(now_ns_, needed); }
  // True: the bell is rung.
  bool wait_for(int64_t ns) {
    parking_.came();
    now_ns_ += ns;
    return parking_.left(now_ns_, true);
  }

  Parking parking_;
  int64_t now_ns_ = 1'000'000'000;
};

TEST_F(ParkingTest, WhereNobodyEverWaitedItDrives) {
  EXPECT_EQ(next(), Thread::kAwake);
  EXPECT_TRUE(parking_.go_on_duty());
  EXPECT_EQ(parking_.thread(), Thread::kOnDuty);
  parking_.wake();
  EXPECT_EQ(next(), Thread::kAwake);
}

TEST_F(ParkingTest, ACallerOnDutysTimeRingsAsItLeaves) {
  next();
  ASSERT_TRUE(parking_.go_on_duty());
  parking_.came();
  parking_.came();
  EXPECT_FALSE(parking_.left(now_ns_, true)) << "another one drives";
  EXPECT_TRUE(parking_.left(now_ns_, true)) << "nobody would hear what comes";
  EXPECT_FALSE(wait_for(10)) << "the bell is rung, though the thread has not heard it yet";
  parking_.wake();
  EXPECT_EQ(next(), Thread::kRests);
  EXPECT_EQ(parking_.wake_ns(), now_ns_ + kRestNs);
}

TEST_F(ParkingTest, ItDoesNotGoOnDutyBesideAWaiter) {
  next();
  parking_.came();
  EXPECT_FALSE(parking_.go_on_duty());
  EXPECT_EQ(next(), Thread::kRests);
}

TEST_F(ParkingTest, CallersThatComeAndGoRingNobodyAndKeepItResting) {
  wait_for(10);
  ASSERT_EQ(next(), Thread::kRests);
  for (int rest = 0; rest < 50; ++rest) {
    for (int wait = 0; wait < 100; ++wait) EXPECT_FALSE(wait_for(kRestNs / 100));
    ASSERT_EQ(next(), Thread::kRests);
  }
}

// How long the rests are while callers wait, so often each millisecond.
std::vector<int64_t> rests_beside(Parking& parking, int waits_a_ms, int count) {
  int64_t now_ns = 1'000'000'000;
  std::vector<int64_t> rests;
  for (int i = 0; i < count; ++i) {
    EXPECT_EQ(parking.next(now_ns, false), Thread::kRests);
    const int64_t began_ns = now_ns;
    while (now_ns < parking.wake_ns()) {
      parking.came();
      now_ns += kRestNs / waits_a_ms;
      EXPECT_FALSE(parking.left(now_ns, true));
    }
    rests.push_back((now_ns - began_ns) / kRestNs);
  }
  return rests;
}

TEST_F(ParkingTest, WhileCallersComeOftenRestsGrowWhereTheyMay) {
  const std::vector<int64_t> same(7, 1), grown = {1, 2, 4, 8, 16, 16, 16};
  for (const bool longer : {false, true}) {
    for (const int waits_a_ms : {5, 10, 100}) {
      Parking parking;
      if (longer) parking.rest_longer();
      parking.came();
      parking.left(1'000'000'000, true);
      EXPECT_EQ(rests_beside(parking, waits_a_ms, 7), longer && waits_a_ms >= 10 ? grown : same)
          << waits_a_ms << " waits a millisecond";
    }
  }
}

TEST_F(ParkingTest, ALongRestIsFollowedByAShortOneWhereNobodyCame) {
  parking_.rest_longer();
  wait_for(10);
  rests_beside(parking_, 100, 5);
  now_ns_ = parking_.wake_ns();
  ASSERT_EQ(next(), Thread::kRests);
  EXPECT_EQ(parking_.wake_ns() - now_ns_, Parking::kRestNsMax);
  wait_for(10);
  now_ns_ += kRestNs - 1;
  EXPECT_EQ(next(), Thread::kRests) << "woken too soon";
  now_ns_ += kRestNs;
  EXPECT_EQ(next(), Thread::kAwake) << "nobody has come for a moment";
  wait_for(10);
  ASSERT_EQ(next(), Thread::kRests);
  now_ns_ = parking_.wake_ns();
  wait_for(10);
  ASSERT_EQ(next(), Thread::kRests);
  EXPECT_LE(parking_.wake_ns() - now_ns_, kRestNs) << "one caller in a whole rest";
}

TEST_F(ParkingTest, AMomentAfterTheLastCallerItDrives) {
  wait_for(10);
  ASSERT_EQ(next(), Thread::kRests);
  now_ns_ += kRestNs - 1;
  EXPECT_EQ(next(), Thread::kRests) << "woken too soon";
  EXPECT_EQ(parking_.wake_ns(), now_ns_ + 1);
  now_ns_ += 1;
  EXPECT_EQ(next(), Thread::kAwake);
}

TEST_F(ParkingTest, ACallerThatWaitsForLongIsLeftAloneAndRingsAsItLeaves) {
  parking_.came();
  ASSERT_EQ(next(), Thread::kRests);
  now_ns_ += kRestNs / 2;
  EXPECT_EQ(next(), Thread::kRests) << "half a rest";
  now_ns_ += kRestNs / 2;
  EXPECT_EQ(next(), Thread::kParked);
  EXPECT_EQ(next(true), Thread::kParked) << "the caller sees what there is";
  EXPECT_TRUE(parking_.left(now_ns_, true));
  EXPECT_EQ(next(), Thread::kRests);
}

TEST_F(ParkingTest, AfterALongWaitQuickOnesRingNobody) {
  parking_.came();
  next();
  now_ns_ += kRestNs;
  ASSERT_EQ(next(), Thread::kParked);
  EXPECT_TRUE(parking_.left(now_ns_, true));
  parking_.came();  // before the thread has heard the bell
  EXPECT_EQ(next(), Thread::kRests);
  EXPECT_FALSE(parking_.left(now_ns_, true));
}

// Given a rest that began while nobody waited, and a caller who comes just before its end, expect
// the thread not to park beside it: the caller has waited for no rest, and would ring a bell for
// nothing as it leaves.
TEST_F(ParkingTest, ACallerWhoComesAtTheEndOfARestRingsNobody) {
  wait_for(10);
  ASSERT_EQ(next(), Thread::kRests);
  now_ns_ += kRestNs - 1;
  parking_.came();
  now_ns_ += 1;
  EXPECT_EQ(next(), Thread::kRests);
  EXPECT_EQ(parking_.wake_ns(), now_ns_ + kRestNs) << "a rest of its own";
  now_ns_ += kRestNs - 1;
  EXPECT_FALSE(parking_.left(now_ns_, true));
  EXPECT_EQ(next(), Thread::kRests);
}

// Given the same caller for a whole rest of its own, expect the thread to park.
TEST_F(ParkingTest, ACallerWhoComesAtTheEndOfARestAndStaysParksIt) {
  wait_for(10);
  next();
  now_ns_ += kRestNs - 1;
  parking_.came();
  now_ns_ += 1;
  next();
  now_ns_ += kRestNs;
  EXPECT_EQ(next(), Thread::kParked);
  EXPECT_TRUE(parking_.left(now_ns_, true));
}

// Given two callers whose waits overlap for long, expect it to be parked only while the same one
// drives.
TEST_F(ParkingTest, OverlappingWaitsAreNotOneLongWait) {
  parking_.came();
  ASSERT_EQ(next(), Thread::kRests);
  for (int i = 0; i < 5; ++i) {
    now_ns_ += kRestNs;
    parking_.came();
    parking_.left(now_ns_, true);
    EXPECT_EQ(next(), Thread::kRests);
  }
  now_ns_ += kRestNs;
  EXPECT_EQ(next(), Thread::kParked);
}

TEST_F(ParkingTest, WhoDidNotDriveDoesNotMakeItRest) {
  wait_for(10);
  now_ns_ += kRestNs;
  parking_.came();
  EXPECT_FALSE(parking_.left(now_ns_, false));
  EXPECT_EQ(next(), Thread::kAwake);
}

TEST_F(ParkingTest, WhatIsNeededDoesNotWaitForTheEndOfARest) {
  wait_for(10);
  ASSERT_EQ(next(), Thread::kRests);
  EXPECT_EQ(next(true), Thread::kAwake);
  EXPECT_EQ(next(), Thread::kRests) << "once it is done";
}

TEST_F(ParkingTest, WithoutAThreadNobodyRings) {
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(wait_for(2 * kRestNs));
}

}  // namespace
}  // namespace parallax
