// SPDX-License-Identifier: Apache-2.0
// The whole job and its parts, over inproc, in any order of events.
#include "engine/job_groups.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <string>
#include <vector>

#include "support/engine_world.h"

namespace parallax::testkit {
namespace {

using Ranks = std::vector<uint32_t>;

class GroupsWorld : public EngineWorld {
 public:
  explicit GroupsWorld(const WorldOptions& options) : EngineWorld(options) {}

  Engine& engine_of(uint32_t rank, uint32_t group) { return groups(rank).group(group); }

  // Splits the group on all ranks of the list, by the group's numbers; the part's number.
  uint32_t split(const Ranks& ranks) {
    std::vector<Request*> requests;
    for (const uint32_t rank : ranks) {
      Request*& request = requests.emplace_back();
      const Status posted = engine(rank).job_calls().split(ranks, &request);
      EXPECT_TRUE(posted.ok()) << posted.message();
    }
    EXPECT_TRUE(run_until_done(requests));
    const uint32_t part = requests[0]->part;
    for (size_t i = 0; i < ranks.size(); ++i) {
      EXPECT_TRUE(requests[i]->status.ok()) << requests[i]->status.message();
      EXPECT_EQ(requests[i]->part, part);
      EXPECT_TRUE(engine(ranks[i]).release(requests[i]).ok());
      groups(ranks[i]).hold(part);
    }
    return part;
  }

  // One held dense variable of one element.
  void commit(const Ranks& members, uint32_t group) {
    std::vector<Request*> requests;
    for (const uint32_t rank : members) {
      parallax_variable_t variable = {};
      variable.size = sizeof variable;
      variable.name = "v";
      variable.rows = 1;
      variable.row_elements = 1;
      variable.dtype = PARALLAX_I64;
      uint32_t id = 0;
      JobCalls& calls = engine_of(rank, group).job_calls();
      EXPECT_TRUE(calls.register_variable(variable, &id).ok());
      EXPECT_TRUE(calls.commit(&requests.emplace_back()).ok());
    }
    EXPECT_TRUE(run_until_done(requests));
    finish(requests, members, group);
  }

  void finish(const std::vector<Request*>& requests, const Ranks& members, uint32_t group) {
    for (size_t i = 0; i < requests.size(); ++i) {
      EXPECT_TRUE(requests[i]->status.ok()) << requests[i]->status.message();
      EXPECT_TRUE(engine_of(members[i], group).release(requests[i]).ok());
    }
  }

  void close(const Ranks& members, uint32_t group) {
    std::vector<Request*> requests;
    for (const uint32_t rank : members) {
      EXPECT_TRUE(engine_of(rank, group).job_calls().close(&requests.emplace_back()).ok());
    }
    EXPECT_TRUE(run_until_done(requests));
    finish(requests, members, group);
  }
};

// One rank's way through the steps of one group: begin, reduce, end, each as soon as it may.
struct Walk {
  Engine* engine = nullptr;
  uint32_t steps_left = 0;
  uint64_t step = 0;
  int64_t value = 0, expected = 0;
  std::array<Request*, 2> requests = {};  // reduce, step_end
  bool wrong = false;

