// SPDX-License-Identifier: Apache-2.0
#include "planner/plan.h"

#include <gtest/gtest.h>

#include <clocale>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "base/check.h"
#include "planner/choice.h"
#include "planner/cost.h"
#include "unit/planner/priced.h"

namespace parallax {
namespace {

using testkit::priced;

constexpr TopologyFacts kFourByTwo = {.hosts = 4, .ranks = 8};
constexpr parallax_plan_mode_t kModes[] = {PARALLAX_PLAN_AUTO, PARALLAX_PLAN_HYBRID,
                                           PARALLAX_PLAN_PS, PARALLAX_PLAN_AR};
constexpr VariablePlan kShardedPushPull = {Placement::kSharded, Method::kPushPull};
constexpr VariablePlan kMirroredAllreduce = {Placement::kMirrored, Method::kAllreduce};
constexpr VariablePlan kMirroredAllgatherv = {Placement::kMirrored, Method::kAllgatherv};
constexpr VariablePlan kMirroredMadeDense = {Placement::kMirrored, Method::kMadeDense};

VariableFacts dense(bool managed) {
  VariableFacts facts;
  facts.name = "weights";
  facts.rows = 256;
  facts.row_elements = 64;
  facts.tag = PARALLAX_DENSE;
  facts.managed = managed;
  return facts;
}

VariableFacts sparse(bool managed) {
  VariableFacts facts;
  facts.name = "embedding";
  facts.rows = 100'000;
  facts.row_elements = 64;
  facts.tag = PARALLAX_SPARSE;
  facts.managed = managed;
  facts.ids_declared = true;
  return facts;
}

VariableFacts measured(VariableFacts facts, double s, double u, double t) {
  facts.measured = true;
  facts.touched_rows_per_host = s;
  facts.union_rows = u;
  facts.pulled_rows_per_host = t;
  return facts;
}

VariablePlan initial(const VariableFacts& facts, parallax_plan_mode_t mode) {
  return initial_plan({&facts, 1}, kFourByTwo, mode).at(0);
}

VariablePlan settled(const VariableFacts& facts, parallax_plan_mode_t mode,
                     const TopologyFacts& topology = kFourByTwo) {
  const VariableFacts of_topology = priced(facts, topology);
  return settled_plan({&of_topology, 1}, topology, mode).at(0);
}

TEST(Plan, InitialGoesByForm) {
  EXPECT_EQ(initial(sparse(true), PARALLAX_PLAN_AUTO), kShardedPushPull);
  EXPECT_EQ(initial(dense(true), PARALLAX_PLAN_AUTO), kMirroredAllreduce);
  for (const parallax_plan_mode_t mode : kModes) {
    EXPECT_EQ(initial(sparse(false), mode),
              (VariablePlan{Placement::kFramework, Method::kAllgatherv}));
    EXPECT_EQ(initial(dense(false), mode),
              (VariablePlan{Placement::kFramework, Method::kAllreduce}));
  }
}

TEST(Plan, InitialObeysPins) {
  EXPECT_EQ(initial(sparse(true), PARALLAX_PLAN_HYBRID), kShardedPushPull);
  EXPECT_EQ(initial(dense(true), PARALLAX_PLAN_HYBRID), kMirroredAllreduce);
  EXPECT_EQ(initial(sparse(true), PARALLAX_PLAN_PS), kShardedPushPull);
  EXPECT_EQ(initial(dense(true), PARALLAX_PLAN_PS), kShardedPushPull);
  EXPECT_EQ(initial(sparse(true), PARALLAX_PLAN_AR), kMirroredAllgatherv);
  EXPECT_EQ(initial(dense(true), PARALLAX_PLAN_AR), kMirroredAllreduce);
}

// Given any measured figures, expect HYBRID and PS not to move and AR to stay mirrored.
TEST(Plan, SettledObeysPins) {
  for (const double density : {1e-4, 0.01, 0.3, 1.0}) {
    const double s = 100'000 * density;
    const VariableFacts facts = measured(sparse(true), s, std::min(3.5 * s, 1e5), s);
    EXPECT_EQ(settled(facts, PARALLAX_PLAN_HYBRID), kShardedPushPull);
    EXPECT_EQ(settled(facts, PARALLAX_PLAN_PS), kShardedPushPull);
    EXPECT_EQ(settled(facts, PARALLAX_PLAN_AR).placement, Placement::kMirrored);
  }
  EXPECT_EQ(settled(dense(true), PARALLAX_PLAN_PS), kShardedPushPull);
  EXPECT_EQ(settled(dense(true), PARALLAX_PLAN_HYBRID), kMirroredAllreduce);
}

// Given a pin of a method, expect it in every mode and whatever is measured, and that the
// framework's obey too.
TEST(Plan, APinnedMethodStays) {
  const std::pair<uint32_t, Method> pins[] = {{PARALLAX_METHOD_ALLGATHERV, Method::kAllgatherv},
                                              {PARALLAX_METHOD_REDUCE_ROWS, Method::kReduceRows},
                                              {PARALLAX_METHOD_MADE_DENSE, Method::kMadeDense},
                                              {PARALLAX_METHOD_PUSH_PULL, Method::kPushPull}};
  for (const bool managed : {false, true}) {
    for (const auto& [pin, method] : pins) {
      if (!managed && method == Method::kPushPull) continue;
      VariableFacts facts = sparse(managed);
      facts.method_pin = pin;
      const Placement placement = !managed                      ? Placement::kFramework
                                  : method == Method::kPushPull ? Placement::kSharded
                                                                : Placement::kMirrored;
      const VariablePlan wanted = {placement, method};
      for (const parallax_plan_mode_t mode : kModes) {
        EXPECT_EQ(initial(facts, mode), wanted) << mode_name(mode);
        for (const double s : {10.0, 1e3, 1e5}) {
          VariableFacts busy = measured(facts, s, std::min(3 * s, 1e5), s);
          EXPECT_EQ(settled(busy, mode), wanted) << mode_name(mode) << ", " << s << " rows";
          busy.given_dense = true;
          EXPECT_EQ(settled(busy, mode), wanted) << mode_name(mode) << ", given dense";
        }
      }
    }
  }
  VariableFacts weights = dense(true);
  weights.method_pin = PARALLAX_METHOD_PUSH_PULL;
  EXPECT_EQ(settled(weights, PARALLAX_PLAN_AR), kShardedPushPull);
}

// Given a pin of a placement, expect it before the mode, and the method to be planned within it.
TEST(Plan, APinnedPlacementStaysAndItsMethodIsPlanned) {
  VariableFacts facts = sparse(true);
  facts.placement_pin = PARALLAX_PLACEMENT_MIRRORED;
  for (const parallax_plan_mode_t mode : kModes) {
    EXPECT_EQ(initial(facts, mode), kMirroredAllgatherv);
    EXPECT_EQ(settled(measured(facts, 1'000, 1'500, 1'000), mode).method, Method::kReduceRows);
    EXPECT_EQ(settled(measured(facts, 1'000, 3'500, 1'000), mode).method, Method::kAllgatherv);
  }
  facts.placement_pin = PARALLAX_PLACEMENT_SHARDED;
  EXPECT_EQ(settled(measured(facts, 1'000, 3'500, 100'000), PARALLAX_PLAN_AR), kShardedPushPull);
}

TEST(Plan, ArTakesTheBestReplicatedMethod) {
  const auto method = [](double s, double u) {
    return settled(measured(sparse(true), s, u, s), PARALLAX_PLAN_AR).method;
  };
  EXPECT_EQ(method(1'000, 3'500), Method::kAllgatherv) << "u/s > N-1";
  EXPECT_EQ(method(1'000, 1'500), Method::kReduceRows) << "u/s < N-1";
  EXPECT_EQ(method(90'000, 100'000), Method::kReduceRows);
  EXPECT_EQ(method(99'900, 100'000), Method::kMadeDense) << "ids cost more than what is untouched";
}

TEST(Plan, AutoMirrorsWhatIsPulledMuchAndPushedLittle) {
  // A full pull of the table beside few gradients: mirrored, the pull is a local read.
  EXPECT_EQ(settled(measured(sparse(true), 1'000, 3'500, 100'000), PARALLAX_PLAN_AUTO),
            kMirroredAllgatherv);
}

TEST(Plan, DenseTieStaysMirrored) {
  for (const uint32_t hosts : {1u, 2u, 3u, 5u, 64u}) {
    const TopologyFacts topology = {.hosts = hosts, .ranks = 2 * hosts};
    EXPECT_EQ(settled(dense(true), PARALLAX_PLAN_AUTO, topology), kMirroredAllreduce);
    EXPECT_EQ(settled(measured(dense(true), 256, 256, 256), PARALLAX_PLAN_AUTO, topology),
              kMirroredAllreduce);
  }
}

// Two hosts, all rows narrow: made_dense receives V R, push_pull (s + t) (R + 4) / 2.
TEST(Plan, NearTiesKeepTheInitialChoice) {
  const TopologyFacts two = {.hosts = 2, .ranks = 2};
  VariableFacts facts = sparse(true);
  facts.rows = 1'000;
  facts.row_elements = 100;  // at s = t = V push_pull receives 404/400 = 1.01 of made_dense
  EXPECT_EQ(settled(measured(facts, 1'000, 1'000, 1'000), PARALLAX_PLAN_AUTO, two),
            kShardedPushPull);
  facts.row_elements = 99;
  EXPECT_EQ(settled(measured(facts, 1'000, 1'000, 1'000), PARALLAX_PLAN_AUTO, two),
            kMirroredMadeDense);
}

TEST(Plan, UnmeasuredKeepsTheInitialChoice) {
  VariableFacts facts = measured(sparse(true), 1'000, 3'500, 100'000);
  facts.measured = false;
  for (const parallax_plan_mode_t mode : kModes) {
    EXPECT_EQ(settled(facts, mode), initial(facts, mode));
  }
}

TEST(Plan, UnusedKeepsTheInitialChoice) {
  for (const bool managed : {false, true}) {
    const VariableFacts facts = measured(sparse(managed), 0, 0, 0);
    for (const parallax_plan_mode_t mode : kModes) {
      EXPECT_EQ(settled(facts, mode), initial(facts, mode));
      for (const Alternative& way : alternatives(priced(facts, kFourByTwo), kFourByTwo, mode)) {
        EXPECT_EQ(way.bytes_per_host, 0);
      }
    }
  }
}

TEST(Plan, OneRankKeepsTheInitialChoice) {
  const TopologyFacts alone = {.hosts = 1, .ranks = 1};
  for (const parallax_plan_mode_t mode : kModes) {
    for (const VariableFacts& facts :
         {measured(sparse(true), 90, 90, 100'000), measured(sparse(false), 90, 90, 0)}) {
      EXPECT_EQ(settled(facts, mode, alone), initial(facts, mode));
    }
  }
}

TEST(Plan, OneHostPlansItsRanks) {
  const VariableFacts facts = measured(sparse(true), 1'000, 3'500, 100'000);
  EXPECT_EQ(settled(facts, PARALLAX_PLAN_AUTO, {.hosts = 1, .ranks = 4}),
            settled(facts, PARALLAX_PLAN_AUTO, {.hosts = 4, .ranks = 4}));
}

std::vector<VariableFacts> random_facts(uint32_t seed, size_t count,
                                        const TopologyFacts& topology = kFourByTwo) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> unit(0, 1);
  std::vector<VariableFacts> all;
  for (size_t i = 0; i < count; ++i) {
    VariableFacts facts = i % 3 == 0 ? dense(unit(random) < 0.5) : sparse(unit(random) < 0.5);
    facts.rows = 1 + random() % 1'000'000;
    facts.row_elements = 1 + random() % 600;
    const double s = static_cast<double>(facts.rows) * std::pow(10, -4 * unit(random));
    const double u = std::min(static_cast<double>(facts.rows), s * (1 + 3 * unit(random)));
    if (unit(random) < 0.9) facts = measured(facts, s, u, s * 2 * unit(random));
    all.push_back(priced(facts, topology));
  }
  return all;
}

// Given the same input, in any locale and order of calls, expect the same output.
TEST(Plan, IsPure) {
  const std::vector<VariableFacts> facts = random_facts(1, 300);
  for (const parallax_plan_mode_t mode : kModes) {
    const Plan first = settled_plan(facts, kFourByTwo, mode);
    const std::string why = alternatives(facts[1], kFourByTwo, mode)[0].why;
    const TopologyFacts other = {.hosts = 7, .ranks = 9};
    (void)settled_plan(random_facts(2, 50, other), other, mode);
    std::setlocale(LC_ALL, "de_DE.UTF-8");  // where it is installed, its decimal point is a comma
    EXPECT_EQ(settled_plan(facts, kFourByTwo, mode), first);
    EXPECT_EQ(alternatives(facts[1], kFourByTwo, mode)[0].why, why);
    std::setlocale(LC_ALL, "C");
    for (size_t i = 0; i < facts.size(); ++i) {
      EXPECT_EQ(settled(facts[i], mode), first[i]) << "a variable's plan is its own";
    }
  }
}

TEST(Plan, TagsAndAutoEndInTheSamePlan) {
  std::vector<VariableFacts> tagged = random_facts(3, 600);
  std::vector<VariableFacts> untagged = tagged;
  for (VariableFacts& facts : untagged) facts.tag = PARALLAX_AUTO;
  for (const parallax_plan_mode_t mode : kModes) {
    EXPECT_EQ(settled_plan(tagged, kFourByTwo, mode), settled_plan(untagged, kFourByTwo, mode));
    EXPECT_EQ(initial_plan(tagged, kFourByTwo, mode), initial_plan(untagged, kFourByTwo, mode));
  }
}

// Given any facts, expect nothing that a pin allows to beat the choice by more than a near-tie.
TEST(Plan, SettledIsNeverBeatenByMoreThanANearTie) {
  for (const parallax_plan_mode_t mode : kModes) {
    for (const VariableFacts& facts : random_facts(4, 600)) {
      double chosen = -1, least = std::numeric_limits<double>::infinity();
      int chosen_count = 0;
      for (const Alternative& way : alternatives(facts, kFourByTwo, mode)) {
        const bool sharded = way.placement == Placement::kSharded;
        EXPECT_FALSE(way.why.empty());
        const double each = goes_by_time(facts) ? way.microseconds : way.bytes_per_host;
        if (way.chosen) chosen = each, ++chosen_count;
        if (facts.managed && mode == PARALLAX_PLAN_AR && sharded) continue;
        if (facts.managed && mode == PARALLAX_PLAN_PS && !sharded) continue;
        if (mode == PARALLAX_PLAN_HYBRID && facts.managed && sharded != carries_rows(facts)) {
          continue;
        }
        least = std::fmin(least, each);
      }
      EXPECT_EQ(chosen_count, 1);
      if (facts.measured) {
        EXPECT_LE(chosen, least * (1 + near_tie(facts)));
      }
    }
  }
}

TEST(Plan, MirroringNeedsNoPullBytes) {
  const VariableFacts few = priced(measured(sparse(true), 1'000, 3'500, 10), kFourByTwo);
  const VariableFacts many = priced(measured(sparse(true), 1'000, 3'500, 100'000), kFourByTwo);
  const auto few_ways = alternatives(few, kFourByTwo, PARALLAX_PLAN_AR);
  const auto many_ways = alternatives(many, kFourByTwo, PARALLAX_PLAN_AR);
  for (size_t i = 0; i < few_ways.size(); ++i) {
    if (few_ways[i].placement == Placement::kSharded) continue;
    EXPECT_EQ(few_ways[i].bytes_per_host, many_ways[i].bytes_per_host);
  }
}

TEST(Plan, ImpossibleFiguresAreOurBug) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THROW(settled(measured(sparse(true), nan, 1, 1), PARALLAX_PLAN_AUTO), InternalError);
  EXPECT_THROW(settled(measured(sparse(true), 1, -1, 1), PARALLAX_PLAN_AUTO), InternalError);
  const VariableFacts facts = priced(measured(sparse(true), 1, 1, 1), kFourByTwo);
  EXPECT_THROW(settled_choice(facts, {.hosts = 0, .ranks = 0}, PARALLAX_PLAN_AUTO), InternalError);
  EXPECT_THROW(settled_choice(measured(sparse(true), 1, 1, 1), kFourByTwo, PARALLAX_PLAN_AUTO),
               InternalError)
      << "nobody counted its schedules";
}

}  // namespace
}  // namespace parallax
