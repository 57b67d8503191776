// SPDX-License-Identifier: Apache-2.0
// One rank of a small deterministic training, over the C ABI as a framework would use it. It checks
// every value it gets against the oracle of training.h and says what it does, line by line:
//
//   phase NAME step N        on entering a phase: rendezvous, register, commit, pull, push, reduce,
//                            step_end, wait (for the step's end), evaluate, close
//   clock MS                 monotonic milliseconds, before it dies on purpose and before a status
//   status STATUS: sentence  the call that failed; the exit status is then 10 - STATUS
//   checksum HEX             of all values at the end
//   stats JSON, plan JSON    the library's reports at the end
//
// Exit statuses: 0, 1 for wrong values, 2 for wrong usage, 10 - STATUS for a call that failed.

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "rank_program.h"
#include "training.h"

namespace {

using program::clock_ms;
using program::Fate;
using program::say;
using program::Settings;
using training::Oracle;
using training::Spec;

constexpr int kExitWrong = 1;
constexpr int kExitStatusBase = 10;
// Of values that other orders of summing give too: a few hundred roundings of 2^-24.
constexpr float kTolerance = 1e-4F;

const char* const kUsage =
    "usage: parallax_net_trainer [--option value]...\n"
    "  --rendezvous file:DIR  --rank R  --hosts H0,H1,...   host number of each rank\n"
    "  --host NAME   (default hostH)  --net-device NAME  --transport tcp|ucx|rdma|shm\n"
    "  --steps N  --plan auto|hybrid|ps|ar  --plan-after N  --deterministic 0|1  --seed N\n"
    "  --dyadic 0|1   gradients whose sums are exact in any order\n"
    "  --scale N      widens rows   --pace-ms N   sleeps in each step   --compute-threads N\n"
    "  --pipeline 0|1 asks for the next step's rows before this one has ended\n"
    "  --lease-ms N  --timeout-ms N\n"
    "  --exit-at-once 0|1   the process ends with the first call that fails, without close\n"
    "  --die-at PHASE:STEP  --die-how kill|stop; PHASE rendezvous and connect are inside open\n"
    "  --die-after-us N     so long after such a marker inside open\n";

struct Failure {
  parallax_status_t status;
  std::string sentence;
};

struct Wrong {};

void check(parallax_status_t status) {
  if (status != PARALLAX_OK) throw Failure{status, parallax_last_error()};
}

void wait(parallax_request_t* request) { check(parallax_wait(&request, 1, PARALLAX_WAIT_DEFAULT)); }

// Posted and not yet released: a job that failed leaves some.
std::set<parallax_request_t*> posted;

void take(parallax_status_t status, parallax_request_t* const& request) {
  check(status);
  posted.insert(request);
}

void release(parallax_request_t* request) {
  check(parallax_request_release(request));
  posted.erase(request);
}

class Trainer {
 public:
  Trainer(const Settings& settings, const Fate& fate, Oracle* oracle)
      : settings_(settings),
        fate_(fate),
        oracle_(*oracle),
        specs_(oracle->specs()),
        rank_(static_cast<uint32_t>(settings.number("rank"))),
        exact_(settings.number("deterministic") != 0 || settings.number("dyadic") != 0),
        pulled_(specs_.size()) {}

  void run(parallax_job_t* job) {
    job_ = job;
    fate_.enter("register", 0);
    register_variables();
    fate_.enter("commit", 0);
    check(parallax_commit(job_));
    const uint64_t steps = settings_.number("steps", 12);
    const bool pipeline = settings_.number("pipeline") != 0;
    uint64_t step = begin_step();
    while (step <= steps) {
      check_pull(step);
      contribute(step);
      parallax_request_t* end = end_step(step);
      if (pipeline) begin_step();
      finish_step(step, end);
      if (!pipeline) begin_step();
      ++step;
      const uint64_t pace_ms = settings_.number("pace-ms");
      if (pace_ms > 0) std::this_thread::sleep_for(std::chrono::milliseconds(pace_ms));
    }
    check_pull(step);
    evaluate(step);
    report("stats", PARALLAX_REPORT_STATS);
    report("plan", PARALLAX_REPORT_PLAN);
  }

 private:
  void register_variables() {
    for (uint32_t i = 0; i < specs_.size(); ++i) {
      const Spec& spec = specs_[i];
      parallax_variable_t variable = {};
      variable.size = sizeof variable;
      variable.name = spec.name;
      variable.rows = spec.rows;
      variable.row_elements = spec.width;
      variable.tag = spec.tag;
      variable.reduction = spec.reduction;
      variable.rule = spec.rule;
      variable.rows_max = spec.rows_max;
      if (spec.managed()) {
        variable.init = PARALLAX_INIT_UNIFORM;
        variable.init_low = training::kInitLow;
        variable.init_high = training::kInitHigh;
        variable.init_seed = oracle_.init_seed(i);
        variable.initial_accumulator_value = spec.accumulator;
      }
      uint32_t id = 0;
      check(parallax_register(job_, &variable, &id));
    }
  }

