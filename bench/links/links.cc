// SPDX-License-Identifier: Apache-2.0
// A sharded table's steps on a link: what each takes, how long its pulls are waited for, and what
// the link carried meanwhile, by the kernel's counters of this host. Started by bench/links/run, a
// process for each rank; every rank's line is JSON. Two ways of calling:
//
//   managed   begin, pull, wait, compute, push, end, wait
//   fused     push of t, end of t, begin of t + 1, pull of t + 1, compute, wait for the pull
//
// Token ids are of Zipf's law (1), drawn anew for each step, the same in both ways. Gradients are
// -1 and the rule subtracts them, so that a value counts the tokens of its row so far: every pulled
// row of the first kChecked steps is checked against that count.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "../calls.h"
#include "counters.h"
#include "parallax/parallax.h"

namespace parallax::links {
namespace {

using Clock = std::chrono::steady_clock;

constexpr uint64_t kChecked = 4;

using bench::expect;
using bench::fail;

struct Options {
  bool fused = false;
  uint64_t rows = 793470;
  uint32_t width = 512, tokens = 2560;
  uint64_t warmups = 4, steps = 20;
  int64_t compute_us = 0;
  std::string device;  // whose counters are read; none: not
};

double ms_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

double median(std::vector<double> of) {
  std::sort(of.begin(), of.end());
  return of[of.size() / 2];
}

// By the law of Zipf of exponent 1, from a counter: the same on every machine.
class Tokens {
 public:
  explicit Tokens(const Options& options) : options_(options) {
    double sum = 0;
    sums_.reserve(options.rows);
    for (uint64_t row = 1; row <= options.rows; ++row) {
      sums_.push_back(sum += 1.0 / static_cast<double>(row));
    }
  }
  void draw(uint32_t rank, uint64_t step, std::vector<int64_t>& ids) const {
    ids.resize(options_.tokens);
    uint64_t state = mixed(step << 20 | rank);
    for (int64_t& id : ids) {
      state += 0x9e3779b97f4a7c15u;
      const double at = static_cast<double>(mixed(state) >> 11) * 0x1p-53 * sums_.back();
      id = std::upper_bound(sums_.begin(), sums_.end(), at) - sums_.begin();
      id = std::min<int64_t>(id, static_cast<int64_t>(options_.rows) - 1);
    }
  }

 private:
  // SplitMix64.
  static uint64_t mixed(uint64_t of) {
    of = (of ^ of >> 30) * 0xbf58476d1ce4e5b9u;
    of = (of ^ of >> 27) * 0x94d049bb133111ebu;
    return of ^ of >> 31;
  }

  const Options& options_;
  std::vector<double> sums_;
};

class Job {
 public:
  explicit Job(const Options& options)
      : options_(options), tokens_(options), values_(size_t{options.tokens} * options.width) {
    gradient_.assign(values_.size(), -1.0f);
    parallax_options_t open = {};
    open.size = sizeof open;
    open.rendezvous = "env";
    expect(parallax_open(&open, &job_), "open");
    parallax_job_info_t info = {};
    info.size = offsetof(parallax_job_info_t, hosts) + sizeof info.hosts;
    expect(parallax_query(job_, &info), "query");
    rank_ = info.rank;
    world_ = info.world;
    parallax_variable_t variable = {};
    variable.size = sizeof variable;
    variable.name = "table";
    variable.rows = options.rows;
    variable.row_elements = options.width;
    variable.rows_max = options.tokens;
    variable.dtype = PARALLAX_F32;
    variable.tag = PARALLAX_SPARSE;
    variable.reduction = PARALLAX_SUM;
    variable.rule = PARALLAX_RULE_SGD;
    uint32_t id = 0;
    expect(parallax_register(job_, &variable, &id), "register");
    expect(parallax_commit(job_), "commit");
  }

  int run() {
    std::vector<double> steps_ms, waits_ms;
    Clock::time_point start;
    Bytes before;
    // Before the clock runs: by step, from 1 on.
    ids_.resize(options_.warmups + options_.steps + 3);
    for (uint64_t step = 1; step < ids_.size(); ++step) tokens_.draw(rank_, step, ids_[step]);
    if (options_.fused) begin_fused();
    for (uint64_t i = 0; i < options_.warmups + options_.steps; ++i) {
      if (i == options_.warmups) {
        barrier();
        before = counters(options_.device);
        start = Clock::now();
      }
      const Clock::time_point begun = Clock::now();
      const double waited_ms = options_.fused ? fused_step() : managed_step();
      if (i < options_.warmups) continue;
      steps_ms.push_back(ms_since(begun));
      waits_ms.push_back(waited_ms);
    }
    const double mean_ms = ms_since(start) / static_cast<double>(options_.steps);
    const Bytes after = counters(options_.device);
    if (options_.fused) end_fused();
    expect(parallax_close(job_), "close");
    const auto per_step = [&](uint64_t bytes) {
      return static_cast<double>(bytes) / static_cast<double>(options_.steps);
    };
    std::printf(
        "{\"rank\": %u, \"step_ms\": %.4f, \"mean_ms\": %.4f, \"pull_wait_ms\": %.4f, "
        "\"sent\": %.0f, \"received\": %.0f}\n",
        rank_, median(steps_ms), mean_ms, median(waits_ms), per_step(after.sent - before.sent),
        per_step(after.received - before.received));
    return 0;
  }

