// SPDX-License-Identifier: Apache-2.0
// Staleness against a model of its promise: random jobs with and without faults, in which each row
// that is pulled is the oracle's as of a commit that may be seen; and jobs whose updates can be
// told apart in the values, a column each. How far ranks get ahead, and no further.
#include <gtest/gtest.h>

#include <algorithm>
#include <cinttypes>
#include <deque>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "sim/sim_job.h"

namespace parallax::simtest::staleness {
namespace {

constexpr uint32_t kStalenesses[] = {1, 2, 3, StepWindow::kAsync};

std::string text_of(uint64_t seed, uint32_t staleness) {
  return "seed " + std::to_string(seed) + ", staleness " + std::to_string(staleness);
}

// ---- any job

// A job of ranks that take as long as they like, each step anew, and wait for little.
Scenario job_of(uint64_t seed, uint32_t staleness) {
  Scenario scenario = make_scenario(seed, {.world_max = 6, .large_world_max = 12});
  scenario.staleness = staleness;
  scenario.pipelined = true;
  scenario.deterministic = false;
  if (scenario.numbers == Numbers::kAny) scenario.numbers = Numbers::kExact;
  scenario.think_ns_max = 400 * kMicrosecond;
  return scenario;
}

// Given jobs with every staleness and with none, without faults, expect each row that was pulled to
// be as of a commit that may be seen, every reduce and outcome to be exact, and ranks to get ahead
// by all that is allowed, and no further.
TEST(Staleness, RowsAreAsOfACommitThatMayBeSeen) {
  constexpr uint64_t kSeeds = 60;
  for (const uint32_t staleness : {0u, 1u, 2u, 3u, StepWindow::kAsync}) {
    uint64_t most_ahead = 0, pulls = 0;
    for (uint64_t seed = 0; seed < kSeeds; ++seed) {
      Scenario scenario = job_of(seed, staleness);
      scenario.abort_rank = scenario.cancel_rank = scenario.mismatch_rank = UINT32_MAX;
      const SimVerdict verdict = SimJob(std::move(scenario), {}).run();
      EXPECT_TRUE(verdict.survived) << text_of(seed, staleness);
      for (const std::string& error : verdict.errors) {
        ADD_FAILURE() << text_of(seed, staleness) << ": " << error << "\n" << verdict.description;
      }
      EXPECT_LE(verdict.most_ahead, staleness) << text_of(seed, staleness);
      most_ahead = std::max(most_ahead, verdict.most_ahead);
      pulls += verdict.pulls_checked;
    }
    std::printf("staleness %u: %" PRIu64 " slices pulled, at most %" PRIu64 " steps ahead\n",
                staleness, pulls, most_ahead);
    EXPECT_GE(most_ahead, std::min(staleness, 3u));
  }
}

// Given the same with faults of every kind, expect what comes to be right all the same, and every
// rank to be told of a loss in time.
TEST(Staleness, FaultsAreToldAndSpoilNothing) {
  constexpr uint64_t kSeeds = 240;
  uint64_t survived = 0;
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    const uint32_t staleness = kStalenesses[seed / 8 % std::size(kStalenesses)];
    Scenario scenario = job_of(seed, staleness);
    FaultPlan plan = faults_of(seed, scenario);
    const SimVerdict verdict = SimJob(std::move(scenario), std::move(plan)).run();
    for (const std::string& error : verdict.errors) {
      ADD_FAILURE() << text_of(seed, staleness) << ": " << error << "\n" << verdict.description;
    }
    EXPECT_LE(verdict.most_ahead, staleness) << text_of(seed, staleness);
    survived += verdict.survived ? 1 : 0;
  }
  std::printf("%" PRIu64 " of %" PRIu64 " jobs finished whole\n", survived, kSeeds);
  EXPECT_GT(survived, kSeeds / 8);
  EXPECT_LT(survived, kSeeds);
}

// ---- updates that can be told apart

constexpr uint32_t kRows = 7, kTable = 0;
constexpr uint64_t kSteps = 9;

// Who gave what: column (rank, step) of the rows that a rank pushed in a step is 1 once that is
// applied, since SGD with a learning rate of 1 subtracts the -1 that was given there, and else 0.
struct Marks {
  uint32_t world = 0, staleness = 0;
  std::vector<uint32_t> given = {};  // by column: a bit a row
  std::vector<bool> discarded = {};  // by step
  std::vector<uint64_t> ended = {};  // by rank