  bool over() const { return steps_left == 0 && requests[0] == nullptr; }
  // What every member gives in step t is its own number plus t.
  void move(int64_t mine, int64_t sum_of_all, size_t members) {
    if (requests[0] != nullptr) {
      for (Request* request : requests) {
        if (!request->done()) return;
        wrong |= !request->status.ok();
      }
      wrong |= value != expected;
      for (Request*& request : requests) {
        wrong |= !engine->release(request).ok();
        request = nullptr;
      }
    }
    if (steps_left == 0) return;
    --steps_left;
    parallax_slice_t slice = {};
    slice.size = sizeof slice;
    slice.values = &value;
    wrong |= !engine->step_calls().begin(&step).ok();
    value = mine + static_cast<int64_t>(step);
    expected = sum_of_all + static_cast<int64_t>(members * step);
    wrong |= !engine->step_calls().reduce(step, {&slice, 1}, &requests[0]).ok();
    wrong |= !engine->step_calls().end(step, {}, &requests[1]).ok();
  }
};

const Ranks kAll = {0, 1, 2, 3};
const std::vector<Ranks> kOverlapping = {{0, 1, 2}, {3, 1}, {2, 3, 0}};

TEST(JobGroups, OverlappingGroupsTrainEachByItself) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    WorldOptions options = {.hosts = {0, 1, 0, 1}};
    options.seed = seed;
    options.slow_percent = seed % 3 == 0 ? 30 : 0;
    options.late_jobs = seed % 2 == 0;
    GroupsWorld world(options);
    std::vector<Ranks> members = {kAll};
    Ranks numbers = {0};
    world.commit(kAll, 0);
    for (const Ranks& ranks : kOverlapping) {
      numbers.push_back(world.split(ranks));
      members.push_back(ranks);
      world.commit(ranks, numbers.back());
    }
    // Every rank walks in all of its groups at once, at its own pace.
    std::map<std::pair<uint32_t, uint32_t>, Walk> walks;
    for (uint32_t g = 0; g < numbers.size(); ++g) {
      for (const uint32_t rank : members[g]) {
        walks[{rank, g}] = {.engine = &world.engine_of(rank, numbers[g]), .steps_left = 25};
      }
    }
    const auto mine = [](uint32_t rank, uint32_t group) {
      return int64_t{1000} * (group + 1) + 10 * rank;
    };
    const bool over = world.run_until([&] {
      bool all = true;
      for (auto& [key, walk] : walks) {
        const auto [rank, group] = key;
        if (world.random().chance(30)) {
          int64_t sum = 0;
          for (const uint32_t each : members[group]) sum += mine(each, group);
          walk.move(mine(rank, group), sum, members[group].size());
        }
        all &= walk.over();
      }
      return all;
    });
    EXPECT_TRUE(over) << "seed " << seed;
    for (const auto& [key, walk] : walks) {
      EXPECT_FALSE(walk.wrong) << "seed " << seed << ", rank " << key.first << ", group "
                               << key.second << ", step " << walk.step;
    }
    for (size_t g = 1; g < numbers.size(); ++g) {
      world.close(members[g], numbers[g]);
      for (const uint32_t rank : members[g]) {
        JobGroups& groups = world.groups(rank);
        groups.let_go(numbers[g]);
        groups.retire(numbers[g]);
        groups.collect();
        EXPECT_FALSE(groups.has(numbers[g]));
      }
    }
    world.close(kAll, 0);
  }
}

// Given groups of one host that overlap, of which some are closed and others opened in their place,
// more in all than a board has regions, expect steps without a message, and no word of a group
// that is over to be taken for one of the next.
TEST(JobGroups, SmallStepsOfPartsOfAHostGoOnBoards) {
  for (const uint64_t seed : {2, 4, 6}) {  // those by which a world has boards
    WorldOptions options = {.hosts = {0, 0, 0, 0}};
    options.seed = seed;
    GroupsWorld world(options);
    uint64_t messages = 0;
    for (const uint32_t rank : kAll) {
      world.transport(rank).tap([&messages](uint32_t, std::span<const Segment>) { ++messages; });
    }
    const auto walk = [&world](const Ranks& members, uint32_t group) {
      int64_t sum = 0;
      std::vector<Walk> walks;
      for (const uint32_t rank : members) {
        sum += rank + group;
        // So that what is left on a board is of the steps that the next part begins with.
        walks.push_back({.engine = &world.engine_of(rank, group), .steps_left = 2});
      }
      return world.run_until([&] {
        bool over = true;
        for (size_t i = 0; i < walks.size(); ++i) {
          walks[i].move(members[i] + group, sum, members.size());
          EXPECT_FALSE(walks[i].wrong) << walks[i].step;
          over &= walks[i].over();
        }
        return over;
      });
    };
    world.commit(kAll, 0);
    for (uint32_t round = 0; round < kBoardPartsMax; ++round) {
      std::vector<std::pair<Ranks, uint32_t>> parts;
      for (const Ranks& ranks : kOverlapping) {
        parts.emplace_back(ranks, world.split(ranks));
        world.commit(ranks, parts.back().second);
      }
      const uint64_t before = messages;
      for (const auto& [members, part] : parts) {
        ASSERT_TRUE(walk(members, part));
        EXPECT_EQ(messages, before) << round << ", a part of " << members.size();
      }
      ASSERT_TRUE(walk(kAll, 0));
      EXPECT_EQ(messages, before) << round;
      for (const auto& [members, part] : parts) {
        world.close(members, part);
        for (const uint32_t rank : members) {
          world.groups(rank).let_go(part);
          world.groups(rank).retire(part);
          world.groups(rank).collect();
        }
      }
    }
  }
}

