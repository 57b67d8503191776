// SPDX-License-Identifier: Apache-2.0
// Whom a rank blames: a broken connection is a suspicion, and other news win while it is one; who
// fails says why before its calls answer.
#include <gtest/gtest.h>

#include <cstring>
#include <utility>
#include <vector>

#include "message/wire.h"
#include "support/engine_world.h"

namespace parallax::testkit {
namespace {

constexpr int64_t kMillisecond = kNanosecondsPerMillisecond;
constexpr int64_t kLong = 300;  // milliseconds: a suspicion is none any more

// A job that has committed, without variables. `hosts` by rank.
struct CommittedWorld : EngineWorld {
  explicit CommittedWorld(std::vector<uint32_t> hosts) : EngineWorld({.hosts = std::move(hosts)}) {
    EXPECT_TRUE(commit({})[0].ok());
    settle();
  }

  Request* close(uint32_t rank) {
    Request* request = nullptr;
    EXPECT_TRUE(engine(rank).job_calls().close(&request).ok());
    return request;
  }
};

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
  CommittedWorld world({0, 1, 2, 3});
  world.kill(1);
  run_alone(&world, 70);
  EXPECT_TRUE(world.engine(0).failure().ok()) << world.engine(0).failure().message();
  send_notice(world.take_over(2), 0, 3);
  run_alone(&world, 10);
  EXPECT_TRUE(names(world.engine(0).failure(), 3)) << world.engine(0).failure().message();
}

// Within 100 ms of the pass that hears of it.
TEST(EngineBlame, WithoutNewsABrokenConnectionIsALoss) {
  CommittedWorld world({0, 1, 2, 3});
  world.kill(2);
  EXPECT_LE(run_alone(&world, kLong), 110);
  EXPECT_TRUE(names(world.engine(0).failure(), 2)) << world.engine(0).failure().message();
}

TEST(EngineBlame, OfTwoRanksTheOtherIsLostAtOnce) {
  CommittedWorld world({0, 1});
  world.kill(1);
  world.engine(0).run();
  EXPECT_TRUE(names(world.engine(0).failure(), 1)) << world.engine(0).failure().message();
}

// Given a rank that was held up longer than any news take, expect it to read them first.
TEST(EngineBlame, WhoWasHeldUpReadsBeforeItJudges) {
  CommittedWorld world({0, 1, 2, 3});
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

// Given ranks that came to close and went before rank 0 came or, when it released them,
// before they said that they know, expect rank 0 to close with a loss: it may be the one that the
// others lost.
TEST(EngineBlame, WhoGoesWithoutAGoodbyeIsLost) {
  for (const bool releases_first : {false, true}) {
    CommittedWorld world({0, 1, 2, 3});
    for (const uint32_t rank : {1U, 2U, 3U}) world.close(rank);
    world.settle();
    for (const uint32_t rank : {1U, 2U, 3U}) world.kill(rank);
    if (!releases_first) world.engine(0).run();
    const Request* closing = world.close(0);
    world.engine(0).kick();
    EXPECT_FALSE(closing->done());
    EXPECT_LT(run_alone(&world, kLong), kLong);
    while (!closing->done()) world.engine(0).run();
    EXPECT_EQ(closing->status.code(), PARALLAX_PEER_LOST) << closing->status.message();
  }
}

// Given a rank that has said goodbye and whose way to rank 0 ends without an answer, expect
// it to close in peace; but with a loss if it was held up, since then the others may have lost it.
TEST(EngineBlame, WhoWasHeldUpTakesNoEndForAGoodbye) {
  for (const bool held_up : {false, true}) {
    CommittedWorld world({0, 1});
    const Request* closing = world.close(1);
    world.close(0);
    world.engine(1).run();
    world.engine(0).run();  // releases
    world.engine(1).run();  // says goodbye
    EXPECT_FALSE(closing->done());
    if (held_up) {
      world.clock().advance(world.engine(1).options().lease_ns);
      world.engine(1).run();
    }
    world.kill(0);
    world.engine(1).run();
    world.clock().advance(kLong * kMillisecond);
    world.engine(1).run();
    ASSERT_TRUE(closing->done());
    EXPECT_EQ(closing->status.ok(), !held_up) << closing->status.message();
    EXPECT_TRUE(!held_up || names(closing->status, 0)) << closing->status.message();
  }
}

// Given rank 0 that was stopped after its release, and finds a goodbye and the end of who
// said it: that one may have waited for the answer as long as its lease, and left in peace.
TEST(EngineBlame, WhoHasSaidGoodbyeMayGo) {
  CommittedWorld world({0, 1});
  world.close(1);
  const Request* closing = world.close(0);
  world.engine(1).run();
  world.engine(0).run();  // releases
  world.engine(1).run();  // says goodbye
  world.clock().advance(2 * world.engine(0).options().lease_ns);
  world.kill(1);
  world.engine(0).run();
  ASSERT_TRUE(closing->done());
  EXPECT_TRUE(closing->status.ok()) << closing->status.message();
}

// Given a rank that has said goodbye, expect the news of a loss to reach it: somebody has
// not.
TEST(EngineBlame, NewsCountUntilAllHaveSaidGoodbye) {
  CommittedWorld world({0, 0, 1});
  const Request* closing = world.close(1);
  world.close(2);
  world.engine(1).run();
  world.engine(2).run();
  world.close(0);
  world.engine(0).run();  // releases
  world.engine(1).run();  // says goodbye
  send_notice(world.take_over(0), 1, 2);
  world.engine(1).run();
  world.clock().advance(kLong * kMillisecond);
  world.engine(1).run();
  ASSERT_TRUE(closing->done());
  EXPECT_TRUE(names(closing->status, 2)) << closing->status.message();
}

// Given peers without credits, expect the requests of a rank that fails to be pending until
// its reason has left.
TEST(EngineBlame, TheReasonLeavesBeforeRequestsComplete) {
  CommittedWorld world({0, 0, 1});
  Request* barrier = nullptr;
  ASSERT_TRUE(world.engine(0).collective_calls().barrier(&barrier).ok());
  world.settle();
  for (const uint32_t peer : {1U, 2U}) world.transport(0).hold(peer, 30);
  world.engine(0).job_calls().abort("told to");
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

// Given a peer that never has credits again, expect the requests of a rank that fails to
// complete all the same, and that it says when to look again.
TEST(EngineBlame, AStoppedPeerHoldsNobody) {
  CommittedWorld world({0, 0, 1});
  Request* barrier = nullptr;
  ASSERT_TRUE(world.engine(0).collective_calls().barrier(&barrier).ok());
  world.settle();
  world.transport(0).hold(2, UINT32_MAX);
  world.engine(0).job_calls().abort("told to");
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