  parallax_slice_t slice_of(uint32_t variable, const std::vector<int64_t>& ids, float* values) {
    parallax_slice_t slice = {};
    slice.size = sizeof slice;
    slice.variable = variable;
    slice.form = specs_[variable].ids() ? PARALLAX_FORM_ROWS : PARALLAX_FORM_DENSE;
    slice.ids = ids.data();
    slice.row_count = ids.size();
    slice.values = values;
    return slice;
  }

  // Two pulls, as a framework's layers would: what has ids, then what is dense.
  uint64_t begin_step() {
    uint64_t step = 0;
    check(parallax_step_begin(job_, &step));
    fate_.enter("pull", step);
    for (const bool ids : {true, false}) {
      std::vector<parallax_slice_t> slices;
      for (uint32_t i = 0; i < specs_.size(); ++i) {
        const Spec& spec = specs_[i];
        if (!spec.managed() || spec.ids() != ids) continue;
        Pulled& pulled = pulled_[i];
        pulled.ids = training::make_slice(oracle_.config(), spec, i, rank_, step).pulls;
        pulled.values.assign((ids ? pulled.ids.size() : spec.rows) * spec.width, NAN);
        slices.push_back(slice_of(i, pulled.ids, pulled.values.data()));
      }
      parallax_request_t*& pull = pulls_[ids ? 0 : 1];
      take(parallax_pull(job_, step, slices.data(), slices.size(), &pull), pull);
    }
    return step;
  }

  void check_pull(uint64_t step) {
    for (parallax_request_t* pull : pulls_) {
      wait(pull);
      release(pull);
    }
    for (uint32_t i = 0; i < specs_.size(); ++i) {
      if (specs_[i].managed()) compare(step, i, pulled_[i].ids, pulled_[i].values);
    }
  }

  void compare(uint64_t step, uint32_t variable, const std::vector<int64_t>& ids,
               const std::vector<float>& got) {
    const uint64_t width = specs_[variable].width;
    for (uint64_t i = 0; i < got.size(); ++i) {
      const uint64_t row =
          specs_[variable].ids() ? static_cast<uint64_t>(ids[i / width]) : i / width;
      expect_value(step, variable, row * width + i % width, got[i],
                   oracle_.row(variable, row)[i % width]);
    }
  }

  void expect_value(uint64_t step, uint32_t variable, uint64_t at, float got, float wanted) {
    const bool equal = exact_ ? std::memcmp(&got, &wanted, sizeof got) == 0
                              : std::fabs(got - wanted) <= kTolerance * (1 + std::fabs(wanted));
    if (equal) return;
    say("wrong value: step %llu, variable '%s', element %llu: got %.9g, expected %.9g",
        static_cast<unsigned long long>(step), specs_[variable].name,
        static_cast<unsigned long long>(at), static_cast<double>(got), static_cast<double>(wanted));
    throw Wrong();
  }

  void contribute(uint64_t step) {
    norm_ = oracle_.begin(step);
    std::vector<training::Slice> mine;
    for (uint32_t i = 0; i < specs_.size(); ++i) {
      mine.push_back(training::make_slice(oracle_.config(), specs_[i], i, rank_, step));
    }
    fate_.enter("push", step);
    parallax_request_t* push = nullptr;
    post(&parallax_push, step, true, &mine, &push);
    fate_.enter("reduce", step);
    parallax_request_t* reduce = nullptr;
    const std::vector<uint32_t> reduced = post(&parallax_reduce, step, false, &mine, &reduce);
    wait(push);
    release(push);
    reduces_ = {reduce, reduced, std::move(mine)};
  }

  // One call for all variables of a kind that this rank contributes to; gives their numbers.
  template <typename Call>
  std::vector<uint32_t> post(Call call, uint64_t step, bool managed,
                             std::vector<training::Slice>* mine, parallax_request_t** request) {
    std::vector<uint32_t> variables;
    std::vector<parallax_slice_t> slices;
    for (uint32_t i = 0; i < specs_.size(); ++i) {
      if (specs_[i].managed() != managed || !(*mine)[i].contributed) continue;
      variables.push_back(i);
      slices.push_back(slice_of(i, (*mine)[i].ids, (*mine)[i].values.data()));
    }
    take(call(job_, step, slices.data(), slices.size(), request), *request);
    return variables;
  }

