// SPDX-License-Identifier: Apache-2.0
// Who is lost, and who has left. Whole jobs that lose ranks are in engine_loss_test.cc.
#include "engine/loss_watch.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "unit/engine/loss_world.h"

namespace parallax::testkit {
namespace {

bool lost(const LossWorld& world, uint32_t rank) {
  return world.failure.status().code() == PARALLAX_PEER_LOST &&
         world.failure.status().message().find("rank " + std::to_string(rank) + " (host") == 0;
}

Section notice(SectionKind kind, uint32_t culprit, int32_t code, const std::string& text) {
  Section section;
  section.header.kind = kind;
  section.header.tag = culprit;
  section.header.first = static_cast<uint32_t>(code);
  section.payload = std::as_bytes(std::span(text));
  return section;
}

TEST(LossWatch, ASilentRankIsLostAfterItsLease) {
  LossWorld world(3);
  world.membership.heard(1, 10);
  world.watch.check(LossWorld::kLeaseNs - 1);
  EXPECT_TRUE(world.failure.job_goes_on());
  world.watch.check(LossWorld::kLeaseNs + 1);
  EXPECT_TRUE(lost(world, 2)) << world.failure.status().message();
  EXPECT_NE(world.failure.status().message().find("silent for its lease of 1000 ms"),
            std::string::npos);
  ASSERT_FALSE(world.transport.forgotten.empty());
  EXPECT_EQ(world.transport.forgotten.front(), 2u);
}

TEST(LossWatch, ThisRanksOwnLeasesAreKept) {
  LossWorld world(3);
  world.watch.check(LossWorld::kLeaseNs / 2);
  world.watch.check(LossWorld::kLeaseNs / 2);
  world.network.settle();
  ASSERT_EQ(world.sent.size(), 2u) << "one for each";
  EXPECT_EQ(world.sent[0].header.kind, SectionKind::kHeartbeat);
  world.failure.close();
  world.watch.check(LossWorld::kLeaseNs - 1);
  world.network.settle();
  EXPECT_EQ(world.sent.size(), 2u) << "a closed job keeps none";
}

// Given a connection that broke, expect a moment in which a peer's notice may say whose fault it
// was; of two ranks nobody else can.
TEST(LossWatch, ABrokenConnectionIsASuspicionFirst) {
  LossWorld world(3);
  world.watch.on_lost(2, Loss::kBroken, "reset");
  EXPECT_TRUE(world.failure.job_goes_on());
  for (int64_t pass = 0; pass <= Membership::kSuspicionPasses; ++pass) {
    world.clock.now += Membership::kSuspicionNsMax;
    world.membership.heard(1, world.clock.now);
    world.membership.passed(world.clock.now);
    world.watch.check(world.clock.now);
  }
  EXPECT_TRUE(lost(world, 2)) << world.failure.status().message();
  LossWorld of_two(2);
  of_two.watch.on_lost(1, Loss::kBroken, "reset");
  EXPECT_TRUE(lost(of_two, 1));
}

TEST(LossWatch, WhoseProcessEndedIsLostAtOnce) {
  LossWorld world(3);
  world.watch.on_lost(1, Loss::kDead, "exit");
  EXPECT_TRUE(lost(world, 1)) << world.failure.status().message();
}

TEST(LossWatch, NoticesOfPeersEndTheJob) {
  LossWorld world(3);
  EXPECT_TRUE(world.watch.on_section(notice(SectionKind::kHeartbeat, 0, 0, "")));
  EXPECT_FALSE(world.watch.on_section(notice(SectionKind::kTreeUp, 0, 0, "")));
  EXPECT_TRUE(world.failure.job_goes_on());
  EXPECT_TRUE(world.watch.on_section(notice(SectionKind::kLost, 1, 0, "rank 1 (host x) burns")));
  EXPECT_TRUE(lost(world, 1));
  LossWorld aborted(3), unknown(3);
  EXPECT_TRUE(aborted.watch.on_section(notice(SectionKind::kAbort, 1, PARALLAX_MISMATCH, "no")));
  EXPECT_EQ(aborted.failure.status().code(), PARALLAX_MISMATCH);
  EXPECT_TRUE(unknown.watch.on_section(notice(SectionKind::kAbort, 1, 12345, "no")));
  EXPECT_EQ(unknown.failure.status().code(), PARALLAX_ABORTED) << "a status of another version";
}

// Given a rank that cannot connect for want of something of its own, expect the job to fail for
// that at once, everywhere, and nobody to be lost.
TEST(LossWatch, AnOwnShortageIsNobodysLoss) {
  LossWorld world(3);
  world.watch.on_lost(2, Loss::kOwnLack, "there is no descriptor left for it: raise ulimit -n");
  const Status& failed = world.failure.status();
  EXPECT_EQ(failed.code(), PARALLAX_LIMIT);
  EXPECT_TRUE(failed.message().starts_with("rank 0 (host ")) << failed.message();
  EXPECT_NE(failed.message().find("cannot connect to rank 2 (host "), std::string::npos);
  EXPECT_NE(failed.message().find("ulimit -n"), std::string::npos);
  EXPECT_EQ(failed.facts().peer, PARALLAX_NO_RANK);
  world.network.settle();
  ASSERT_FALSE(world.sent.empty());
  EXPECT_EQ(world.sent[0].header.kind, SectionKind::kAbort);
}

// Given that all ranks close, and this one knows it, expect neither a notice nor an end to be a
// loss.
TEST(LossWatch, WhoHasLeftIsNotLost) {
  LossWorld world(2);
  world.goodbye.take_leaving_as_answer();  // every rank is closing, and knows it
  ASSERT_TRUE(world.goodbye.confirmed());
  EXPECT_TRUE(world.watch.on_section(notice(SectionKind::kLost, 1, 0, "rank 1 (host x) burns")));
  EXPECT_TRUE(world.failure.job_goes_on());
  world.watch.on_lost(1, Loss::kDead, "exit");
  EXPECT_TRUE(world.failure.job_goes_on()) << world.failure.status().message();
  world.watch.check(2 * LossWorld::kLeaseNs);
  EXPECT_TRUE(world.failure.job_goes_on()) << "it is watched no more";
}

}  // namespace
}  // namespace parallax::testkit
