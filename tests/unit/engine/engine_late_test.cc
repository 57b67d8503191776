// SPDX-License-Identifier: Apache-2.0
// Whole jobs that commit again between steps, with ranks that register in orders of their own. What
// such a job trains is, bit for bit, what a job trains that had all of it from the beginning.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "support/engine_world.h"
#include "support/words.h"

namespace parallax::testkit {
namespace {

constexpr uint64_t kLateRows = 40;
constexpr uint64_t kLateWidth = 3;
constexpr uint64_t kLateSteps = 12;

struct KnownVariable {
  const char* name;
  uint64_t since;  // the step before which a late job commits it
  bool rows;
  parallax_rule_t rule;
};

// Early and late names in turn, so that an order by name is none by time.
constexpr KnownVariable kLateVariables[] = {
    {"b dense", 1, false, PARALLAX_RULE_ADAGRAD}, {"d rows", 1, true, PARALLAX_RULE_ADAGRAD},
    {"f held", 1, false, PARALLAX_RULE_NONE},     {"c rows", 4, true, PARALLAX_RULE_ADAGRAD},
    {"e held rows", 4, true, PARALLAX_RULE_NONE}, {"a dense", 4, false, PARALLAX_RULE_SGD},
    {"b rows", 7, true, PARALLAX_RULE_SGD}};
constexpr uint32_t kLateCount = sizeof kLateVariables / sizeof kLateVariables[0];

class LateJob {
 public:
  LateJob(const WorldOptions& options, bool late, bool own_orders)
      : world_(options), late_(late), own_orders_(own_orders), ids_(world_.size()) {
    for (auto& each : ids_) each.assign(kLateCount, UINT32_MAX);
  }
  EngineWorld& world() { return world_; }
  uint32_t id(uint32_t rank, uint32_t variable) const { return ids_[rank][variable]; }

  // Every number that the ranks got.
  std::vector<float> play() {
    for (uint64_t step = 1; step <= kLateSteps; ++step) {
      if (step == 1 || (late_ && (step == 4 || step == 7 || step == 9))) commit(step);
      train(step);
      if (testing::Test::HasFatalFailure()) return {};
    }
    return got_;
  }

  void commit(uint64_t step) {
    for (uint32_t rank = 0; rank < world_.size(); ++rank) {
      std::vector<uint32_t> order;
      for (uint32_t i = 0; i < kLateCount; ++i) {
        if (late_ ? kLateVariables[i].since == step : step == 1) order.push_back(i);
      }
      if (own_orders_ && !order.empty()) {
        std::rotate(order.begin(), order.begin() + rank % order.size(), order.end());
      }
      for (const uint32_t i : order) register_one(rank, i);
    }
    for (const Status& status : world_.everywhere([this](uint32_t rank, Request**request) {
           return world_.engine(rank).job_calls().commit(request);
         })) {
      ASSERT_TRUE(status.ok()) << status.message();
    }
  }

 private:
  void register_one(uint32_t rank, uint32_t i) {
    const KnownVariable& known = kLateVariables[i];
    parallax_variable_t variable =
        known.rows ? sparse_variable(known.name, kLateRows, kLateWidth, 8, known.rule)
                   : dense_variable(known.name, kLateRows, kLateWidth, known.rule);
    if (known.rule != PARALLAX_RULE_NONE) {
      variable.init = PARALLAX_INIT_UNIFORM;
      variable.init_high = 1;
      variable.init_seed = i;
    }
    ASSERT_TRUE(world_.engine(rank).job_calls().register_variable(variable, &ids_[rank][i]).ok());
  }

  parallax_slice_t slice(uint32_t rank, uint32_t i, const std::vector<int64_t>& ids,
                         std::vector<float>* values) const {
    values->resize((kLateVariables[i].rows ? ids.size() : kLateRows) * kLateWidth);
    return kLateVariables[i].rows ? rows_slice(ids_[rank][i], ids, values->data())
                                  : dense_slice(ids_[rank][i], values->data());
  }

