// SPDX-License-Identifier: Apache-2.0
// The density sweep: the plan flips exactly where the formulas cross. The formulas are written out
// again here from docs/planning.md, and the crossings found by bisection on what they prefer, so
// that nothing of src/planner is its own judge.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "planner/plan.h"
#include "unit/planner/priced.h"

namespace parallax {
namespace {

constexpr double kRows = 100'000;
constexpr double kIdBytes = 4;

// Given hosts that touch rows independently and evenly, and pull `pull_ratio` times what they
// touch.
struct Scene {
  uint32_t hosts;
  uint64_t row_elements;
  double pull_ratio;
  bool managed;
  parallax_plan_mode_t mode;

  double row_bytes() const { return static_cast<double>(row_elements) * 4; }
  double s(double density) const { return kRows * density; }
  double u(double density) const { return kRows * (1 - std::pow(1 - density, hosts)); }
  double t(double density) const { return std::min(kRows, s(density) * pull_ratio); }
  std::string text() const {
    return std::to_string(hosts) + " hosts, width " + std::to_string(row_elements) + ", pulls " +
           std::to_string(pull_ratio) + (managed ? ", managed, mode " : ", framework, mode ") +
           std::to_string(mode);
  }
};

double oracle_bytes(Method method, const Scene& scene, double density) {
  const double n = scene.hosts;
  const double r = scene.row_bytes();
  const double s = scene.s(density);
  if (method == Method::kAllgatherv) return (n - 1) * s * (r + kIdBytes);
  if (method == Method::kReduceRows) {
    return (n - 1) * (s + scene.u(density)) * (r + kIdBytes) / n;
  }
  if (method == Method::kMadeDense) return 2 * (n - 1) * kRows * r / n;
  return (n - 1) * (s + scene.t(density)) * (r + kIdBytes) / n;
}

std::vector<Method> oracle_methods(const Scene& scene) {
  std::vector<Method> methods = {Method::kAllgatherv, Method::kReduceRows, Method::kMadeDense};
  if (scene.managed && scene.mode == PARALLAX_PLAN_AUTO) methods.push_back(Method::kPushPull);
  return methods;
}

Method oracle_initial(const Scene& scene) {
  return scene.managed && scene.mode == PARALLAX_PLAN_AUTO ? Method::kPushPull
                                                           : Method::kAllgatherv;
}

Method oracle_choice(const Scene& scene, double density) {
  Method best = oracle_initial(scene);
  for (const Method method : oracle_methods(scene)) {
    if (oracle_bytes(method, scene, density) < oracle_bytes(best, scene, density)) best = method;
  }
  const double kept = oracle_bytes(oracle_initial(scene), scene, density);
  const double grace = scene.managed ? 1.01 : 1 + 1.0 / 32;
  return kept <= grace * oracle_bytes(best, scene, density) ? oracle_initial(scene) : best;
}

Method planned(const Scene& scene, double density) {
  VariableFacts facts;
  facts.name = "swept";
  facts.rows = static_cast<uint64_t>(kRows);
  facts.row_elements = scene.row_elements;
  facts.managed = scene.managed;
  facts.ids_declared = true;
  facts.measured = true;
  facts.touched_rows_per_host = scene.s(density);
  facts.union_rows = scene.u(density);
  facts.pulled_rows_per_host = scene.managed ? scene.t(density) : 0;
  TopologyFacts topology = {.hosts = scene.hosts, .ranks = 2 * scene.hosts};
  // Where time decides, that of the wire's bytes alone.
  for (const ConstantRow& row : kConstantRows) row.of(topology.costs) = 0;
  topology.costs.between.byte_ps = 1;
  facts = testkit::priced(facts, topology);
  const Plan plan = settled_plan({&facts, 1}, topology, scene.mode);
  const Placement replicated = scene.managed ? Placement::kMirrored : Placement::kFramework;
  EXPECT_EQ(plan[0].placement,
            plan[0].method == Method::kPushPull ? Placement::kSharded : replicated);
  return plan[0].method;
}

// Where `advantage` changes sign between low and high.
double bisect(double low, double high, const std::function<double(double)>& advantage) {
  const bool sign = advantage(low) > 0;
  for (int i = 0; i < 200; ++i) {
    const double middle = (low + high) / 2;
    ((advantage(middle) > 0) == sign ? low : high) = middle;
  }
  return low;
}

// The density above `low` at which the formulas cease to prefer what they prefer at `low`: bytes
// cross, or, where one side is the initial choice, cross after its 1% of grace (3% of time).
double next_flip(const Scene& scene, double low, double high) {
  const Method before = oracle_choice(scene, low);
  return bisect(low, high, [&](double density) {
    return oracle_choice(scene, density) == before ? 1.0 : -1.0;
  });
}

// Sweeps, checks every point and both sides of every flip; returns the flips as densities.
std::vector<double> sweep(const Scene& scene) {
  SCOPED_TRACE(scene.text());
  constexpr int kPoints = 400;
  std::vector<double> flips;
  double before = 1e-4;
  for (int i = 0; i <= kPoints; ++i) {
    const double density = std::pow(10, -4 + 4.0 * i / kPoints);
    const Method expected = oracle_choice(scene, density);
    EXPECT_EQ(method_name(planned(scene, density)), method_name(expected)) << density;
    while (oracle_choice(scene, before) != expected) {
      const Method last = oracle_choice(scene, before);
      const double at = next_flip(scene, before, density);
      before = at * (1 + 1e-9);
      EXPECT_EQ(method_name(planned(scene, at * (1 - 1e-9))), method_name(last)) << at;
      EXPECT_EQ(method_name(planned(scene, before)), method_name(oracle_choice(scene, before)))
          << at;
      flips.push_back(at);
    }
    before = density;
  }
  return flips;
}

constexpr std::array<uint32_t, 6> kHosts = {2, 3, 4, 8, 16, 64};
constexpr std::array<uint64_t, 6> kWidths = {1, 4, 16, 64, 99, 512};

TEST(Sweep, AutoFlipsWhereTheFormulasCross) {
  size_t flips = 0;
  for (const uint32_t hosts : kHosts) {
    for (const uint64_t width : kWidths) {
      for (const double pulls : {1.0, 1.3, 4.0}) {
        flips += sweep({hosts, width, pulls, true, PARALLAX_PLAN_AUTO}).size();
      }
    }
  }
  EXPECT_GT(flips, kHosts.size() * kWidths.size()) << "a sweep without flips shows nothing";
}

TEST(Sweep, ArFlipsWhereTheFormulasCross) {
  for (const uint32_t hosts : kHosts) {
    for (const uint64_t width : kWidths) {
      const Scene scene = {hosts, width, 1.0, true, PARALLAX_PLAN_AR};
      EXPECT_TRUE(!sweep(scene).empty() || hosts == 2) << scene.text();
    }
  }
}

TEST(Sweep, FrameworkHeldFlipsUnderEveryPin) {
  for (const parallax_plan_mode_t mode :
       {PARALLAX_PLAN_AUTO, PARALLAX_PLAN_HYBRID, PARALLAX_PLAN_PS, PARALLAX_PLAN_AR}) {
    for (const uint32_t hosts : kHosts) {
      EXPECT_FALSE(sweep({hosts, 16, 1.0, false, mode}).empty());
    }
  }
}

// Given pulls equal to pushes, expect AUTO to leave push_pull for made_dense where the ids weigh
// more than what is not touched: d (R + 4) = 1.01 R, so below R = 400 bytes only.
TEST(Sweep, AutoLeavesPushPullForNarrowDenseRowsOnly) {
  for (const uint32_t hosts : {3u, 4u, 8u, 16u}) {
    for (const uint64_t width : {1ull, 4ull, 16ull, 64ull, 99ull}) {
      const Scene scene = {hosts, width, 1.0, true, PARALLAX_PLAN_AUTO};
      const double r = scene.row_bytes();
      const std::vector<double> flips = sweep(scene);
      ASSERT_EQ(flips.size(), 1u) << scene.text();
      EXPECT_NEAR(flips[0], 1.01 * r / (r + 4), 1e-9);
      EXPECT_EQ(planned(scene, 1), Method::kMadeDense);
    }
    EXPECT_TRUE(sweep({hosts, 101, 1.0, true, PARALLAX_PLAN_AUTO}).empty());
    EXPECT_TRUE(sweep({hosts, 512, 1.0, true, PARALLAX_PLAN_AUTO}).empty());
  }
}

// Two hosts need the union, which each receives as the other's rows: allgatherv until the dense
// form is smaller by 1%, s (R + 4) = 1.01 V R; wide rows never get there.
TEST(Sweep, ArOfTwoHosts) {
  for (const uint64_t width : kWidths) {
    const Scene scene = {2, width, 1.0, true, PARALLAX_PLAN_AR};
    const double flip = 1.01 * scene.row_bytes() / (scene.row_bytes() + 4);
    const std::vector<double> flips = sweep(scene);
    ASSERT_EQ(flips.size(), flip < 1 ? 1u : 0u) << scene.text();
    if (!flips.empty()) {
      EXPECT_NEAR(flips[0], flip, 1e-9);
    }
  }
}

}  // namespace
}  // namespace parallax
