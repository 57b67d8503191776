// SPDX-License-Identifier: Apache-2.0
// How a job grows with its ranks: the real engine on the simulator, all ranks of a job in one
// thread, through open, commit and some steps of a dense variable, a sparse one and many small
// ones, every value checked. Says what each rank holds and sends. No timing of this machine:
// messages, bytes and virtual time are the same wherever it runs; memory is of this process.
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "base/compute.h"
#include "base/seeded_random.h"
#include "engine/engine.h"
#include "transport/sim/sim_world.h"

namespace parallax::scale {
namespace {

constexpr uint64_t kDenseElements = 4096;
constexpr uint64_t kSparseRows = 1'000'000;
constexpr uint64_t kRowElements = 4;
constexpr uint32_t kIdsPerStep = 256;
constexpr uint64_t kSmallElements = 64;
constexpr uint32_t kDense = 0, kSparse = 1, kSmall = 2;  // variables; from kSmall on
constexpr int64_t kLeaseNs = 30'000'000'000;

struct Shape {
  uint32_t hosts = 1;
  uint32_t ranks_per_host = 8;
  uint32_t small = 100;
  uint32_t steps = 3;
  uint32_t world() const { return hosts * ranks_per_host; }
};

[[noreturn]] void fail(const std::string& what) {
  std::fprintf(stderr, "parallax_scale: %s\n", what.c_str());
  std::exit(1);
}

void require(const Status& status, const char* call) {
  if (!status.ok()) fail(std::string(call) + ": " + status.message());
}

size_t resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  size_t total = 0, resident = 0;
  statm >> total >> resident;
  return resident * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

// To stderr, so that a long run is seen to go on.
void say_progress(const Shape& shape, const std::string& what) {
  std::fprintf(stderr, "# %u ranks: %s, %.1f GiB\n", shape.world(), what.c_str(),
               static_cast<double>(resident_bytes()) / (1 << 30));
}

// What all ranks push, summed: the naive result.
struct Truth {
  std::vector<uint32_t> pushed = std::vector<uint32_t>(kSparseRows);
};

// One rank: its engine and the program that calls it.
class Rank final : public Actor {
 public:
  Rank(const Shape& shape, SimWorld& world, const View& view, Truth& truth, uint32_t rank)
      : shape_(shape),
        truth_(truth),
        rank_(rank),
        random_(rank + 1),
        engine_({.rank = rank, .view = view, .lease_ns = kLeaseNs}, world.transport(rank),
                world.clock(), compute_) {
    require(engine_.start(), "start");
    add("dense", kDenseElements, 1, 0);
    add("sparse", kSparseRows, kRowElements, kIdsPerStep);
    for (uint32_t i = 0; i < shape.small; ++i) {
      add("small" + std::to_string(i), kSmallElements, 1, 0);
    }
    world.attach(rank, this);
  }

  void run(int64_t) override {
    engine_.run();
    while (advance()) engine_.kick();
  }
  int64_t next_deadline_ns() const override { return engine_.next_deadline_ns(); }

  bool committed() const { return engine_.committed() && phase_ > 0; }
  uint64_t steps_done() const { return steps_done_; }
  void go(uint64_t steps) { steps_wanted_ = steps; }

 private:
  void add(const std::string& name, uint64_t rows, uint64_t row_elements, uint64_t rows_max) {
    parallax_variable_t variable = {};
    variable.size = sizeof variable;
    variable.name = name.c_str();
    variable.rows = rows;
    variable.row_elements = row_elements;
    variable.rows_max = rows_max;
    variable.rule = PARALLAX_RULE_SGD;
    variable.reduction = PARALLAX_SUM;
    variable.init = PARALLAX_INIT_CONSTANT;
    uint32_t id = 0;
    require(engine_.job_calls().register_variable(variable, &id), "register");
  }

