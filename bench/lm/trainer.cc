// SPDX-License-Identifier: Apache-2.0
// parallax_lm: one rank of the training example. It calls the C ABI as a framework's optimizer
// would: pull the rows of the batch, compute, push all gradients, end the step; the next step's
// pull is posted at once, and one wait covers all three. bench/run starts one process per rank.
#include <sys/resource.h>

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <exception>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "batch.h"
#include "corpus.h"
#include "evaluate.h"
#include "experiment.h"
#include "flags.h"
#include "model.h"
#include "rank.h"

namespace lm {
namespace {

struct TrainerOptions {
  uint32_t rank = 0;
  std::string host;
  std::string rendezvous;
  std::string net_device;
  std::string transport;
  std::string plan = "auto";
  std::string tags = "declared";
  std::string memory = "host";
  bool deterministic = false;
  uint32_t mark_step = 0;  // counters are read after it and at the end
  uint32_t plan_after_steps = 0;
  uint32_t timeout_ms = 60'000;
};

uint32_t plan_mode(const std::string& name) {
  if (name == "auto") return PARALLAX_PLAN_AUTO;
  if (name == "hybrid") return PARALLAX_PLAN_HYBRID;
  if (name == "ps") return PARALLAX_PLAN_PS;
  if (name == "ar") return PARALLAX_PLAN_AR;
  throw std::runtime_error("--plan must be auto, hybrid, ps or ar");
}

double now_seconds(clockid_t clock = CLOCK_MONOTONIC) {
  timespec time = {};
  clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

// The kernel's counters of one interface, in this process' network namespace.
std::string kernel_counters(const std::string& device) {
  std::ifstream file("/proc/self/net/dev");
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    const size_t start = line.find_first_not_of(' ');
    if (line.substr(start, colon - start) != device) continue;
    std::istringstream numbers(line.substr(colon + 1));
    uint64_t field[10] = {};
    for (uint64_t& value : field) numbers >> value;
    return "{\"received_bytes\": " + std::to_string(field[0]) +
           ", \"received_packets\": " + std::to_string(field[1]) +
           ", \"sent_bytes\": " + std::to_string(field[8]) +
           ", \"sent_packets\": " + std::to_string(field[9]) + "}";
  }
  return "null";
}

struct Trace {
  std::vector<double> losses, norms, step_seconds, wait_seconds, compute_seconds;
  std::vector<double> plan_changes;  // steps
  std::vector<std::string> marks;
};

class Trainer {
 public:
  Trainer(const Experiment& experiment, const TrainerOptions& options, const Corpus& corpus)
      : experiment_(experiment),
        options_(options),
        corpus_(corpus),
        specs_(experiment.specs()),
        rank_(job_options(), specs_, variable_options()),
        model_(experiment.shape) {
    if (options.memory == "cuda") rank_.use_device();
  }

  void run();

 private:
  parallax_options_t job_options() const;
  VariableOptions variable_options() const;
  void train();
  void check_gradient();
  void fill_from_initial(const Batch& batch, Tensors* values) const;
  void make_batch(uint64_t step, Batch* batch) const;
  void mark(uint64_t step);
  void finish_step(const Request& end, uint64_t step);
  std::string outcome(const Tensors& values);

