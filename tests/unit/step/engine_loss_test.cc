// SPDX-License-Identifier: Apache-2.0
// Whom a rank blames: a broken connection is a suspicion, and other news win while it is one; who
// fails says why before its calls answer.
#include <gtest/gtest.h>

#include <array>
#include <cstring>

#include "support/engine_world.h"
#include "transport/wire.h"

namespace parallax::testkit {
namespace {

constexpr int64_t kMillisecond = kNanosecondsPerMillisecond;
constexpr int64_t kLong = 300;  // milliseconds: a suspicion is none any more

bool names(const Status& status, uint32_t rank) {
  const std::string name = "rank " + std::to_string(rank) + " (host";
  return status.code() == PARALLAX_PEER_LOST && status.message().compare(0, name.size(), name) == 0;
}

// The notice that `lost` is lost, from the rank whose transport this is.
void send_notice(Transport& transport, uint32_t to, uint32_t lost) {
  const std::string sentence = "rank " + std::to_string(lost) + " (host host) is lost: seen";
  SectionHeader section;
  section.kind = SectionKind::kLost;
  section.tag = lost;
  section.payload_bytes = static_cast<uint32_t>(sentence.size());
  section.count = section.payload_bytes;
  const MessageHeader header = {.epoch = 1, .sequence = 1000, .section_count = 1};
  const Segment segments[] = {
      {&header, sizeof header}, {&section, sizeof section}, {sentence.data(), sentence.size()}};
  ASSERT_TRUE(transport.send(to, segments, 0).ok());
}

// Rank 0 alone moves, `ms` milliseconds long or until it has failed; how long it took.
int64_t run_alone(EngineWorld* world, int64_t ms) {
  for (int64_t passed_ms = 0; passed_ms < ms; passed_ms += 10) {
    if (!world->engine(0).failure().ok()) return passed_ms;
    world->clock().advance(10 * kMillisecond);
    world->engine(0).run();
  }
  return ms;
}

TEST(EngineBlame, NewsOfAnotherWinOverABrokenConnection) {
  EngineWorld world({.hosts = {0, 1, 2, 3}});
  ASSERT_TRUE(world.commit({})[0].ok());
  world.settle();
  world.kill(1);
  run_alone(&world, 100);
  EXPECT_TRUE(world.engine(0).failure().ok()) << world.engine(0).failure().message();
  send_notice(world.take_over(2), 0, 3);
  run_alone(&world, 10);
  EXPECT_TRUE(names(world.engine(0).failure(), 3)) << world.engine(0).failure().message();
}

TEST(EngineBlame, WithoutNewsABrokenConnectionIsALoss) {
  EngineWorld world({.hosts = {0, 1, 2, 3}});
  ASSERT_TRUE(world.commit({})[0].ok());
  world.settle();
  world.kill(2);
  EXPECT_LT(run_alone(&world, kLong), kLong);
  EXPECT_TRUE(names(world.engine(0).failure(), 2)) << world.engine(0).failure().message();
}

TEST(EngineBlame, OfTwoRanksTheOtherIsLostAtOnce) {
  EngineWorld world({.hosts = {0, 1}});
  ASSERT_TRUE(world.commit({})[0].ok());
  world.settle();
  world.kill(1);
  world.engine(0).run();
  EXPECT_TRUE(names(world.engine(0).failure(), 1)) << world.engine(0).failure().message();
}

// Given a rank that was held up longer than any news take, expect it to read them first.
TEST(EngineBlame, WhoWasHeldUpReadsBeforeItJudges) {
  EngineWorld world({.hosts = {0, 1, 2, 3}});
  ASSERT_TRUE(world.commit({})[0].ok());
  world.settle();
  world.kill(1);
  world.engine(0).run();
  world.clock().advance(kLong * kMillisecond);
  world.engine(0).run();
  EXPECT_TRUE(world.engine(0).failure().ok()) << world.engine(0).failure().message();
  send_notice(world.take_over(2), 0, 3);
  world.clock().advance(kLong * kMillisecond);
  world.engine(0).run();
  EXPECT_TRUE(names(world.engine(0).failure(), 3)) << world.engine(0).failure().message();
}

// Given ranks that came to close and went before rank 0 came, which nobody told to go, expect rank
// 0 to close with a loss: it may have been the one that the others lost.
TEST(EngineBlame, WhoGoesBeforeTheReleaseIsLost) {
  EngineWorld world({.hosts = {0, 1, 2, 3}});
  ASSERT_TRUE(world.commit({})[0].ok());
  world.settle();
  std::array<Request*, 4> closing = {};
  for (const uint32_t rank : {1U, 2U, 3U}) {
    ASSERT_TRUE(world.engine(rank).close(&closing[rank]).ok());
  }
  world.settle();
  for (const uint32_t rank : {1U, 2U, 3U}) world.kill(rank);
  ASSERT_TRUE(world.engine(0).close(&closing[0]).ok());
  world.engine(0).run();
  EXPECT_FALSE(closing[0]->done());
  EXPECT_LT(run_alone(&world, kLong), kLong);
  while (!closing[0]->done()) world.engine(0).run();
  EXPECT_EQ(closing[0]->status.code(), PARALLAX_PEER_LOST) << closing[0]->status.message();
}

// Given peers without credits, expect the requests of a rank that fails to be pending until its
// reason has left.
TEST(EngineBlame, TheReasonLeavesBeforeRequestsComplete) {
  EngineWorld world({.hosts = {0, 0, 1}});
  ASSERT_TRUE(world.commit({})[0].ok());
  world.settle();
  Request* barrier = nullptr;
  ASSERT_TRUE(world.engine(0).barrier(&barrier).ok());
  world.settle();
  for (const uint32_t peer : {1U, 2U}) world.transport(0).hold(peer, 30);
  world.engine(0).abort("told to");
  world.engine(0).kick();
  world.engine(0).run();
  EXPECT_TRUE(world.engine(0).speaking());
  EXPECT_FALSE(barrier->done());
  while (!barrier->done()) world.engine(0).run();
  world.kill(0);  // as a program that exits with its first error
  world.settle();
  for (const uint32_t peer : {1U, 2U}) {
    EXPECT_EQ(world.engine(peer).failure().code(), PARALLAX_ABORTED)
        << world.engine(peer).failure().message();
  }
}

// Given a peer that never has credits again, expect the requests of a rank that fails to complete
// all the same, and that it says when to look again.
TEST(EngineBlame, AStoppedPeerHoldsNobody) {
  EngineWorld world({.hosts = {0, 0, 1}});
  ASSERT_TRUE(world.commit({})[0].ok());
  world.settle();
  Request* barrier = nullptr;
  ASSERT_TRUE(world.engine(0).barrier(&barrier).ok());
  world.settle();
  world.transport(0).hold(2, UINT32_MAX);
  world.engine(0).abort("told to");
  world.engine(0).run();
  EXPECT_FALSE(barrier->done());
  const int64_t left_ns = world.engine(0).next_deadline_ns() - world.clock().now_ns();
  ASSERT_GT(left_ns, 0);
  ASSERT_LE(left_ns, kLong * kMillisecond);
  world.clock().advance(left_ns);
  world.engine(0).run();
  EXPECT_TRUE(barrier->done());
  EXPECT_EQ(world.engine(0).next_deadline_ns(), kNever);
}

}  // namespace
}  // namespace parallax::testkit