  bool done(Request*& request) {
    if (request == nullptr) return true;
    if (!request->done()) return false;
    require(request->status, "request");
    require(engine_.release(request), "release");
    request = nullptr;
    return true;
  }

  // One move of the program; false if it can only wait.
  bool advance() {
    if (phase_ == 0) {
      if (pull_ == nullptr) {
        require(engine_.job_calls().commit(&pull_), "commit");
        return true;
      }
      if (!done(pull_)) return false;
      phase_ = 1;
    }
    if (phase_ == 1) {
      if (steps_done_ == steps_wanted_) return false;
      begin();
      phase_ = 2;
      return true;
    }
    if (phase_ == 2) {
      if (!done(pull_)) return false;
      check();
      end();
      phase_ = 3;
      return true;
    }
    if (!done(push_) || !done(end_)) return false;
    ++steps_done_;
    phase_ = 1;
    return true;
  }

  // Pulls the rows of the step.
  void begin() {
    require(engine_.step_calls().begin(&step_), "step_begin");
    ids_.clear();
    for (uint32_t i = 0; i < kIdsPerStep; ++i) {
      ids_.push_back(static_cast<int64_t>(random_.below(kSparseRows)));
    }
    rows_.assign(kIdsPerStep * kRowElements, 0);
    parallax_slice_t slice = rows();
    require(engine_.step_calls().pull(step_, {&slice, 1}, &pull_), "pull");
  }

  parallax_slice_t rows() {
    parallax_slice_t slice = {};
    slice.size = sizeof slice;
    slice.variable = kSparse;
    slice.form = PARALLAX_FORM_ROWS;
    slice.ids = ids_.data();
    slice.row_count = kIdsPerStep;
    slice.values = rows_.data();
    return slice;
  }

  // Every rank pushes ones: a row is minus how often it was pushed before this step.
  void check() {
    for (uint32_t i = 0; i < kIdsPerStep; ++i) {
      const float wanted = -static_cast<float>(truth_.pushed[static_cast<size_t>(ids_[i])]);
      if (rows_[i * kRowElements] != wanted) {
        fail("rank " + std::to_string(rank_) + ", step " + std::to_string(step_) + ": row " +
             std::to_string(ids_[i]) + " is " + std::to_string(rows_[i * kRowElements]) + ", not " +
             std::to_string(wanted));
      }
    }
  }

  void end() {
    std::fill(rows_.begin(), rows_.end(), 1.0f);
    std::vector<parallax_slice_t> slices = {rows()};
    for (uint32_t variable = 0; variable < kSmall + shape_.small; ++variable) {
      if (variable == kSparse) continue;
      parallax_slice_t& slice = slices.emplace_back();
      slice = {};
      slice.size = sizeof slice;
      slice.variable = variable;
      slice.form = PARALLAX_FORM_DENSE;
      slice.values = const_cast<float*>(ones());
    }
    require(engine_.step_calls().push(step_, slices, &push_), "push");
    parallax_step_end_options_t options = {};
    options.size = sizeof options;
    options.learning_rate = 1;
    require(engine_.step_calls().end(step_, options, &end_), "step_end");
  }

  static const float* ones() {
    static const std::vector<float> kOnes(kDenseElements, 1.0f);
    return kOnes.data();
  }

 public:
  // Between steps of the whole job.
  void count_pushes() {
    for (const int64_t id : ids_) ++truth_.pushed[static_cast<size_t>(id)];
  }

