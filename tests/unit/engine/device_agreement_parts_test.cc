// SPDX-License-Identifier: Apache-2.0
// Communicators of parts, made out of the job's or by ids of their own, over whole engines: what is
// agreed on, who holds whose launches and for how long, and what ends it.
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "engine/device_agreement.h"
#include "support/engine_world.h"
#include "unit/collectives/fake_communicator.h"

namespace parallax::testkit {
namespace {

using Ranks = std::vector<uint32_t>;

// Forms several communicators, in the order in which it is asked, and notes how.
class PartDevices : public FormingDevices {
 public:
  struct Formed {
    FakeLaunching told;
    Communicator* out_of = nullptr;
    Ranks without;
    uint32_t rank = 0;
  };
  static constexpr uint32_t kCount = 3;
  PartDevices() : FormingDevices(kCount) {}
  bool parts_form = true;  // what is made out of another is there at once
  std::deque<Formed> formed;

  Status form(const CommunicatorOptions& options,
              std::unique_ptr<Communicator>* communicator) override {
    if (options.out_of != nullptr) {
      EXPECT_TRUE(options.out_of->idle());
      for (const Formed& each : formed) {
        EXPECT_FALSE(each.out_of == options.out_of && !each.told.formed) << "two at a time";
      }
    }
    Formed& made = formed.emplace_back();
    made.out_of = options.out_of;
    made.without = options.without;
    made.rank = options.rank;
    made.told.formed = options.out_of == nullptr || parts_form;
    made.told.device = options.device;
    made.told.may_end = UINT64_MAX;
    made.told.id = static_cast<uint32_t>(options.id.bytes[0]);
    *communicator = std::make_unique<FakeCommunicator>(made.told);
    return {};
  }
};

class DeviceParts : public testing::Test {
 protected:
  struct Share {
    PartDevices devices;
    PinnedPool pinned{devices, 0};
  };

  // A job with a variable that devices sum, in which there was a step where `steps`, with slices of
  // all ranks, each on the device of its place on the host.
  void open(const Ranks& hosts, bool steps = true, bool deterministic = false, uint64_t seed = 1) {
    WorldOptions options = {.hosts = hosts, .deterministic = deterministic, .seed = seed};
    options.slow_percent = seed > 1 ? 30 : 0;
    options.adjust = [&](uint32_t, EngineOptions* engine) {
      Share* share = shares_.emplace_back(std::make_unique<Share>()).get();
      engine->deterministic = deterministic;
      engine->devices = [share](DeviceShare* given) {
        *given = {&share->devices, &share->pinned};
        return Status();
      };
    };
    world_ = std::make_unique<EngineWorld>(options);
    Ranks all(hosts.size());
    for (uint32_t i = 0; i < all.size(); ++i) all[i] = i;
    commit(all, 0);
    if (steps)
      give(all, 0, [&](uint32_t rank) { return engine(rank, 0).group().columns().local(); });
  }
  PartDevices& devices(uint32_t rank) { return shares_[rank]->devices; }
  Engine& engine(uint32_t rank, uint32_t group) { return world_->groups(rank).group(group); }
  std::string plan(uint32_t rank, uint32_t group) {
    return engine(rank, group).reports().plan_json();
  }

  uint32_t split(const Ranks& ranks) {
    std::vector<Request*> requests;
    for (const uint32_t rank : ranks) {
      EXPECT_TRUE(engine(rank, 0).job_calls().split(ranks, &requests.emplace_back()).ok());
    }
    EXPECT_TRUE(world_->run_until_done(requests));
    const uint32_t part = requests[0]->part;
    for (size_t i = 0; i < ranks.size(); ++i) {
      EXPECT_TRUE(requests[i]->status.ok()) << requests[i]->status.message();
      EXPECT_TRUE(engine(ranks[i], 0).release(requests[i]).ok());
      world_->groups(ranks[i]).hold(part);
    }
    return part;
  }

