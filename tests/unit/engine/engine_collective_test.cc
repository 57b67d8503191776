// SPDX-License-Identifier: Apache-2.0
// Collectives beside the steps on whole engines: every kind, dtype and operation against one
// process, many under way, tags in any order, disagreement, losses, and ranks that close.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>

#include "support/sanitizers.h"
#include "support/words.h"
#include "unit/engine/collective_world.h"

namespace parallax::testkit::beside {
namespace {

TEST(EngineCollective, EveryKindDtypeAndOperationOnEveryLayout) {
  uint64_t seed = 0;
  for (const Hosts& hosts : kLayouts) {
    for (uint32_t kind = PARALLAX_ALLREDUCE; kind <= PARALLAX_GATHER; ++kind) {
      ++seed;
      const auto world = committed(world_of(hosts, seed));
      Calls calls(*world);
      for (uint32_t dtype = 0; dtype < kDtypeCount; ++dtype) {
        for (uint32_t op = 0; op <= PARALLAX_OP_XOR; ++op) {
          CollectiveCase of = {.world = world->size(), .kind = kind, .dtype = dtype, .op = op};
          if (!of.takes_op()) continue;
          of.seed = ++seed;
          if (kBrief && seed % 16 != 0) continue;
          of.root = static_cast<uint32_t>(seed % world->size());
          // Nothing, one, some that travel with the reports, and more than one message.
          for (const uint64_t count : {0u, 1u, 7u, 301u, 2600u}) {
            of.count = count;
            of.in_place = (seed + count) % 3 == 0;
            of.draw_counts(count);
            calls.post(of);
          }
        }
      }
      calls.expect_right();
      if (HasFatalFailure()) return;
    }
  }
}

TEST(EngineCollective, LargeOnesGoByEveryAlgorithm) {
  if (kThreadSanitizer) GTEST_SKIP() << "one thread, and millions of numbers";
  // A ring takes 65,536 elements a rank on 16 hosts.
  Hosts sixteen(16);
  for (uint32_t rank = 0; rank < sixteen.size(); ++rank) sixteen[rank] = rank;
  const auto world = committed(world_of(sixteen, 1));
  Calls calls(*world);
  calls.post({.world = 16, .op = PARALLAX_OP_MAX, .count = 16 * 65536 + 5, .in_place = true});
  calls.post({.world = 16, .dtype = PARALLAX_BF16, .op = PARALLAX_OP_MEAN, .count = 16 * 65536});
  calls.expect_right();
}

TEST(EngineCollective, TagsMeetInAnyOrderAndThoseOfOneTagInTheirs) {
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    SeededRandom random(seed);
    const Hosts& hosts = kLayouts[random.below(std::size(kLayouts))];
    const auto world = committed(world_of(hosts, seed));
    std::vector<CollectiveCase> cases;
    for (uint64_t i = 0; i < 24; ++i) {
      cases.push_back(CollectiveCase::draw(random.fork(i), world->size()));
      cases.back().tag = random.below(8);
    }
    Calls calls(*world);
    for (uint32_t rank = 0; rank < world->size(); ++rank) {
      // Tags in an order of the rank's own; within a tag as they are.
      std::vector<uint64_t> tags = {0, 1, 2, 3, 4, 5, 6, 7};
      for (size_t i = tags.size() - 1; i > 0; --i) std::swap(tags[i], tags[random.below(i + 1)]);
      for (const uint64_t tag : tags) {
        for (const CollectiveCase& of : cases) {
          if (of.tag == tag) calls.post(of, rank);
        }
        world->shuffle(random.below(40));
      }
    }
    calls.expect_right();
    if (HasFatalFailure()) FAIL() << "seed " << seed;
  }
}

// A rank that is ahead makes the others hold its reports alone.
TEST(EngineCollective, ManyUnderWayAtARankThatIsAhead) {
  for (const Hosts& hosts : {Hosts{0, 0, 0}, Hosts{0, 1, 2}}) {
    const auto world = committed(world_of(hosts, 2));
    Calls calls(*world);
    constexpr uint64_t kMany = 300;
    for (uint32_t rank = world->size(); rank-- > 0;) {
      for (uint64_t i = 0; i < kMany; ++i) {
        calls.post({.world = world->size(), .count = i % 3 == 0 ? 500u : 1u, .seed = i + 1}, rank);
      }
      world->settle();
    }
    calls.expect_right();
  }
}

TEST(EngineCollective, UnderDeterministicTheBitsHangOnNoTiming) {
  const Hosts hosts = {0, 0, 1, 1, 1, 2};
  for (const uint64_t count : {3u, 4000u}) {
    std::vector<float> first;
    for (uint64_t seed = 1; seed <= 12; ++seed) {
      WorldOptions options = world_of(hosts, seed);
      options.deterministic = true;
      const auto world = committed(options);
      std::vector<std::vector<float>> values(world->size(), std::vector<float>(count));
      for (uint32_t rank = 0; rank < world->size(); ++rank) {
        SeededRandom random(rank + 1);
        for (float& value : values[rank]) value = static_cast<float>(random.unit() - 0.5);
      }
      for (const Status& status : world->everywhere([&](uint32_t rank, Request**request) {
             parallax_collective_t call = {};
             call.kind = PARALLAX_ALLREDUCE;
             call.count = count;
             call.send = call.recv = values[rank].data();
             return world->engine(rank).collective_calls().collective(call, request);
           })) {
        ASSERT_TRUE(status.ok()) << status.message();
      }
      for (const auto& of_rank : values) ASSERT_EQ(of_rank, values[0]);
      if (first.empty()) first = values[0];
      ASSERT_EQ(values[0], first) << "seed " << seed;
    }
  }
}

// ---- disagreement

struct Disagreement {
  const char* field;
  CollectiveCase one, other;
};

TEST(EngineCollective, AMismatchFailsThatOneAlikeEverywhereAndTheJobGoesOn) {
  CollectiveCase plain = {.world = 6, .root = 1, .count = 5};
  CollectiveCase large = plain;
  large.count = 3000;
  CollectiveCase other_kind = plain, other_dtype = plain, other_op = plain, other_count = plain;
  other_kind.kind = PARALLAX_BROADCAST;
  other_dtype.dtype = PARALLAX_I64;
  other_op.op = PARALLAX_OP_MAX;
  other_count.count = 6;
  CollectiveCase gather = plain, other_root = plain;
  gather.kind = other_root.kind = PARALLAX_GATHER;
  other_root.root = 3;
  CollectiveCase v = plain, other_v = plain;
  v.kind = other_v.kind = PARALLAX_ALLGATHERV;
  v.counts.assign(6, std::vector<uint64_t>(6, 4));
  other_v.counts = v.counts;
  other_v.counts[0] = std::vector<uint64_t>(6, 3);
  other_v.counts[5] = std::vector<uint64_t>(6, 5);
  const Disagreement all[] = {
      {"kind is ", plain, other_kind},  {"dtype is ", plain, other_dtype},
      {"op is ", plain, other_op},      {"count is ", plain, other_count},
      {"root is ", gather, other_root}, {"recv_counts differ", v, other_v},
      {"count is ", large, plain},      {"kind is ", large, other_kind},
  };
  for (const Disagreement& each : all) {
    for (uint32_t odd = 0; odd < 6; ++odd) {
      for (const uint64_t tag : {0u, 9u}) {
        const auto world = committed(world_of({0, 0, 1, 1, 2, 3}, odd + 1));
        Calls wrong(*world), after(*world);
        for (uint32_t rank = 0; rank < world->size(); ++rank) {
          CollectiveCase of = rank == odd ? each.other : each.one;
          of.tag = tag;
          wrong.post(of, rank);
          CollectiveCase next = {.world = 6, .count = 700, .tag = tag};
          after.post(next, rank);
        }
        ASSERT_TRUE(world->run_until_done(wrong.requests()));
        for (uint32_t rank = 0; rank < world->size(); ++rank) {
          const Status& status = wrong.requests()[rank]->status;
          EXPECT_EQ(status.code(), PARALLAX_MISMATCH) << each.field << " odd " << odd;
          EXPECT_TRUE(has(status, each.field)) << status.message();
          EXPECT_TRUE(has(status, "rank " + std::to_string(odd))) << status.message();
          EXPECT_EQ(status.message(), wrong.requests()[0]->status.message());
          EXPECT_TRUE(wrong.buffers(rank).untouched());
        }
        after.expect_right();
      }
    }
  }
}

TEST(EngineCollective, CountsOfAPairThatDifferAreNamedAtBoth) {
  for (const uint64_t sent : {0u, 3u}) {  // for 2 that are expected
    const auto world = committed(world_of({0, 0, 1, 2}, 5));
    CollectiveCase of = {.world = 4, .kind = PARALLAX_ALLTOALLV};
    of.counts.assign(4, std::vector<uint64_t>(4, 2));
    CollectiveCase other = of;
    other.counts[1][2] = sent;
    Calls calls(*world);
    for (uint32_t rank = 0; rank < 4; ++rank) calls.post(rank == 1 ? other : of, rank);
    ASSERT_TRUE(world->run_until_done(calls.requests()));
    for (uint32_t rank = 0; rank < 4; ++rank) {
      const Status& status = calls.requests()[rank]->status;
      EXPECT_EQ(status.code(), PARALLAX_MISMATCH);
      if (rank != 1 && rank != 2) continue;
      EXPECT_TRUE(has(status, "send_counts of rank 1")) << status.message();
      EXPECT_TRUE(has(status, "for rank 2")) << status.message();
    }
    Calls after(*world);
    after.post({.world = 4, .count = 3});
    after.expect_right();
  }
}

// ---- who is missing, lost or gone

TEST(EngineCollective, ATimeoutNamesWhoHasNotCalled) {
  const auto world = committed(world_of({0, 0, 1}, 1));
  Calls calls(*world);
  for (uint32_t rank = 0; rank < 2; ++rank) calls.post({.world = 3, .count = 2, .tag = 7}, rank);
  world->settle();
  const Status late = world->engine(0).reports().missing(*calls.requests()[0]);
  EXPECT_TRUE(has(late, "collective of tag 7 (ALLREDUCE) waits for ")) << late.message();
  EXPECT_TRUE(has(late, "rank 2")) << late.message();
  EXPECT_EQ(late.facts().peer, 2u);
  EXPECT_TRUE(has(world->engine(1).reports().missing(*calls.requests()[1]), "rank 0"));
}

TEST(EngineCollective, ALossInTheMiddleEndsAllOfThem) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SeededRandom random(seed);
    const auto world = committed(world_of({0, 0, 1, 1, 2}, seed));
    Calls calls(*world);
    for (uint64_t i = 0; i < 6; ++i) {
      CollectiveCase of = CollectiveCase::draw(random.fork(i), 5);
      of.tag = i % 3;
      for (uint32_t rank = 0; rank < 5; ++rank) {
        // One of them is never called by the rank that is lost.
        if (rank != 3 || i < 5) calls.post(of, rank);
      }
    }
    world->shuffle(random.below(200));
    // The requests of the lost rank are gone with it.
    std::vector<Request*> survivors;
    for (size_t i = 0; i < calls.requests().size(); ++i) {
      if (calls.rank_of(i) != 3) survivors.push_back(calls.requests()[i]);
    }
    world->kill(3);
    ASSERT_TRUE(world->run_until([&] {
      world->clock().advance(kNanosecondsPerMillisecond);
      return std::all_of(survivors.begin(), survivors.end(), [](Request* r) { return r->done(); });
    })) << "seed "
        << seed;
    EXPECT_EQ(survivors.back()->status.code(), PARALLAX_PEER_LOST);
    EXPECT_TRUE(has(survivors.back()->status, "rank 3")) << survivors.back()->status.message();
  }
}