  parallax_request_t* end_step(uint64_t step) {
    fate_.enter("step_end", step);
    parallax_step_end_options_t options = {};
    options.size = sizeof options;
    options.learning_rate = training::learning_rate(step);
    options.clip_norm = training::clip_norm(step);
    options.found_inf = training::found_inf(oracle_.config(), rank_, step) ? 1 : 0;
    options.absent = training::is_absent(oracle_.config(), rank_, step) ? 1 : 0;
    parallax_request_t* end = nullptr;
    take(parallax_step_end(job_, step, &options, &end), end);
    return end;
  }

  void finish_step(uint64_t step, parallax_request_t* end) {
    fate_.enter("wait", step);
    wait(reduces_.request);
    check_reduces(step);
    release(reduces_.request);
    wait(end);
    parallax_step_info_t info = {};
    info.size = sizeof info;
    check(parallax_request_step(end, &info));
    release(end);
    const bool committed = !training::is_discarded(step);
    const float clip = training::clip_norm(step);
    const double scale = clip > 0 ? std::min(1.0, clip / (norm_ + 1e-6)) : 1;
    const double bound = exact_ ? 1e-12 : 1e-5;
    if ((info.committed != 0) != committed || info.contributors != oracle_.contributors(step) ||
        std::fabs(info.clip_scale - scale) > bound * scale) {
      say("wrong outcome of step %llu: committed %u, %u contributors, scale %.17g for %.17g",
          static_cast<unsigned long long>(step), info.committed, info.contributors, info.clip_scale,
          scale);
      throw Wrong();
    }
    // The norm is summed in another order here: the library's own scale keeps bits comparable.
    if (committed) oracle_.commit(step, info.clip_scale);
  }

  void check_reduces(uint64_t step) {
    for (size_t index = 0; index < reduces_.variables.size(); ++index) {
      const uint32_t variable = reduces_.variables[index];
      const training::Sum& sum = oracle_.sum(variable);
      if (!specs_[variable].ids()) {
        for (uint64_t i = 0; i < sum.values.size(); ++i) {
          expect_value(step, variable, i, reduces_.slices[variable].values[i], sum.values[i]);
        }
        continue;
      }
      check_rows(step, variable, index, sum);
    }
  }

  void check_rows(uint64_t step, uint32_t variable, size_t index, const training::Sum& sum) {
    const int64_t* ids = nullptr;
    const void* raw = nullptr;
    uint64_t count = 0;
    check(parallax_request_rows(reduces_.request, index, &ids, &raw, &count));
    const float* values = static_cast<const float*>(raw);
    const uint64_t width = specs_[variable].width;
    std::vector<uint8_t> seen(specs_[variable].rows);
    for (uint64_t i = 0; i < count; ++i) {
      const uint64_t row = static_cast<uint64_t>(ids[i]);
      seen[row] = 1;
      for (uint64_t k = 0; k < width; ++k) {
        const float wanted = sum.touched[row] != 0 ? sum.values[row * width + k] : 0.0F;
        expect_value(step, variable, row * width + k, values[i * width + k], wanted);
      }
    }
    for (uint64_t row = 0; row < seen.size(); ++row) {
      if (sum.touched[row] == 0 || seen[row] != 0) continue;
      say("wrong rows: step %llu, variable '%s': row %llu is missing",
          static_cast<unsigned long long>(step), specs_[variable].name,
          static_cast<unsigned long long>(row));
      throw Wrong();
    }
  }

  // Reads every row, piece by piece, in a step to which nobody contributes.
  void evaluate(uint64_t step) {
    fate_.enter("evaluate", step);
    uint64_t hash = 0xcbf29ce484222325;
    const auto digest = [&hash](const std::vector<float>& values) {
      const auto* bytes = reinterpret_cast<const unsigned char*>(values.data());
      for (size_t i = 0; i < values.size() * sizeof(float); ++i) {
        hash = (hash ^ bytes[i]) * 0x100000001b3;
      }
    };
    for (uint32_t i = 0; i < specs_.size(); ++i) {
      const Spec& spec = specs_[i];
      if (!spec.managed()) continue;
      const uint64_t rows_max = spec.ids() ? spec.rows_max : spec.rows;
      for (uint64_t first = 0; first < spec.rows; first += rows_max) {
        const uint64_t count = std::min(rows_max, spec.rows - first);
        std::vector<int64_t> ids;
        for (uint64_t row = 0; row < count; ++row) {
          ids.push_back(static_cast<int64_t>(first + row));
        }
        std::vector<float> values(count * spec.width, NAN);
        const parallax_slice_t slice = slice_of(i, ids, values.data());
        parallax_request_t* pull = nullptr;
        take(parallax_pull(job_, step, &slice, 1, &pull), pull);
        wait(pull);
        release(pull);
        compare(step, i, ids, values);
        digest(values);
      }
    }
    parallax_step_end_options_t options = {};
    options.size = sizeof options;
    options.absent = 1;
    parallax_request_t* end = nullptr;
    take(parallax_step_end(job_, step, &options, &end), end);
    wait(end);
    release(end);
    say("checksum %016llx", static_cast<unsigned long long>(hash));
  }

