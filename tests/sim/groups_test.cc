// SPDX-License-Identifier: Apache-2.0
// Overlapping groups of one job under random timing, on a virtual clock: each rank walks through
// the steps of all its groups at once, pulls, pushes and reduces in each, and checks every value;
// and a rank that is lost names itself in all of them.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/seeded_random.h"
#include "engine/job_groups.h"
#include "sim/sim_compute.h"
#include "support/sanitizers.h"
#include "transport/sim/sim_world.h"

namespace parallax::simtest {
namespace {

constexpr int64_t kLeaseNs = 50 * kNanosecondsPerMillisecond;
constexpr int64_t kThinkNsMax = 20'000;
constexpr int64_t kLeaveNs = 100 * kNanosecondsPerMillisecond;
constexpr uint32_t kHeldVariable = 0, kTableVariable = 1;
constexpr uint64_t kTableRows = 3;

using Ranks = std::vector<uint32_t>;

// The whole first; by the job's numbers.
const std::vector<Ranks> kGroups = {{0, 1, 2, 3}, {0, 1, 2}, {3, 1}, {2, 3, 0}};

// One rank in one group: split, register, commit, then steps, each call as soon as it may and some
// time later. In step t every member gives t + its number in the job + 1.
class Member {
 public:
  Member(JobGroups& groups, const Ranks& ranks, uint32_t job_rank, uint32_t steps)
      : groups_(groups), ranks_(ranks), job_rank_(job_rank), steps_(steps) {}

  bool over() const { return stage_ == Stage::kOver; }
  const Status& failure() const { return failure_; }
  const std::vector<std::string>& wrong() const { return wrong_; }
  uint64_t steps_done() const { return step_; }
  int64_t resume_ns() const { return over() ? kNever : resume_ns_; }

  // One move; false if it can only wait.
  bool move(int64_t now_ns, SeededRandom& random) {
    if (over() || now_ns < resume_ns_ || !reap()) return false;
    if (over()) return true;
    play();
    resume_ns_ = now_ns + static_cast<int64_t>(random.below(kThinkNsMax));
    return true;
  }

 private:
  enum class Stage : uint8_t { kSplit, kCommit, kPull, kPush, kEnd, kClose, kRetire, kOver };

  Engine& engine() { return groups_.group(number_); }

  // Takes back what is done. False: something is pending.
  bool reap() {
    for (const Request* request : pending_) {
      if (!request->done()) return false;
    }
    for (Request* request : std::exchange(pending_, {})) {
      const Status status = request->status;
      const uint32_t part = request->part;
      const bool split = request->kind == RequestKind::kSplit;
      const Status released = groups_.group(request->group).release(request);
      if (!released.ok()) wrong_.push_back(released.message());
      if (!status.ok()) {
        failure_ = status;
        stage_ = Stage::kOver;
      } else if (split) {
        number_ = part;
      }
    }
    return true;
  }

  // By reference: the call that makes the request is an argument too.
  void take(const Status& posted, Request* const& request) {
    if (posted.ok()) {
      pending_.push_back(request);
      return;
    }
    failure_ = posted;
    stage_ = Stage::kOver;
  }

  // What all members have given in a step.
  int64_t sum_of(uint64_t step) const {
    int64_t sum = 0;
    for (const uint32_t rank : ranks_) sum += static_cast<int64_t>(step + rank + 1);
    return sum;
  }

  void expect(const char* what, int64_t is, int64_t should_be) {
    if (is == should_be) return;
    wrong_.push_back(std::string(what) + " of step " + std::to_string(step_) + ": " +
                     std::to_string(is) + ", not " + std::to_string(should_be));
  }

  void play() {
    Request* request = nullptr;
    switch (stage_) {
      case Stage::kSplit:
        stage_ = Stage::kCommit;
        // The whole is there.
        if (ranks_.size() < kGroups[0].size()) {
          take(groups_.whole().job_calls().split(ranks_, &request), request);
        }
        return;
      case Stage::kCommit:
        register_all();
        take(engine().job_calls().commit(&request), request);
        stage_ = Stage::kPull;
        return;
      case Stage::kPull:
        if (engine().window().begun() == 2 && engine().variable_count() == 2) return commit_again();
        begin();
        return;
      case Stage::kPush:
        push();
        return;
      case Stage::kEnd:
        end();
        return;
      case Stage::kClose:
        expect("the aggregate", held_, sum_of(step_));
        take(engine().job_calls().close(&request), request);
        stage_ = Stage::kRetire;
        return;
      case Stage::kRetire:
        if (number_ != 0) {
          groups_.retire(number_);
          groups_.collect();
          if (groups_.has(number_)) wrong_.push_back("it stays");
        }
        stage_ = Stage::kOver;
        return;
      case Stage::kOver:
        return;
    }
  }

