// SPDX-License-Identifier: Apache-2.0
// A rank that the others wait for, on a virtual clock: who it is, before which call and by how much
// stands on every rank, and once in the log; and nobody is named where all are alike.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "sim/sim_compute.h"
#include "support/heard_lines.h"
#include "transport/sim/sim_world.h"

namespace parallax::simtest {
namespace {

constexpr int64_t kMs = kNanosecondsPerMillisecond;
constexpr uint32_t kSteps = 24;
constexpr uint32_t kTable = 0, kDense = 1, kHeld = 2;

// Before each call of a step, in ms.
struct Thinks {
  int64_t pull = 2, push = 2, step_end = 2;
};

// A rank that trains: thinks, pulls and waits, thinks, pushes and reduces and waits, thinks, ends
// the step and waits.
class Trainer final : public Actor {
 public:
  Trainer(SimWorld& world, const HostMap& hosts, uint32_t rank, Thinks thinks)
      : world_(world),
        rank_(rank),
        compute_(world, rank, false),
        engine_({.rank = rank, .view = first_view(hosts), .lease_ns = 60'000 * kMs},
                world.transport(rank), world.clock(), compute_),
        thinks_{thinks.pull * kMs, thinks.push * kMs, thinks.step_end * kMs} {
    EXPECT_TRUE(engine_.start().ok());
    add("table", 100, 4, 8, PARALLAX_RULE_SGD);
    add("dense", 10, 4, 0, PARALLAX_RULE_SGD);
    add("held", 10, 4, 0, PARALLAX_RULE_NONE);
    Request* commit = nullptr;
    EXPECT_TRUE(engine_.job_calls().commit(&commit).ok());
    waited_.push_back(commit);
  }

  void run(int64_t) override {
    engine_.run();
    posted_ = false;
    while (advance()) engine_.kick();
    if (posted_ && !engine_.flushed()) world_.poke(rank_);
  }
  int64_t next_deadline_ns() const override {
    return std::min({engine_.next_deadline_ns(), compute_.next_ready_ns(), resume_ns_});
  }
  bool over() const { return engine_.window().finished() == kSteps; }
  Engine& engine() { return engine_; }

 private:
  void add(const char* name, uint64_t rows, uint64_t width, uint64_t rows_max,
           parallax_rule_t rule) {
    parallax_variable_t variable = {};
    variable.size = sizeof variable;
    variable.name = name;
    variable.rows = rows;
    variable.row_elements = width;
    variable.rows_max = rows_max;
    variable.rule = rule;
    uint32_t id = 0;
    EXPECT_TRUE(engine_.job_calls().register_variable(variable, &id).ok());
  }
  static parallax_slice_t slice(uint32_t variable, float* values) {
    parallax_slice_t slice = {};
    slice.size = sizeof slice;
    slice.variable = variable;
    slice.values = values;
    return slice;
  }
  parallax_slice_t rows() {
    parallax_slice_t rows = slice(kTable, values_.data());
    rows.form = PARALLAX_FORM_ROWS;
    rows.ids = ids_.data();
    rows.row_count = ids_.size();
    return rows;
  }
  void post(Status status, Request* request) {
    EXPECT_TRUE(status.ok()) << status.message();
    if (request != nullptr) waited_.push_back(request);
    posted_ = true;
  }

  // One move; false if there is something to wait for.
  bool advance() {
    if (over()) return false;
    for (Request*& request : waited_) {
      if (request == nullptr) continue;
      if (!request->done()) return false;
      EXPECT_TRUE(request->status.ok()) << request->status.message();
      EXPECT_TRUE(engine_.release(std::exchange(request, nullptr)).ok());
    }
    waited_.clear();
    if (resume_ns_ == kNever) {
      resume_ns_ = world_.now_ns() + thinks_[call_];
      return true;
    }
    if (resume_ns_ > world_.now_ns()) return false;
    resume_ns_ = kNever;
    Request* request = nullptr;
    if (call_ == 0) {
      EXPECT_TRUE(engine_.step_calls().begin(&step_).ok());
      const parallax_slice_t table = rows();
      post(engine_.step_calls().pull(step_, {&table, 1}, &request), request);
    } else if (call_ == 1) {
      const parallax_slice_t managed[] = {rows(), slice(kDense, dense_.data())};
      Status status = engine_.step_calls().push(step_, managed, &request);
      post(status, request);
      const parallax_slice_t held = slice(kHeld, held_.data());
      status = engine_.step_calls().reduce(step_, {&held, 1}, &request);
      post(status, request);
    } else {
      parallax_step_end_options_t end = {};
      end.size = sizeof end;
      post(engine_.step_calls().end(step_, end, &request), request);
    }
    call_ = (call_ + 1) % thinks_.size();
    return true;
  }

  SimWorld& world_;
  const uint32_t rank_;
  SimCompute compute_;
  Engine engine_;
  const std::array<int64_t, 3> thinks_;
  size_t call_ = 0;
  int64_t resume_ns_ = kNever;  // of a think under way
  bool posted_ = false;         // something, in this run
  uint64_t step_ = 0;
  std::vector<Request*> waited_;
  std::vector<int64_t> ids_ = {1, 17, 99};
  std::vector<float> values_ = std::vector<float>(12), dense_ = std::vector<float>(40),
                     held_ = std::vector<float>(40);
};

// Two hosts of three and two ranks.
class LateRanks : public testing::Test {
 protected:
  void train(const std::vector<Thinks>& thinks, const FaultPlan& faults = {}) {
    const std::vector<std::string> names = {"a", "a", "a", "b", "b"};
    hosts_ = map_hosts(names);
    world_ = std::make_unique<SimWorld>(
        SimOptions{.world = 5, .host_of = hosts_.host_of, .adversarial = false});
    world_->faults().set_plan(faults);
    for (uint32_t rank = 0; rank < 5; ++rank) {
      ranks_.push_back(std::make_unique<Trainer>(*world_, hosts_, rank, thinks[rank]));
      world_->attach(rank, ranks_.back().get());
    }
    EXPECT_TRUE(world_->run_until(
        [this] {
          return std::all_of(ranks_.begin(), ranks_.end(),
                             [](const auto& rank) { return rank->over(); });
        },
        600'000 * kMs));
  }

  HostMap hosts_;
  std::unique_ptr<SimWorld> world_;
  std::vector<std::unique_ptr<Trainer>> ranks_;
};

// Given each rank in turn, of either host, leader or not, that thinks 200 ms longer before one of
// its calls, expect rank, call and time on every rank, and one line.
TEST_F(LateRanks, ASlowProgramIsNamedOnEveryRank) {
  for (uint32_t slow = 0; slow < 5; ++slow) {
    for (const StepPhase phase : {StepPhase::kPull, StepPhase::kPush, StepPhase::kStepEnd}) {
      std::vector<Thinks> thinks(5);
      (phase == StepPhase::kPull   ? thinks[slow].pull
       : phase == StepPhase::kPush ? thinks[slow].push
                                   : thinks[slow].step_end) += 200;
      ranks_.clear();
      testkit::HeardLines heard;
      train(thinks);
      for (const auto& rank : ranks_) {
        const LateRank& late = rank->engine().late();
        EXPECT_EQ(late.rank, slow);
        EXPECT_EQ(late.phase, phase) << "rank " << slow;
        EXPECT_EQ(late.steps, LateWindow::kWindowSteps);
        EXPECT_GE(late.late_ms, 195u);
        EXPECT_LE(late.late_ms, 210u);
        const auto stats = nlohmann::json::parse(rank->engine().reports().stats_json());
        EXPECT_EQ(stats["late"]["rank"], slow);
        EXPECT_EQ(stats["late"]["host"], slow < 3 ? "a" : "b");
        EXPECT_EQ(stats["late"]["phase"], step_phase_name(phase));
      }
      ASSERT_EQ(heard.lines().size(), 1u);
      EXPECT_EQ(
          heard.lines()[0].find("rank " + std::to_string(slow) + " (host " +
                                (slow < 3 ? "a" : "b") + ") is late: in 12 of the last 16 steps"),
          0u)
          << heard.lines()[0];
    }
  }
}

// Given a machine on which a rank computes and wakes slowly, expect it to be named.
TEST_F(LateRanks, ASlowMachineIsNamed) {
  Fault slow;
  slow.kind = FaultKind::kSlow;
  slow.rank = 4;
  slow.duration_ns = kNever;
  slow.amount_ns = 50 * kMs;
  FaultPlan faults;
  faults.faults.push_back(slow);
  testkit::HeardLines heard;
  train(std::vector<Thinks>(5), faults);
  for (const auto& rank : ranks_) {
    EXPECT_EQ(rank->engine().late().rank, 4u);
    EXPECT_GE(rank->engine().late().late_ms, 40u) << "a wake takes 50 ms more";
  }
  EXPECT_EQ(heard.lines().size(), 1u);
}

TEST_F(LateRanks, NobodyIsNamedAmongEquals) {
  testkit::HeardLines heard;
  train(std::vector<Thinks>(5));
  for (const auto& rank : ranks_) {
    EXPECT_EQ(rank->engine().late().steps, 0u);
    EXPECT_TRUE(nlohmann::json::parse(rank->engine().reports().stats_json())["late"].is_null());
  }
  EXPECT_TRUE(heard.lines().empty());
}

}  // namespace
}  // namespace parallax::simtest
