// SPDX-License-Identifier: Apache-2.0
// How a job is opened, and its steps. See job_exchange.h.
#include "job_exchange.h"

#include <stdexcept>

namespace lm {
namespace {

uint32_t plan_mode(const std::string& name) {
  if (name == "auto") return PARALLAX_PLAN_AUTO;
  if (name == "hybrid") return PARALLAX_PLAN_HYBRID;
  if (name == "ps") return PARALLAX_PLAN_PS;
  if (name == "ar") return PARALLAX_PLAN_AR;
  throw std::runtime_error("--plan must be auto, hybrid, ps or ar");
}

parallax_options_t job_options(const Experiment& experiment, const TrainerOptions& trainer,
                               const JobOptions& given) {
  const auto optional = [](const std::string& text) {
    return text.empty() ? nullptr : text.c_str();
  };
  parallax_options_t options = {};
  options.size = sizeof options;
  options.rank = trainer.rank;
  options.world = experiment.world;
  options.rendezvous = experiment.world > 1 ? optional(given.rendezvous) : nullptr;
  options.host = optional(given.host);
  options.transport = optional(given.transport);
  options.net_device = optional(trainer.net_device);
  options.timeout_ms = given.timeout_ms;
  options.plan_mode = plan_mode(given.plan);
  options.plan_after_steps = given.plan_after_steps;
  options.deterministic = given.deterministic ? 1 : 0;
  return options;
}

VariableOptions variable_options(const Experiment& experiment, const JobOptions& given) {
  VariableOptions options;
  options.rule = experiment.rule == Rule::kSgd ? PARALLAX_RULE_SGD : PARALLAX_RULE_ADAGRAD;
  options.reduction = experiment.reduction == Reduction::kSum         ? PARALLAX_SUM
                      : experiment.reduction == Reduction::kMeanWorld ? PARALLAX_MEAN_WORLD
                                                                      : PARALLAX_MEAN_CONTRIBUTORS;
  options.initial_accumulator = static_cast<float>(experiment.initial_accumulator);
  options.declare_tags = given.tags == "declared";
  options.start_at_zero = experiment.gradient_check;
  return options;
}

}  // namespace

void JobOptions::add_flags(Flags* flags) {
  flags->add("host", &host, "name of this rank's host; ranks of one host share memory");
  flags->add("rendezvous", &rendezvous, "where ranks meet: file:DIR");
  flags->add("transport", &transport, "between hosts; empty: the library's choice");
  flags->add("plan", &plan, "auto, hybrid, ps or ar");
  flags->add("plan-after-steps", &plan_after_steps, "steps measured before it settles");
  flags->add("tags", &tags, "declared: SPARSE and DENSE; auto: AUTO for every variable");
  flags->add("memory", &memory, "host; cuda: gradients and pulled rows lie on a CUDA device");
  flags->add("deterministic", &deterministic, "bit for bit the same whatever the plan");
  flags->add("timeout-ms", &timeout_ms, "deadline of every blocking call");
}

void JobOptions::check() const {
  if (tags != "declared" && tags != "auto") {
    throw std::runtime_error("--tags must be declared or auto");
  }
  if (memory != "host" && memory != "cuda") {
    throw std::runtime_error("--memory must be host or cuda");
  }
}

JobExchange::JobExchange(const Experiment& experiment, const TrainerOptions& trainer,
                         const JobOptions& options)
    : rank_(job_options(experiment, trainer, options), experiment.specs(),
            variable_options(experiment, options)) {
  if (options.memory == "cuda") rank_.use_device();
}

void JobExchange::pull(const Batch& batch, Tensors* values) {
  const Request pull = rank_.pull(step_, batch, values);
  rank_.wait({&pull}, "the pull of step " + std::to_string(step_));
}

void JobExchange::give(const Batch& batch, Tensors* gradients, const StepRates& rates) {
  given_ = step_;
  push_ = rank_.push(given_, batch, gradients);
  parallax_step_end_options_t options = {};
  options.size = sizeof options;
  options.learning_rate = rates.learning_rate;
  options.clip_norm = rates.clip_norm;
  end_ = rank_.step_end(given_, options);
}

StepOutcome JobExchange::settle(const Batch* next, Tensors* values) {
  const std::string what = "step " + std::to_string(given_);
  if (next != nullptr) {
    const Request pull = rank_.pull(step_, *next, values);
    rank_.wait({&push_, &end_, &pull}, what);
  } else {
    rank_.wait({&push_, &end_}, what);
  }
  const parallax_step_info_t info = rank_.step_info(end_);
  push_ = {};
  end_ = {};
  if (info.committed == 0) throw std::runtime_error(what + " was discarded");
  return {.gradient_norm = info.gradient_norm, .plan_changed = info.plan_changed != 0};
}

Tensors JobExchange::read_all() {
  Tensors values = rank_.read_all(step_);
  parallax_step_end_options_t options = {};
  options.size = sizeof options;
  options.absent = 1;  // nothing was pushed: this step only read
  const Request end = rank_.step_end(step_, options);
  rank_.wait({&end}, "the reading step");
  return values;
}

std::string JobExchange::report() {
  const parallax_job_info_t info = rank_.info();
  return ",\n\"host\": " + std::to_string(info.host) +
         ", \"local_rank\": " + std::to_string(info.local_rank) +
         ",\n\"plan\": " + rank_.report(PARALLAX_REPORT_PLAN) +
         ",\n\"stats\": " + rank_.report(PARALLAX_REPORT_STATS);
}

}  // namespace lm