TEST(JobGroups, APartNumbersItsRanksByTheList) {
  GroupsWorld world({.hosts = {0, 0, 1, 1}});
  const uint32_t part = world.split({3, 0});
  EXPECT_EQ(world.engine_of(3, part).columns().rank(), 0u);
  EXPECT_EQ(world.engine_of(0, part).columns().rank(), 1u);
  const HostMap& map = world.engine_of(0, part).columns().map();
  EXPECT_EQ(map.host_of.size(), 2u);
  EXPECT_EQ(job_rank(map, 0), 3u);
  EXPECT_EQ(rank_name(map, 0).find("rank 0 (rank 3 of the job, host "), 0u);
  EXPECT_EQ(world.groups(0).part_count(), 1u);
  EXPECT_EQ(world.groups(1).part_count(), 0u);
}

TEST(JobGroups, APartIsSplitAgain) {
  GroupsWorld world({.hosts = {0, 1, 0, 1}});
  const uint32_t part = world.split({3, 1, 0});
  // By the part's numbers: ranks 0 and 3 of the job.
  std::vector<Request*> requests(2);
  ASSERT_TRUE(world.engine_of(3, part).job_calls().split(Ranks{2, 0}, &requests[0]).ok());
  ASSERT_TRUE(world.engine_of(0, part).job_calls().split(Ranks{2, 0}, &requests[1]).ok());
  ASSERT_TRUE(world.run_until_done(requests));
  const uint32_t inner = requests[0]->part;
  EXPECT_NE(inner, part);
  const HostMap& map = world.engine_of(3, inner).columns().map();
  EXPECT_EQ(job_rank(map, 0), 0u);
  EXPECT_EQ(job_rank(map, 1), 3u);
  world.commit({0, 3}, inner);
}

// Given slots that the job was told of, expect a part to have as many for each of its ranks.
TEST(JobGroups, APartHasTheSlotsOfEachRank) {
  WorldOptions options = {.hosts = {0, 1, 0, 1}};
  options.slots = SlotMap::of_ranks(4, 3);
  GroupsWorld world(options);
  const uint32_t part = world.split({3, 1});
  EXPECT_EQ(world.engine_of(1, part).options().view.slots, SlotMap::of_ranks(2, 3));
  EXPECT_EQ(world.engine_of(1, part).options().view.epoch,
            world.engine_of(3, part).options().view.epoch);
  EXPECT_NE(world.engine_of(1, part).options().view.epoch, world.engine(1).options().view.epoch);
}

