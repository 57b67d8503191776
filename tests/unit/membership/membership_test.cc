// SPDX-License-Identifier: Apache-2.0
#include "membership/membership.h"

#include <gtest/gtest.h>

namespace parallax {
namespace {

constexpr int64_t kLease = 1000;
constexpr int64_t kBeat = kLease / Membership::kHeartbeatsPerLease;
constexpr uint32_t kNobody = Membership::kNoNeighbour;

// Passes of the engine every `every`, so that nobody is taken for held up.
void pass_until(Membership* membership, int64_t from, int64_t to, int64_t every = 10) {
  for (int64_t now = from; now <= to; now += every) membership->passed(now);
}

TEST(Membership, SilenceForALeaseExpires) {
  Membership membership({3, 5}, kLease, 0);
  pass_until(&membership, 0, 600);
  membership.heard(5, 600);
  pass_until(&membership, 600, kLease - 1);
  EXPECT_EQ(membership.expired(kLease - 1), kNobody);
  pass_until(&membership, kLease, kLease);
  EXPECT_EQ(membership.expired(kLease), 3u) << "never heard: since the start";
  membership.heard(3, kLease);
  EXPECT_EQ(membership.expired(kLease), kNobody) << "any message renews it";
  pass_until(&membership, kLease, 600 + kLease);
  EXPECT_EQ(membership.expired(600 + kLease), 5u);
}

TEST(Membership, HeartbeatsAreDueWhereNothingWasSent) {
  Membership membership({3, 5}, kLease, 0);
  EXPECT_EQ(membership.heartbeat_due(kBeat - 1), kNobody);
  membership.sent(3, kBeat - 1);
  EXPECT_EQ(membership.heartbeat_due(kBeat), 5u);
  membership.sent(5, kBeat);
  EXPECT_EQ(membership.heartbeat_due(kBeat), kNobody);
  EXPECT_EQ(membership.heartbeat_due(2 * kBeat - 1), 3u);
}

TEST(Membership, ThoseTalkedToAreWatchedToo) {
  Membership membership({3}, kLease, 0);
  membership.heard(3, 100);
  membership.sent(9, 100);
  pass_until(&membership, 0, 100 + kLease - 50);
  membership.heard(3, 100 + kLease - 50);
  pass_until(&membership, 100 + kLease - 50, 100 + kLease);
  EXPECT_EQ(membership.expired(100 + kLease), 9u);
  ASSERT_EQ(membership.watched().size(), 2u);
  EXPECT_EQ(membership.neighbours().size(), 1u);
}

TEST(Membership, TheDismissedAreNotWatched) {
  Membership membership({3, 5}, kLease, 0);
  membership.dismiss(3);
  membership.dismiss(77);  // never seen: nothing happens
  pass_until(&membership, 0, kLease);
  EXPECT_EQ(membership.expired(kLease), 5u);
  membership.dismiss(5);
  EXPECT_EQ(membership.expired(10 * kLease), kNobody);
  EXPECT_EQ(membership.heartbeat_due(10 * kLease), kNobody);
}

// Given that this rank itself was stopped, expect its neighbours to get that time back.
TEST(Membership, TimeInWhichWeWereStoppedIsNotTheirSilence) {
  Membership membership({3}, kLease, 0);
  pass_until(&membership, 0, 200);
  membership.passed(200 + 5 * kLease);
  EXPECT_EQ(membership.expired(200 + 5 * kLease), kNobody) << "their messages may wait unread";
  pass_until(&membership, 200 + 5 * kLease, 6 * kLease - 1);
  EXPECT_EQ(membership.expired(6 * kLease - 1), kNobody);
  pass_until(&membership, 6 * kLease, 8 * kLease);
  EXPECT_EQ(membership.expired(8 * kLease), 3u) << "but not for ever";
}

// Given passes that are late again and again, expect a silent rank to be given as much more time,
// at most a lease; and the lease alone again once passes are in time.
TEST(Membership, AStarvedRankIsPatient) {
  for (const int64_t late : {kLease / 5, kLease / 3, 2 * kLease}) {
    Membership membership({3}, kLease, 0);
    int64_t now = 0;
    for (int i = 0; i < 50; ++i) {
      now = std::max(now, membership.next_deadline_ns()) + late;
      membership.passed(now);
      membership.heard(3, now);
      while (membership.heartbeat_due(now) != kNobody) membership.sent(3, now);
    }
    const int64_t patience = std::min(late, kLease);
    EXPECT_GE(membership.strain_ns(), patience * 9 / 10) << late;
    EXPECT_LE(membership.strain_ns(), kLease);
    EXPECT_EQ(membership.expired(now + kLease + patience / 2), kNobody) << late;
    EXPECT_EQ(membership.expired(now + kLease + patience), 3u) << late;
    const int64_t quiet_until = now + 12 * kLease;
    for (; now < quiet_until; now += 10) {
      membership.passed(now);
      membership.heard(3, now);
      while (membership.heartbeat_due(now) != kNobody) membership.sent(3, now);
    }
    EXPECT_LE(membership.strain_ns(), kLease / 50);
    EXPECT_EQ(membership.expired(now + kLease + kLease / 50), 3u);
  }
}

// Given a machine that is never late by more than a timer is, expect a lease to be a lease.
TEST(Membership, AQuietMachineKeepsToTheLease) {
  Membership membership({3}, kLease, 0);
  int64_t now = 0;
  membership.heard(3, now);
  while (membership.expired(now) == kNobody && now < 3 * kLease) {
    now = std::max(now + 1, membership.next_deadline_ns() + kLease / 50);
    membership.passed(now);
    while (membership.heartbeat_due(now) != kNobody) membership.sent(3, now);
  }
  EXPECT_LE(now, kLease + kLease / 10);
}

// Given a broken connection, expect its rank to be lost after a moment, in which there are several
// passes; and not by its lease.
TEST(Membership, ASuspicionRipens) {
  constexpr int64_t kLongLease = 5000 * kNanosecondsPerMillisecond;
  constexpr int64_t kMoment = Membership::kSuspicionNsMax;
  Membership membership({3, 5}, kLongLease, 0);
  membership.suspect(5, "it broke", 0);
  EXPECT_LE(membership.next_deadline_ns(), kMoment);
  pass_until(&membership, 0, kMoment - kMoment / 100, kMoment / 100);
  Membership::Suspicion ripe;
  EXPECT_FALSE(membership.take_ripe(&ripe));
  pass_until(&membership, kMoment, kMoment + kMoment / 100, kMoment / 100);
  EXPECT_LE(membership.next_deadline_ns(), kMoment + kMoment / 100);
  ASSERT_TRUE(membership.take_ripe(&ripe));
  EXPECT_EQ(ripe.rank, 5u);
  EXPECT_EQ(ripe.why, "it broke");
  membership.heard(3, kLongLease);
  EXPECT_EQ(membership.expired(kLongLease), kNobody);
}

// Given passes that come when they are due, each late by a timer's slack, expect a suspicion to be
// a loss within 100 ms of the break.
TEST(Membership, ASuspicionIsSettledWithin100Ms) {
  for (const int64_t lease_ms : {200, 500, 5000, 60000}) {
    Membership membership({3, 5}, lease_ms * kNanosecondsPerMillisecond, 0);
    Membership::Suspicion ripe;
    membership.suspect(5, "it broke", 0);
    int64_t now = 0;
    for (bool settled = false; !settled && now < 1000 * kNanosecondsPerMillisecond;) {
      now = std::max(now, membership.next_deadline_ns()) + kNanosecondsPerMillisecond;
      membership.heard(3, now);
      membership.passed(now);
      while (membership.heartbeat_due(now) != kNobody) membership.sent(3, now);
      settled = membership.take_ripe(&ripe);
    }
    EXPECT_LE(now, 100 * kNanosecondsPerMillisecond) << "lease " << lease_ms;
  }
}

TEST(Membership, ASuspicionOutlivesOneLongPass) {
  Membership membership({3, 5}, 100 * kLease, 0);
  Membership::Suspicion ripe;
  membership.suspect(5, "it broke", 0);
  for (int64_t pass = 1; pass < Membership::kSuspicionPasses; ++pass) {
    membership.passed(pass * 40 * kLease);
    EXPECT_FALSE(membership.take_ripe(&ripe)) << "pass " << pass;
  }
  membership.passed(Membership::kSuspicionPasses * 40 * kLease);
  EXPECT_TRUE(membership.take_ripe(&ripe));
  EXPECT_FALSE(membership.take_ripe(&ripe)) << "it was taken";
}

// Given a rank that was held up for long, expect it to know for some leases that others may have
// lost it; and none that passes as it should to think so.
TEST(Membership, WhoWasHeldUpMayBeLost) {
  Membership membership({3}, kLease, 0);
  pass_until(&membership, 0, 3 * kLease, kBeat);
  EXPECT_FALSE(membership.lapsed());
  membership.passed(4 * kLease);
  EXPECT_TRUE(membership.lapsed());
  pass_until(&membership, 4 * kLease, (3 + Membership::kLapseLeases) * kLease);
  EXPECT_TRUE(membership.lapsed());
  pass_until(&membership, (3 + Membership::kLapseLeases) * kLease,
             (4 + Membership::kLapseLeases) * kLease);
  EXPECT_FALSE(membership.lapsed());
}

TEST(Membership, TheDeadlineIsNeverLate) {
  Membership membership({3, 5}, kLease, 0);
  EXPECT_LE(membership.next_deadline_ns(), kBeat);
  int64_t expired_at = 0;
  for (int64_t now = 0; now < 3 * kLease && expired_at == 0;) {
    now = std::max(now + 1, membership.next_deadline_ns());  // the driver sleeps as long as it may
    membership.passed(now);
    if (now < 500) membership.heard(5, now);
    membership.heard(3, now);
    if (membership.expired(now) == 5) expired_at = now;
    for (uint32_t due = membership.heartbeat_due(now); due != kNobody;
         due = membership.heartbeat_due(now)) {
      membership.sent(due, now);
    }
  }
  EXPECT_GE(expired_at, kLease) << "heard at 250 or 499";
  EXPECT_LE(expired_at, 500 + kLease + kBeat);
}

}  // namespace
}  // namespace parallax
