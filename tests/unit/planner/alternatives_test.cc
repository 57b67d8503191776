// SPDX-License-Identifier: Apache-2.0
// The ways of handling a variable, over facts drawn by chance: the one chosen is the plan's, the
// bytes are the cost formulas', and each sentence says what the figures do. What the sentences of
// single cases are, explain_test.cc has.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "base/seeded_random.h"
#include "planner/choice.h"
#include "planner/cost.h"
#include "planner/plan.h"
#include "unit/planner/priced.h"

namespace parallax {
namespace {

constexpr parallax_plan_mode_t kEveryMode[] = {PARALLAX_PLAN_AUTO, PARALLAX_PLAN_HYBRID,
                                               PARALLAX_PLAN_PS, PARALLAX_PLAN_AR};

bool has(const std::string& text, const std::string& word) {
  return text.find(word) != std::string::npos;
}

VariableFacts draw_facts(SeededRandom& random) {
  VariableFacts facts;
  facts.name = "v";
  facts.rows = 1 + random.below(100'000);
  facts.row_elements = 1 + random.below(512);
  facts.element_bytes = random.chance(50) ? 4 : 8;
  facts.tag =
      random.chance(50) ? PARALLAX_AUTO : (random.chance(50) ? PARALLAX_SPARSE : PARALLAX_DENSE);
  facts.managed = random.chance(70);
  facts.ids_declared = random.chance(80);
  facts.integer = random.chance(10);
  facts.given_dense = carries_rows(facts) && random.chance(10);
  facts.measured = random.chance(80);
  if (facts.measured && random.chance(90)) {
    const auto rows = static_cast<double>(facts.rows);
    facts.touched_rows_per_host = rows * random.unit();
    facts.union_rows = std::min(rows, facts.touched_rows_per_host * (1 + 3 * random.unit()));
    facts.pulled_rows_per_host = rows * random.unit();
  }
  return facts;
}

TopologyFacts draw_topology(SeededRandom& random) {
  const auto hosts = static_cast<uint32_t>(random.between(1, 64));
  return {.hosts = hosts, .ranks = hosts + static_cast<uint32_t>(random.below(64))};
}

// A comparison in words is one of figures.
void expect_sentence(const Alternative& each, const VariableFacts& facts, parallax_plan_mode_t mode,
                     double chosen_bytes) {
  const bool allowed = pin_allows({each.placement, each.method}, facts, mode);
  EXPECT_FALSE(each.why.empty());
  EXPECT_FALSE(has(each.why, "nan") || has(each.why, "inf")) << each.why;
  EXPECT_EQ(has(each.why, "cannot be predicted"), !each.chosen && std::isnan(each.bytes_per_host))
      << each.why;
  EXPECT_EQ(has(each.why, "excluded by plan mode " + mode_name(mode)), !allowed) << each.why;
  if (!each.chosen) {
    EXPECT_TRUE(has(each.why, method_name(each.method))) << each.why;
  }
  EXPECT_EQ(std::isnan(each.microseconds), !goes_by_time(facts) || !facts.measured);
  const bool compared = has(each.why, "x the bytes");
  EXPECT_EQ(compared, !each.chosen && !is_unused(facts) && !std::isnan(each.bytes_per_host) &&
                          chosen_bytes > 0)
      << each.why;
}

// Given facts of every kind, under every pin, expect one way to be chosen, the settled plan's, and
// none that the pin allows to be better by more than a near tie.
TEST(Alternatives, TheChosenOneIsThePlansAndTheBytesAreTheFormulas) {
  for (uint64_t seed = 1; seed <= 2000; ++seed) {
    SeededRandom random(seed);
    VariableFacts facts = draw_facts(random);
    const TopologyFacts topology = draw_topology(random);
    facts = testkit::priced(facts, topology);
    for (const parallax_plan_mode_t mode : kEveryMode) {
      SCOPED_TRACE("seed " + std::to_string(seed) + ", mode " + mode_name(mode));
      const VariablePlan settled = settled_choice(facts, topology, mode);
      const std::vector<Alternative> ways = alternatives(facts, topology, mode);
      const auto is_chosen = [](const Alternative& each) { return each.chosen; };
      ASSERT_EQ(std::count_if(ways.begin(), ways.end(), is_chosen), 1);
      const Alternative& chosen = *std::find_if(ways.begin(), ways.end(), is_chosen);
      ASSERT_EQ((VariablePlan{chosen.placement, chosen.method}), settled);
      ASSERT_TRUE(std::is_sorted(ways.begin(), ways.end(),
                                 [](const auto& a, const auto& b) { return a.method < b.method; }));
      for (const Alternative& each : ways) {
        const bool known = facts.measured || !cost::needs_measurement(each.method, facts, topology);
        ASSERT_EQ(std::isnan(each.bytes_per_host), !known);
        if (known) {
          ASSERT_EQ(each.bytes_per_host,
                    is_unused(facts) ? 0 : cost::received_bytes(each.method, facts, topology));
        }
        if (known && !facts.given_dense && !std::isnan(chosen.bytes_per_host) &&
            (facts.measured || !carries_rows(facts)) &&
            pin_allows({each.placement, each.method}, facts, mode)) {
          if (goes_by_time(facts)) {
            ASSERT_LE(chosen.microseconds, each.microseconds * (1 + kNearTieOfTime) + 1e-9);
          } else {
            ASSERT_LE(chosen.bytes_per_host, each.bytes_per_host * (1 + kNearTie) + 1e-9);
          }
        }
        expect_sentence(each, facts, mode, chosen.bytes_per_host);
      }
      if (HasFailure()) return;
    }
  }
}

// Given a plan that is in force, whichever it is, expect that one to be marked, and the figures'
// favourite to be named where it is another.
TEST(Alternatives, ThePlanInForceIsMarked) {
  VariableFacts facts;
  facts.rows = 1000;
  facts.row_elements = 8;
  facts.tag = PARALLAX_SPARSE;
  facts.managed = facts.ids_declared = facts.measured = true;
  facts.touched_rows_per_host = 10;
  facts.union_rows = 30;
  facts.pulled_rows_per_host = 20;
  const TopologyFacts topology = {.hosts = 4, .ranks = 4};
  facts = testkit::priced(facts, topology);
  const VariablePlan favourite = settled_choice(facts, topology, PARALLAX_PLAN_AUTO);
  for (const VariablePlan& plan : fitting_plans(facts)) {
    for (const Alternative& each :
         alternatives(facts, topology, PARALLAX_PLAN_AUTO, {.plan = plan, .settled = true})) {
      EXPECT_EQ(each.chosen, each.method == plan.method);
      if (!each.chosen || plan == favourite) continue;
      EXPECT_EQ(each.why,
                "the plan in force; the figures now favour " + method_name(favourite.method));
    }
  }
}

}  // namespace
}  // namespace parallax