  void register_all() {
    parallax_variable_t variable = {};
    variable.size = sizeof variable;
    variable.dtype = PARALLAX_I64;
    variable.row_elements = 1;
    variable.rows = 1;
    variable.name = "held";
    uint32_t id = 0;
    Status registered = engine().job_calls().register_variable(variable, &id);
    variable.name = "table";
    variable.rows = kTableRows;
    variable.rows_max = kTableRows;
    variable.rule = PARALLAX_RULE_SUM;
    if (registered.ok()) registered = engine().job_calls().register_variable(variable, &id);
    if (!registered.ok()) wrong_.push_back(registered.message());
  }

  // Between steps, in either order; the other groups go on.
  void commit_again() {
    const char* names[] = {"early", "late"};
    for (const uint32_t i : {job_rank_ % 2, 1 - job_rank_ % 2}) {
      parallax_variable_t variable = {};
      variable.size = sizeof variable;
      variable.name = names[i];
      variable.rows = variable.row_elements = 1;
      uint32_t id = 0;
      const Status registered = engine().job_calls().register_variable(variable, &id);
      if (!registered.ok()) wrong_.push_back(registered.message());
    }
    Request* request = nullptr;
    take(engine().job_calls().commit(&request), request);
  }

  parallax_slice_t table_slice(int64_t* values) {
    parallax_slice_t slice = {};
    slice.size = sizeof slice;
    slice.variable = kTableVariable;
    slice.form = PARALLAX_FORM_ROWS;
    slice.ids = ids_.data();
    slice.row_count = ids_.size();
    slice.values = values;
    return slice;
  }

  void begin() {
    if (step_ > 0) expect("the aggregate", held_, sum_of(step_));
    const Status begun = engine().step_calls().begin(&step_);
    Request* request = nullptr;
    const parallax_slice_t slice = table_slice(pulled_.data());
    if (!begun.ok()) return take(begun, nullptr);
    take(engine().step_calls().pull(step_, {&slice, 1}, &request), request);
    stage_ = Stage::kPush;
  }

  void push() {
    for (const int64_t value : pulled_) expect("a pulled row", value, summed_);
    held_ = static_cast<int64_t>(step_ + job_rank_ + 1);
    pushed_.fill(held_);
    const parallax_slice_t rows = table_slice(pushed_.data());
    parallax_slice_t dense = {};
    dense.size = sizeof dense;
    dense.variable = kHeldVariable;
    dense.values = &held_;
    Request* pushes = nullptr;
    Request* reduces = nullptr;
    take(engine().step_calls().push(step_, {&rows, 1}, &pushes), pushes);
    if (!over()) take(engine().step_calls().reduce(step_, {&dense, 1}, &reduces), reduces);
    if (!over()) stage_ = Stage::kEnd;
    // The end need not wait for them.
    if (!over()) end();
  }

  void end() {
    Request* request = nullptr;
    take(engine().step_calls().end(step_, {}, &request), request);
    summed_ += sum_of(step_);
    if (!over()) stage_ = step_ == steps_ ? Stage::kClose : Stage::kPull;
  }

  JobGroups& groups_;
  const Ranks& ranks_;
  const uint32_t job_rank_, steps_;
  uint32_t number_ = 0;
  Stage stage_ = Stage::kSplit;
  uint64_t step_ = 0;
  int64_t held_ = 0, summed_ = 0;
  const std::array<int64_t, 2> ids_ = {0, 2};
  std::array<int64_t, 2> pulled_ = {}, pushed_ = {};
  std::vector<Request*> pending_;
  int64_t resume_ns_ = 0;
  Status failure_;
  std::vector<std::string> wrong_;
};

class GroupsRank final : public Actor {
 public:
  GroupsRank(SimWorld& world, const HostMap& hosts, uint32_t rank, uint32_t steps)
      : world_(world),
        rank_(rank),
        random_(SeededRandom(world.options().seed).fork(rank)),
        compute_(world, rank, world.options().seed % 2 == 1),
        groups_({.rank = rank, .view = first_view(hosts), .lease_ns = kLeaseNs},
                world.transport(rank), world.clock(), compute_) {
    EXPECT_TRUE(groups_.start().ok());
    for (const Ranks& ranks : kGroups) {
      if (std::find(ranks.begin(), ranks.end(), rank) == ranks.end()) continue;
      members_.push_back(std::make_unique<Member>(groups_, ranks, rank, steps));
    }
  }

