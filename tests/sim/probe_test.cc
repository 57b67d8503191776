// SPDX-License-Identifier: Apache-2.0
// What a commit measures, on a virtual clock: the link models of the simulator come out, alike on
// every rank, in bounded time, and the ways that are chosen by them bring right sums.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "sim/sim_compute.h"
#include "transport/sim/sim_world.h"

namespace parallax::simtest::probing {
namespace {

constexpr int64_t kMs = kNanosecondsPerMillisecond;
constexpr uint64_t kElements[] = {1, 700, 20'000, 300'000};
constexpr uint64_t kRowElements = 4;
constexpr int64_t kSharedRows = 6, kOwnRows = 2;

// A rank that commits, and in each step reduces each variable, and rows of which ranks share some.
class Member final : public Actor {
 public:
  Member(SimWorld& world, const HostMap& hosts, uint32_t rank, const CostSetting& costs,
         int64_t begins_ns, uint64_t steps)
      : world_(world),
        rank_(rank),
        begins_ns_(begins_ns),
        steps_(steps),
        compute_(world, rank, false),
        engine_({.rank = rank,
                 .view = first_view(hosts),
                 .lease_ns = 60'000 * kMs,
                 .plan_after_steps = 2,
                 .costs = costs},
                world.transport(rank), world.clock(), compute_) {
    EXPECT_TRUE(engine_.start().ok());
    for (const uint64_t elements : kElements) {
      parallax_variable_t variable = {};
      variable.size = sizeof variable;
      const std::string name = std::to_string(elements);
      variable.name = name.c_str();
      variable.rows = elements;
      variable.row_elements = 1;
      variable.reduction = PARALLAX_SUM;
      uint32_t id = 0;
      EXPECT_TRUE(engine_.job_calls().register_variable(variable, &id).ok());
      values_.emplace_back(elements, static_cast<float>(rank + 1));
    }
    register_rows();
  }

  void run(int64_t now_ns) override {
    engine_.run();
    bool posted = false;
    for (; advance(now_ns); posted = true) engine_.kick();
    if (posted && !engine_.flushed()) world_.poke(rank_);
  }
  int64_t next_deadline_ns() const override {
    const int64_t begins_ns = calls_.empty() ? begins_ns_ : kNever;
    return std::min({engine_.next_deadline_ns(), compute_.next_ready_ns(), begins_ns});
  }
  bool over() const { return engine_.window().finished() == steps_; }
  int64_t committed_ns() const { return committed_ns_; }
  nlohmann::json plan() const { return nlohmann::json::parse(engine_.reports().plan_json()); }
  const std::vector<std::vector<float>>& values() const { return values_; }
  const Status& failure() const { return engine_.failure(); }

 private:
  bool advance(int64_t now_ns) {
    if (calls_.empty()) {
      if (now_ns < begins_ns_) return false;
      EXPECT_TRUE(engine_.job_calls().commit(&calls_.emplace_back()).ok());
      return true;
    }
    const size_t of_steps = 2 * steps_;  // calls: a reduce and an end each
    if (calls_.size() > of_steps || !calls_.back()->done()) return false;
    EXPECT_TRUE(calls_.back()->status.ok()) << calls_.back()->status.message();
    if (calls_.size() == 1) committed_ns_ = now_ns;
    uint64_t step = 0;
    EXPECT_TRUE(engine_.step_calls().begin(&step).ok());
    for (auto& values : values_) std::fill(values.begin(), values.end(), rank_ + 1.0f);
    std::vector<parallax_slice_t> slices(values_.size() + 1);
    for (uint32_t i = 0; i < slices.size(); ++i) {
      slices[i].size = sizeof slices[i];
      slices[i].variable = i;
      slices[i].values = i < values_.size() ? values_[i].data() : row_values_.data();
    }
    slices.back().form = PARALLAX_FORM_ROWS;
    slices.back().ids = ids_.data();
    slices.back().row_count = ids_.size();
    EXPECT_TRUE(engine_.step_calls().reduce(step, slices, &calls_.emplace_back()).ok());
    parallax_step_end_options_t end = {};
    end.size = sizeof end;
    end.learning_rate = 1;
    EXPECT_TRUE(engine_.step_calls().end(step, end, &calls_.emplace_back()).ok());
    return true;
  }

  void register_rows() {
    for (int64_t row = 0; row < kSharedRows; ++row) ids_.push_back(row);
    for (int64_t row = 0; row < kOwnRows; ++row) ids_.push_back(100 + rank_ * kOwnRows + row);
    row_values_.assign(ids_.size() * kRowElements, 1);
    parallax_variable_t variable = {};
    variable.size = sizeof variable;
    variable.name = "rows";
    variable.rows = 1'000'000;
    variable.row_elements = kRowElements;
    variable.rows_max = ids_.size();
    variable.reduction = PARALLAX_SUM;
    uint32_t id = 0;
    EXPECT_TRUE(engine_.job_calls().register_variable(variable, &id).ok());
    EXPECT_EQ(id, std::size(kElements));
  }