  const Experiment& experiment_;
  const TrainerOptions& options_;
  const Corpus& corpus_;
  const VariableSpecs specs_;
  Rank rank_;
  Model model_;
  Trace trace_;
  uint64_t read_step_ = 0;  // the step begun but not trained
};

parallax_options_t Trainer::job_options() const {
  const auto optional = [](const std::string& text) {
    return text.empty() ? nullptr : text.c_str();
  };
  parallax_options_t options = {};
  options.size = sizeof options;
  options.rank = options_.rank;
  options.world = experiment_.world;
  options.rendezvous = experiment_.world > 1 ? optional(options_.rendezvous) : nullptr;
  options.host = optional(options_.host);
  options.transport = optional(options_.transport);
  options.net_device = optional(options_.net_device);
  options.timeout_ms = options_.timeout_ms;
  options.plan_mode = plan_mode(options_.plan);
  options.plan_after_steps = options_.plan_after_steps;
  options.deterministic = options_.deterministic ? 1 : 0;
  return options;
}

VariableOptions Trainer::variable_options() const {
  VariableOptions options;
  options.rule = experiment_.rule == Rule::kSgd ? PARALLAX_RULE_SGD : PARALLAX_RULE_ADAGRAD;
  options.reduction = experiment_.reduction == Reduction::kSum         ? PARALLAX_SUM
                      : experiment_.reduction == Reduction::kMeanWorld ? PARALLAX_MEAN_WORLD
                                                                       : PARALLAX_MEAN_CONTRIBUTORS;
  options.initial_accumulator = static_cast<float>(experiment_.initial_accumulator);
  options.declare_tags = options_.tags == "declared";
  options.start_at_zero = experiment_.gradient_check;
  return options;
}

void Trainer::make_batch(uint64_t step, Batch* batch) const {
  lm::make_batch(corpus_, experiment_.shape, {experiment_.seed, options_.rank, step}, batch);
}

// The counters of the library and of the kernel, while every rank stands still.
void Trainer::mark(uint64_t step) {
  rank_.barrier();
  trace_.marks.push_back("{\"step\": " + std::to_string(step) +
                         ", \"stats\": " + rank_.report(PARALLAX_REPORT_STATS) +
                         ", \"kernel\": " + kernel_counters(options_.net_device) + "}");
  rank_.barrier();
}

void Trainer::finish_step(const Request& end, uint64_t step) {
  const parallax_step_info_t info = rank_.step_info(end);
  if (info.committed == 0) {
    throw std::runtime_error("step " + std::to_string(step) + " was discarded");
  }
  trace_.norms.push_back(info.gradient_norm);
  if (info.plan_changed != 0) trace_.plan_changes.push_back(static_cast<double>(step));
}

void Trainer::train() {
  Batch batch, next_batch;
  Tensors values, gradients;
  uint64_t step = rank_.step_begin();
  make_batch(step, &batch);
  Request pull = rank_.pull(step, batch, &values);
  rank_.wait({&pull}, "the first pull");
  while (step <= experiment_.steps) {
    const double start = now_seconds();
    const double waited = rank_.wait_seconds();
    const double busy = now_seconds(CLOCK_THREAD_CPUTIME_ID);
    trace_.losses.push_back(model_.gradients(batch, values, &gradients));
    trace_.compute_seconds.push_back(now_seconds(CLOCK_THREAD_CPUTIME_ID) - busy);

    const Request push = rank_.push(step, batch, &gradients);
    parallax_step_end_options_t end_options = {};
    end_options.size = sizeof end_options;
    end_options.learning_rate = experiment_.learning_rate_at(step);
    end_options.clip_norm = static_cast<float>(experiment_.clip_norm);
    const Request end = rank_.step_end(step, end_options);
    const uint64_t next = rank_.step_begin();
    make_batch(next, &next_batch);
    pull = rank_.pull(next, next_batch, &values);
    rank_.wait({&push, &end, &pull}, "step " + std::to_string(step));

    trace_.step_seconds.push_back(now_seconds() - start);
    trace_.wait_seconds.push_back(rank_.wait_seconds() - waited);
    finish_step(end, step);
    if (options_.rank == 0) {
      std::printf("progress %llu %.6f\n", static_cast<unsigned long long>(step),
                  trace_.losses.back());
      std::fflush(stdout);
    }
    if (step == options_.mark_step || step == experiment_.steps) mark(step);
    std::swap(batch, next_batch);
    step = next;
  }
  read_step_ = step;
}

void Trainer::fill_from_initial(const Batch& batch, Tensors* values) const {
  for (size_t v = 0; v < specs_.size(); ++v) {
    const VariableSpec& spec = specs_[v];
    const size_t rows = spec.sparse() ? batch.ids(v).size() : spec.rows;
    (*values)[v].resize(rows * spec.row_elements);
    for (size_t i = 0; i < rows; ++i) {
      const uint64_t row = spec.sparse() ? static_cast<uint64_t>(batch.ids(v)[i]) : i;
      for (uint64_t column = 0; column < spec.row_elements; ++column) {
        (*values)[v][i * spec.row_elements + column] = initial_value(spec, row, column);
      }
    }
  }
}

// Every variable starts at zero, so that one step of SGD with learning rate 1 over the sum leaves
// the negated gradient, with no rounding of its own.
void Trainer::check_gradient() {
  Batch batch;
  Tensors pulled, values, gradients;
  const uint64_t step = rank_.step_begin();
  make_batch(step, &batch);
  const Request pull = rank_.pull(step, batch, &pulled);
  rank_.wait({&pull}, "the pull");
  for (const std::vector<float>& tensor : pulled) {
    if (std::any_of(tensor.begin(), tensor.end(), [](float x) { return x != 0; })) {
      throw std::runtime_error("a variable that starts at zero was pulled as something else");
    }
  }
  fill_from_initial(batch, &values);
  trace_.losses.push_back(model_.gradients(batch, values, &gradients));
  const Request push = rank_.push(step, batch, &gradients);
  parallax_step_end_options_t end_options = {};
  end_options.size = sizeof end_options;
  end_options.learning_rate = 1;
  const Request end = rank_.step_end(step, end_options);
  rank_.wait({&push, &end}, "the step");
  finish_step(end, step);
  read_step_ = rank_.step_begin();
}

std::string Trainer::outcome(const Tensors& values) {
  std::string checksums, marks, evaluation;
  for (size_t v = 0; v < specs_.size(); ++v) {
    checksums += (v == 0 ? "" : ", ") + quoted(specs_[v].name) + ": " + quoted(checksum(values[v]));
  }
  for (const std::string& mark : trace_.marks) marks += (marks.empty() ? "" : ",\n") + mark;
  if (experiment_.evaluate_positions > 0 && !experiment_.gradient_check) {
    for (bool held_out : {true, false}) {
      const EvaluationPart part = {held_out, experiment_.evaluate_positions, options_.rank,
                                   experiment_.world};
      evaluation += std::string(held_out ? "\"held_out\": " : ", \"training\": ") +
                    to_json(evaluate(corpus_, experiment_.shape, part, values));
    }
  }
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  const parallax_job_info_t info = rank_.info();
  return "{\"rank\": " + std::to_string(info.rank) + ", \"host\": " + std::to_string(info.host) +
         ", \"local_rank\": " + std::to_string(info.local_rank) +
         ", \"memory_peak_kib\": " + std::to_string(usage.ru_maxrss) +
         ",\n\"losses\": " + to_json(trace_.losses) + ",\n\"norms\": " + to_json(trace_.norms) +
         ",\n\"step_seconds\": " + to_json(trace_.step_seconds) +
         ",\n\"wait_seconds\": " + to_json(trace_.wait_seconds) +
         ",\n\"compute_seconds\": " + to_json(trace_.compute_seconds) +
         ",\n\"plan_changes\": " + to_json(trace_.plan_changes) + ",\n\"marks\": [" + marks +
         "],\n\"plan\": " + rank_.report(PARALLAX_REPORT_PLAN) +
         ",\n\"stats\": " + rank_.report(PARALLAX_REPORT_STATS) + ",\n\"checksums\": {" +
         checksums + "},\n\"evaluation\": {" + evaluation + "}}\n";
}

void Trainer::run() {
  if (experiment_.gradient_check) {
    check_gradient();
  } else {
    train();
  }
  const Tensors values = rank_.read_all(read_step_);
  parallax_step_end_options_t end_options = {};
  end_options.size = sizeof end_options;
  end_options.absent = 1;  // nothing was pushed: this step only read
  const Request end = rank_.step_end(read_step_, end_options);
  rank_.wait({&end}, "the reading step");
  const std::string text = outcome(values);
  if (experiment_.gradient_check && options_.rank == 0) write_values(experiment_.values, values);
  rank_.close();
  write_file(experiment_.out, text);
}

int run(Experiment* experiment, const TrainerOptions& options) {
  if (experiment->out.empty()) throw std::runtime_error("--out is needed");
  if (options.tags != "declared" && options.tags != "auto") {
    throw std::runtime_error("--tags must be declared or auto");
  }
  if (options.memory != "host" && options.memory != "cuda") {
    throw std::runtime_error("--memory must be host or cuda");
  }
  const Corpus corpus(experiment->corpus);
  experiment->settle(corpus);
  Trainer(*experiment, options, corpus).run();
  return 0;
}

}  // namespace
}  // namespace lm