  void run(int64_t now_ns) override {
    if (over_) return;
    groups_.run();
    bool posted = false;
    while (move(now_ns)) {
      groups_.kick();
      posted = true;
    }
    if (posted && !groups_.flushed()) world_.poke(rank_);
    if (!all_over()) return;
    // As a program that closes: what nobody takes any more is not waited for.
    if (leave_ns_ == kNever) leave_ns_ = now_ns + kLeaveNs;
    if (!groups_.flushed() && now_ns < leave_ns_) return;
    over_ = true;
    world_.leave(rank_);
  }
  int64_t next_deadline_ns() const override {
    int64_t next_ns = std::min({groups_.next_deadline_ns(), compute_.next_ready_ns(), leave_ns_});
    for (const auto& member : members_) next_ns = std::min(next_ns, member->resume_ns());
    return next_ns;
  }
  bool over() const { return over_; }
  std::vector<std::unique_ptr<Member>>& members() { return members_; }

 private:
  // The whole waits with its goodbye for its parts.
  bool move(int64_t now_ns) {
    bool moved = false;
    for (size_t i = members_.size(); i-- > 0;) {
      moved |= members_[i]->move(now_ns, random_);
    }
    return moved;
  }
  bool all_over() const {
    return std::all_of(members_.begin(), members_.end(),
                       [](const auto& member) { return member->over(); });
  }

  SimWorld& world_;
  const uint32_t rank_;
  SeededRandom random_;
  SimCompute compute_;
  JobGroups groups_;
  std::vector<std::unique_ptr<Member>> members_;
  int64_t leave_ns_ = kNever;
  bool over_ = false;
};

class GroupsJob {
 public:
  GroupsJob(uint64_t seed, uint32_t steps)
      : world_({.world = 4, .host_of = {0, 1, 0, 1}, .seed = seed}) {
    const HostMap hosts = map_hosts(std::vector<std::string>{"a", "b", "a", "b"});
    for (uint32_t rank = 0; rank < 4; ++rank) {
      ranks_.push_back(std::make_unique<GroupsRank>(world_, hosts, rank, steps));
      world_.attach(rank, ranks_.back().get());
    }
  }
  SimWorld& world() { return world_; }
  GroupsRank& rank(uint32_t rank) { return *ranks_[rank]; }
  // Of all but one.
  bool run(uint32_t without = UINT32_MAX) {
    constexpr int64_t kLimitNs = 600'000 * kNanosecondsPerMillisecond;
    return world_.run_until(
        [&] {
          for (uint32_t rank = 0; rank < 4; ++rank) {
            if (rank != without && !ranks_[rank]->over()) return false;
          }
          return true;
        },
        kLimitNs);
  }

 private:
  SimWorld world_;
  std::vector<std::unique_ptr<GroupsRank>> ranks_;
};

TEST(Groups, OverlappingGroupsTrainForAThousandSteps) {
  constexpr uint64_t kSteps = testkit::kBrief ? 200 : 1000;
  for (uint64_t seed = 1; seed <= (testkit::kBrief ? 1 : 2); ++seed) {
    GroupsJob job(seed, kSteps);
    ASSERT_TRUE(job.run()) << "seed " << seed;
    for (uint32_t rank = 0; rank < 4; ++rank) {
      for (const auto& member : job.rank(rank).members()) {
        EXPECT_TRUE(member->failure().ok()) << member->failure().message();
        EXPECT_TRUE(member->wrong().empty())
            << "seed " << seed << ", rank " << rank << ": " << member->wrong()[0];
        EXPECT_EQ(member->steps_done(), kSteps);
      }
    }
  }
}

TEST(Groups, ALossAtAnyTimeNamesItselfInAll) {
  constexpr uint32_t kForever = 1'000'000;  // steps: more than any group takes in a lease
  for (uint64_t seed = 1; seed <= (testkit::kBrief ? 4 : 30); ++seed) {
    GroupsJob job(seed, kForever);
    SeededRandom random(seed);
    const auto lost = static_cast<uint32_t>(random.below(4));
    Fault kill;
    kill.kind = random.chance(50) ? FaultKind::kKill : FaultKind::kPowerOff;
    kill.rank = lost;
    kill.at = static_cast<int64_t>(random.below(4'000'000));  // from the first split on
    FaultPlan plan;
    plan.faults = {kill};
    job.world().faults().set_plan(plan);
    ASSERT_TRUE(job.run(lost)) << "seed " << seed;
    for (uint32_t rank = 0; rank < 4; ++rank) {
      if (rank == lost) continue;
      for (const auto& member : job.rank(rank).members()) {
        EXPECT_EQ(member->failure().code(), PARALLAX_PEER_LOST)
            << "seed " << seed << ", rank " << rank << ": " << member->failure().message();
        EXPECT_NE(member->failure().message().find("rank " + std::to_string(lost) + " "),
                  std::string::npos)
            << member->failure().message();
        EXPECT_TRUE(member->wrong().empty()) << member->wrong()[0];
      }
    }
  }
}

}  // namespace
}  // namespace parallax::simtest