 private:
  parallax_slice_t slice(std::vector<float>& values) {
    parallax_slice_t slice = {};
    slice.size = sizeof slice;
    slice.form = PARALLAX_FORM_ROWS;
    slice.ids = ids_[step_].data();
    slice.row_count = ids_[step_].size();
    slice.values = values.data();
    return slice;
  }

  double wait(parallax_request_t*& request) {
    const Clock::time_point start = Clock::now();
    expect(parallax_wait(&request, 1, PARALLAX_WAIT_DEFAULT), "wait");
    expect(parallax_request_release(std::exchange(request, nullptr)), "release");
    return ms_since(start);
  }

  void barrier() {
    parallax_request_t* request = nullptr;
    expect(parallax_barrier(job_, &request), "barrier");
    wait(request);
  }

  void compute() const {
    if (options_.compute_us > 0) {
      std::this_thread::sleep_for(std::chrono::microseconds(options_.compute_us));
    }
  }

  void begin() { expect(parallax_step_begin(job_, &step_), "step_begin"); }
  void pull() {
    const parallax_slice_t wanted = slice(values_);
    expect(parallax_pull(job_, step_, &wanted, 1, &pull_), "pull");
  }
  // The ids of a step are those of its pull, as a training has them.
  void push_and_end() {
    const parallax_slice_t given = slice(gradient_);
    expect(parallax_push(job_, step_, &given, 1, &push_), "push");
    parallax_step_end_options_t options = {};
    options.size = sizeof options;
    options.learning_rate = 1;
    expect(parallax_step_end(job_, step_, &options, &end_), "step_end");
  }

  double managed_step() {
    begin();
    pull();
    const double waited_ms = wait(pull_);
    check();
    compute();
    push_and_end();
    wait(push_);
    wait(end_);
    return waited_ms;
  }

  void begin_fused() {
    begin();
    pull();
    wait(pull_);
  }
  double fused_step() {
    push_and_end();
    begin();
    pull();
    compute();
    const double waited_ms = wait(pull_);
    wait(push_);
    wait(end_);
    check();
    return waited_ms;
  }
  void end_fused() {
    push_and_end();
    wait(push_);
    wait(end_);
  }

  // Of the rows pulled for this step: how many tokens there were of them in the steps before.
  void check() {
    if (step_ > kChecked) return;
    std::unordered_map<int64_t, float> count;
    std::vector<int64_t> drawn;
    for (uint64_t step = 1; step < step_; ++step) {
      for (uint32_t rank = 0; rank < world_; ++rank) {
        tokens_.draw(rank, step, drawn);
        for (const int64_t id : drawn) ++count[id];
      }
    }
    for (size_t i = 0; i < ids_[step_].size(); ++i) {
      const float value = values_[i * options_.width], last = values_[(i + 1) * options_.width - 1];
      const int64_t id = ids_[step_][i];
      const float expected = count[id];
      if (value != expected || last != expected) {
        fail("step " + std::to_string(step_) + ": row " + std::to_string(id) + " is " +
             std::to_string(value) + " and not " + std::to_string(expected));
      }
    }
  }

  const Options& options_;
  const Tokens tokens_;
  parallax_job_t* job_ = nullptr;
  uint32_t rank_ = 0, world_ = 1;
  uint64_t step_ = 0;
  std::vector<std::vector<int64_t>> ids_;
  std::vector<float> values_, gradient_;
  parallax_request_t *pull_ = nullptr, *push_ = nullptr, *end_ = nullptr;
};

Options options_of(int argc, char** argv) {
  Options options;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i];
    const std::string value = argv[i + 1];
    if (name == "--way") {
      options.fused = value == "fused";
    } else if (name == "--rows") {
      options.rows = std::stoull(value);
    } else if (name == "--width") {
      options.width = static_cast<uint32_t>(std::stoul(value));
    } else if (name == "--tokens") {
      options.tokens = static_cast<uint32_t>(std::stoul(value));
    } else if (name == "--warmups") {
      options.warmups = std::stoull(value);
    } else if (name == "--steps") {
      options.steps = std::stoull(value);
    } else if (name == "--compute-us") {
      options.compute_us = std::stoll(value);
    } else if (name == "--device") {
      options.device = value;
    } else {
      fail("unknown flag " + name);
    }
  }
  return options;
}

}  // namespace
}  // namespace parallax::links

int main(int argc, char** argv) {
  const parallax::links::Options options = parallax::links::options_of(argc, argv);
  return parallax::links::Job(options).run();
}
