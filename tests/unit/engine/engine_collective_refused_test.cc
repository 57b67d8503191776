// SPDX-License-Identifier: Apache-2.0
// Collectives on whole engines that one rank is refused, whose results come in pieces, and of bytes
// of no type.
#include <gtest/gtest.h>

#include <algorithm>
#include <new>
#include <vector>

#include "collectives/collective_report.h"
#include "support/sanitizers.h"
#include "support/words.h"
#include "unit/engine/collective_world.h"
#include "unit/engine/watched_memory.h"

namespace parallax::testkit::beside {
namespace {

// Given a call that one rank, or every rank, is refused, expect the others to be told, and the next
// ones to meet: it has taken its place in the order.
TEST(EngineCollective, ACallThatIsRefusedAtOneRankIsToldToTheOthers) {
  for (const uint64_t tag : {0u, 9u}) {
    for (uint32_t odd = 0; odd <= 5; ++odd) {  // 5: every rank
      for (const uint64_t count : {3u, 4000u}) {
        const auto world = committed(world_of({0, 0, 1, 2, 2}, odd + 1));
        CollectiveCase of = {.world = 5, .count = count, .tag = tag};
        Calls calls(*world), after(*world);
        for (uint32_t rank = 0; rank < 5; ++rank) {
          if (rank != odd && odd < 5) {
            calls.post(of, rank);
          } else {
            CollectiveBuffers buffers(of, rank);
            parallax_collective_t wrong = buffers.call();
            wrong.op = 99;
            Request* request = nullptr;
            const Status refused =
                world->engine(rank).collective_calls().collective(wrong, &request);
            EXPECT_EQ(refused.code(), PARALLAX_INVALID);
            EXPECT_EQ(request, nullptr);
          }
          after.post({.world = 5, .op = PARALLAX_OP_MAX, .count = 700, .tag = tag}, rank);
        }
        ASSERT_TRUE(world->run_until_done(calls.requests()));
        for (const Request* request : calls.requests()) {
          EXPECT_EQ(request->status.code(), PARALLAX_MISMATCH) << request->status.message();
          EXPECT_TRUE(has(request->status, "the call of rank " + std::to_string(odd)));
          EXPECT_TRUE(has(request->status, "was refused there for its op"));
          EXPECT_EQ(request->status.facts().rank, odd);
        }
        after.expect_right();
      }
    }
  }
}

// A call of one rank, the memory for which is refused from one allocation on.
struct PoorCall {
  PoorCall(EngineWorld& world, const CollectiveCase& of, uint32_t rank, uint64_t passed, bool all)
      : buffers(of, rank) {
    const parallax_collective_t call = buffers.call();
    RefusedMemory memory(passed, all);
    try {
      status = world.engine(rank).collective_calls().collective(call, &request);
    } catch (const std::bad_alloc&) {
      thrown = true;
    }
    refused = memory.end();
  }
  CollectiveBuffers buffers;
  Request* request = nullptr;
  Status status;
  bool thrown = false, refused = false;
};

// Given a call that finds no memory, wherever it looks for it, expect it to be refused, the others
// to be told, and the next ones to meet.
TEST(EngineCollective, ACallWithoutMemoryTakesItsPlace) {
  if (!PARALLAX_TEST_WATCHES_MEMORY) GTEST_SKIP() << "a sanitizer owns malloc: run the dev preset";
  for (const uint64_t tag : {0u, 9u}) {
    for (const uint64_t count : {3u, 4000u}) {
      bool more = true;
      uint64_t refusals = 0;
      for (uint64_t passed = 0; more; ++passed) {
        const auto world = committed(world_of({0, 0, 1, 2, 2}, passed + 1));
        const CollectiveCase of = {.world = 5, .count = count, .tag = tag};
        Calls calls(*world), after(*world);
        const uint32_t poor = passed % 5;
        for (uint32_t rank = 0; rank < 5; ++rank) {
          if (rank != poor) calls.post(of, rank);
        }
        const uint32_t outstanding = world->engine(poor).outstanding_requests();
        PoorCall call(*world, of, poor, passed, false);
        more = call.refused;
        // A sort that gets no memory does without.
        const bool refused = !call.status.ok();
        ASSERT_FALSE(call.thrown) << "after " << passed;
        ASSERT_EQ(call.status.code(), refused ? PARALLAX_LIMIT : PARALLAX_OK);
        ASSERT_EQ(call.request == nullptr, refused);
        refusals += refused ? 1 : 0;
        after.post({.world = 5, .op = PARALLAX_OP_MAX, .count = 700, .tag = tag});
        ASSERT_TRUE(world->run_until_done(calls.requests()));
        for (const Request* request : calls.requests()) {
          ASSERT_EQ(request->status.code(), refused ? PARALLAX_MISMATCH : PARALLAX_OK)
              << request->status.message();
          if (!refused) continue;
          EXPECT_TRUE(has(request->status, "the call of rank " + std::to_string(poor)));
        }
        after.expect_right();
        EXPECT_EQ(world->engine(poor).outstanding_requests(), outstanding + (refused ? 1 : 2));
      }
      EXPECT_GT(refusals, 2u);
    }
  }
}

// Given no memory even for its place, expect the job to end on all ranks: they would be out of
// step.
TEST(EngineCollective, ACallWithoutAPlaceEndsTheJob) {
  if (!PARALLAX_TEST_WATCHES_MEMORY) GTEST_SKIP() << "a sanitizer owns malloc: run the dev preset";
  const auto world = committed(world_of({0, 0, 1}, 1));
  const CollectiveCase of = {.world = 3, .count = 4000};
  Calls calls(*world);
  calls.post(of, 0);
  calls.post(of, 2);
  const PoorCall call(*world, of, 1, 0, true);
  ASSERT_TRUE(call.refused && call.thrown);
  EXPECT_EQ(call.request, nullptr);
  EXPECT_EQ(world->engine(1).outstanding_requests(), 0u);
  ASSERT_TRUE(world->run_until_done(calls.requests()));
  for (const Request* request : calls.requests()) {
    EXPECT_EQ(request->status.code(), PARALLAX_LIMIT);
    EXPECT_TRUE(has(request->status, "collective: out of memory")) << request->status.message();
  }
}

// Results of more than a piece are given piece by piece, and the engine does not sleep between
// them.
TEST(EngineCollective, LargeResultsAreGivenWithoutWaiting) {
  if (kThreadSanitizer) GTEST_SKIP() << "one thread, and millions of numbers";
  for (const std::vector<uint32_t>& hosts : {std::vector<uint32_t>{0}, {0, 1}}) {
    const auto world = committed(world_of(hosts, 3));
    Calls calls(*world);
    calls.post({.world = static_cast<uint32_t>(hosts.size()),
                .kind = PARALLAX_REDUCE_SCATTER,
                .dtype = PARALLAX_BF16,
                .op = PARALLAX_OP_MEAN,
                .count = 3 * CollectiveRun::kGiveNumbers});
    while (!world->engine(0).collective_calls().rounds().giving()) {
      ASSERT_FALSE(calls.requests()[0]->done());
      world->shuffle(1);
    }
    EXPECT_EQ(world->engine(0).next_deadline_ns(), world->clock().now_ns());
    EXPECT_TRUE(world->engine(0).run()) << "something moved";
    calls.expect_right();
  }
}

// Given an end of the job in the midst of such a result, expect the engine to come to rest.
TEST(EngineCollective, AResultGivenByHalfEndsWithTheJob) {
  const auto world = committed(world_of({0, 1}, 3));
  Calls calls(*world);
  calls.post({.world = 2,
              .kind = PARALLAX_REDUCE_SCATTER,
              .dtype = PARALLAX_BF16,
              .op = PARALLAX_OP_MEAN,
              .count = 3 * CollectiveRun::kGiveNumbers});
  while (!world->engine(0).collective_calls().rounds().giving()) world->shuffle(1);
  world->engine(0).job_calls().abort("enough");
  for (int i = 0; i < 1000 && !calls.requests()[0]->done(); ++i) world->shuffle(1);
  ASSERT_TRUE(calls.requests()[0]->done());
  for (int i = 0; i < 10; ++i) world->engine(0).run();
  EXPECT_FALSE(world->engine(0).run()) << "nothing is left";
}

// Bytes of no type, of any number, by all kinds that combine nothing.
TEST(EngineCollective, BytesAsTheyAre) {
  for (const uint32_t kind : {PARALLAX_ALLGATHER, PARALLAX_GATHER, PARALLAX_ALLGATHERV,
                              PARALLAX_ALLTOALLV, PARALLAX_BROADCAST}) {
    for (const uint64_t count : {1u, 301u, 70'001u}) {
      const auto world = committed(world_of({0, 1, 1}, count + kind));
      const std::vector<uint64_t> counts(3, count);
      std::vector<std::vector<unsigned char>> sent(3), got(3);
      std::vector<Request*> requests(3);
      for (uint32_t rank = 0; rank < 3; ++rank) {
        for (uint64_t i = 0; i < 3 * count; ++i) {
          sent[rank].push_back(static_cast<unsigned char>(7 * i + 31 * rank + 1));
        }
        got[rank].resize(3 * count);
        parallax_collective_t call = {};
        call.size = sizeof call;
        call.kind = kind;
        call.dtype = PARALLAX_BYTES;
        call.root = 1;
        call.count = count;
        call.send = sent[rank].data();
        call.recv = got[rank].data();
        call.send_counts = call.recv_counts = counts.data();
        const Status posted =
            world->engine(rank).collective_calls().collective(call, &requests[rank]);
        ASSERT_TRUE(posted.ok()) << posted.message();
      }
      ASSERT_TRUE(world->run_until_done(requests));
      for (uint32_t rank = 0; rank < 3; ++rank) {
        ASSERT_TRUE(requests[rank]->status.ok()) << requests[rank]->status.message();
        for (uint32_t from = 0; from < 3; ++from) {
          const bool broadcast = kind == PARALLAX_BROADCAST;
          if ((broadcast && from > 0) || (kind == PARALLAX_GATHER && rank != 1)) continue;
          const uint64_t first = kind == PARALLAX_ALLTOALLV ? rank * count : 0;
          const auto& source = sent[broadcast ? 1 : from];
          ASSERT_TRUE(std::equal(got[rank].begin() + static_cast<ptrdiff_t>(from * count),
                                 got[rank].begin() + static_cast<ptrdiff_t>((from + 1) * count),
                                 source.begin() + static_cast<ptrdiff_t>(first)))
              << collective_name(kind) << " " << count << " rank " << rank << " of " << from;
        }
      }
    }
  }
}

}  // namespace
}  // namespace parallax::testkit::beside