  // A request, and whose.
  struct Posted {
    Engine* engine = nullptr;
    Request* request = nullptr;
  };
  Posted post_commit(uint32_t rank, uint32_t group) {
    Posted posted = {&engine(rank, group), nullptr};
    const std::string name = "w" + std::to_string(posted.engine->variable_count());
    parallax_variable_t variable = dense_variable(name.c_str(), 2, 2);
    variable.memory = PARALLAX_MEMORY_CUDA;
    uint32_t id = 0;
    EXPECT_TRUE(posted.engine->job_calls().register_variable(variable, &id).ok());
    EXPECT_TRUE(posted.engine->job_calls().commit(&posted.request).ok());
    return posted;
  }
  std::vector<Posted> post_commits(const Ranks& ranks, uint32_t group) {
    std::vector<Posted> posted;
    for (const uint32_t rank : ranks) posted.push_back(post_commit(rank, group));
    return posted;
  }
  // A step in which nobody gives anything: zeros are summed all the same.
  std::vector<Posted> step(const Ranks& ranks, uint32_t group) {
    std::vector<Posted> posted;
    for (const uint32_t rank : ranks) {
      Posted& each = posted.emplace_back(Posted{&engine(rank, group), nullptr});
      uint64_t number = 0;
      EXPECT_TRUE(each.engine->step_calls().begin(&number).ok());
      EXPECT_TRUE(each.engine->step_calls().end(number, {}, &each.request).ok());
    }
    return posted;
  }
  // A step in which these ranks give slices of the first variable on that device; none: nothing.
  static constexpr uint32_t kNothing = UINT32_MAX;
  void give(const Ranks& ranks, uint32_t group, const std::function<uint32_t(uint32_t)>& device) {
    std::vector<Posted> posted;
    for (const uint32_t rank : ranks) {
      Engine& own = engine(rank, group);
      uint64_t number = 0;
      EXPECT_TRUE(own.step_calls().begin(&number).ok());
      const uint32_t at = device(rank);
      if (at != kNothing) {
        parallax_slice_t slice =
            dense_slice(0, devices(rank).make<float>({1, 2, 3, 4}, at % devices(rank).kCount));
        slice.memory = PARALLAX_MEMORY_CUDA;
        slice.device = at % devices(rank).kCount;
        Posted& each = posted.emplace_back(Posted{&own, nullptr});
        const Status given = own.step_calls().reduce(number, {&slice, 1}, &each.request);
        ASSERT_TRUE(given.ok()) << given.message();
      }
      Posted& end = posted.emplace_back(Posted{&own, nullptr});
      EXPECT_TRUE(own.step_calls().end(number, {}, &end.request).ok());
    }
    finish(posted);
  }
  static bool done(const std::vector<Posted>& posted) {
    return std::all_of(posted.begin(), posted.end(),
                       [](const Posted& each) { return each.request->done(); });
  }
  void finish(const std::vector<Posted>& posted, parallax_status_t expected = PARALLAX_OK) {
    ASSERT_TRUE(world_->run_until([&] { return done(posted); }));
    for (const Posted& each : posted) {
      EXPECT_EQ(each.request->status.code(), expected) << each.request->status.message();
      EXPECT_TRUE(each.engine->release(each.request).ok());
    }
  }
  void commit(const Ranks& ranks, uint32_t group) { finish(post_commits(ranks, group)); }

  // Of the last communicator of each rank.
  void expect_out_of_job(const Ranks& ranks, uint32_t part, const Ranks& without) {
    for (const uint32_t rank : ranks) {
      const PartDevices::Formed& made = devices(rank).formed.back();
      EXPECT_NE(made.out_of, nullptr) << rank;
      EXPECT_EQ(made.without, without) << rank;
      EXPECT_EQ(made.told.id, 0u) << "there is none";
      EXPECT_NE(plan(rank, part).find("in a communicator made out of the job's"), std::string::npos)
          << plan(rank, part);
    }
  }
  // It forms with its first step.
  void expect_own(const Ranks& ranks, uint32_t part, const std::string& why) {
    const size_t before = devices(ranks[0]).formed.size();
    finish(step(ranks, part));
    for (const uint32_t rank : ranks) {
      EXPECT_EQ(devices(rank).formed.back().out_of, nullptr);
      EXPECT_EQ(devices(rank).formed.back().told.id, 7u);
      for (const std::string& words : {std::string("in a communicator of its own"), why}) {
        EXPECT_NE(plan(rank, part).find(words), std::string::npos) << plan(rank, part);
      }
    }
    EXPECT_EQ(devices(ranks[0]).formed.size(), before + 1);
  }