  SimWorld& world_;
  const uint32_t rank_;
  const int64_t begins_ns_;
  const uint64_t steps_;
  SimCompute compute_;
  Engine engine_;
  std::vector<std::vector<float>> values_;
  std::vector<int64_t> ids_;
  std::vector<float> row_values_;
  std::vector<Request*> calls_;
  int64_t committed_ns_ = 0;
};

struct JobShape {
  uint32_t hosts = 1, each = 1;
  LinkModel between = {2'000, 300, 50, 12.5e9, 0};
  int64_t last_begins_ns = 0;  // the last rank
  uint64_t steps = 1;
};

// Of rank 0; checks that all ranks have the same, the right sums, and are in time.
nlohmann::json plan_of(const JobShape& shape,
                       const std::function<CostSetting(uint32_t rank)>& costs_of,
                       int64_t within_ns) {
  std::vector<std::string> names;
  SimOptions options;
  options.world = shape.hosts * shape.each;
  for (uint32_t rank = 0; rank < options.world; ++rank) {
    options.host_of.push_back(rank / shape.each);
    names.push_back(std::to_string(rank / shape.each));
  }
  options.inter_host = shape.between;
  SimWorld world(options);
  const HostMap hosts = map_hosts(names);
  std::vector<std::unique_ptr<Member>> members;
  for (uint32_t rank = 0; rank < options.world; ++rank) {
    const bool last = rank + 1 == options.world;
    members.push_back(std::make_unique<Member>(world, hosts, rank, costs_of(rank),
                                               last ? shape.last_begins_ns : 0, shape.steps));
    world.attach(rank, members.back().get());
  }
  EXPECT_TRUE(world.run_until(
      [&] {
        return std::all_of(members.begin(), members.end(),
                           [](const auto& member) { return member->over(); });
      },
      60'000 * kMs));
  float sum = 0;
  for (uint32_t rank = 0; rank < options.world; ++rank) sum += static_cast<float>(rank + 1);
  nlohmann::json plan;
  for (const auto& member : members) {
    EXPECT_TRUE(member->failure().ok()) << member->failure().message();
    EXPECT_LT(member->committed_ns(), shape.last_begins_ns + within_ns);
    for (const std::vector<float>& values : member->values()) {
      EXPECT_EQ(values, std::vector<float>(values.size(), sum));
    }
    if (plan.is_null()) plan = member->plan();
    EXPECT_EQ(member->plan(), plan);
  }
  return plan;
}

CostSetting measured(uint32_t) { return {}; }

void expect_near(const nlohmann::json& costs, const char* name, double expected, double off) {
  EXPECT_NEAR(costs[name].get<double>(), expected, expected * off) << name;
}

// Given links and memory of known cost, expect them measured: latency with what a pass of the
// engine takes, bytes and memory to a few percent.
TEST(Probe, TheModelOfTheSimulatorComesOut) {
  const nlohmann::json costs = plan_of({.hosts = 4, .each = 2}, measured, 1'000 * kMs)["costs"];
  expect_near(costs, "between_latency_ns", 2'000, 0.3);
  expect_near(costs, "between_overhead_ns", 300, 0.4);
  expect_near(costs, "between_byte_ps", 80, 0.1);
  expect_near(costs, "inside_byte_ps", 83, 0.1);
  for (const char* name : {"sum_f32_byte_ps", "sum_f64_byte_ps", "sum_i32_byte_ps",
                           "sum_i64_byte_ps", "copy_byte_ps"}) {
    expect_near(costs, name, 100, 0.05);
  }
  // 64 bytes a row, as the probe has it.
  expect_near(costs, "row_sum_ps", 6'400, 0.05);
  expect_near(costs, "row_sort_ps", 6'400, 0.05);
}

TEST(Probe, OneHostIsMeasuredInAFifthOfASecond) {
  const nlohmann::json costs = plan_of({.each = 8}, measured, 200 * kMs)["costs"];
  expect_near(costs, "inside_byte_ps", 83, 0.1);
  // There is no link between hosts: the standard.
  EXPECT_EQ(costs["between_byte_ps"], 800);
}

// Given hosts 20 ms apart, at 10 Mbit/s, and a rank that comes late,
// expect an end in a second from when it has come.
TEST(Probe, SlowLinksAreMeasuredInASecond) {
  const nlohmann::json costs = plan_of(
      {.hosts = 8, .between = {20 * kMs, 2'000, 0, 1.25e6, 0}, .last_begins_ns = 3'000 * kMs},
      measured, 1'000 * kMs)["costs"];
  expect_near(costs, "between_latency_ns", 20e6, 0.1);
  expect_near(costs, "between_byte_ps", 800'000, 0.1);
}

// Given another setting on each rank, expect rank 0's to hold for all.
TEST(Probe, WhatRankZeroGivesHolds) {
  const auto given = [](uint32_t rank) {
    CostSetting setting;
    if (rank == 0) {
      EXPECT_TRUE(parse_costs("between_latency_ns=123456,copy_byte_ps=9", &setting).ok());
    } else if (rank == 1) {
      EXPECT_TRUE(parse_costs("between_latency_ns=7", &setting).ok());
    } else {
      setting = kStandardCosts;
    }
    return setting;
  };
  const nlohmann::json costs = plan_of({.hosts = 3}, given, 1'000 * kMs)["costs"];
  EXPECT_EQ(costs["between_latency_ns"], 123'456);
  EXPECT_EQ(costs["copy_byte_ps"], 9);
  expect_near(costs, "between_byte_ps", 80, 0.1);
}

// Given ranks that measure nothing, expect the standard.
TEST(Probe, StandardIsNotMeasured) {
  const auto standard = [](uint32_t) { return kStandardCosts; };
  const nlohmann::json costs = plan_of({.hosts = 3}, standard, 100 * kMs)["costs"];
  for (size_t row = 0; row < kConstantCount; ++row) {
    EXPECT_EQ(costs[kConstantRows[row].name], constant({}, row));
  }
}

// Given what makes another way best than the standard does, expect the variables to go it.
TEST(Probe, WaysFollowWhatWasMeasured) {
  const auto given = [](const char* text) {
    return [text](uint32_t) {
      CostSetting setting;
      EXPECT_TRUE(parse_costs(text, &setting).ok());
      return setting;
    };
  };
  const auto ways = [](const nlohmann::json& plan) {
    std::vector<std::string> names;
    for (const auto& variable : plan["variables"]) {
      if (!variable.contains("algorithms")) continue;
      for (const auto& each : variable["algorithms"]) {
        if (each["chosen"]) names.push_back(each["name"]);
      }
    }
    return names;
  };
  const JobShape shape = {.hosts = 12};
  const auto far =
      ways(plan_of(shape, given("between_latency_ns=1000000,between_overhead_ns=0"), 1'000 * kMs));
  const auto busy =
      ways(plan_of(shape, given("between_latency_ns=0,between_overhead_ns=1000000"), 1'000 * kMs));
  EXPECT_EQ(far, std::vector<std::string>(4, "direct"));
  EXPECT_NE(busy[1], "direct");
  EXPECT_NE(busy[2], "direct");
}

// Given ranks with constants of their own, under which each would choose another method for rows
// that the framework holds, expect rank 0's to choose for all: a round less where hosts are far
// apart, fewer bytes where the link is slow.
TEST(Probe, MethodsOfRowsFollowRankZero) {
  const auto method_by = [](const char* of_first, const char* of_others) {
    const auto costs = [&](uint32_t rank) {
      CostSetting setting;
      EXPECT_TRUE(parse_costs(rank == 0 ? of_first : of_others, &setting).ok());
      return setting;
    };
    const nlohmann::json plan = plan_of({.hosts = 4, .steps = 8}, costs, 1'000 * kMs);
    EXPECT_EQ(plan["settled"], true);
    const nlohmann::json& rows = plan["variables"].back();
    EXPECT_EQ(rows["measured"]["touched_rows_per_host"], kSharedRows + kOwnRows);
    EXPECT_EQ(rows["measured"]["union_rows"], kSharedRows + 4 * kOwnRows);
    return rows["method"].get<std::string>();
  };
  const char* const far = "between_latency_ns=1000000";
  const char* const slow = "between_byte_ps=1000000";
  EXPECT_EQ(method_by(far, slow), "allgatherv");
  EXPECT_EQ(method_by(slow, far), "reduce_rows");
}

// Given four ranks of a host, expect what each of them gave to be counted, not what all gave
// together, and the method that has no round more.
TEST(Probe, RanksOfOneHostGather) {
  const nlohmann::json plan = plan_of({.each = 4, .steps = 8}, measured, 200 * kMs);
  const nlohmann::json& rows = plan["variables"].back();
  EXPECT_EQ(rows["measured"]["touched_rows_per_host"], kSharedRows + kOwnRows);
  EXPECT_EQ(rows["measured"]["union_rows"], kSharedRows + 4 * kOwnRows);
  EXPECT_EQ(rows["method"], "allgatherv");
}

}  // namespace
}  // namespace parallax::simtest::probing
