// SPDX-License-Identifier: Apache-2.0
// Variables that one call gives together, whole engines: in whatever groups each rank gives them,
// the sums are those of one by one, and nobody waits for ever.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "support/runs_world.h"
#include "support/sanitizers.h"

namespace parallax::testkit {
namespace {

// What a rank does in a step: calls in a row, before some of which it waits for all before them.
struct RankScript {
  struct Call {
    std::vector<uint32_t> variables;
    bool waits = false;  // for all earlier ones, before it
  };
  std::vector<Call> calls;
  std::set<uint32_t> given;
  std::set<uint32_t> apart;  // in memory that is not lent
};

// Variables in phases that all ranks have in common: who waits does so between two of them, and
// where all ranks give all, so that no rank waits for one that waits for it.
RankScript draw_script(SeededRandom& random, std::span<const std::vector<uint32_t>> phases,
                       bool gives_all) {
  RankScript script;
  const bool waits = gives_all && random.chance(50);
  std::vector<RankScript::Call> calls;
  for (const std::vector<uint32_t>& phase : phases) {
    std::vector<uint32_t> left;
    for (const uint32_t variable : phase) {
      if (gives_all || random.chance(85)) left.push_back(variable);
    }
    if (random.chance(30)) {
      for (size_t i = left.size(); i > 1; --i) std::swap(left[i - 1], left[random.below(i)]);
    }
    bool first = waits;
    while (!left.empty()) {
      const size_t count = 1 + random.below(left.size());
      RankScript::Call call = {.variables = {left.begin(), left.begin() + count}, .waits = first};
      left.erase(left.begin(), left.begin() + count);
      first = false;
      for (const uint32_t variable : call.variables) {
        script.given.insert(variable);
        if (random.chance(5)) script.apart.insert(variable);
      }
      calls.push_back(call);
    }
  }
  if (!waits && random.chance(50)) std::reverse(calls.begin(), calls.end());
  script.calls = std::move(calls);
  return script;
}

// Does one rank's script, as far as it goes. True: all of it.
class ScriptActor {
 public:
  ScriptActor(RunsWorld& world, uint32_t rank, RankScript script)
      : world_(world), rank_(rank), script_(std::move(script)) {
    EXPECT_TRUE(engine().step_calls().begin(&step_).ok());
  }
  bool act() {
    StepCalls& calls = engine().step_calls();
    for (; next_ < script_.calls.size(); ++next_) {
      const RankScript::Call& call = script_.calls[next_];
      const bool waits = call.waits && std::any_of(requests_.begin(), requests_.end(),
                                                   [](Request* each) { return !each->done(); });
      if (waits) return false;
      std::vector<parallax_slice_t> slices;
      for (const uint32_t variable : call.variables) {
        slices.push_back(world_.slice(rank_, variable, script_.apart.count(variable) > 0));
      }
      EXPECT_TRUE(calls.reduce(step_, slices, &requests_.emplace_back()).ok());
      if (world_.world().random().chance(50)) engine().kick();
      if (world_.world().random().chance(50)) return ++next_, false;
    }
    if (!ended_) {
      ended_ = true;
      parallax_step_end_options_t end = end_options(1);
      end.absent = script_.given.empty() ? 1 : 0;
      EXPECT_TRUE(calls.end(step_, end, &requests_.emplace_back()).ok());
    }
    return std::all_of(requests_.begin(), requests_.end(),
                       [](Request* each) { return each->done(); });
  }
  void release() {
    for (Request* each : requests_) {
      EXPECT_TRUE(each->status.ok()) << each->status.message();
      EXPECT_TRUE(engine().release(each).ok());
    }
  }
  std::string waiting_for() {
    for (const Request* each : requests_) {
      if (!each->done()) return engine().reports().missing(*each).message();
    }
    return "nothing";
  }
  const RankScript& script() const { return script_; }

