// SPDX-License-Identifier: Apache-2.0
// Initial values from buffers: rank 0's on their way to all ranks, those that each rank gives, and
// what becomes of the buffers.
#include "engine/initial_stream.h"

#include <gtest/gtest.h>

#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "support/engine_world.h"
#include "support/words.h"

namespace parallax::testkit {
namespace {

std::vector<float> counted(uint64_t count, float first) {
  std::vector<float> values(count);
  std::iota(values.begin(), values.end(), first);
  return values;
}

parallax_variable_t given(parallax_variable_t variable, uint32_t init, const void* initial) {
  variable.init = init;
  variable.initial = initial;
  return variable;
}

// Until the commit of `rank`, which may not be over before, waits for ranks to pass values on.
void run_into_the_stream(EngineWorld& world, uint32_t rank, const Request& commit) {
  const auto waits_for = [&] { return world.engine(rank).reports().missing(commit).message(); };
  while (waits_for().find("to pass on what rank 0 has") == std::string::npos) {
    ASSERT_FALSE(commit.done());
    world.shuffle(1);
  }
}

std::vector<float> read_all(EngineWorld& world, uint32_t rank, uint32_t variable, uint64_t rows,
                            uint64_t width) {
  std::vector<float> values(rows * width);
  const parallax_rows_t wanted = rows_call(variable, 0, rows, values.data());
  Request* request = nullptr;
  EXPECT_TRUE(world.engine(rank).row_calls().post(wanted, false, &request).ok());
  EXPECT_TRUE(world.run_until_done({&request, 1}));
  EXPECT_TRUE(request->status.ok()) << request->status.message();
  return values;
}

// Given tables of no piece, of less than one and of several, expect rank 0's values on every rank,
// whatever the others gave.
TEST(InitialStream, EveryRankHasTheValuesOfRankZero) {
  constexpr uint64_t kMany = 2 * InitialStream::kPieceBytes / sizeof(float) / 3 + 5;
  const auto large = counted(3 * kMany, 1), small = counted(7, -3), dense = counted(kMany, 0.5f);
  for (const std::vector<uint32_t>& hosts :
       {std::vector<uint32_t>{0}, {0, 1}, {0, 0, 1}, {0, 1, 1, 2, 2, 2, 3}}) {
    EngineWorld world({.hosts = hosts, .seed = hosts.size(), .slow_percent = 20});
    std::vector<Request*> commits;
    for (uint32_t rank = 0; rank < world.size(); ++rank) {
      const bool root = rank == 0;
      const auto from = [root](const std::vector<float>& values) {
        return root ? values.data() : nullptr;
      };
      const parallax_variable_t all[] = {
          given(sparse_variable("z", kMany, 3, 8, PARALLAX_RULE_SGD), PARALLAX_INIT_BROADCAST,
                from(large)),
          dense_variable("held", 3, 3),
          given(dense_variable("a", 7, 1, PARALLAX_RULE_SGD), PARALLAX_INIT_BROADCAST, from(small)),
          given(dense_variable("m", 1, kMany / 4, PARALLAX_RULE_SUM), PARALLAX_INIT_BROADCAST,
                root ? dense.data() : large.data())};
      for (const parallax_variable_t& variable : all) {
        uint32_t id = 0;
        const Status status = world.engine(rank).job_calls().register_variable(variable, &id);
        ASSERT_TRUE(status.ok()) << status.message();
      }
      ASSERT_TRUE(world.engine(rank).job_calls().commit(&commits.emplace_back()).ok());
    }
    ASSERT_TRUE(world.run_until_done(commits));
    for (const Request* commit : commits) {
      ASSERT_TRUE(commit->status.ok()) << commit->status.message();
    }
    for (uint32_t rank = 0; rank < world.size(); ++rank) {
      ASSERT_EQ(read_all(world, rank, 0, kMany, 3), large) << "rank " << rank;
      ASSERT_EQ(read_all(world, rank, 2, 7, 1), small) << "rank " << rank;
      const auto want = std::vector<float>(dense.begin(), dense.begin() + kMany / 4);
      ASSERT_EQ(read_all(world, rank, 3, 1, kMany / 4), want) << "rank " << rank;
    }
  }
}

// The same of fused tables: of one piece several, and of several pieces one; those that each rank
// gives, and computed ones, go with each other.
TEST(InitialStream, FusedTablesHaveTheirValues) {
  constexpr uint64_t kMany = InitialStream::kPieceBytes / sizeof(float) / 3 + 5;
  constexpr uint64_t kRows[] = {30, kMany, 7, 2 * kMany, 31, 32};
  constexpr uint32_t kSent = std::size(kRows);
  std::vector<std::vector<float>> sent, own;
  for (uint32_t i = 0; i < kSent; ++i) {
    sent.push_back(counted(3 * kRows[i], static_cast<float>(i) / 8));
    own.push_back(counted(3 * kRows[i], -1 - static_cast<float>(i)));
  }
  for (const std::vector<uint32_t>& hosts :
       {std::vector<uint32_t>{0}, {0, 1}, {0, 0, 1}, {0, 1, 1, 2, 2, 2, 3}}) {
    EngineWorld world({.hosts = hosts, .seed = hosts.size(), .slow_percent = 20});
    std::vector<Request*> commits;
    for (uint32_t rank = 0; rank < world.size(); ++rank) {
      for (uint32_t i = 0; i < 3 * kSent; ++i) {
        const std::string name = "t" + std::to_string(i);
        parallax_variable_t table =
            sparse_variable(name.c_str(), kRows[i % kSent], 3, 5, PARALLAX_RULE_SGD);
        if (i < kSent) {
          table = given(table, PARALLAX_INIT_BROADCAST, rank == 0 ? sent[i].data() : nullptr);
        } else if (i < 2 * kSent) {
          table = given(table, PARALLAX_INIT_BUFFER, own[i % kSent].data());
        } else {
          table.init_low = table.init_high = static_cast<float>(i);
        }
        uint32_t id = 0;
        const Status status = world.engine(rank).job_calls().register_variable(table, &id);
        ASSERT_TRUE(status.ok()) << status.message();
      }
      ASSERT_TRUE(world.engine(rank).job_calls().commit(&commits.emplace_back()).ok());
    }
    ASSERT_TRUE(world.run_until_done(commits));
    for (uint32_t rank = 0; rank < world.size(); ++rank) {
      ASSERT_TRUE(commits[rank]->status.ok()) << commits[rank]->status.message();
      ASSERT_EQ(world.engine(rank).group().size(), 2u);
      for (uint32_t i = 0; i < 3 * kSent; ++i) {
        const uint64_t rows = kRows[i % kSent];
        const auto want = i < kSent       ? sent[i]
                          : i < 2 * kSent ? own[i % kSent]
                                          : std::vector<float>(3 * rows, static_cast<float>(i));
        ASSERT_EQ(read_all(world, rank, i, rows, 3), want) << "rank " << rank << " table " << i;
      }
    }
  }
}

TEST(InitialStream, RankZeroMustGiveThem) {
  EngineWorld world({.hosts = {0, 1}});
  const parallax_variable_t variable =
      given(dense_variable("w", 2, 2, PARALLAX_RULE_SGD), PARALLAX_INIT_BROADCAST, nullptr);
  uint32_t id = 0;
  const Status refused = world.engine(0).job_calls().register_variable(variable, &id);
  EXPECT_EQ(refused.code(), PARALLAX_INVALID);
  EXPECT_TRUE(has(refused, "variable 'w': initial is NULL on rank 0")) << refused.message();
  EXPECT_TRUE(world.engine(1).job_calls().register_variable(variable, &id).ok());
}

TEST(InitialStream, ARankLostOnTheWayFailsTheCommit) {
  EngineWorld world({.hosts = {0, 1, 2}});
  const auto large = counted(4 * InitialStream::kPieceBytes / sizeof(float), 0);
  const parallax_variable_t variable =
      given(dense_variable("w", large.size(), 1, PARALLAX_RULE_SGD), PARALLAX_INIT_BROADCAST,
            large.data());
  std::vector<Request*> commits(3);
  for (uint32_t rank = 0; rank < 3; ++rank) {
    uint32_t id = 0;
    ASSERT_TRUE(world.engine(rank).job_calls().register_variable(variable, &id).ok());
    ASSERT_TRUE(world.engine(rank).job_calls().commit(&commits[rank]).ok());
  }
  ASSERT_NO_FATAL_FAILURE(run_into_the_stream(world, 1, *commits[1]));
  world.kill(2);
  for (int i = 0; i < 100 && !commits[0]->done(); ++i) {  // a suspicion is a loss after a while
    world.clock().advance(10 * kNanosecondsPerMillisecond);
    world.shuffle(10);
  }
  ASSERT_TRUE(world.run_until_done(std::span(commits).first(2)));
  for (uint32_t rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(commits[rank]->status.code(), PARALLAX_PEER_LOST) << commits[rank]->status.message();
    EXPECT_TRUE(has(commits[rank]->status, "rank 2")) << commits[rank]->status.message();
  }
}

// Given ranks at any place of the stream, expect a commit that waits to name one of them, or what
// is to be done here: also that of the first rank, which has passed on all that it has.
TEST(InitialStream, WhoWaitsNamesWhomItWaitsFor) {
  EngineWorld world({.hosts = {0, 0, 1}, .slow_percent = 40});
  const auto large = counted(3 * InitialStream::kPieceBytes / sizeof(float), 0);
  const parallax_variable_t variable =
      given(dense_variable("w", large.size(), 1, PARALLAX_RULE_SGD), PARALLAX_INIT_BROADCAST,
            large.data());
  std::vector<Request*> commits(3);
  for (uint32_t rank = 0; rank < 3; ++rank) {
    uint32_t id = 0;
    ASSERT_TRUE(world.engine(rank).job_calls().register_variable(variable, &id).ok());
    ASSERT_TRUE(world.engine(rank).job_calls().commit(&commits[rank]).ok());
  }
  std::set<std::string> said;
  const std::string opening = "commit waits for ";
  for (int i = 0; i < 100'000 && !(commits[0]->done() && commits[1]->done() && commits[2]->done());
       ++i) {
    for (uint32_t rank = 0; rank < 3; ++rank) {
      if (commits[rank]->done()) continue;
      const std::string sentence = world.engine(rank).reports().missing(*commits[rank]).message();
      EXPECT_GT(sentence.size(), opening.size()) << "rank " << rank << ": " << sentence;
      EXPECT_TRUE(sentence.starts_with(opening)) << sentence;
      said.insert(sentence.substr(sentence.find(" to ") + 1));
    }
    world.shuffle(1);
  }
  ASSERT_TRUE(world.run_until_done(commits));
  EXPECT_TRUE(said.contains("to pass on what rank 0 has")) << ::testing::PrintToString(said);
  EXPECT_TRUE(said.contains("to take what is due to it")) << ::testing::PrintToString(said);
}

// Given a rank that stands still before its values came, expect no commit to be over: whoever
// begins a step may ask any owner for its rows.
TEST(InitialStream, NobodyIsThroughBeforeAllHaveTheirValues) {
  EngineWorld world({.hosts = {0, 1, 2}});
  const auto values = counted(60, 1);
  const parallax_variable_t variable =
      given(dense_variable("w", 60, 1, PARALLAX_RULE_SGD), PARALLAX_INIT_BROADCAST, values.data());
  std::vector<Request*> commits(3);
  for (uint32_t rank = 0; rank < 3; ++rank) {
    uint32_t id = 0;
    ASSERT_TRUE(world.engine(rank).job_calls().register_variable(variable, &id).ok());
    ASSERT_TRUE(world.engine(rank).job_calls().commit(&commits[rank]).ok());
  }
  ASSERT_NO_FATAL_FAILURE(run_into_the_stream(world, 2, *commits[2]));
  for (int i = 0; i < 200; ++i) {
    for (const uint32_t rank : {0u, 1u}) world.groups(rank).run();
  }
  EXPECT_FALSE(commits[0]->done());
  EXPECT_FALSE(commits[1]->done());
  ASSERT_TRUE(world.run_until_done(commits));
  for (const Request* commit : commits) EXPECT_TRUE(commit->status.ok());
}

// Given a caller that leaves commit while its buffers are still to be read, expect the job to fail,
// and no look at them.
TEST(InitialStream, ACallerThatLeavesGetsItsBufferBack) {
  for (const auto& [init, fused] :
       {std::pair(PARALLAX_INIT_BUFFER, false), std::pair(PARALLAX_INIT_BROADCAST, false),
        std::pair(PARALLAX_INIT_BUFFER, true), std::pair(PARALLAX_INIT_BROADCAST, true)}) {
    EngineWorld world({.hosts = {0, 1}});
    auto values = std::make_unique<std::vector<float>>(counted(12, 1));
    Request* commit = nullptr;
    for (const char* name : {"w", "x", "y", "z"}) {
      parallax_variable_t variable = fused ? sparse_variable(name, 3, 4, 2, PARALLAX_RULE_SGD)
                                           : dense_variable(name, 3, 4, PARALLAX_RULE_SGD);
      variable = given(variable, init, values->data());
      uint32_t id = 0;
      ASSERT_TRUE(world.engine(0).job_calls().register_variable(variable, &id).ok());
    }
    ASSERT_TRUE(world.engine(0).job_calls().commit(&commit).ok());
    if (init == PARALLAX_INIT_BUFFER) world.shuffle(20);  // they are taken before the ranks meet
    ASSERT_EQ(world.engine(0).group().size(), fused ? 1u : 4u);
    world.engine(0).job_calls().leave_commit();
    values.reset();
    world.shuffle(100);
    EXPECT_EQ(commit->done(), init == PARALLAX_INIT_BROADCAST);
    if (!commit->done()) continue;
    EXPECT_EQ(commit->status.code(), PARALLAX_ABORTED);
    EXPECT_TRUE(has(commit->status, "timed out before the initial values of variable 'w'"))
        << commit->status.message();
  }
}

// A buffer of several pieces is filled in piece by piece, so that leases are kept.
TEST(InitialStream, ABufferIsReadInPieces) {
  const auto values = counted(3 * Group::kFillElements, 1);
  EngineWorld world({});
  const parallax_variable_t variable =
      given(dense_variable("w", values.size(), 1, PARALLAX_RULE_SGD), PARALLAX_INIT_BUFFER,
            values.data());
  Request* commit = nullptr;
  uint32_t id = 0;
  ASSERT_TRUE(world.engine(0).job_calls().register_variable(variable, &id).ok());
  ASSERT_TRUE(world.engine(0).job_calls().commit(&commit).ok());
  int runs = 0;
  for (; !commit->done() && runs < 20; ++runs) world.engine(0).run();
  EXPECT_GE(runs, 2);
  EXPECT_TRUE(commit->done() && commit->status.ok());
  EXPECT_EQ(read_all(world, 0, 0, values.size(), 1), values);
}

}  // namespace
}  // namespace parallax::testkit