  std::vector<std::unique_ptr<Share>> shares_;
  std::unique_ptr<EngineWorld> world_;
};

TEST_F(DeviceParts, BetweenStepsAPartIsMadeOutOfTheJobs) {
  open({0, 0, 1, 1, 1});
  const uint32_t part = split({4, 1, 3});
  commit({4, 1, 3}, part);
  expect_out_of_job({4, 1, 3}, part, {0, 2});
  EXPECT_EQ(devices(1).formed.back().rank, 0u) << "the order of the job";
  EXPECT_EQ(devices(3).formed.back().rank, 1u);
  EXPECT_EQ(devices(4).formed.back().rank, 2u);
  EXPECT_EQ(devices(0).formed.size(), 1u) << "who is not in it has no part in it";
  // Both go on.
  finish(step({4, 1, 3}, part));
  finish(step({0, 1, 2, 3, 4}, 0));
  // And so does a part of the part, and one of all.
  commit({0, 1, 2, 3, 4}, split({0, 1, 2, 3, 4}));
  EXPECT_NE(devices(0).formed.back().out_of, nullptr);
  EXPECT_TRUE(devices(0).formed.back().without.empty());
}

// What is registered later goes with what is there.
TEST_F(DeviceParts, ALaterCommitFormsNothing) {
  open({0, 1, 2});
  const uint32_t part = split({0, 1});
  commit({0, 1}, part);
  devices(0).formed[0].told.may_end = 1;
  const std::vector<Posted> waits = step({0, 1, 2}, 0);
  commit({0, 1}, part);
  EXPECT_EQ(devices(0).formed.size(), 2u);
  expect_out_of_job({0, 1}, part, {2});
  devices(0).formed[0].told.may_end = UINT64_MAX;
  finish(waits);
  finish(step({0, 1}, part));
}

TEST_F(DeviceParts, WhereNothingWasReducedItHasItsOwn) {
  open({0, 1, 2}, false);
  const uint32_t part = split({0, 2});
  commit({0, 2}, part);
  expect_own({0, 2}, part, "it has no communicator of all ranks");
}

TEST_F(DeviceParts, ARankWhoseLibraryCannotIsNamed) {
  open({0, 1, 2});
  devices(2).support.splits = false;
  devices(2).support.why_no_splits = "its NCCL is old";
  const uint32_t part = split({0, 2});
  commit({0, 2}, part);
  expect_own({0, 2}, part, engine(2, part).group().name() + ": its NCCL is old");
}

// Given a rank that gave nothing of the job's, whose device there is but a guess, expect the part
// not to be tied to that.
TEST_F(DeviceParts, ARankWhoseDeviceIsAGuessIsNamed) {
  open({0, 0, 0}, false);
  give({0, 1, 2}, 0, [](uint32_t rank) { return rank == 1 ? kNothing : rank; });
  EXPECT_EQ(devices(1).formed[0].told.device, 1u);
  const uint32_t part = split({0, 1}), other = split({0, 2});
  commit({0, 1}, part);
  commit({0, 2}, other);
  expect_out_of_job({0, 2}, other, {1});
  give({0, 1}, part, [](uint32_t rank) { return rank == 1 ? 2 : 0; });
  EXPECT_EQ(devices(1).formed.back().told.device, 2u);
  for (const uint32_t rank : {0, 1}) {
    EXPECT_NE(
        plan(rank, part).find("in a communicator of its own: rank 1 (rank 1 of the job, host "),
        std::string::npos)
        << plan(rank, part);
    EXPECT_NE(plan(rank, part).find("this rank has given none of the job's slices"),
              std::string::npos)
        << plan(rank, part);
  }
  // Once it has given one there the guess was right.
  give({0, 1, 2}, 0, [](uint32_t rank) { return rank; });
  const uint32_t third = split({1, 2});
  commit({1, 2}, third);
  expect_out_of_job({1, 2}, third, {0});
}

// The device of a rank that gave nothing of the part's is that of the job: by its place in the part
// it would be another's, whom NCCL would refuse.
TEST_F(DeviceParts, ARankThatGaveNothingHasTheDeviceOfTheJob) {
  for (const bool settled : {true, false}) {
    SCOPED_TRACE(settled);
    shares_.clear();
    open({0, 0, 0}, false);
    if (settled) give({0, 1, 2}, 0, [](uint32_t rank) { return 2 - rank; });
    for (uint32_t rank = 0; rank < 3; ++rank) {
      devices(rank).support.devices = 3;
      devices(rank).support.places = {{.bus = "0000:3a:00.0", .uuid = {}},
                                      {.bus = "0000:3b:00.0", .uuid = {}},
                                      {.bus = "0000:3c:00.0", .uuid = {}}};
      devices(rank).support.splits = false;
      devices(rank).support.why_no_splits = "its NCCL is old";
    }
    const uint32_t part = split({1, 2});
    commit({1, 2}, part);
    give({1, 2}, part, [](uint32_t rank) { return rank == 1 ? 1 : kNothing; });
    EXPECT_EQ(devices(2).formed.back().told.device, settled ? 0u : 2u);
    commit({1, 2}, part);
    EXPECT_EQ(plan(1, part).find("have one device"), std::string::npos) << plan(1, part);
    world_.reset();
  }
}

TEST_F(DeviceParts, SumsInOrderWantTheJobsOrder) {
  open({0, 1, 0}, true, true);
  const uint32_t fits = split({0, 1}), other = split({1, 0});
  commit({0, 1}, fits);
  expect_out_of_job({0, 1}, fits, {1});  // numbers there are those of ranks 0, 2, 1
  EXPECT_EQ(devices(1).formed.back().rank, 1u);
  commit({1, 0}, other);
  expect_own({1, 0}, other, "adds its ranks in another order than the job");
}

// Given a reduction of the job that one member's device has not ended, expect nobody to wait for
// it: not the part, and no launch of the job's.
TEST_F(DeviceParts, WithAReductionUnderWayItHasItsOwn) {
  open({0, 1, 2});
  devices(1).formed[0].told.may_end = 1;
  const std::vector<Posted> waits = step({0, 1, 2}, 0);
  world_->settle();
  const uint32_t part = split({0, 1});
  commit({0, 1}, part);
  expect_own({0, 1}, part, engine(1, part).group().name() + ": it has reductions under way");
  EXPECT_FALSE(done(waits));
  devices(1).formed[0].told.may_end = UINT64_MAX;
  finish(waits);
  finish(step({0, 1, 2}, 0));
}

// Rank 0 has come to the commit. Rank 1 comes to it behind a step of the job, in which rank 0 takes
// part: it must not hold its launches before all have come.
TEST_F(DeviceParts, NoLaunchIsHeldBeforeAllHaveCome) {
  open({0, 1, 2});
  const uint32_t part = split({0, 1});
  std::vector<Posted> commits = {post_commit(0, part)};
  world_->settle();
  finish(step({0, 1, 2}, 0));
  commits.push_back(post_commit(1, part));
  finish(commits);
  expect_out_of_job({0, 1}, part, {2});
}

// While it forms the job's launches wait on its members, and go on when it is there. The commit is
// over then: what comes behind it finds the job's communicator free.
TEST_F(DeviceParts, LaunchesOfTheJobWaitUntilItIsThere) {
  open({0, 1, 2});
  for (const uint32_t rank : {0, 1}) devices(rank).parts_form = false;
  const uint32_t part = split({0, 1});
  const std::vector<Posted> commits = post_commits({0, 1}, part);
  world_->settle();
  const std::vector<Posted> waits = step({0, 1, 2}, 0);
  world_->settle();
  EXPECT_FALSE(done(commits));
  for (const uint32_t rank : {0, 1}) {
    ASSERT_EQ(devices(rank).formed.size(), 2u);
    EXPECT_EQ(devices(rank).formed[0].told.launches.size(), 1u) << "the step before alone";
  }
  EXPECT_EQ(devices(2).formed[0].told.launches.size(), 2u) << "it is in no part";
  EXPECT_FALSE(done(waits));
  for (const uint32_t rank : {0, 1}) devices(rank).formed[1].told.formed = true;
  finish(commits);
  finish(waits);
}

// Given parts that overlap, whose shared ranks commit them at once and in different orders, expect
// all of it to end, no communicator to be lent twice at a time, and all members of each to have
// gone the same way.
TEST_F(DeviceParts, OverlappingPartsAtOnceNeverWaitForEachOther) {
  std::set<std::string> seen;
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    shares_.clear();
    open({0, 1, 2, 3}, true, false, seed);
    for (uint32_t rank = 0; rank < 4; ++rank) devices(rank).parts_form = false;
    const std::vector<Ranks> members = {{0, 1, 2}, {2, 1, 3}};
    const uint32_t parts[] = {split(members[0]), split(members[1])};
    std::vector<Posted> commits;
    for (const uint32_t rank : {1u, 2u, 0u, 3u}) {
      for (size_t k = 0; k < 2; ++k) {
        const size_t which = rank == 2 ? 1 - k : k;
        const Ranks& of = members[which];
        if (std::find(of.begin(), of.end(), rank) == of.end()) continue;
        commits.push_back(post_commit(rank, parts[which]));
        world_->shuffle(seed % 4);
      }
    }
    const auto form_those_of_all = [&] {
      for (const std::unique_ptr<Share>& share : shares_) {
        for (PartDevices::Formed& each : share->devices.formed) each.told.formed = true;
      }
    };
    for (int i = 0; i < 50 && !done(commits); ++i) {
      world_->settle();
      form_those_of_all();
    }
    finish(commits);
    std::string ways;
    for (size_t k = 0; k < 2; ++k) {
      const auto out_of_job = [&](uint32_t rank) {
        return plan(rank, parts[k]).find("made out of the job's") != std::string::npos;
      };
      const bool first = out_of_job(members[k][0]);
      for (const uint32_t rank : members[k]) EXPECT_EQ(out_of_job(rank), first) << seed;
      ways += first ? "job " : "own ";
    }
    seen.insert(ways);
    finish(step({0, 1, 2, 3}, 0));
    for (size_t k = 0; k < 2; ++k) finish(step(members[k], parts[k]));
    world_.reset();
  }
  EXPECT_TRUE(seen.contains("job own ") || seen.contains("own job ") || seen.contains("own own "))
      << "some came at once";
}

// ---- what ends it

TEST_F(DeviceParts, AnAbortWhileItFormsEndsTheCommitAndGivesBothUp) {
  open({0, 1, 2});
  for (const uint32_t rank : {0, 1}) devices(rank).parts_form = false;
  const uint32_t part = split({0, 1});
  const std::vector<Posted> commits = post_commits({0, 1}, part);
  world_->settle();
  engine(2, 0).job_calls().abort("enough");
  finish(commits, PARALLAX_ABORTED);
  for (const uint32_t rank : {0, 1}) {
    EXPECT_EQ(devices(rank).formed[0].told.aborts, 1u);
    EXPECT_EQ(devices(rank).formed[1].told.aborts, 1u);
  }
}

TEST_F(DeviceParts, ARankThatIsLostBetweenTheRoundsEndsTheCommit) {
  open({0, 1, 2});
  for (const uint32_t rank : {0, 2}) devices(rank).parts_form = false;
  const uint32_t part = split({0, 2});
  const std::vector<Posted> commits = post_commits({0, 2}, part);
  world_->settle();
  world_->kill(2);
  for (int i = 0; i < 20; ++i) {  // a broken connection is a suspicion first
    world_->settle();
    world_->clock().advance(20 * kNanosecondsPerMillisecond);
  }
  finish({commits[0]}, PARALLAX_PEER_LOST);
  EXPECT_EQ(devices(0).formed[1].told.aborts, 1u);
}

TEST_F(DeviceParts, AnErrorWhileItFormsFailsTheJob) {
  open({0, 1, 2});
  for (const uint32_t rank : {0, 1}) devices(rank).parts_form = false;
  const uint32_t part = split({0, 1});
  const std::vector<Posted> commits = post_commits({0, 1}, part);
  world_->settle();
  devices(1).formed[1].told.fails = io_error("NCCL: ncclCommShrink: none");
  finish(commits, PARALLAX_IO);
  EXPECT_FALSE(engine(2, 0).failure().ok()) << "of all";
}

}  // namespace
}  // namespace parallax::testkit
