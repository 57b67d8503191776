// SPDX-License-Identifier: Apache-2.0
// Rows that the framework holds go by time: what it is made of, by hand, and where it chooses
// another method than bytes do. Constants are given, so that nothing here is measured.
#include "planner/row_time.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/check.h"
#include "base/seeded_random.h"
#include "planner/choice.h"
#include "planner/cost.h"
#include "unit/planner/priced.h"

namespace parallax {
namespace {

constexpr Method kOfRows[] = {Method::kAllgatherv, Method::kReduceRows, Method::kMadeDense};

VariableFacts held(uint64_t rows, uint64_t row_elements, double s, double u) {
  VariableFacts facts;
  facts.name = "held";
  facts.rows = rows;
  facts.row_elements = row_elements;
  facts.tag = PARALLAX_SPARSE;
  facts.ids_declared = facts.measured = true;
  facts.touched_rows_per_host = s;
  facts.union_rows = u;
  return facts;
}

CostConstants nothing_costs() {
  CostConstants costs;
  for (const ConstantRow& row : kConstantRows) row.of(costs) = 0;
  return costs;
}

TopologyFacts spread(uint32_t hosts, uint32_t ranks, const CostConstants& costs = {}) {
  return {.hosts = hosts, .ranks = ranks, .costs = costs};
}

cost::RowTime time_of(Method method, const VariableFacts& facts, const TopologyFacts& topology) {
  return cost::row_time(method, testkit::priced(facts, topology), topology);
}

Method chosen(const VariableFacts& facts, const TopologyFacts& topology) {
  const VariablePlan plan =
      settled_choice(testkit::priced(facts, topology), topology, PARALLAX_PLAN_AUTO);
  EXPECT_EQ(plan.placement, Placement::kFramework);
  return plan.method;
}

Method of_fewest_bytes(const VariableFacts& facts, const TopologyFacts& topology) {
  const VariableFacts of_topology = testkit::priced(facts, topology);
  return *std::min_element(std::begin(kOfRows), std::end(kOfRows), [&](Method a, Method b) {
    return cost::received_bytes(a, of_topology, topology) <
           cost::received_bytes(b, of_topology, topology);
  });
}

// Given constants that are zero but for bytes of the wire, expect what the bytes of cost.h take.
TEST(RowTime, OfTheWireAloneIsItsBytes) {
  CostConstants costs = nothing_costs();
  costs.between.byte_ps = 800;
  for (const uint32_t hosts : {2u, 3u, 8u, 64u}) {
    const TopologyFacts topology = spread(hosts, 2 * hosts, costs);
    const VariableFacts facts = testkit::priced(held(1'000, 16, 60, 150), topology);
    for (const Method method : kOfRows) {
      const cost::RowTime time = cost::row_time(method, facts, topology);
      EXPECT_NEAR(time.wire, cost::received_bytes(method, facts, topology) * 0.8, 1e-6);
      EXPECT_EQ(time.memory + time.rows + time.messages, 0);
    }
  }
}

// 2 hosts of 2 ranks; rows of 8 bytes, 12 with their id; 40 touched a host, 60 in the union, of
// 100.
TEST(RowTime, TwoHostsOfTwoByHand) {
  CostConstants costs = nothing_costs();
  const VariableFacts facts = held(100, 2, 40, 60);
  const auto total = [&](Method method) {
    return time_of(method, facts, spread(2, 4, costs)).microseconds() * 1000;
  };
  costs.row_sum_ps = 1'000;  // a nanosecond: rows of a rank twice, and those of the exchange
  EXPECT_DOUBLE_EQ(total(Method::kAllgatherv), 20 + 20 + 2 * 20);
  EXPECT_DOUBLE_EQ(total(Method::kReduceRows), 20 + 20 + 20);
  EXPECT_DOUBLE_EQ(total(Method::kMadeDense), 20 + 20);
  costs = nothing_costs();
  costs.between = {.latency_ns = 100, .overhead_ns = 7};
  EXPECT_DOUBLE_EQ(total(Method::kAllgatherv), 100 + 2 * 7);
  EXPECT_DOUBLE_EQ(total(Method::kReduceRows), 2 * (100 + 2 * 7));
  costs = nothing_costs();
  costs.inside.byte_ps = 1'000;
  EXPECT_DOUBLE_EQ(total(Method::kAllgatherv), 30 * 12);
  EXPECT_DOUBLE_EQ(total(Method::kReduceRows), 30 * 12);
  EXPECT_DOUBLE_EQ(total(Method::kMadeDense), 50 * 8);
}

// Given one host, expect nothing on the wire, the first two methods to move alike, and the second
// to be behind by a hop.
TEST(RowTime, OneHostHasNoWire) {
  for (const uint32_t ranks : {2u, 3u, 4u, 16u}) {
    const TopologyFacts topology = spread(1, ranks);
    const VariableFacts facts = held(100'000, 64, 800, 2'000);
    const cost::RowTime gathered = time_of(Method::kAllgatherv, facts, topology);
    const cost::RowTime reduced = time_of(Method::kReduceRows, facts, topology);
    EXPECT_EQ(gathered.wire, 0);
    EXPECT_EQ(time_of(Method::kMadeDense, facts, topology).wire, 0);
    EXPECT_GT(reduced.microseconds(), gathered.microseconds());
    EXPECT_EQ(cost::allgatherv(facts, topology), cost::reduce_rows(facts, topology));
    EXPECT_EQ(chosen(facts, topology), Method::kAllgatherv);
  }
  const TopologyFacts alone = spread(1, 1);
  EXPECT_EQ(time_of(Method::kAllgatherv, held(10, 1, 5, 5), alone).microseconds(), 0);
}

// Given few rows among hosts far apart, where bytes favour the method of two rounds, expect that of
// one; given a slow link, the other way about.
TEST(RowTime, RoundsOutweighBytesWhereRowsAreFew) {
  const VariableFacts few = held(100'000, 16, 20, 30);
  CostConstants far;
  far.between = {.latency_ns = 50'000, .overhead_ns = 1'000, .byte_ps = 800};
  CostConstants slow = far;
  slow.between.byte_ps = 80'000;
  ASSERT_EQ(of_fewest_bytes(few, spread(4, 4)), Method::kReduceRows);
  EXPECT_EQ(chosen(few, spread(4, 4, far)), Method::kAllgatherv);
  EXPECT_EQ(chosen(few, spread(4, 4, slow)), Method::kReduceRows);
  const VariableFacts many = held(100'000, 16, 20'000, 30'000);
  EXPECT_EQ(chosen(many, spread(4, 4, far)), Method::kReduceRows);
}

// Given rows of one element on one host that are fewer bytes as elements, as they were measured,
// expect no gain where it is one of bytes alone: made dense they took a quarter longer.
TEST(RowTime, ElementsThatAreFewerBytesAreFilledAndSearched) {
  const VariableFacts narrow = held(125, 1, 45, 67);
  ASSERT_EQ(of_fewest_bytes(narrow, spread(1, 2)), Method::kMadeDense);
  EXPECT_EQ(chosen(narrow, spread(1, 2)), Method::kAllgatherv);
  const VariableFacts full = held(100'000, 1, 90'000, 100'000);
  CostConstants slow;
  slow.inside.byte_ps = 10'000;
  EXPECT_EQ(chosen(full, spread(1, 2, slow)), Method::kMadeDense);
}

// Given four ranks of a host, where every leader sums its part whatever the method is called,
// expect them to gather, and no round more.
TEST(RowTime, FourRanksOfAHostGather) {
  for (const uint64_t width : {1ull, 16ull, 64ull, 512ull}) {
    for (const double s : {100.0, 1'000.0, 10'000.0}) {
      for (const double u : {1.1 * s, 2 * s, 3.9 * s}) {
        EXPECT_EQ(chosen(held(1'000'000, width, s, u), spread(1, 4)), Method::kAllgatherv);
      }
    }
  }
}

// Given more rows, in a wider variable or at higher constants, expect no method to take less.
TEST(RowTime, MoreOfAnythingIsNoLess) {
  SeededRandom random(7);
  for (int draw = 0; draw < 300; ++draw) {
    const auto hosts = static_cast<uint32_t>(1 + random.below(8));
    TopologyFacts topology = spread(hosts, hosts * static_cast<uint32_t>(1 + random.below(4)));
    if (topology.ranks == 1) continue;
    const auto rows = 100 + random.below(10'000);
    const double s = static_cast<double>(rows) * random.unit();
    const double u = std::min<double>(static_cast<double>(rows), s * (1 + random.unit()));
    const VariableFacts facts = held(rows, 1 + random.below(64), s, u);
    for (const Method method : kOfRows) {
      const double before = time_of(method, facts, topology).microseconds();
      VariableFacts more = facts;
      more.touched_rows_per_host += 1;
      EXPECT_GE(time_of(method, more, topology).microseconds(), before);
      more = facts;
      more.union_rows += 1;
      EXPECT_GE(time_of(method, more, topology).microseconds(), before);
      more = facts;
      more.row_elements += 1;
      EXPECT_GE(time_of(method, more, topology).microseconds(), before);
      for (const ConstantRow& row : kConstantRows) {
        TopologyFacts dearer = topology;
        row.of(dearer.costs) += 1'000;
        EXPECT_GE(time_of(method, facts, dearer).microseconds(), before) << row.name;
      }
    }
  }
}

// Given rows that ranks have in common more and more, as skew makes them, expect the choice to go
// from gathering to reducing once at most; and with more rows from sparse to dense once.
TEST(RowTime, ChoicesFlipOnce) {
  for (const uint32_t hosts : {2u, 4u, 8u}) {
    for (const uint64_t width : {1ull, 16ull, 512ull}) {
      const TopologyFacts topology = spread(hosts, hosts);
      int flips = 0;
      Method last = Method::kAllgatherv;
      for (double shared = 0; shared <= 1; shared += 0.02) {
        const double u = 2'000 * (1 + (hosts - 1) * (1 - shared));
        const Method now = chosen(held(1'000'000, width, 2'000, u), topology);
        flips += now != last;
        last = now;
      }
      EXPECT_LE(flips, 1) << hosts << " hosts, width " << width;
      bool dense = false;
      for (double density = 0.01; density <= 1; density += 0.01) {
        const double s = 10'000 * density;
        const double u = 10'000 * (1 - std::pow(1 - density, hosts));
        const bool now = chosen(held(10'000, width, s, u), topology) == Method::kMadeDense;
        EXPECT_TRUE(now || !dense) << hosts << " hosts, width " << width << ", " << density;
        dense = now;
      }
    }
  }
}

// Given a gain within the noise of what is measured, expect the initial choice to stay, and to say
// so.
TEST(RowTime, NearTiesKeepTheInitialChoice) {
  CostConstants costs = nothing_costs();
  costs.between.byte_ps = 800;
  const TopologyFacts topology = spread(3, 3, costs);
  const auto of = [&](double u) { return testkit::priced(held(10'000, 16, 300, u), topology); };
  // allgatherv 2 s, reduce_rows 2/3 (s + u): equal at u = 2 s, further apart below.
  const VariableFacts near = of(300 * 1.92);
  EXPECT_EQ(chosen(near, topology), Method::kAllgatherv);
  EXPECT_EQ(chosen(of(300 * 1.88), topology), Method::kReduceRows);
  for (const Alternative& way : alternatives(near, topology, PARALLAX_PLAN_AUTO)) {
    if (way.method == Method::kMadeDense) continue;
    EXPECT_NE(way.why.find(way.chosen ? "the initial choice, and within 3% of the least time, "
                                      : "; within 3%, so the initial choice stays"),
              std::string::npos)
        << way.why;
  }
}

// A pin holds whatever time says; integers are never made dense; what is given dense is.
TEST(RowTime, PinsAndFormsGoFirst) {
  CostConstants costs = nothing_costs();
  costs.inside.byte_ps = 1'000;
  const TopologyFacts topology = spread(1, 4, costs);
  VariableFacts facts = held(100, 1, 90, 100);
  ASSERT_EQ(chosen(facts, topology), Method::kMadeDense);
  facts.integer = true;
  EXPECT_EQ(chosen(facts, topology), Method::kAllgatherv);
  facts.integer = false;
  facts.method_pin = PARALLAX_METHOD_REDUCE_ROWS;
  EXPECT_EQ(chosen(facts, topology), Method::kReduceRows);
  facts = held(100'000, 64, 10, 20);
  facts.given_dense = true;
  EXPECT_EQ(chosen(facts, topology), Method::kMadeDense);
}

// What is managed is compared by bytes, and says no time.
TEST(RowTime, ManagedRowsGoByBytes) {
  const TopologyFacts topology = spread(4, 8);
  VariableFacts facts = held(100'000, 64, 812, 2'700);
  facts.managed = true;
  for (const Alternative& way :
       alternatives(testkit::priced(facts, topology), topology, PARALLAX_PLAN_AUTO)) {
    EXPECT_TRUE(std::isnan(way.microseconds));
  }
  facts.managed = false;
  facts.measured = false;
  EXPECT_THROW(time_of(Method::kAllgatherv, facts, topology), InternalError);
}

// Given chunks, expect as many times the messages, and what a rank gives and gets copied once more.
TEST(RowTime, ChunksAreRounds) {
  const TopologyFacts topology = spread(4, 4);
  const VariableFacts whole = held(100'000, 64, 800, 2'000);
  for (const Method method : {Method::kAllgatherv, Method::kReduceRows}) {
    VariableFacts cut = whole;
    cut.ceiling.bytes_max = 1;
    cut.ceiling.gathered.count = cut.ceiling.reduced.count = 10;
    const cost::RowTime once = time_of(method, whole, topology);
    const cost::RowTime rounds = time_of(method, cut, topology);
    EXPECT_DOUBLE_EQ(rounds.messages, 10 * once.messages);
    EXPECT_EQ(rounds.wire, once.wire);
    EXPECT_GT(rounds.memory, once.memory);
    EXPECT_GT(rounds.rows, once.rows);
    cut.ceiling.gathered.count = cut.ceiling.reduced.count = 1;
    EXPECT_EQ(time_of(method, cut, topology).microseconds(), once.microseconds());
  }
}

// Given a ceiling that costs one method many rounds, or that it does not keep, expect the other.
TEST(RowTime, CeilingsChangeTheChoice) {
  const TopologyFacts topology = spread(4, 4);
  VariableFacts facts = held(100'000, 16, 30, 74);
  ASSERT_EQ(chosen(facts, topology), Method::kAllgatherv);
  facts.ceiling.bytes_max = 1;
  facts.ceiling.gathered.count = 40;
  facts.ceiling.reduced.count = 2;
  EXPECT_EQ(chosen(facts, topology), Method::kReduceRows);
  facts.ceiling.reduced.count = 0;
  EXPECT_EQ(chosen(facts, topology), Method::kAllgatherv);
  // What is dense is made so where it fits as a whole, and else goes by time, too.
  facts.given_dense = true;
  EXPECT_EQ(chosen(facts, topology), Method::kMadeDense);
  facts.ceiling.made_dense.count = 40;
  EXPECT_EQ(chosen(facts, topology), Method::kAllgatherv);
  facts.ceiling.made_dense.count = 0;
  EXPECT_EQ(chosen(facts, topology), Method::kAllgatherv);
}

TEST(RowTime, InWords) {
  EXPECT_EQ(cost::time_text({.wire = 200'000, .memory = 40'250, .rows = 60'000, .messages = 500}),
            "300.8 us (wire 200, memory 40.2, rows 60, messages 0.5)");
}

}  // namespace
}  // namespace parallax