// Given a limit that holds one group's variables, expect a part's not to be laid out beside them;
// and with a limit raised meanwhile, to be.
TEST(JobGroups, MemoryIsLimitedForAllGroupsTogether) {
  for (const bool raised : {false, true}) {
    WorldOptions options = {.hosts = {0, 1}};
    options.memory_max_bytes = 1 << 20;
    GroupsWorld world(options);
    const uint32_t part = world.split({0, 1});
    const auto commit = [&](uint32_t group) {
      std::vector<Request*> requests;
      for (uint32_t rank = 0; rank < 2; ++rank) {
        uint32_t id = 0;
        JobCalls& calls = world.engine_of(rank, group).job_calls();
        EXPECT_TRUE(
            calls.register_variable(dense_variable("v", 1 << 15, 1, PARALLAX_RULE_SGD), &id).ok());
        EXPECT_TRUE(calls.commit(&requests.emplace_back()).ok());
      }
      EXPECT_TRUE(world.run_until_done(requests));
      return requests[0]->status;
    };
    ASSERT_TRUE(commit(0).ok());
    const uint64_t reserved = world.engine(0).reports().reserved_bytes();
    EXPECT_GT(reserved, (1u << 20) / 2) << "one fits, two do not";
    EXPECT_LE(reserved, 1u << 20);
    if (raised) {
      for (uint32_t rank = 0; rank < 2; ++rank) {
        world.groups(rank).set_memory_limits(2 * reserved, MemoryCheck::kOff);
      }
    }
    const Status committed = commit(part);
    EXPECT_EQ(committed.code(), raised ? PARALLAX_OK : PARALLAX_LIMIT) << committed.message();
    if (raised) continue;
    EXPECT_NE(committed.message().find("with the job's other groups"), std::string::npos)
        << committed.message();
  }
}

// Given a request of one group, expect every look at the job to find what it borrows.
TEST(JobGroups, ABorrowerIsFoundInAnyGroup) {
  GroupsWorld world({.hosts = {0, 1}});
  world.commit({0, 1}, 0);
  const uint32_t part = world.split({0, 1});
  world.commit({0, 1}, part);
  std::array<std::byte, 64> buffer = {};
  const auto first = ByteRange::at(buffer.data(), 1);
  std::vector<Request*> requests(2);
  const auto broadcast = [&](uint32_t rank) {
    return world.engine_of(rank, part)
        .collective_calls()
        .broadcast(buffer.data(), buffer.size(), 1, &requests[rank]);
  };
  EXPECT_EQ(world.groups(0).borrower(first), "");
  ASSERT_TRUE(broadcast(0).ok());
  EXPECT_EQ(world.groups(0).borrower(first), "a pending broadcast");
  EXPECT_EQ(world.groups(1).borrower(first), "") << "its own are another's";
  ASSERT_TRUE(broadcast(1).ok());
  ASSERT_TRUE(world.run_until_done(requests));
  EXPECT_EQ(world.groups(0).borrower(first), "") << "complete, if not released";
}

// ---- failure

struct FailingWorld : GroupsWorld {
  FailingWorld() : GroupsWorld({.hosts = {0, 1, 2, 3}}) {
    commit(kAll, 0);
    for (const Ranks& ranks : kOverlapping) numbers.push_back(split(ranks));
  }
  // Every group of the rank.
  std::vector<Engine*> all_of(uint32_t rank) {
    std::vector<Engine*> engines = {&engine(rank)};
    for (size_t g = 0; g < numbers.size(); ++g) {
      if (std::find(kOverlapping[g].begin(), kOverlapping[g].end(), rank) !=
          kOverlapping[g].end()) {
        engines.push_back(&engine_of(rank, numbers[g]));
      }
    }
    return engines;
  }
  std::vector<uint32_t> numbers;
};

TEST(JobGroups, ALossEndsAllGroupsOfAllRanksAndNamesTheRank) {
  FailingWorld world;
  // A call in a part that the lost rank is not of.
  Request* waiting = nullptr;
  world.commit({0, 1, 2}, world.numbers[0]);
  ASSERT_TRUE(world.engine_of(0, world.numbers[0]).collective_calls().barrier(&waiting).ok());
  world.kill(3);
  for (int i = 0; i < 20; ++i) {  // a broken connection is a suspicion first
    world.settle();
    world.clock().advance(20 * kNanosecondsPerMillisecond);
  }
  ASSERT_TRUE(world.run_until_done({&waiting, 1}));
  EXPECT_EQ(waiting->status.code(), PARALLAX_PEER_LOST);
  world.settle();
  for (uint32_t rank = 0; rank < 3; ++rank) {
    for (Engine* engine : world.all_of(rank)) {
      const Status& failure = engine->failure();
      EXPECT_EQ(failure.code(), PARALLAX_PEER_LOST) << failure.message();
      EXPECT_NE(failure.message().find("rank 3 (host "), std::string::npos) << failure.message();
      // By the group's own numbers.
      const HostMap& map = engine->columns().map();
      const uint32_t peer = failure.facts().peer;
      if (peer != PARALLAX_NO_RANK) {
        EXPECT_EQ(job_rank(map, peer), 3u);
      }
      EXPECT_FALSE(failure.facts().host.empty());
    }
  }
  EXPECT_EQ(world.engine_of(1, world.numbers[1]).failure().facts().peer, 0u) << "{3, 1}";
  EXPECT_EQ(world.engine_of(1, world.numbers[0]).failure().facts().peer, PARALLAX_NO_RANK);
}