  void train(uint64_t step) {
    struct Part {
      std::vector<int64_t> ids;
      std::array<std::vector<float>, kLateCount> pulled, given;
      std::vector<uint32_t> reduced;
      Request *pull = nullptr, *push = nullptr, *reduce = nullptr, *end = nullptr;
    };
    std::vector<Part> parts(world_.size());
    std::vector<Request*> requests;
    for (uint32_t rank = 0; rank < world_.size(); ++rank) {
      Part& part = parts[rank];
      StepCalls& calls = world_.engine(rank).step_calls();
      uint64_t begun = 0;
      ASSERT_TRUE(calls.begin(&begun).ok());
      for (uint64_t i = 0; i < 6; ++i) {
        part.ids.push_back(static_cast<int64_t>((step * 7 + rank * 5 + i * i * 3) % kLateRows));
      }
      std::vector<parallax_slice_t> pulls, pushes, reduces;
      for (uint32_t i = 0; i < kLateCount; ++i) {
        if (step < kLateVariables[i].since) continue;
        const bool managed = kLateVariables[i].rule != PARALLAX_RULE_NONE;
        if (managed) pulls.push_back(slice(rank, i, part.ids, &part.pulled[i]));
        (managed ? pushes : reduces).push_back(slice(rank, i, part.ids, &part.given[i]));
        if (!managed) part.reduced.push_back(i);
        for (size_t at = 0; at < part.given[i].size(); ++at) {
          part.given[i][at] = 0.1f * static_cast<float>((step + rank * 3 + i + at) % 11) - 0.4f;
        }
      }
      ASSERT_TRUE(calls.pull(step, pulls, &part.pull).ok());
      ASSERT_TRUE(calls.push(step, pushes, &part.push).ok());
      ASSERT_TRUE(calls.reduce(step, reduces, &part.reduce).ok());
      ASSERT_TRUE(calls.end(step, end_options(0.5f, 2.0f), &part.end).ok());
      requests.insert(requests.end(), {part.pull, part.push, part.reduce, part.end});
    }
    ASSERT_TRUE(world_.run_until_done(requests));
    for (uint32_t rank = 0; rank < world_.size(); ++rank) {
      Part& part = parts[rank];
      for (const Request* request : {part.pull, part.push, part.reduce, part.end}) {
        ASSERT_TRUE(request->status.ok()) << request->status.message();
      }
      for (const auto& values : part.pulled) add(values);
      for (size_t i = 0; i < part.reduced.size(); ++i) {
        if (!kLateVariables[part.reduced[i]].rows) {
          add(part.given[part.reduced[i]]);
          continue;
        }
        const RowsResult& rows = part.reduce->rows[i];
        std::vector<float> values(rows.values.size() / sizeof(float));
        std::memcpy(values.data(), rows.values.data(), rows.values.size());
        add(values);
      }
      got_.push_back(static_cast<float>(part.end->info.gradient_norm));
      for (Request* request : {part.pull, part.push, part.reduce, part.end}) {
        ASSERT_TRUE(world_.engine(rank).release(request).ok());
      }
    }
  }
  void add(const std::vector<float>& values) {
    got_.insert(got_.end(), values.begin(), values.end());
  }