  uint64_t width() const { return world * kSteps; }
  uint64_t column(uint32_t rank, uint64_t step) const { return (step - 1) * world + rank; }
  bool gave(uint32_t rank, uint64_t step, uint32_t row) const {
    return (given[column(rank, step)] >> row & 1) != 0;
  }

  // Of a row that was pulled in a step, after the rank had seen `seen` of it; and then it has seen
  // that. All that must be there is, nothing that was not given, nothing twice, all of a step or
  // nothing, and nothing goes back.
  std::string check(uint64_t step, uint32_t row, const float* values, std::vector<bool>* seen) {
    const uint64_t must = step - 1 - std::min<uint64_t>(step - 1, staleness);
    bool over = false;  // an earlier step is missing
    for (uint64_t of = 1; of <= kSteps; ++of) {
      uint32_t there = 0, wanted = 0;
      for (uint32_t rank = 0; rank < world; ++rank) {
        const float value = values[column(rank, of)];
        const std::string what = " of step " + std::to_string(of) + " of rank " +
                                 std::to_string(rank) + " in row " + std::to_string(row) +
                                 " as step " + std::to_string(step) + " pulled it";
        if (value != 0 && value != 1)
          return "an update" + what + " counts " + std::to_string(value);
        const bool given = gave(rank, of, row) && !discarded[of];
        if (value == 1 && !given) return "an update" + what + " was never given";
        if (value == 0 && (*seen)[column(rank, of)]) return "an update" + what + " is gone";
        if (value == 1) (*seen)[column(rank, of)] = true;
        wanted += given ? 1 : 0;
        there += value == 1 ? 1 : 0;
      }
      const std::string what = "step " + std::to_string(of) + " in row " + std::to_string(row) +
                               " as step " + std::to_string(step) + " pulled it";
      if (there != 0 && there != wanted) return what + " is there in part";
      if (there != 0 && of >= step) return what + " is there too early";
      if (there != 0 && over) return what + " is there, and one before it is not";
      if (there == 0 && wanted != 0 && of <= must) return what + " is missing";
      over = over || (there == 0 && wanted != 0);
    }
    return "";
  }
};

// A rank that trains: thinks, pulls and waits, thinks, pushes, ends the step, and goes on as soon
// as it may.
class Trainer final : public Actor {
 public:
  Trainer(SimWorld& world, const View& view, uint32_t rank, parallax_plan_mode_t mode, Marks& marks,
          uint64_t seed, int64_t think_ns_max)
      : world_(world),
        marks_(marks),
        rank_(rank),
        random_(SeededRandom(seed).fork(rank)),
        think_ns_max_(think_ns_max),
        compute_(world, rank, random_.chance(50)),
        engine_({.rank = rank,
                 .view = view,
                 .lease_ns = 60'000 * kMillisecond,
                 .plan_mode = mode,
                 .staleness = marks.staleness},
                world.transport(rank), world.clock(), compute_),
        pulled_(kRows * marks.width()),
        seen_(kRows, std::vector<bool>(marks.width())) {
    EXPECT_TRUE(engine_.start().ok());
    parallax_variable_t table = {};
    table.size = sizeof table;
    table.name = "table";
    table.rows = table.rows_max = kRows;
    table.row_elements = marks.width();
    table.rule = PARALLAX_RULE_SGD;
    uint32_t id = 0;
    EXPECT_TRUE(engine_.job_calls().register_variable(table, &id).ok());
    take(engine_.job_calls().commit(&waited_));
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
  bool over() const { return over_; }
  uint64_t most_ahead() const { return most_ahead_; }

 private:
  enum class Next : uint8_t { kBegin, kCheck, kEnd, kRead, kCheckRead };
  // What a step has under way, with the buffers that it borrows.
  struct Given {
    uint64_t step = 0;
    std::vector<int64_t> ids;
    std::vector<float> values;
    Request *push = nullptr, *end = nullptr;
  };

  void take(const Status& status) {
    EXPECT_TRUE(status.ok()) << status.message();
    over_ = over_ || !status.ok();
    posted_ = true;
  }
  bool done(Request*& request) {
    if (request == nullptr) return true;
    if (!request->done()) return false;
    EXPECT_TRUE(request->status.ok()) << request->status.message();
    over_ = over_ || !request->status.ok();
    EXPECT_TRUE(engine_.release(std::exchange(request, nullptr)).ok());
    return true;
  }

  // One move; false if there is something to wait for.
  bool advance() {
    while (!given_.empty() && done(given_.front().push) && done(given_.front().end)) {
      given_.pop_front();
    }
    if (over_ || !done(waited_)) return false;
    if (next_ == Next::kBegin && given_.size() == StepWindow(marks_.staleness).depth())
      return false;
    if (next_ == Next::kRead && !given_.empty()) return false;
    if (!thought()) return false;
    switch (next_) {
      case Next::kBegin:
        begin();
        break;
      case Next::kCheck:
        check(step_);
        next_ = Next::kEnd;
        break;
      case Next::kEnd:
        end();
        next_ = step_ < kSteps ? Next::kBegin : Next::kRead;
        break;
      case Next::kRead:
        pull(0);
        next_ = Next::kCheckRead;
        break;
      case Next::kCheckRead: {
        // Between steps all commits are seen.
        Marks all = marks_;
        all.staleness = 0;
        check(kSteps + 1, &all);
        over_ = true;
        break;
      }
    }
    return true;
  }

  bool thought() {
    if (resume_ns_ == kNever) {
      resume_ns_ = world_.now_ns() + random_.between(0, think_ns_max_);
    }
    if (resume_ns_ > world_.now_ns()) return false;
    resume_ns_ = kNever;
    return true;
  }

  void begin() {
    take(engine_.step_calls().begin(&step_));
    pull(step_);
    next_ = Next::kCheck;
  }

  // Of a step, or of none.
  void pull(uint64_t step) {
    ids_.clear();
    for (uint32_t row = 0; row < kRows; ++row) {
      if (step == 0 || random_.chance(80)) ids_.push_back(row);
    }
    const parallax_slice_t slice = slice_of(ids_, pulled_);
    take(engine_.step_calls().pull(step, {&slice, 1}, &waited_));
  }

  void check(uint64_t step, Marks* marks = nullptr) {
    const uint64_t slowest = *std::min_element(marks_.ended.begin(), marks_.ended.end()) + 1;
    if (step <= kSteps && step > slowest) most_ahead_ = std::max(most_ahead_, step - slowest);
    for (size_t i = 0; i < ids_.size(); ++i) {
      const auto row = static_cast<uint32_t>(ids_[i]);
      const std::string wrong = (marks == nullptr ? marks_ : *marks)
                                    .check(step, row, &pulled_[i * marks_.width()], &seen_[row]);
      EXPECT_EQ(wrong, "") << "rank " << rank_;
    }
  }

  void end() {
    Given& given = given_.emplace_back();
    given.step = step_;
    for (uint32_t row = 0; row < kRows; ++row) {
      if (!random_.chance(60)) continue;
      given.ids.push_back(row);
      given.values.resize(given.ids.size() * marks_.width());
      given.values[(given.ids.size() - 1) * marks_.width() + marks_.column(rank_, step_)] = -1;
      marks_.given[marks_.column(rank_, step_)] |= 1u << row;
    }
    const parallax_slice_t slice = slice_of(given.ids, given.values);
    take(engine_.step_calls().push(step_, {&slice, 1}, &given.push));
    parallax_step_end_options_t options = {};
    options.size = sizeof options;
    options.learning_rate = 1;
    options.found_inf = marks_.discarded[step_] && step_ % marks_.world == rank_ ? 1 : 0;
    take(engine_.step_calls().end(step_, options, &given.end));
    marks_.ended[rank_] = step_;
  }

  static parallax_slice_t slice_of(const std::vector<int64_t>& ids, std::vector<float>& values) {
    parallax_slice_t slice = {};
    slice.size = sizeof slice;
    slice.variable = kTable;
    slice.form = PARALLAX_FORM_ROWS;
    slice.ids = ids.data();
    slice.row_count = ids.size();
    slice.values = values.data();
    return slice;
  }

  SimWorld& world_;
  Marks& marks_;
  const uint32_t rank_;
  SeededRandom random_;
  const int64_t think_ns_max_;
  SimCompute compute_;
  Engine engine_;
  Next next_ = Next::kBegin;
  uint64_t step_ = 0;
  Request* waited_ = nullptr;
  std::deque<Given> given_;
  std::vector<int64_t> ids_;
  std::vector<float> pulled_;
  std::vector<std::vector<bool>> seen_;  // by row and column
  int64_t resume_ns_ = kNever;           // of a think under way
  uint64_t most_ahead_ = 0;
  bool posted_ = false;  // something, in this run
  bool over_ = false;
};

// One job; by how many steps a pull was ahead. `slow`: a rank that thinks longer than the others
// take for all their steps.
uint64_t train(uint64_t seed, uint32_t staleness, bool slow) {
  SeededRandom random(seed);
  const auto world_size = static_cast<uint32_t>(random.between(2, 5));
  std::vector<std::string> names;
  for (uint32_t rank = 0; rank < world_size; ++rank) {
    names.push_back("host" + std::to_string(random.below(3)));
  }
  const HostMap hosts = map_hosts(names);
  SimOptions options = {.world = world_size, .host_of = hosts.host_of, .seed = seed};
  options.inter_host.jitter_ns = random.between(0, 300) * kMicrosecond;
  options.intra_host.jitter_ns = random.between(0, 100) * kMicrosecond;
  const size_t message_bytes[] = {4096, 65536};
  options.message_bytes_max = message_bytes[random.below(2)];
  SimWorld world(options);
  Marks marks = {.world = world_size, .staleness = staleness};
  marks.given.resize(marks.width());
  marks.discarded.resize(kSteps + 2);
  for (uint64_t step = 1; step <= kSteps; ++step) marks.discarded[step] = random.chance(15);
  marks.ended.resize(world_size);
  const parallax_plan_mode_t mode = random.chance(70) ? PARALLAX_PLAN_PS : PARALLAX_PLAN_AR;
  const auto slowest = static_cast<uint32_t>(random.below(world_size));
  std::vector<std::unique_ptr<Trainer>> ranks;
  for (uint32_t rank = 0; rank < world_size; ++rank) {
    const int64_t think_ns_max = slow && rank == slowest ? 20 * kMillisecond : 200 * kMicrosecond;
    ranks.push_back(
        std::make_unique<Trainer>(world, first_view(hosts), rank, mode, marks, seed, think_ns_max));
    world.attach(rank, ranks.back().get());
  }
  EXPECT_TRUE(world.run_until(
      [&ranks] {
        return std::all_of(ranks.begin(), ranks.end(),
                           [](const auto& each) { return each->over(); });
      },
      60'000 * kMillisecond))
      << text_of(seed, staleness);
  uint64_t most_ahead = 0;
  for (const auto& each : ranks) most_ahead = std::max(most_ahead, each->most_ahead());
  return most_ahead;
}

// Given updates that can be told apart, at any timing, on one host and several, sharded and
// mirrored, expect every row to have those that it must have, and of the others whole steps in
// their order; each once, none that a step gave up, and none to go again.
TEST(Staleness, UpdatesAreSeenOnceAndInOrder) {
  for (const uint32_t staleness : {0u, 1u, 2u, 3u, StepWindow::kAsync}) {
    for (uint64_t seed = 0; seed < 60; ++seed) {
      SCOPED_TRACE(text_of(seed, staleness));
      EXPECT_LE(train(seed, staleness, false), staleness);
      if (testing::Test::HasFailure()) return;
    }
  }
}

// Given one rank that is far slower, expect another to get ahead of it by all that is allowed, and
// no further; and asynchronously by all there is.
TEST(Staleness, AFastRankGetsAheadByThatAndNoMore) {
  for (const uint32_t staleness : {0u, 1u, 2u, 3u, 5u, StepWindow::kAsync}) {
    uint64_t most_ahead = 0;
    for (uint64_t seed = 100; seed < 112; ++seed) {
      SCOPED_TRACE(text_of(seed, staleness));
      const uint64_t ahead = train(seed, staleness, true);
      EXPECT_LE(ahead, staleness);
      most_ahead = std::max(most_ahead, ahead);
    }
    EXPECT_EQ(most_ahead, std::min<uint64_t>(staleness, kSteps - 1));
  }
}

}  // namespace
}  // namespace parallax::simtest::staleness