  void report(const char* name, uint32_t kind) {
    size_t bytes = 0;
    parallax_report(job_, kind, nullptr, &bytes);
    std::string text(bytes + 4096, '\0');  // counters may grow by a digit meanwhile
    bytes = text.size();
    check(parallax_report(job_, kind, text.data(), &bytes));
    say("%s %s", name, text.c_str());
  }

  struct Pulled {
    std::vector<int64_t> ids;
    std::vector<float> values;
  };
  struct Reduces {
    parallax_request_t* request = nullptr;
    std::vector<uint32_t> variables;
    std::vector<training::Slice> slices;  // the caller's buffers
  };

  const Settings& settings_;
  const Fate& fate_;
  Oracle& oracle_;
  const std::vector<Spec>& specs_;
  const uint32_t rank_;
  const bool exact_;
  parallax_job_t* job_ = nullptr;
  parallax_request_t* pulls_[2] = {};
  std::vector<Pulled> pulled_;
  Reduces reduces_;
  double norm_ = 0;
};

training::Config config_of(const Settings& settings) {
  training::Config config;
  config.seed = settings.number("seed", 1);
  config.scale = settings.number("scale", 1);
  config.dyadic = settings.number("dyadic") != 0;
  config.host_of = program::numbers_of(settings.text("hosts", "0"));
  return config;
}

parallax_status_t open_job(const Settings& settings, const training::Config& config,
                           parallax_job_t** job) {
  const std::map<std::string, uint32_t> plans = {{"auto", PARALLAX_PLAN_AUTO},
                                                 {"hybrid", PARALLAX_PLAN_HYBRID},
                                                 {"ps", PARALLAX_PLAN_PS},
                                                 {"ar", PARALLAX_PLAN_AR}};
  const uint32_t rank = static_cast<uint32_t>(settings.number("rank"));
  const std::string host = settings.text("host", "host" + std::to_string(config.host_of.at(rank)));
  const std::string rendezvous = settings.text("rendezvous");
  const std::string transport = settings.text("transport");
  const std::string net_device = settings.text("net-device");
  parallax_options_t options = {};
  options.size = sizeof options;
  options.rank = rank;
  options.world = config.world();
  options.rendezvous = rendezvous.empty() ? nullptr : rendezvous.c_str();
  options.host = host.c_str();
  options.transport = transport.empty() ? nullptr : transport.c_str();
  options.net_device = net_device.empty() ? nullptr : net_device.c_str();
  options.lease_ms = static_cast<uint32_t>(settings.number("lease-ms"));
  options.timeout_ms = static_cast<uint32_t>(settings.number("timeout-ms"));
  options.plan_mode = plans.at(settings.text("plan", "auto"));
  options.plan_after_steps = static_cast<uint32_t>(settings.number("plan-after"));
  options.deterministic = static_cast<uint32_t>(settings.number("deterministic"));
  options.compute_threads = static_cast<uint32_t>(settings.number("compute-threads"));
  return parallax_open(&options, job);
}

int fail(const Failure& failure) {
  say("clock %lld", clock_ms());
  say("status %s: %s", parallax_status_string(failure.status), failure.sentence.c_str());
  return kExitStatusBase - failure.status;
}

int train(const Settings& settings) {
  const Fate fate(settings);
  Oracle oracle(config_of(settings));
  parallax_job_t* job = nullptr;
  int exit_status = 0;
  uint64_t step = 0;
  try {
    fate.watch_rendezvous(settings.text("rendezvous"), settings.number("rank"));
    fate.enter("rendezvous", 0);
    check(open_job(settings, oracle.config(), &job));
    Trainer(settings, fate, &oracle).run(job);
    step = settings.number("steps", 12);
    fate.enter("close", step);
  } catch (const Failure& failure) {
    exit_status = fail(failure);
    if (settings.number("exit-at-once") != 0) _exit(exit_status);
  } catch (const Wrong&) {
    exit_status = kExitWrong;
  }
  if (job == nullptr) return exit_status;
  const long long start_ms = clock_ms();
  const parallax_status_t closed = parallax_close(job);
  if (exit_status == 0 && closed != PARALLAX_OK) {
    exit_status = fail({closed, parallax_last_error()});
  }
  for (parallax_request_t* request : posted) parallax_request_release(request);
  say("closed %s in %lld ms", parallax_status_string(closed), clock_ms() - start_ms);
  return exit_status;
}

}  // namespace

int main(int count, char** arguments) { return program::run_rank(count, arguments, kUsage, train); }