// Whoever leaves it out, wherever that rank is in the tree, and whether it closes before the others
// call or after.
TEST(EngineCollective, ARankThatClosesInsteadIsTold) {
  for (const Hosts& hosts : {Hosts{0, 0}, Hosts{0, 1, 1, 2}, Hosts{0, 1, 2, 3, 4, 5, 6, 6}}) {
    for (uint32_t leaver = 0; leaver < hosts.size(); ++leaver) {
      for (const bool first : {false, true}) {
        const auto world = committed(world_of(hosts, leaver + 1));
        Calls calls(*world);
        Request* closing = nullptr;
        const auto close = [&] {
          ASSERT_TRUE(world->engine(leaver).job_calls().close(&closing).ok());
        };
        if (first) close();
        world->shuffle(100);
        for (uint32_t rank = 0; rank < world->size(); ++rank) {
          if (rank != leaver) calls.post({.world = world->size(), .count = 400}, rank);
        }
        world->shuffle(100);
        if (!first) close();
        // Those that wait do not close, so their parents learn it of the leaver or its own.
        ASSERT_TRUE(world->run_until_done(calls.requests())) << "leaver " << leaver;
        for (const Request* request : calls.requests()) {
          EXPECT_EQ(request->status.code(), PARALLAX_PEER_LOST);
          EXPECT_TRUE(has(request->status, "closed the job before collective 0"))
              << request->status.message();
          EXPECT_TRUE(has(request->status, "rank " + std::to_string(leaver)))
              << request->status.message();
        }
      }
    }
  }
}

