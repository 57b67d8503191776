// SPDX-License-Identifier: Apache-2.0
#include "planner/cost.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/check.h"
#include "unit/planner/priced.h"

namespace parallax {
namespace {

VariableFacts sparse(uint64_t rows, uint64_t row_elements, double s, double u, double t) {
  VariableFacts facts;
  facts.name = "embedding";
  facts.rows = rows;
  facts.row_elements = row_elements;
  facts.tag = PARALLAX_SPARSE;
  facts.managed = true;
  facts.ids_declared = true;
  facts.measured = true;
  facts.touched_rows_per_host = s;
  facts.union_rows = u;
  facts.pulled_rows_per_host = t;
  return facts;
}

// So many hosts of one rank, which have their elements priced.
struct Hosts {
  explicit Hosts(uint32_t count) : topology{.hosts = count, .ranks = count} {}
  TopologyFacts topology;
  double operator()(double (*cost)(const VariableFacts&, const TopologyFacts&),
                    const VariableFacts& facts) const {
    return cost(testkit::priced(facts, topology), topology);
  }
};

// One row of the table of published figures: rows received per host for one LM embedding of 793,470
// rows, 2,560 tokens a host and step, drawn from Zipf(1).
struct ZipfRow {
  uint32_t hosts;
  double dense, allgatherv, reduce_rows, bound, push_pull;
};
constexpr ZipfRow kZipfTable[] = {{4, 1.19e6, 4'787, 5'233, 4'285, 2'396},
                                  {8, 1.39e6, 11'126, 9'902, 8'885, 2'784},
                                  {16, 1.49e6, 23'891, 17'882, 16'889, 2'986},
                                  {32, 1.54e6, 49'362, 31'547, 30'629, 3'084}};
constexpr uint64_t kZipfRows = 793'470;
constexpr double kZipfTokens = 2'560;

// Distinct rows expected in `tokens` independent draws: sum over rows of 1 - (1 - p)^tokens.
double zipf_distinct(double tokens) {
  double harmonic = 0;
  for (uint64_t row = 1; row <= kZipfRows; ++row) harmonic += 1.0 / static_cast<double>(row);
  double distinct = 0;
  for (uint64_t row = 1; row <= kZipfRows; ++row) {
    const double p = 1.0 / (static_cast<double>(row) * harmonic);
    distinct -= std::expm1(tokens * std::log1p(-p));
  }
  return distinct;
}

// The table is a simulation, which the expectation meets within 1%; dense has three digits.
TEST(Cost, MeetsTheZipfTable) {
  const double s = zipf_distinct(kZipfTokens);
  EXPECT_NEAR(s, 1'592, 1'592 * 0.01);
  for (const ZipfRow& expected : kZipfTable) {
    SCOPED_TRACE(expected.hosts);
    const double u = zipf_distinct(kZipfTokens * expected.hosts);
    const VariableFacts facts = sparse(kZipfRows, 512, s, u, s);
    const uint32_t n = expected.hosts;
    const double row = 512 * 4;
    EXPECT_NEAR(Hosts(n)(cost::made_dense, facts) / row, expected.dense, expected.dense * 0.005);
    EXPECT_NEAR(Hosts(n)(cost::allreduce, facts) / row, expected.dense, expected.dense * 0.005);
    EXPECT_NEAR(Hosts(n)(cost::allgatherv, facts) / (row + 4), expected.allgatherv,
                expected.allgatherv * 0.01);
    EXPECT_NEAR(Hosts(n)(cost::reduce_rows, facts) / (row + 4), expected.reduce_rows,
                expected.reduce_rows * 0.01);
    EXPECT_NEAR(Hosts(n)(cost::replicated_bound, facts) / (row + 4), expected.bound,
                expected.bound * 0.01);
    EXPECT_NEAR(Hosts(n)(cost::push_pull, facts) / (row + 4), expected.push_pull,
                expected.push_pull * 0.01);
  }
}

TEST(Cost, FormulasByHand) {
  // 3 hosts; rows of 8 bytes, 12 with their id.
  const VariableFacts facts = sparse(30, 2, 6, 15, 9);
  EXPECT_DOUBLE_EQ(Hosts(3)(cost::allreduce, facts), 2 * 2.0 / 3 * 30 * 8);
  EXPECT_DOUBLE_EQ(Hosts(3)(cost::made_dense, facts), 320);
  EXPECT_DOUBLE_EQ(Hosts(3)(cost::allgatherv, facts), 2 * 6 * 12);
  EXPECT_DOUBLE_EQ(Hosts(3)(cost::reduce_rows, facts), 2.0 / 3 * (6 + 15) * 12);
  EXPECT_DOUBLE_EQ(Hosts(3)(cost::push_pull, facts), 2.0 / 3 * (6 + 9) * 12);
  EXPECT_DOUBLE_EQ(Hosts(3)(cost::replicated_bound, facts), (6 + 15.0 / 3) * 12);
}

// With one host, rows made dense have come to the leaders as rows.
TEST(Cost, MadeDenseInsideAHostByHand) {
  const TopologyFacts host = {.hosts = 1, .ranks = 3};
  const VariableFacts facts = testkit::priced(sparse(30, 2, 6, 15, 9), host);
  EXPECT_DOUBLE_EQ(cost::made_dense(facts, host), 2.0 / 3 * 30 * 8 + 2.0 / 3 * 6 * 12);
  EXPECT_TRUE(cost::needs_measurement(Method::kMadeDense, facts, host));
  EXPECT_FALSE(cost::needs_measurement(Method::kMadeDense, facts, {.hosts = 3, .ranks = 3}));
  EXPECT_EQ(cost::formula(Method::kMadeDense, facts, host),
            "2/3 x 30 rows x 8 bytes and 2/3 x 6 touched rows x 12 bytes, between ranks in shared "
            "memory, nothing on the wire");
}

// Given a push or a pull alone, expect each to bring its own ids.
TEST(Cost, PushesAndPullsBringTheirIds) {
  EXPECT_DOUBLE_EQ(Hosts(2)(cost::push_pull, sparse(30, 2, 6, 15, 0)), 0.5 * (6 * 8 + 6 * 4));
  EXPECT_DOUBLE_EQ(Hosts(2)(cost::push_pull, sparse(30, 2, 0, 0, 9)), 0.5 * (9 * 8 + 9 * 4));
}

// Of a table that keeps half the bytes, pulls have them, and pushes not.
TEST(Cost, PullsHaveWhatTablesKeep) {
  VariableFacts facts = sparse(30, 2, 6, 15, 9);
  facts.pulled.bytes = 2;
  EXPECT_DOUBLE_EQ(Hosts(3)(cost::push_pull, facts), 2.0 / 3 * (6 * 12 + 9 * 8));
  EXPECT_DOUBLE_EQ(Hosts(3)(cost::reduce_rows, facts), 2.0 / 3 * (6 + 15) * 12);
  EXPECT_EQ(cost::formula(Method::kPushPull, facts, {.hosts = 3, .ranks = 3}),
            "2/3 x (6 pushed rows x 12 + 9 pulled rows x 8 bytes)");
  facts.tag = PARALLAX_DENSE;
  facts.ids_declared = false;
  EXPECT_EQ(Hosts(4)(cost::push_pull, facts), 0.75 * 30 * 8 + 0.75 * 30 * 4);
}

// Rows that are rounded between hosts are pushed in half the bytes there, and nowhere else.
TEST(Cost, PushesHaveWhatCrossesBetweenHosts) {
  VariableFacts facts = sparse(30, 2, 6, 15, 9);
  facts.pushed.bytes = 2;
  EXPECT_DOUBLE_EQ(Hosts(3)(cost::push_pull, facts), 2.0 / 3 * (6 * 8 + 9 * 12));
  EXPECT_DOUBLE_EQ(Hosts(3)(cost::reduce_rows, facts), 2.0 / 3 * (6 + 15) * 12);
  EXPECT_EQ(cost::formula(Method::kPushPull, facts, {.hosts = 3, .ranks = 3}),
            "2/3 x (6 pushed rows x 8 + 9 pulled rows x 12 bytes)");
  const TopologyFacts host = {.hosts = 1, .ranks = 3};
  EXPECT_DOUBLE_EQ(cost::push_pull(facts, host), 2.0 / 3 * (6 + 9) * 12);
}

TEST(Cost, DensePushPullSendsNoIds) {
  VariableFacts facts = sparse(30, 2, 30, 30, 30);
  facts.tag = PARALLAX_DENSE;
  facts.ids_declared = false;
  EXPECT_EQ(Hosts(4)(cost::push_pull, facts), 2 * 0.75 * 30 * 8);
  EXPECT_EQ(Hosts(4)(cost::push_pull, facts), Hosts(4)(cost::allreduce, facts));
}

TEST(Cost, OnePartyReceivesNothing) {
  const VariableFacts facts = sparse(30, 2, 6, 15, 9);
  const TopologyFacts one = {.hosts = 1, .ranks = 1};
  for (const Method method : {Method::kAllreduce, Method::kAllgatherv, Method::kReduceRows,
                              Method::kMadeDense, Method::kPushPull}) {
    EXPECT_EQ(cost::received_bytes(method, testkit::priced(facts, one), one), 0)
        << method_name(method);
  }
  EXPECT_EQ(Hosts(1)(cost::replicated_bound, facts), 0);
}

TEST(Cost, ByMethodIsTheFunctionOfThatName) {
  for (uint32_t n = 1; n <= 64; ++n) {
    const TopologyFacts hosts = {.hosts = n, .ranks = n};
    const VariableFacts facts = testkit::priced(sparse(1000, 16, 60, 150, 90), hosts);
    EXPECT_EQ(cost::received_bytes(Method::kAllreduce, facts, hosts),
              cost::allreduce(facts, hosts));
    EXPECT_EQ(cost::received_bytes(Method::kAllgatherv, facts, hosts),
              cost::allgatherv(facts, hosts));
    EXPECT_EQ(cost::received_bytes(Method::kReduceRows, facts, hosts),
              cost::reduce_rows(facts, hosts));
    EXPECT_EQ(cost::received_bytes(Method::kMadeDense, facts, hosts),
              cost::made_dense(facts, hosts));
    EXPECT_EQ(cost::received_bytes(Method::kPushPull, facts, hosts), cost::push_pull(facts, hosts));
  }
}

// Given independent uniform rows, expect no replicated method under the bound, and allgatherv to
// beat reduce_rows exactly when u/s > N-1 (docs/planning.md).
TEST(Cost, BoundAndCrossoverOfReplicatedRows) {
  const double rows = 10'000;
  for (uint32_t n = 2; n <= 64; ++n) {
    for (const double density : {1e-4, 0.01, 0.1, 0.5, 0.9, 1.0}) {
      const double s = rows * density;
      const double u = rows * (1 - std::pow(1 - density, n));
      const VariableFacts facts = sparse(10'000, 8, s, u, s);
      const double slack = 1 - 1e-12;
      EXPECT_GE(Hosts(n)(cost::allgatherv, facts), slack * Hosts(n)(cost::replicated_bound, facts));
      EXPECT_GE(Hosts(n)(cost::reduce_rows, facts),
                slack * Hosts(n)(cost::replicated_bound, facts));
      if (std::abs(u / s - (n - 1)) < 1e-9) continue;
      EXPECT_EQ(Hosts(n)(cost::allgatherv, facts) < Hosts(n)(cost::reduce_rows, facts),
                u / s > n - 1)
          << n << " hosts, density " << density;
    }
  }
}

TEST(Cost, OneHostCountsItsRanks) {
  EXPECT_EQ(cost::counted_parties({.hosts = 4, .ranks = 8}), 4u);
  EXPECT_EQ(cost::counted_parties({.hosts = 1, .ranks = 8}), 8u);
  EXPECT_EQ(cost::counted_parties({.hosts = 1, .ranks = 1}), 1u);
  EXPECT_THROW(cost::counted_parties({.hosts = 0, .ranks = 0}), InternalError);
  EXPECT_THROW(cost::counted_parties({.hosts = 4, .ranks = 3}), InternalError);
}

TEST(Cost, FormulasInWords) {
  const TopologyFacts hosts = {.hosts = 4, .ranks = 8};
  const VariableFacts facts = testkit::priced(sparse(100'000, 64, 812, 2755.4, 900), hosts);
  EXPECT_EQ(cost::formula(Method::kAllgatherv, facts, hosts), "3 hosts x 812 rows x 260 bytes");
  EXPECT_EQ(cost::formula(Method::kReduceRows, facts, hosts),
            "3/4 x (812 touched + 2755.4 union rows) x 260 bytes");
  EXPECT_EQ(cost::formula(Method::kMadeDense, facts, hosts), "2 x 3/4 x 100000 rows x 256 bytes");
  EXPECT_EQ(cost::formula(Method::kPushPull, facts, hosts),
            "3/4 x (812 pushed + 900 pulled rows) x 260 bytes");
  EXPECT_EQ(cost::formula(Method::kAllgatherv, facts, {.hosts = 2, .ranks = 2}),
            "1 host x 812 rows x 260 bytes");
  // Each leader of a host sums its part, and nobody the whole.
  EXPECT_EQ(cost::formula(Method::kAllgatherv, facts, {.hosts = 1, .ranks = 4}),
            "3/4 x (812 touched + 2755.4 union rows) x 260 bytes, between ranks in shared memory, "
            "nothing on the wire");
  EXPECT_EQ(cost::allgatherv(facts, {.hosts = 1, .ranks = 4}), 0.75 * (812 + 2755.4) * 260);
  EXPECT_EQ(cost::formula(Method::kAllgatherv, facts, {.hosts = 1, .ranks = 1}),
            "one rank, nothing moves");
}

TEST(Cost, Figures) {
  EXPECT_EQ(cost::figure(0), "0");
  EXPECT_EQ(cost::figure(812), "812");
  EXPECT_EQ(cost::figure(812.04), "812");
  EXPECT_EQ(cost::figure(2755.36), "2755.4");
  EXPECT_EQ(cost::figure(1e6 + 0.4), "1000000");
  EXPECT_EQ(cost::figure(0.3), "0.3");
}

}  // namespace
}  // namespace parallax