TEST(JobGroups, AnAbortOfAPartEndsTheJob) {
  FailingWorld world;
  world.engine_of(3, world.numbers[1]).job_calls().abort("enough");
  world.groups(3).kick();
  world.settle();
  for (uint32_t rank = 0; rank < 4; ++rank) {
    for (Engine* engine : world.all_of(rank)) {
      EXPECT_EQ(engine->failure().code(), PARALLAX_ABORTED);
      EXPECT_NE(engine->failure().message().find("rank 0 (rank 3 of the job, "), std::string::npos)
          << engine->failure().message();
    }
  }
}

// Given a rank that closes the job instead of calling a split, wherever it stands in the list, and
// whether it hears of the call before or after, expect all to be told who it was.
TEST(JobGroups, ACloseInsteadOfASplitIsToldToAll) {
  for (uint32_t closer = 0; closer < 6; ++closer) {
    for (const bool first : {true, false}) {
      EngineWorld world({.hosts = {0, 0, 1, 1, 2, 2}, .seed = closer + 1});
      ASSERT_TRUE(world.commit({})[0].ok());
      const Ranks list = {5, 3, 1, 0, 2, 4};
      std::vector<Request*> requests(6);
      const auto close = [&] {
        ASSERT_TRUE(world.engine(closer).job_calls().close(&requests[closer]).ok());
        world.groups(closer).kick();
        if (first) world.settle();
      };
      if (first) close();
      for (const uint32_t rank : list) {
        if (rank == closer) continue;
        ASSERT_TRUE(world.engine(rank).job_calls().split(list, &requests[rank]).ok());
      }
      if (!first) {
        world.settle();
        close();
      }
      ASSERT_TRUE(world.run_until_done(requests)) << "at once, not at a deadline";
      for (const Request* request : requests) {
        EXPECT_EQ(request->status.code(), PARALLAX_PEER_LOST);
        const std::string& told = request->status.message();
        EXPECT_NE(told.find("rank " + std::to_string(closer) + " (host"), std::string::npos)
            << told;
        EXPECT_NE(told.find("closed the job before a split, which other ranks wait for"),
                  std::string::npos)
            << told;
        EXPECT_EQ(request->status.facts().peer, closer);
      }
    }
  }
}

TEST(JobGroups, AMismatchOfAPartsCommitEndsTheJob) {
  FailingWorld world;
  const uint32_t part = world.numbers[1];
  std::vector<Request*> requests(2);
  uint32_t id = 0;
  parallax_variable_t variable = {};
  variable.size = sizeof variable;
  variable.name = "v";
  variable.row_elements = 1;
  for (uint32_t i = 0; i < 2; ++i) {
    variable.rows = 5 + i;
    JobCalls& calls = world.engine_of(kOverlapping[1][i], part).job_calls();
    ASSERT_TRUE(calls.register_variable(variable, &id).ok());
    ASSERT_TRUE(calls.commit(&requests[i]).ok());
  }
  ASSERT_TRUE(world.run_until_done(requests));
  EXPECT_EQ(requests[0]->status.code(), PARALLAX_MISMATCH);
  EXPECT_EQ(requests[0]->status.facts().variable, 0u);
  world.settle();
  EXPECT_EQ(world.engine(0).failure().code(), PARALLAX_MISMATCH);
  EXPECT_EQ(world.engine(0).failure().facts().variable, PARALLAX_NO_VARIABLE)
      << "the whole has others";
}

}  // namespace
}  // namespace parallax::testkit