 private:
  const Shape& shape_;
  Truth& truth_;
  const uint32_t rank_;
  SeededRandom random_;
  InlineCompute compute_;
  Engine engine_;
  int phase_ = 0;
  uint64_t step_ = 0, steps_done_ = 0, steps_wanted_ = 0;
  Request *pull_ = nullptr, *push_ = nullptr, *end_ = nullptr;
  std::vector<int64_t> ids_;
  std::vector<float> rows_;
};

void measure(const Shape& shape) {
  const size_t before_bytes = resident_bytes();
  SimOptions options;
  options.world = shape.world();
  std::vector<std::string> names;
  for (uint32_t rank = 0; rank < shape.world(); ++rank) {
    options.host_of.push_back(rank / shape.ranks_per_host);
    names.push_back("host" + std::to_string(rank / shape.ranks_per_host));
  }
  options.adversarial = false;
  SimWorld world(options);
  const View view = first_view(map_hosts(names));
  Truth truth;
  std::vector<std::unique_ptr<Rank>> ranks;
  for (uint32_t rank = 0; rank < shape.world(); ++rank) {
    ranks.push_back(std::make_unique<Rank>(shape, world, view, truth, rank));
  }
  // The first that is not there yet: looked at after every event, so not all of them each time.
  size_t first = 0;
  const auto all = [&](auto there) {
    first = 0;
    const bool ended = world.run_until(
        [&] {
          while (first < ranks.size() && there(*ranks[first])) ++first;
          return first == ranks.size();
        },
        INT64_MAX / 2);
    if (!ended) fail("the job stands still at rank " + std::to_string(first));
  };
  all([](const Rank& rank) { return rank.committed(); });
  const size_t committed_bytes = resident_bytes() - before_bytes;
  say_progress(shape, "committed");
  const uint64_t commit_messages = world.network().messages_count();
  const int64_t commit_ns = world.now_ns();
  uint64_t messages = commit_messages, bytes = world.network().bytes_count();
  int64_t step_ns = 0;
  for (uint64_t step = 1; step <= shape.steps; ++step) {
    messages = world.network().messages_count();
    bytes = world.network().bytes_count();
    step_ns = world.now_ns();
    for (uint32_t rank = 0; rank < shape.world(); ++rank) {
      ranks[rank]->go(step);
      world.poke(rank);
    }
    all([step](const Rank& rank) { return rank.steps_done() == step; });
    for (const auto& rank : ranks) rank->count_pushes();
    say_progress(shape, "step " + std::to_string(step));
  }
  messages = world.network().messages_count() - messages;
  bytes = world.network().bytes_count() - bytes;
  const double count = shape.world();
  std::printf("%6u %6u  %9.1f %9.1f  %9.1f %9.1f %11.1f  %9.3f %9.3f\n", shape.world(), shape.hosts,
              static_cast<double>(committed_bytes) / count / 1024,
              static_cast<double>(resident_bytes() - before_bytes) / count / 1024,
              static_cast<double>(commit_messages) / count, static_cast<double>(messages) / count,
              static_cast<double>(bytes) / count, static_cast<double>(commit_ns) / 1e6,
              static_cast<double>(world.now_ns() - step_ns) / 1e6);
  std::fflush(stdout);
}

uint32_t number(const char* text) {
  char* end = nullptr;
  const unsigned long value = std::strtoul(text, &end, 10);
  if (end == text || *end != '\0' || value == 0 || value > 100'000) {
    fail(std::string("'") + text + "' is no number of hosts from 1 to 100000");
  }
  return static_cast<uint32_t>(value);
}

}  // namespace
}  // namespace parallax::scale

int main(int count, char** arguments) {
  using parallax::scale::measure;
  std::printf(
      "# one dense variable of 4,096 floats, one of 1,000,000 x 4 rows with 256 ids a rank and\n"
      "# step, 100 of 64 floats; 8 ranks a host; the last of 3 steps\n"
      "# ranks  hosts  KiB/rank  KiB/rank   messages  messages   bytes/rank    commit      step\n"
      "#               (commit)   (steps)   (commit)    (step)       (step)      (ms)      (ms)\n");
  std::vector<uint32_t> hosts = {1, 8, 128, 1250};
  if (count > 1) hosts.clear();
  for (int i = 1; i < count; ++i) hosts.push_back(parallax::scale::number(arguments[i]));
  for (const uint32_t each : hosts) measure({.hosts = each});
  return 0;
}