TEST(EngineCollective, CloseFollowsWhatWasCalledBefore) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SeededRandom random(seed);
    const auto world = committed(world_of({0, 0, 1, 2, 3}, seed));
    Calls calls(*world);
    std::vector<Request*> closes(world->size());
    for (uint32_t rank = 0; rank < world->size(); ++rank) {
      for (uint64_t i = 0; i < 6; ++i) {
        calls.post({.world = 5, .count = 90 * i, .tag = i / 3, .seed = i + 1}, rank);
      }
      world->shuffle(random.below(30));
      ASSERT_TRUE(world->engine(rank).job_calls().close(&closes[rank]).ok());
    }
    ASSERT_TRUE(world->run_until_done(closes)) << "seed " << seed;
    for (const Request* request : closes) EXPECT_TRUE(request->status.ok());
    for (const Request* request : calls.requests()) {
      EXPECT_TRUE(!request->done() || request->status.ok()) << request->status.message();
    }
  }
}

TEST(EngineCollective, ACancelEndsTheJob) {
  const auto world = committed(world_of({0, 1}, 1));
  Calls calls(*world);
  calls.post({.world = 2, .count = 5}, 0);
  world->engine(0).cancel(*calls.requests()[0]);
  calls.post({.world = 2, .count = 5, .tag = 4}, 1);
  ASSERT_TRUE(world->run_until_done(calls.requests()));
  for (const Request* request : calls.requests()) {
    EXPECT_EQ(request->status.code(), PARALLAX_CANCELED);
  }
}

TEST(EngineCollective, NotBeforeCommit) {
  EngineWorld world(world_of({0, 0}, 1));
  CollectiveBuffers buffers({.world = 2, .count = 3}, 0);
  Request* request = nullptr;
  EXPECT_EQ(world.engine(0).collective_calls().collective(buffers.call(), &request).code(),
            PARALLAX_STATE);
}

}  // namespace
}  // namespace parallax::testkit::beside
