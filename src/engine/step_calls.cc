// SPDX-License-Identifier: Apache-2.0
// Admitting the calls of a step, and completing step_end. See step_calls.h.
#include "engine/step_calls.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <iomanip>
#include <limits>
#include <sstream>
#include <utility>

#include "engine/rates_checks.h"

namespace parallax {

void StepCalls::reserve() {
  contribution_calls_.reserve();
  pull_calls_.reserve();
  pulled_.reserve(PARALLAX_SLICES_MAX);
}

Status StepCalls::refuse_step(uint64_t step, const char* call) const {
  PARALLAX_RETURN_IF_ERROR(parts_.phase.check_running(call));
  const std::string name = std::string(call) + ": step " + std::to_string(step);
  if (!window().has_begun(step)) {
    return bad_state(name + " has not begun; the last one begun is " +
                     std::to_string(window().begun()));
  }
  return bad_state(name + " has ended; begin the next one");
}

// ---- calls

Status StepCalls::begin(uint64_t* step) {
  PARALLAX_RETURN_IF_ERROR(parts_.phase.check_running("step_begin"));
  if (window().in_calls()) {
    return bad_state("step_begin: step " + std::to_string(window().begun()) +
                     " has not ended; call step_end first");
  }
  if (parts_.row_calls.pending() || device_calls_.evaluates()) {
    return bad_state(
        "step_begin: a read or write of rows is pending; wait for it, since it is as of the last "
        "commit");
  }
  if (!window().has_room()) {
    const uint64_t oldest = window().finished() + 1;
    return bad_state("step_begin: steps " + std::to_string(oldest) +
                     (window().staleness() == 0 ? " and " : " to ") +
                     std::to_string(window().begun()) + " are still ending; wait for the " +
                     (window().staleness() == 0
                          ? "older step_end request first"
                          : "step_end request of step " + std::to_string(oldest) +
                                " first: staleness lets no more be open"));
  }
  *step = parts_.pipeline.begin();
  return {};
}

Status StepCalls::pull(uint64_t step, std::span<const parallax_slice_t> slices, Request** request) {
  const bool evaluation = step == 0;
  PARALLAX_RETURN_IF_ERROR(evaluation ? parts_.phase.check_running("pull")
                                      : check_step(step, "pull"));
  const DeviceCalls::Call call = {evaluation ? RequestKind::kEvaluate : RequestKind::kPull,
                                  evaluation ? window().finished() : step, slices};
  bool by_device = false;
  PARALLAX_RETURN_IF_ERROR(look_at(call, &by_device));
  if (by_device) {
    PARALLAX_RETURN_IF_ERROR(check_before(call));
    PARALLAX_RETURN_IF_ERROR(device_calls_.post(call, request));
  } else {
    PARALLAX_RETURN_IF_ERROR(post_pull(call, request, nullptr));
  }
  if (!evaluation) {
    called(step, StepPhase::kPull);
  }
  return {};
}

// Whether it goes by the devices' calls. With staleness none does: what these keep is by step, of
// two steps.
Status StepCalls::look_at(const DeviceCalls::Call& call, bool* by_device) const {
  PARALLAX_RETURN_IF_ERROR(device_calls_.look_at(call, by_device));
  if (!*by_device || window().staleness() == 0) return {};
  return unsupported(std::string(call.kind == RequestKind::kPush     ? "push"
                                 : call.kind == RequestKind::kReduce ? "reduce"
                                                                     : "pull") +
                     ": memory is PARALLAX_MEMORY_CUDA, and the job has a staleness, with which "
                     "slices lie in host memory; copy them there, or open the job without it")
      .about_field("memory");
}

// What can be told of slices whose ids and numbers are on a device yet.
Status StepCalls::check_before(const DeviceCalls::Call& call) const {
  switch (call.kind) {
    case RequestKind::kPush:
    case RequestKind::kReduce:
      return contribution_calls_.check_before(call.kind, call.step, call.slices);
    case RequestKind::kEvaluate:
      PARALLAX_RETURN_IF_ERROR(parts_.row_calls.check_between_steps("pull, step 0"));
      return checks_.check_pull(call.slices);
    default:
      return checks_.check_pull(call.slices);
  }
}

// `there`: its request, where it has one already. A pull of no step is by this rank alone.
Status StepCalls::post_pull(const DeviceCalls::Call& call, Request** request, Request* there) {
  PARALLAX_RETURN_IF_ERROR(checks_.check_pull(call.slices));
  pulled_.clear();
  for (size_t i = 0; i < call.slices.size(); ++i) {
    PullSlice& added = pulled_.emplace_back(checks_.slice_of(call.slices[i]));
    added.on_device = i < call.from_tables.size() && call.from_tables[i] != 0;
    if (i < call.leaving.size()) added.leaving = call.leaving[i];
  }
  if (call.kind == RequestKind::kEvaluate) {
    return parts_.row_calls.evaluate(pulled_, request, there);
  }
  TakenRequest taken(parts_.requests, there);
  PARALLAX_RETURN_IF_ERROR(taken.take(RequestKind::kPull, call.step));
  taken->slices.assign(pulled_.begin(), pulled_.end());
  pull_calls_.post(&*taken);
  *request = taken.keep();
  return {};
}

Status StepCalls::take(const DeviceCalls::Call& call, Request* request) {
  Request* same = request;
  if (call.kind == RequestKind::kPush || call.kind == RequestKind::kReduce) {
    return contribution_calls_.post(call.kind, call.step, call.slices, &same,
                                    {.request = request,
                                     .arriving = call.arriving,
                                     .leaving = call.leaving,
                                     .result_dtypes = call.result_dtypes});
  }
  return post_pull(call, &same, request);
}

Status StepCalls::push(uint64_t step, std::span<const parallax_slice_t> slices, Request** request) {
  return contribute(RequestKind::kPush, step, slices, request);
}

Status StepCalls::reduce(uint64_t step, std::span<const parallax_slice_t> slices,
                         Request** request) {
  return contribute(RequestKind::kReduce, step, slices, request);
}

Status StepCalls::contribute(RequestKind kind, uint64_t step,
                             std::span<const parallax_slice_t> slices, Request** request) {
  PARALLAX_RETURN_IF_ERROR(check_step(step, kind == RequestKind::kPush ? "push" : "reduce"));
  const DeviceCalls::Call call = {kind, step, slices};
  bool by_device = false;
  PARALLAX_RETURN_IF_ERROR(look_at(call, &by_device));
  if (by_device) {
    PARALLAX_RETURN_IF_ERROR(check_before(call));
    PARALLAX_RETURN_IF_ERROR(device_calls_.post(call, request));
  } else {
    PARALLAX_RETURN_IF_ERROR(contribution_calls_.post(kind, step, slices, request));
  }
  called(step, StepPhase::kPush);
  return {};
}

// A rank without a batch has given nothing.
Status StepCalls::check_absent(uint64_t step) const {
  const StepState& state = parts_.pipeline.state(step);
  const std::vector<Contributed>& contributed = state.contributed;
  const auto given = std::find_if(contributed.begin(), contributed.end(),
                                  [](Contributed each) { return each != Contributed::kNothing; });
  const Variable* variable = nullptr;
  uint32_t waiting = 0;
  if (given != contributed.end()) {
    const auto number = static_cast<uint32_t>(given - contributed.begin());
    variable = &parts_.registry[parts_.registry.id_given(number, [&](uint32_t member) {
      return state.contributed_members[member] != Contributed::kNothing;
    })];
  } else if (device_calls_.contributes(step, &waiting)) {
    variable = &parts_.registry[waiting];
  }
  if (variable == nullptr) return {};
  return invalid("step_end: absent is 1, but variable '" + variable->name + "' was given in step " +
                 std::to_string(step) + "; a rank without a batch gives none")
      .about_field("absent");
}

Status StepCalls::check_wait(const Request& reduce) const {
  if (reduce.done() || !parts_.phase.takes_calls() || !window().takes_calls(reduce.step)) return {};
  const auto is_called = [this](uint32_t id) {
    bool called = false;
    device_calls_.each_waiting_reduce([&](const Request&, const parallax_slice_t& slice) {
      called = called || slice.variable == id;
    });
    return called;
  };
  Status status;
  // With more to come a slice waits for nobody but this rank's own sum.
  const auto check = [&](uint32_t number, uint32_t member, bool more) {
    if (!status.ok() || member == Registry::kNotFused || more) return;
    status = contribution_calls_.fused().check_wait(number, member, reduce.step, is_called);
  };
  for (const PullSlice& slice : reduce.slices) check(slice.variable, slice.member, slice.more);
  device_calls_.each_waiting_reduce([&](const Request& of, const parallax_slice_t& slice) {
    if (&of != &reduce) return;
    check(checks_.number_of(slice), checks_.member_of(slice), slice.more != 0);
  });
  return status;
}

bool StepCalls::sends_little(const Request& reduce) const {
  constexpr uint64_t kLittleBytes = 16 * 1024;
  if (parts_.group.columns().host_count() == 1 || reduce.slices.empty()) return false;
  uint64_t bytes = 0;
  return std::all_of(reduce.slices.begin(), reduce.slices.end(), [&](const PullSlice& slice) {
    const Variable& variable = *parts_.group.runtime(slice.variable).variable;
    if (variable.ids_declared()) return false;
    bytes += variable.elements() * bytes_of_dtype(slice.dtype);
    return bytes <= kLittleBytes;
  });
}

Status StepCalls::end(uint64_t step, const parallax_step_end_options_t& options,
                      Request** request) {
  PARALLAX_RETURN_IF_ERROR(check_step(step, "step_end"));
  end_.learning_rate = options.learning_rate;
  end_.clip_norm = options.clip_norm;
  end_.found_inf = options.found_inf != 0;
  end_.absent = options.absent != 0;
  end_.rates.count = 0;
  PARALLAX_RETURN_IF_ERROR(check_rates(options, parts_.registry, &end_.rates));
  if (options.absent != 0) PARALLAX_RETURN_IF_ERROR(check_absent(step));
  TakenRequest taken(parts_.requests);
  PARALLAX_RETURN_IF_ERROR(taken.take(RequestKind::kStepEnd, step));
  parts_.pipeline.end(step, end_);
  *request = ends_[window().calls_slot(step)] = taken.keep();
  called(step, StepPhase::kStepEnd);
  return {};
}

// ---- the pass

void StepCalls::advance_contributions() {
  if (!contribution_calls_.empty()) contribution_calls_.advance(parts_.clock.now_ns());
}

Status StepCalls::advance() {
  if (called_.step != 0) {
    // One that is further ahead keeps nobody waiting.
    if (window().admits(called_.step)) {
      parts_.pipeline.own_time().called(called_.step, called_.phase, parts_.clock.now_ns());
    }
    called_.step = 0;
  }
  if (device_calls_.busy()) PARALLAX_RETURN_IF_ERROR(device_calls_.advance());
  parts_.group.pulls().advance();
  if (!pull_calls_.queue().empty()) pull_calls_.advance();
  advance_contributions();
  if (!window().is_ending(window().next_to_vote())) return {};
  for (uint64_t step = window().next_to_vote(); window().is_ending(step); ++step) {
    if (!parts_.pipeline.may_say_ended(step)) continue;
    contribution_calls_.end(step);
    parts_.pipeline.say_ended(step);
    // Pulls of the next step may be waiting for that.
    if (!pull_calls_.queue().empty()) pull_calls_.advance();
  }
  StepPipeline::Finished finished;
  PARALLAX_RETURN_IF_ERROR(parts_.pipeline.advance(&finished));
  if (finished.step == 0) return {};
  finish_end(finished);
  // Rows that stayed where they are until it was applied.
  advance_contributions();
  return {};
}

namespace {

std::string said(const HostMap& hosts, const StepScalars& scalars) {
  std::ostringstream text;  // all digits that tell floats apart
  text << std::setprecision(std::numeric_limits<float>::max_digits10)
       << rank_name(hosts, scalars.rank) << " has learning_rate "
       << std::bit_cast<float>(scalars.learning_rate_bits) << " and clip_norm "
       << std::bit_cast<float>(scalars.clip_norm_bits);
  if (scalars.rates_count != 0) text << " and rates_count " << scalars.rates_count;
  return text.str();
}

std::string said(const std::string& rank, const RatesDifference& difference, uint32_t bits) {
  std::ostringstream text;
  text << std::setprecision(std::numeric_limits<float>::max_digits10) << rank << " has rates["
       << difference.group << "]." << kRatesFields[difference.field] << ' ';
  if (is_count(difference.field)) {
    text << bits;
  } else {
    text << std::bit_cast<float>(bits);
  }
  return text.str();
}

const char* differing_field(const Decision& decision) {
  if (decision.difference.any != 0) return kRatesFields[decision.difference.field];
  const StepScalars &first = decision.first, &second = decision.second;
  if (first.learning_rate_bits != second.learning_rate_bits) return "learning_rate";
  return first.clip_norm_bits != second.clip_norm_bits ? "clip_norm" : "rates_count";
}

// Which two ranks said what.
std::string said(const HostMap& hosts, const Decision& decision) {
  const RatesDifference& difference = decision.difference;
  if (difference.any == 0) return said(hosts, decision.first) + ", " + said(hosts, decision.second);
  return said(rank_name(hosts, difference.first_rank), difference, difference.first_bits) + ", " +
         said(rank_name(hosts, difference.second_rank), difference, difference.second_bits);
}

}  // namespace

void StepCalls::finish_end(const StepPipeline::Finished& finished) {
  const Decision& decision = parts_.pipeline.state(finished.step).decision;
  Request* end = std::exchange(ends_[window().calls_slot(finished.step)], nullptr);
  end->info = {.size = sizeof end->info,
               .step = finished.step,
               .committed = decision.outcome == Outcome::kCommit ? 1u : 0u,
               .contributors = decision.contributors,
               .gradient_norm = decision.gradient_norm,
               .clip_scale = decision.clip_scale,
               .plan_changed = finished.plan_changed ? 1u : 0u,
               .reserved = 0};
  if (decision.outcome != Outcome::kMismatch) return parts_.requests.finish(end, {});
  const RatesDifference& difference = decision.difference;
  const bool by_group = difference.any != 0;
  ErrorFacts about;
  about.rank = by_group ? difference.first_rank : decision.first.rank;
  note_peer(parts_.group.columns().map(), by_group ? difference.second_rank : decision.second.rank,
            about);
  about.step = finished.step;
  about.field = differing_field(decision);
  parts_.requests.finish(
      end, Status(PARALLAX_MISMATCH,
                  "step_end: step " + std::to_string(finished.step) +
                      " was discarded: " + said(parts_.group.columns().map(), decision))
               .about(std::move(about)));
}

// ---- the end of the job

void StepCalls::finish_unborrowed(const Status& status) {
  device_calls_.finish_waiting(status);
  pull_calls_.queue().finish_all(status);
  for (Request*& end : ends_) {
    if (end != nullptr) parts_.requests.finish(std::exchange(end, nullptr), status);
  }
  contribution_calls_.finish_unborrowed(status);
}

void StepCalls::finish_all(const Status& status) {
  finish_unborrowed(status);
  contribution_calls_.finish_all(status);
  device_calls_.finish_all(status);
}

}  // namespace parallax