 private:
  Engine& engine() { return world_.world().engine(rank_); }
  RunsWorld& world_;
  const uint32_t rank_;
  const RankScript script_;
  uint64_t step_ = 0;
  size_t next_ = 0;
  bool ended_ = false;
  std::vector<Request*> requests_;
};

// Sizes of which some are said on boards or in one shot, and some lie across pages.
std::vector<uint64_t> draw_run_sizes(SeededRandom& random, uint32_t count) {
  std::vector<uint64_t> sizes;
  for (uint32_t i = 0; i < count; ++i) {
    sizes.push_back(random.chance(20) ? 100 + random.below(900) : 8200 + random.below(6000));
  }
  return sizes;
}

void run_drawn_step(RunsWorld& world, uint32_t ranks, uint64_t step) {
  SeededRandom& random = world.world().random();
  std::vector<std::vector<uint32_t>> phases(1);
  for (uint32_t i = 0; i < world.variables(); ++i) {
    if (random.chance(25)) phases.emplace_back();
    phases.back().push_back(i);
  }
  world.fill(step);
  const bool gives_all = random.chance(60);
  const bool alike = random.chance(30);
  const RankScript of_all = draw_script(random, phases, gives_all);
  std::vector<ScriptActor> actors;
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    actors.emplace_back(world, rank, alike ? of_all : draw_script(random, phases, gives_all));
  }
  const bool done = world.world().run_until([&] {
    bool all = true;
    for (ScriptActor& actor : actors) all &= actor.act();
    return all;
  });
  for (ScriptActor& actor : actors) ASSERT_TRUE(done) << actor.waiting_for();
  for (ScriptActor& actor : actors) actor.release();
  for (uint32_t variable = 0; variable < world.variables(); ++variable) {
    std::set<uint32_t> givers;
    for (uint32_t rank = 0; rank < ranks; ++rank) {
      if (actors[rank].script().given.count(variable) > 0) givers.insert(rank);
    }
    for (const uint32_t rank : givers) {
      const bool apart = actors[rank].script().apart.count(variable) > 0;
      world.expect_sum(rank, step, variable, apart, givers);
      if (testing::Test::HasFatalFailure()) return;
    }
  }
}

// Given calls in groups that every rank draws for itself, some variables not given, some in other
// memory, ranks that wait in between and such that do not, expect every sum right, and no end of
// waiting; and that runs were among it.
TEST(EngineRuns, AnyGroupsOfCallsGiveTheSameSums) {
  uint64_t runs = 0, alone = 0;
  for (uint64_t seed = 1; seed <= (kBrief ? 12 : 24); ++seed) {
    SeededRandom random(seed);
    const auto ranks = static_cast<uint32_t>(2 + random.below(3));
    RunsWorld world({.ranks = ranks, .elements = draw_run_sizes(random, 7), .seed = seed});
    world.commit();
    for (uint64_t step = 1; step <= 5; ++step) {
      SCOPED_TRACE("seed " + std::to_string(seed) + ", step " + std::to_string(step));
      run_drawn_step(world, ranks, step);
      if (testing::Test::HasFailure()) return;
    }
    runs += world.said(SectionKind::kRunSummed);
    alone += world.said(SectionKind::kDenseReduce);
  }
  EXPECT_GT(runs, kBrief ? 5u : 60u);
  EXPECT_GT(alone, kBrief ? 10u : 60u);
}

// Given deterministic sums of numbers that round, expect the same bits of one call as of a call for
// each variable, and as of messages; and of two ranks also where no order was asked for.
TEST(EngineRuns, TheBitsAreThoseOfOneByOne) {
  for (const bool deterministic : {false, true}) {
    for (const uint32_t ranks : {2u, 3u}) {
      if (!deterministic && ranks > 2) continue;
      std::vector<std::vector<float>> sums;
      for (const int way : {0, 1, 2}) {
        const bool together = way > 0, lends = way > 1;
        RunsWorld world({.ranks = ranks,
                         .elements = {8192 * 3, 8192 * 4, 8192 * 5},
                         .deterministic = deterministic,
                         .lends = lends});
        world.commit();
        SeededRandom random(5);
        for (uint32_t rank = 0; rank < ranks; ++rank) {
          for (uint64_t i = 0; i < world.total(); ++i) {
            world.values(rank, 0)[i] = static_cast<float>(random.below(1 << 30)) / 3e3f - 1e5f;
          }
        }
        std::vector<Request*> requests;
        for (uint32_t rank = 0; rank < ranks; ++rank) {
          StepCalls& calls = world.world().engine(rank).step_calls();
          uint64_t step = 0;
          ASSERT_TRUE(calls.begin(&step).ok());
          std::vector<parallax_slice_t> slices;
          for (uint32_t i = 0; i < 3; ++i) slices.push_back(world.slice(rank, i));
          for (uint32_t i = 0; i < 3; i += together ? 3 : 1) {
            const auto some = std::span(slices).subspan(i, together ? 3 : 1);
            ASSERT_TRUE(calls.reduce(step, some, &requests.emplace_back()).ok());
          }
          ASSERT_TRUE(calls.end(step, end_options(1), &requests.emplace_back()).ok());
        }
        ASSERT_TRUE(world.world().run_until_done(requests));
        EXPECT_EQ(world.said(SectionKind::kLentRun) > 0, lends);
        for (uint32_t rank = 0; rank < ranks; ++rank) {
          const float* const all = world.values(rank, 0);
          sums.emplace_back(all, all + world.total());
        }
        for (size_t i = 0; i < requests.size(); ++i) {
          EXPECT_TRUE(
              world.world().engine(i / (requests.size() / ranks)).release(requests[i]).ok());
        }
      }
      for (const std::vector<float>& each : sums) {
        EXPECT_EQ(std::memcmp(each.data(), sums[0].data(), each.size() * sizeof(float)), 0);
      }
    }
  }
}

}  // namespace
}  // namespace parallax::testkit