int main(int argc, char** argv) {
  lm::Experiment experiment;
  lm::TrainerOptions options;
  lm::Flags flags("Trains the language model as one rank of a job; bench/run starts them all.");
  experiment.add_flags(&flags);
  flags.add("rank", &options.rank, "this rank");
  flags.add("host", &options.host, "name of this rank's host; ranks of one host share memory");
  flags.add("rendezvous", &options.rendezvous, "where ranks meet: file:DIR");
  flags.add("net-device", &options.net_device, "network interface between hosts, such as lo");
  flags.add("transport", &options.transport, "between hosts; empty: the library's choice");
  flags.add("plan", &options.plan, "auto, hybrid, ps or ar");
  flags.add("plan-after-steps", &options.plan_after_steps, "steps measured before it settles");
  flags.add("tags", &options.tags, "declared: SPARSE and DENSE; auto: AUTO for every variable");
  flags.add("memory", &options.memory,
            "host; cuda: gradients and pulled rows lie on a CUDA device");
  flags.add("deterministic", &options.deterministic, "bit for bit the same whatever the plan");
  flags.add("mark-step", &options.mark_step, "read the counters after this step and at the end");
  flags.add("timeout-ms", &options.timeout_ms, "deadline of every blocking call");
  flags.parse(argc, argv);
  try {
    return lm::run(&experiment, options);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "parallax_lm: %s\n", error.what());
    return 1;
  }
}
