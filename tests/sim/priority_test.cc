// SPDX-License-Identifier: Apache-2.0
// An urgent small variable that is given behind a large one, on a virtual clock and a slow link:
// when each is done, and that all orders give the same bits.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/seeded_random.h"
#include "engine/engine.h"
#include "sim/sim_compute.h"
#include "support/sanitizers.h"
#include "transport/sim/sim_world.h"

namespace parallax::simtest::priorities {
namespace {

constexpr int64_t kMs = kNanosecondsPerMillisecond;
constexpr uint64_t kLargeBytes = uint64_t{testkit::kThreadSanitizer ? 32 : 64} << 20;
constexpr std::array<uint64_t, 2> kElements = {kLargeBytes / sizeof(float), 1024};
constexpr uint32_t kLarge = 0, kSmall = 1;

// One that reduces a large variable, a while later a small one, and ends the step.
class Member final : public Actor {
 public:
  Member(SimWorld& world, const HostMap& hosts, uint32_t rank, int32_t priority)
      : world_(world),
        rank_(rank),
        compute_(world, rank, false),
        engine_({.rank = rank, .view = first_view(hosts), .lease_ns = 60'000 * kMs},
                world.transport(rank), world.clock(), compute_) {
    EXPECT_TRUE(engine_.start().ok());
    for (uint32_t i = 0; i < kElements.size(); ++i) {
      const std::string name = "v" + std::to_string(i);
      parallax_variable_t variable = {};
      variable.size = sizeof variable;
      variable.name = name.c_str();
      variable.rows = kElements[i];
      variable.row_elements = 1;
      variable.reduction = PARALLAX_SUM;
      variable.priority = i == kSmall ? priority : 0;
      uint32_t id = 0;
      EXPECT_TRUE(engine_.job_calls().register_variable(variable, &id).ok());
      values_.push_back(numbers(rank, i));
    }
  }
  // Any numbers, of which the order of summing could be told.
  static const std::vector<float>& numbers(uint32_t rank, uint32_t variable) {
    static std::map<std::pair<uint32_t, uint32_t>, std::vector<float>> drawn;
    std::vector<float>& values = drawn[{rank, variable}];
    if (!values.empty()) return values;
    SeededRandom random(1 + rank * 10 + variable);
    values.resize(kElements[variable]);
    for (float& each : values) each = static_cast<float>(random.unit()) - 0.5f;
    return values;
  }

  void run(int64_t now_ns) override {
    engine_.run();
    for (size_t i = 0; i < done_ns_.size(); ++i) {
      if (done_ns_[i] == 0 && reduces_[i] != nullptr && reduces_[i]->done()) done_ns_[i] = now_ns;
    }
    bool posted = false;
    for (; advance(now_ns); posted = true) engine_.kick();
    if (posted && !engine_.flushed()) world_.poke(rank_);
  }
  int64_t next_deadline_ns() const override {
    const bool waits = reduces_[kLarge] != nullptr && reduces_[kSmall] == nullptr;
    return std::min(
        {engine_.next_deadline_ns(), compute_.next_ready_ns(), waits ? small_at_ns_ : kNever});
  }
  bool over() const { return engine_.window().finished() == 1; }
  // From the call on.
  double small_ms() const { return static_cast<double>(done_ns_[kSmall] - small_at_ns_) / kMs; }
  double large_ms() const { return static_cast<double>(done_ns_[kLarge] - small_at_ns_) / kMs; }
  const std::vector<float>& values(uint32_t variable) const { return values_[variable]; }
  const Status& failure() const { return engine_.failure(); }

 private:
  void reduce(uint32_t variable) {
    parallax_slice_t slice = {};
    slice.size = sizeof slice;
    slice.variable = variable;
    slice.values = slice.into = values_[variable].data();
    EXPECT_TRUE(engine_.step_calls().reduce(step_, {&slice, 1}, &reduces_[variable]).ok());
  }
  bool advance(int64_t now_ns) {
    if (commit_ == nullptr) {
      EXPECT_TRUE(engine_.job_calls().commit(&commit_).ok());
      return true;
    }
    if (!commit_->done()) return false;
    if (reduces_[kLarge] == nullptr) {
      EXPECT_TRUE(engine_.step_calls().begin(&step_).ok());
      reduce(kLarge);
      small_at_ns_ = now_ns + 2 * kMs;
      return true;
    }
    if (reduces_[kSmall] != nullptr || now_ns < small_at_ns_) return false;
    reduce(kSmall);
    parallax_step_end_options_t end = {};
    end.size = sizeof end;
    end.learning_rate = 1;
    EXPECT_TRUE(engine_.step_calls().end(step_, end, &end_).ok());
    return true;
  }

  SimWorld& world_;
  const uint32_t rank_;
  SimCompute compute_;
  Engine engine_;
  std::vector<std::vector<float>> values_;
  Request* commit_ = nullptr;
  Request* end_ = nullptr;
  std::array<Request*, 2> reduces_ = {};
  std::array<int64_t, 2> done_ns_ = {};
  uint64_t step_ = 0;
  int64_t small_at_ns_ = 0;
};

struct Times {
  double small_ms = 0, large_ms = 0;  // of the rank that was last
};

// Two hosts of one rank, with 1 Gbit/s between them.
Times play(const std::array<int32_t, 2>& priorities) {
  SimOptions options;
  options.world = 2;
  options.host_of = {0, 1};
  options.inter_host = {20'000, 2'000, 0, 125e6, 0};
  options.adversarial = false;
  SimWorld world(options);
  const std::vector<std::string> names = {"a", "b"};
  const HostMap hosts = map_hosts(names);
  std::vector<std::unique_ptr<Member>> members;
  for (uint32_t rank = 0; rank < 2; ++rank) {
    members.push_back(std::make_unique<Member>(world, hosts, rank, priorities[rank]));
    world.attach(rank, members.back().get());
  }
  EXPECT_TRUE(
      world.run_until([&] { return members[0]->over() && members[1]->over(); }, 60'000 * kMs));
  Times times;
  for (const auto& member : members) {
    EXPECT_TRUE(member->failure().ok()) << member->failure().message();
    times.small_ms = std::max(times.small_ms, member->small_ms());
    times.large_ms = std::max(times.large_ms, member->large_ms());
  }
  for (uint32_t variable = 0; variable < kElements.size(); ++variable) {
    std::vector<float> sum = Member::numbers(0, variable);
    const std::vector<float>& other = Member::numbers(1, variable);
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += other[i];
    for (const auto& member : members) {
      EXPECT_EQ(std::memcmp(member->values(variable).data(), sum.data(), 4 * sum.size()), 0)
          << "variable " << variable;
    }
  }
  std::printf("priorities %d, %d: small %.3f ms, large %.3f ms\n", priorities[0], priorities[1],
              times.small_ms, times.large_ms);
  return times;
}

// Given a large variable that is under way when a small one is given, expect the small one to wait
// for what the transport has alone if it is urgent at both, as long as ever if it is not, and the
// large one as long in both.
TEST(Priority, AnUrgentSmallVariablePassesALargeOne) {
  const Times as_given = play({0, 0});
  EXPECT_GT(as_given.small_ms, as_given.large_ms / 3);
  const Times urgent = play({1, 1});
  EXPECT_LT(urgent.small_ms, urgent.large_ms / 10);
  EXPECT_LT(urgent.large_ms, 1.01 * as_given.large_ms);
  const Times last = play({-1, -1});
  EXPECT_GT(last.small_ms, last.large_ms / 3);
  play({1, 0});  // ranks may differ
  play({-5, INT32_MAX});
}

}  // namespace
}  // namespace parallax::simtest::priorities
