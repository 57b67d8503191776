// SPDX-License-Identifier: Apache-2.0
// Registration, commit and close of whole jobs over a network of sections, without engines.
#include "engine/job_calls.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "support/engine_world.h"
#include "support/words.h"
#include "unit/engine/job_world.h"
#include "unit/server/layouts.h"

namespace parallax::testkit {
namespace {

Request* commit(JobWorld::Rank& rank) {
  Request* request = nullptr;
  EXPECT_TRUE(rank.job.commit(&request).ok());
  return request;
}

Request* close(JobWorld::Rank& rank) {
  Request* request = nullptr;
  EXPECT_TRUE(rank.job.close(&request).ok());
  return request;
}

TEST(JobCalls, AVariableGetsTheNextNumber) {
  JobWorld world({0});
  JobCalls& job = world[0].job;
  uint32_t id = 0;
  ASSERT_TRUE(job.register_variable(dense_variable("third", 2, 2), &id).ok());
  EXPECT_EQ(id, 2u);
  ASSERT_EQ(world[0].registry.size(), 3u);
  EXPECT_EQ(world[0].registry[2].name, "third");
  EXPECT_TRUE(has(job.register_variable(dense_variable("dense", 2, 2), &id),
                  "variable 'dense': the name is registered already"));
  EXPECT_EQ(world[0].registry.size(), 3u);
  commit(world[0]);
  EXPECT_TRUE(has(job.register_variable(dense_variable("late", 2, 2), &id),
                  "register: a commit is under way"));
}

void add(JobWorld::Rank& rank, const char* name) {
  uint32_t id = 0;
  ASSERT_TRUE(
      rank.job.register_variable(sparse_variable(name, 20, 2, 4, PARALLAX_RULE_SGD), &id).ok());
}

// Each rank in its own order, and rank 0 long after the others.
TEST(JobCalls, VariablesMayComeLaterAndInAnyOrder) {
  for (const auto& hosts : layouts()) {
    JobWorld world(hosts);
    world.commit();
    std::vector<Request*> requests(world.size());
    for (const char* suffix : {"1", "2"}) {
      const std::string a = std::string("a") + suffix, z = std::string("z") + suffix;
      for (uint32_t rank = world.size(); rank-- > 0;) {
        add(world[rank], (rank % 2 == 0 ? a : z).c_str());
        add(world[rank], (rank % 2 == 0 ? z : a).c_str());
        const uint32_t before = world[rank].group.size();
        if (rank == 0) world.settle();
        requests[rank] = commit(world[rank]);
        EXPECT_EQ(world[rank].group.size(), before + 2);
        EXPECT_TRUE(world[rank].phase.committing());
        EXPECT_TRUE(rank == 0 || !requests[rank]->done());
      }
      world.settle();
      for (uint32_t rank = 0; rank < world.size(); ++rank) {
        JobWorld::Rank& each = world[rank];
        ASSERT_TRUE(requests[rank]->done() && requests[rank]->status.ok());
        EXPECT_TRUE(each.phase.running());
        const uint32_t last = each.group.size() - 1;
        EXPECT_EQ(each.group.runtime(last - 1).variable->name, a);
        EXPECT_EQ(each.group.runtime(last).variable->name, z);
        EXPECT_EQ(each.registry.id_of(last), rank % 2 == 0 ? last : last - 1);
      }
    }
  }
}

// It finds out, too, what other ranks have registered that this one has not.
TEST(JobCalls, ACommitWithNothingNewIsCollectiveToo) {
  JobWorld world({0, 0, 1});
  world.commit();
  std::vector<Request*> requests(world.size());
  for (uint32_t rank = 0; rank < world.size(); ++rank) {
    for (uint32_t other = 0; other < rank; ++other) EXPECT_FALSE(requests[other]->done());
    requests[rank] = commit(world[rank]);
    world.settle();
  }
  for (const Request* request : requests) EXPECT_TRUE(request->done() && request->status.ok());
  add(world[1], "late");
  for (uint32_t rank = 0; rank < world.size(); ++rank) commit(world[rank]);
  world.settle();
  for (uint32_t rank = 0; rank < world.size(); ++rank) {
    const Status& failure = world[rank].failure.status();
    EXPECT_EQ(failure.code(), PARALLAX_MISMATCH);
    EXPECT_TRUE(has(failure,
                    "commit: ranks disagree: variable 'late' is registered on rank 1 (host host0) "
                    "and not on rank 0 (host host0)"))
        << failure.message();
    EXPECT_EQ(failure.facts().variable, rank == 1 ? 2u : PARALLAX_NO_VARIABLE);
    EXPECT_EQ(failure.facts().field, "name");
  }
}

TEST(JobCalls, NothingIsRegisteredOrCommittedInAStep) {
  JobWorld world({0});
  world.commit();
  JobWorld::Rank& rank = world[0];
  uint64_t step = 0;
  uint32_t id = 0;
  Request* request = nullptr;
  ASSERT_TRUE(rank.steps.begin(&step).ok());
  EXPECT_EQ(rank.job.register_variable(dense_variable("late", 2, 2), &id).code(), PARALLAX_STATE);
  EXPECT_EQ(rank.job.commit(&request).code(), PARALLAX_STATE);
  ASSERT_TRUE(rank.steps.end(step, {}, &request).ok());
  world.settle();
  ASSERT_TRUE(request->done());
  EXPECT_TRUE(rank.job.register_variable(dense_variable("late", 2, 2), &id).ok());
  ASSERT_TRUE(rank.steps.begin(&step).ok()) << "what is not committed is in nobody's way";
  ASSERT_TRUE(rank.steps.end(step, {}, &request).ok());
  world.settle();
  commit(rank);
  world.settle();
  EXPECT_EQ(rank.group.size(), 3u);
}

TEST(JobCalls, ACommitWaitsForNoBroadcast) {
  JobWorld world({0, 1});
  world.commit();
  std::byte bytes[4] = {};
  Request* broadcast = nullptr;
  ASSERT_TRUE(world[0].collectives.broadcast(bytes, sizeof bytes, 0, &broadcast).ok());
  ASSERT_TRUE(world[0].collectives.advance().ok());
  Request* request = nullptr;
  EXPECT_TRUE(has(world[0].job.commit(&request), "commit: a broadcast is pending"));
}

// Given a rank that closes instead of committing again, expect its name at once.
TEST(JobCalls, WhoClosesWhileOthersCommitAgainIsMissed) {
  JobWorld world({0, 0, 0});
  world.commit();
  commit(world[1]);
  close(world[2]);
  world.settle();
  EXPECT_TRUE(has(world[0].failure.status(),
                  "rank 2 (host host0) closed the job before its commit, which other ranks wait "
                  "for"))
      << "rank 0 does neither: " << world[0].failure.status().message();
}

TEST(JobCalls, ARankRunsOnceAllHaveCommitted) {
  for (const auto& hosts : layouts()) {
    JobWorld world(hosts);
    std::vector<Request*> requests(world.size());
    for (uint32_t rank = 1; rank < world.size(); ++rank) requests[rank] = commit(world[rank]);
    world.settle();
    for (uint32_t rank = 1; rank < world.size(); ++rank) {
      EXPECT_FALSE(requests[rank]->done());
      EXPECT_TRUE(world[rank].phase.committing());
      EXPECT_EQ(world[rank].group.size(), 2u) << "variables are laid out by the call";
    }
    requests[0] = commit(world[0]);
    world.settle();
    for (uint32_t rank = 0; rank < world.size(); ++rank) {
      EXPECT_TRUE(requests[rank]->done() && requests[rank]->status.ok());
      EXPECT_TRUE(world[rank].phase.running());
    }
  }
}

TEST(JobCalls, RanksThatRegisteredOtherVariablesFail) {
  JobWorld world({0, 0, 1});
  changeable(world[2].registry, JobWorld::kDense).rows = 4;
  for (uint32_t rank = 0; rank < world.size(); ++rank) commit(world[rank]);
  world.settle();
  for (uint32_t rank = 0; rank < world.size(); ++rank) {
    const Status& failure = world[rank].failure.status();
    EXPECT_EQ(failure.code(), PARALLAX_MISMATCH) << "rank " << rank;
    EXPECT_TRUE(has(failure, "commit: ranks disagree: variable 'dense'")) << failure.message();
    EXPECT_FALSE(world[rank].phase.running());
  }
}

TEST(JobCalls, ARowThatFitsNoMessageFailsTheCommit) {
  JobWorld world({0, 1});
  changeable(world[0].registry, JobWorld::kRows).row_elements = kMessageBytesMin;
  Request* request = commit(world[0]);
  const Status& failure = world[0].failure.status();
  EXPECT_EQ(failure.code(), PARALLAX_LIMIT);
  EXPECT_TRUE(has(failure, "commit: variable 'rows': a row of ")) << failure.message();
  EXPECT_TRUE(has(failure, "transport forgetting carries ")) << failure.message();
  EXPECT_FALSE(request->done()) << "it is completed once the others were told";
  world[0].job.finish_all(failure);
  EXPECT_EQ(request->status.code(), PARALLAX_LIMIT);
}

// Given initial values of three pieces, expect one of them in each run, however often it advances.
TEST(JobCalls, ARunFillsInOnePieceOfTheInitialValues) {
  JobWorld world({0});
  JobWorld::Rank& rank = world[0];
  changeable(rank.registry, JobWorld::kRows).rows =
      Group::kFillElements + 1;  // of two elements each
  Request* request = commit(rank);
  int runs = 0;
  do {
    ++runs;
    rank.job.start_run();
    EXPECT_FALSE(rank.job.filling());
    for (int i = 0; i < 3; ++i) rank.job.advance_commit();
    EXPECT_EQ(rank.job.filling(), runs < 3);
  } while (!request->done() && runs < 9);
  EXPECT_EQ(runs, 3);
}

TEST(JobCalls, ARankHasClosedOnceAllHave) {
  for (const auto& hosts : layouts()) {
    JobWorld world(hosts);
    world.commit();
    std::vector<Request*> requests(world.size());
    for (uint32_t rank = 1; rank < world.size(); ++rank) requests[rank] = close(world[rank]);
    world.settle();
    for (uint32_t rank = 1; rank < world.size(); ++rank) {
      EXPECT_FALSE(requests[rank]->done());
      EXPECT_TRUE(world[rank].phase.closing());
    }
    requests[0] = close(world[0]);
    world.settle();
    for (uint32_t rank = 0; rank < world.size(); ++rank) {
      EXPECT_TRUE(requests[rank]->done() && requests[rank]->status.ok()) << "rank " << rank;
      EXPECT_TRUE(world[rank].phase.closed());
      world[rank].failure.lose(0, "late news");
      EXPECT_TRUE(world[rank].failure.status().ok()) << "nothing fails a closed job";
    }
    EXPECT_TRUE(has(world[0].job.close(&requests[0]), "close: it was called already"));
  }
}

TEST(JobCalls, AFailedJobIsClosedAtOnce) {
  JobWorld world({0, 1});
  world.commit();
  world[0].job.abort("enough");
  const Request* request = close(world[0]);
  ASSERT_TRUE(request->done());
  EXPECT_EQ(request->status.code(), PARALLAX_ABORTED);
  EXPECT_TRUE(has(request->status, "rank 0 (host host0) aborted the job: enough"));
  EXPECT_TRUE(world[0].phase.closed());
}

TEST(JobCalls, AnAbortNeedsNoReason) {
  JobWorld world({0, 1});
  world[0].job.abort("");
  EXPECT_TRUE(has(world[0].failure.status(), "aborted the job: no reason given"));
}

TEST(JobCalls, CallsOfAFailedJobSayWhatFailedIt) {
  JobWorld world({0, 1});
  world[0].job.abort("enough");
  Request* request = nullptr;
  uint32_t id = 0;
  EXPECT_TRUE(has(world[0].job.register_variable(dense_variable("late", 1, 1), &id), "enough"));
  EXPECT_TRUE(has(world[0].job.commit(&request), "enough"));
  EXPECT_EQ(world[0].requests.outstanding(), 0u);
}

TEST(JobCalls, WhoClosesInTheCommitAbortsIt) {
  JobWorld world({0, 1});
  const Request* committing = commit(world[0]);
  const Request* closing = close(world[0]);
  ASSERT_TRUE(closing->done());
  EXPECT_TRUE(has(closing->status, "close was called before every rank had committed"));
  world[0].job.finish_all(world[0].failure.status());
  EXPECT_EQ(committing->status.code(), PARALLAX_ABORTED);
  world.settle();
  EXPECT_TRUE(has(world[1].failure.status(), "rank 0 (host host0) aborted the job"));
}

TEST(JobCalls, WhoClosesWhileOthersCommitIsMissed) {
  JobWorld world({0, 1});
  commit(world[0]);
  close(world[1]);
  world.settle();
  const Status& failure = world[0].failure.status();
  EXPECT_EQ(failure.code(), PARALLAX_PEER_LOST);
  EXPECT_TRUE(has(failure,
                  "rank 1 (host host1) closed the job before its commit, which other "
                  "ranks wait for"))
      << failure.message();
}

}  // namespace
}  // namespace parallax::testkit
