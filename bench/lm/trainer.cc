// SPDX-License-Identifier: Apache-2.0
// Steps, marks and the outcome. See trainer.h.
#include "trainer.h"

#include <sys/resource.h>

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <fstream>
#include <sstream>
#include <stdexcept>

#include "batch.h"
#include "evaluate.h"

namespace lm {
namespace {

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

}  // namespace

void TrainerOptions::add_flags(Flags* flags) {
  flags->add("rank", &rank, "this rank");
  flags->add("net-device", &net_device, "network interface between hosts, such as lo");
  flags->add("mark-step", &mark_step, "read the counters after this step and at the end");
}

void Trainer::make_batch(uint64_t step, Batch* batch) const {
  lm::make_batch(corpus_, experiment_.shape, {experiment_.seed, options_.rank, step}, batch);
}

// The counters of the exchange and of the kernel, while every rank stands still.
void Trainer::mark(uint64_t step) {
  exchange_->barrier();
  trace_.marks.push_back("{\"step\": " + std::to_string(step) +
                         ", \"stats\": " + exchange_->counters() +
                         ", \"kernel\": " + kernel_counters(options_.net_device) + "}");
  exchange_->barrier();
}

void Trainer::note(const StepOutcome& outcome, uint64_t step) {
  trace_.norms.push_back(outcome.gradient_norm);
  if (outcome.plan_changed) trace_.plan_changes.push_back(static_cast<double>(step));
}

void Trainer::train() {
  uint64_t step = exchange_->begin();
  make_batch(step, &batch_);
  exchange_->pull(batch_, &values_);
  while (step <= experiment_.steps) {
    const double start = now_seconds();
    const double waited = exchange_->wait_seconds();
    const double busy = now_seconds(CLOCK_THREAD_CPUTIME_ID);
    trace_.losses.push_back(model_.gradients(batch_, values_, &gradients_));
    trace_.compute_seconds.push_back(now_seconds(CLOCK_THREAD_CPUTIME_ID) - busy);

    exchange_->give(batch_, &gradients_,
                    {.learning_rate = experiment_.learning_rate_at(step),
                     .clip_norm = static_cast<float>(experiment_.clip_norm)});
    const uint64_t next = exchange_->begin();
    make_batch(next, &next_batch_);
    const StepOutcome outcome = exchange_->settle(&next_batch_, &values_);

    trace_.step_seconds.push_back(now_seconds() - start);
    trace_.wait_seconds.push_back(exchange_->wait_seconds() - waited);
    note(outcome, step);
    if (options_.rank == 0) {
      std::printf("progress %llu %.6f\n", static_cast<unsigned long long>(step),
                  trace_.losses.back());
      std::fflush(stdout);
    }
    if (step == options_.mark_step || step == experiment_.steps) mark(step);
    std::swap(batch_, next_batch_);
    step = next;
  }
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
  Tensors pulled;
  const uint64_t step = exchange_->begin();
  make_batch(step, &batch_);
  exchange_->pull(batch_, &pulled);
  for (const std::vector<float>& tensor : pulled) {
    if (std::any_of(tensor.begin(), tensor.end(), [](float x) { return x != 0; })) {
      throw std::runtime_error("a variable that starts at zero was pulled as something else");
    }
  }
  fill_from_initial(batch_, &values_);
  trace_.losses.push_back(model_.gradients(batch_, values_, &gradients_));
  exchange_->give(batch_, &gradients_, {.learning_rate = 1});
  note(exchange_->settle(nullptr, nullptr), step);
  exchange_->begin();
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
  return "{\"rank\": " + std::to_string(options_.rank) +
         ", \"memory_peak_kib\": " + std::to_string(usage.ru_maxrss) +
         ",\n\"losses\": " + to_json(trace_.losses) + ",\n\"norms\": " + to_json(trace_.norms) +
         ",\n\"step_seconds\": " + to_json(trace_.step_seconds) +
         ",\n\"wait_seconds\": " + to_json(trace_.wait_seconds) +
         ",\n\"compute_seconds\": " + to_json(trace_.compute_seconds) +
         ",\n\"plan_changes\": " + to_json(trace_.plan_changes) + ",\n\"marks\": [" + marks + "]" +
         exchange_->report() + ",\n\"checksums\": {" + checksums + "},\n\"evaluation\": {" +
         evaluation + "}}\n";
}

void Trainer::run() {
  if (experiment_.gradient_check) {
    check_gradient();
  } else {
    train();
  }
  const Tensors values = exchange_->read_all();
  const std::string text = outcome(values);
  if (experiment_.gradient_check && options_.rank == 0) write_values(experiment_.values, values);
  exchange_->close();
  write_file(experiment_.out, text);
}

}  // namespace lm