  EngineWorld world_;
  const bool late_, own_orders_;
  std::vector<std::vector<uint32_t>> ids_;  // by rank and variable
  std::vector<float> got_;
};

WorldOptions late_options(const std::vector<uint32_t>& hosts, uint64_t seed) {
  return {.hosts = hosts,
          .plan_after_steps = 2,
          .deterministic = true,
          .seed = seed,
          .slow_percent = seed % 2 == 0 ? 15u : 0u,
          .late_jobs = seed % 3 == 0};
}

const std::vector<uint32_t> kLateLayouts[] = {
    {0}, {0, 0}, {0, 1, 0}, {0, 0, 1, 1}, {0, 1, 2, 3, 3}};

// The others keep their values, their optimizer's state and their plan: their numbers stay the same
// to the last bit, and so do those of the new ones.
TEST(EngineLate, TrainsAsIfAllHadBeenThereFromTheBeginning) {
  uint64_t seed = 1;
  for (const std::vector<uint32_t>& hosts : kLateLayouts) {
    LateJob plain(late_options(hosts, seed), false, false);
    const std::vector<float> expected = plain.play();
    ASSERT_FALSE(HasFatalFailure());
    for (const bool own_orders : {false, true}) {
      LateJob late(late_options(hosts, ++seed), true, own_orders);
      const std::vector<float> got = late.play();
      ASSERT_FALSE(HasFatalFailure());
      EXPECT_EQ(got, expected) << hosts.size() << " ranks";
      EXPECT_EQ(late.world().engine(0).reports().growth_count(), 0u);
    }
  }
}

// A late commit measures what is new, and lets the settled plan of the others be.
TEST(EngineLate, WhatIsNewGetsAPlanOfItsOwn) {
  LateJob job(late_options({0, 1}, 3), true, true);
  job.play();
  ASSERT_FALSE(HasFatalFailure());
  const auto plan = nlohmann::json::parse(job.world().engine(1).reports().plan_json());
  EXPECT_EQ(plan["settled"], true) << plan.dump();
}

// Each rank lists and names variables by its own registrations.
TEST(EngineLate, ReportsAndFactsGoByOnesOwnOrder) {
  LateJob job(late_options({0, 0, 1}, 2), true, true);
  job.play();
  ASSERT_FALSE(HasFatalFailure());
  for (uint32_t rank = 0; rank < job.world().size(); ++rank) {
    const Reports reports = job.world().engine(rank).reports();
    for (const std::string& text : {reports.stats_json(), reports.plan_json()}) {
      const auto variables = nlohmann::json::parse(text)["variables"];
      ASSERT_EQ(variables.size(), size_t{kLateCount});
      for (uint32_t i = 0; i < kLateCount; ++i) {
        EXPECT_EQ(variables[job.id(rank, i)]["name"], kLateVariables[i].name);
      }
    }
  }
  // Rank 1 waits for what rank 0 does not give.
  EngineWorld& world = job.world();
  for (uint32_t rank = 0; rank < world.size(); ++rank) {
    uint64_t step = 0;
    ASSERT_TRUE(world.engine(rank).step_calls().begin(&step).ok());
  }
  std::vector<float> values(kLateRows * kLateWidth);
  const parallax_slice_t held = dense_slice(job.id(1, 2), values.data());
  Request* request = nullptr;
  ASSERT_TRUE(world.engine(1).step_calls().reduce(kLateSteps + 1, {&held, 1}, &request).ok());
  world.settle();
  const Status missing = world.engine(1).reports().missing(*request);
  EXPECT_TRUE(has(missing, "variable 'f held'")) << missing.message();
  EXPECT_EQ(missing.facts().variable, job.id(1, 2));
}

// A commit that not all have called names who has not; what runs meanwhile goes on.
TEST(EngineLate, ACommitWaitsByName) {
  LateJob job(late_options({0, 1, 2}, 5), true, true);
  job.commit(1);
  EngineWorld& world = job.world();
  Request* commits = nullptr;
  ASSERT_TRUE(world.engine(0).job_calls().commit(&commits).ok());
  world.settle();
  const Status missing = world.engine(0).reports().missing(*commits);
  EXPECT_TRUE(has(missing, "commit waits for rank 1 (host host1)")) << missing.message();
  uint64_t number = 0;
  EXPECT_TRUE(has(world.engine(0).step_calls().begin(&number), "a commit is under way"));
  // A row of rank 0, which serves it all the same.
  parallax_rows_t rows = {};
  rows.size = sizeof rows;
  rows.variable = job.id(1, 1);
  rows.row_count = kLateRows;
  std::vector<float> values(kLateRows * kLateWidth);
  rows.values = values.data();
  Request* read = nullptr;
  ASSERT_TRUE(world.engine(1).row_calls().post(rows, false, &read).ok());
  world.settle();
  EXPECT_TRUE(read->done() && read->status.ok());
  EXPECT_FALSE(commits->done());
}

}  // namespace
}  // namespace parallax::testkit
