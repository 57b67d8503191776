// SPDX-License-Identifier: Apache-2.0
// The caller's side of a rank: what it calls, how it waits, what it checks.
#include "sim/sim_rank.h"

#include <algorithm>
#include <bit>

#include <cstring>
#include <limits>
#include <span>

namespace parallax::simtest {
namespace {

constexpr int64_t kFlushNs = 50 * kNanosecondsPerMillisecond;  // last words after a failure
constexpr size_t kErrorsOfARankMax = 4;

std::string_view phase_of(Act act) {
  switch (act) {
    case Act::kCommit:
      return "commit";
    case Act::kPull:
      return "pull";
    case Act::kPush:
    case Act::kReduce:
      return "push";
    case Act::kEnd:
      return "step_end";
    case Act::kBarrier:
    case Act::kBroadcast:
    case Act::kCollective:
      return "collective";
    case Act::kClose:
      return "close";
    default:
      return "";
  }
}

EngineOptions engine_options(const Scenario& scenario, const View& view, uint32_t rank) {
  EngineOptions options;
  options.rank = rank;
  options.view = view;
  options.lease_ns = scenario.lease_ns;
  options.plan_mode = scenario.plan_mode;
  options.plan_after_steps = scenario.plan_after_steps;
  options.deterministic = scenario.deterministic;
  options.row_ways.early_bytes_min = scenario.early ? 1 : kNeverEarly;
  options.staleness = scenario.staleness;
  if (!scenario.waits_in_step) options.fuse_tables = FuseTables::kAll;
  return options;
}

}  // namespace

SimRank::SimRank(SimWorld& world, const Scenario& scenario, const View& view, Oracle& oracle,
                 Pacing& pacing, uint32_t rank)
    : world_(world),
      scenario_(scenario),
      oracle_(oracle),
      pacing_(pacing),
      rank_(rank),
      compute_(world, rank, scenario.late_jobs),
      engine_(std::make_unique<Engine>(engine_options(scenario, view, rank), world.transport(rank),
                                       world.clock(), compute_)) {
  const Status started = engine_->start();
  if (!started.ok()) error("start: " + started.message());
  ids_.resize(scenario.variables.size());
  write_script();
}

void SimRank::error(const std::string& text) {
  if (errors_.size() < kErrorsOfARankMax)
    errors_.push_back("rank " + std::to_string(rank_) + ": " + text);
}

std::string SimRank::describe() const {
  std::string text = "rank " + std::to_string(rank_) + " at op " + std::to_string(next_) + "/" +
                     std::to_string(script_.size());
  if (!failure_.ok()) text += ", failed: " + failure_.message();
  if (next_ < script_.size()) {
    const char* acts[] = {"think",  "register",  "commit",   "begin",     "pull",       "push",
                          "reduce", "end",       "barrier",  "broadcast", "collective", "abort",
                          "cancel", "wait_kind", "wait_all", "close"};
    text += std::string(" (") + acts[static_cast<size_t>(script_[next_].act)] + " step " +
            std::to_string(script_[next_].step) + " kind " +
            std::to_string(static_cast<int>(script_[next_].what)) + ")";
  }
  for (const Call& call : calls_) {
    if (!call.request->done())
      text += "; waits: " + engine_->reports().missing(*call.request).message();
  }
  return text;
}

// ---- playing it

int64_t SimRank::next_deadline_ns() const {
  int64_t next_ns = std::min(engine_->next_deadline_ns(), compute_.next_ready_ns());
  next_ns = std::min(next_ns, leave_ns_);
  return std::min(next_ns, resume_ns_);
}

void SimRank::run(int64_t now_ns) {
  if (over_) return;
  engine_->run();
  posted_ = false;
  while (advance()) engine_->kick();
  if (posted_ && !engine_->flushed()) world_.poke(rank_);
  if (!over_ && leave_ns_ != kNever && (engine_->flushed() || now_ns >= leave_ns_)) leave();
}

void SimRank::leave() {
  over_ = true;
  for (const testkit::OwnRule& own : own_rules_) {
    if (own.wrong != 0) error("a block of rows that is not right was given to a caller's rule");
  }
  world_.leave(rank_);
}

// One move of the caller; false if it can only wait.
bool SimRank::advance() {
  if (over_) return false;
  const bool reaped = reap();
  if (!failure_.ok() && scenario_.exits_at_once) {
    if (!engine_->speaking()) leave();  // no call returns before
    return false;
  }
  if (!failure_.ok()) {
    return close_after_failure() || reaped;
  }
  if (next_ == script_.size()) {
    if (leave_ns_ == kNever) leave_ns_ = world_.now_ns() + kFlushNs;
    return reaped;
  }
  if (resume_ns_ != kNever && resume_ns_ > world_.now_ns()) return reaped;
  resume_ns_ = kNever;
  if (!play(script_[next_])) return reaped;
  ++next_;
  return true;
}

bool SimRank::pending(RequestKind kind, uint64_t step) const {
  return std::any_of(calls_.begin(), calls_.end(), [&](const Call& call) {
    return call.request->kind == kind && (step == 0 || call.step == step);
  });
}

// True if the op is done with.
bool SimRank::play(const Op& op) {
  const std::string_view phase = phase_of(op.act);
  if (!phase.empty()) world_.faults().set_phase(rank_, phase);
  switch (op.act) {
    case Act::kThink:
      resume_ns_ = world_.now_ns() + static_cast<int64_t>(op.number);
      return true;
    case Act::kRegister: {
      const Status registered = register_before(op.step);
      if (!registered.ok()) fail(registered, "register");
      return true;
    }
    case Act::kWaitAll:
      return calls_.empty();
    case Act::kWaitKind:
      return !pending(op.what, op.step);
    case Act::kAbort:
      engine_->job_calls().abort("told to by the scenario");
      return true;
    case Act::kCancel:
      for (const Call& call : calls_) {
        if (call.act == Act::kEnd && call.step == op.step) engine_->cancel(*call.request);
      }
      return true;
    case Act::kBegin: {
      uint64_t step = 0;
      const Status begun = engine_->step_calls().begin(&step);
      if (!begun.ok()) {
        fail(begun, "step_begin");
      } else if (step != op.step) {
        error("step_begin gave " + std::to_string(step));
      }
      return true;
    }
    default:
      break;
  }
  Call& call = calls_.emplace_back();
  call.act = op.act;
  call.step = op.step;
  posted_ = true;
  const Status posted = post(op, &call);
  if (!posted.ok()) {
    calls_.pop_back();
    fail(posted, "call in " + std::string(phase));
  }
  return true;
}

Status SimRank::post(const Op& op, Call* call) {
  switch (op.act) {
    case Act::kCommit:
      return engine_->job_calls().commit(&call->request);
    case Act::kPull:
      return post_pull(op, call);
    case Act::kPush:
    case Act::kReduce:
      return post_contribution(op, call);
    case Act::kEnd:
      return post_end(op, call);
    case Act::kBarrier:
      return engine_->collective_calls().barrier(&call->request);
    case Act::kBroadcast:
      return post_broadcast(op, call);
    case Act::kCollective:
      return post_collective(op, call);
    default:
      return engine_->job_calls().close(&call->request);
  }
}

Status SimRank::register_before(uint64_t step) {
  for (const uint32_t i : scenario_.registered_before(step, rank_)) {
    parallax_variable_t variable = scenario_.variables[i];
    testkit::OwnRule& own = own_rules_.emplace_back();
    if (scenario_.own_rule(i)) variable = own.in_place_of(variable);
    variable.name = scenario_.names[i].c_str();
    if (scenario_.mismatch_rank == rank_ && i == scenario_.mismatch_variable) {
      if (scenario_.mismatch_left_out) continue;
      variable.rows += 1;
    }
    // Of half of the jobs, and each rank's own.
    SeededRandom random = scenario_.random(12, rank_, i);
    if (scenario_.seed % 2 == 0) variable.priority = static_cast<int32_t>(random.below(3)) - 1;
    PARALLAX_RETURN_IF_ERROR(engine_->job_calls().register_variable(variable, &ids_[i]));
    if (ids_[i] != variables_.size()) return internal("ids do not count up");
    variables_.push_back(i);
  }
  return {};
}

Status SimRank::post_pull(const Op& op, Call* call) {
  const auto choices = scenario_.pulls(op.step, rank_)[op.number];
  for (const PullChoice& choice : choices) {
    const parallax_variable_t& shape = scenario_.variables[choice.variable];
    const bool ids = scenario_.ids(choice.variable);
    call->ids.push_back(choice.ids);
    const uint64_t rows = ids ? choice.ids.size() : shape.rows;
    call->values.emplace_back(rows * shape.row_elements, std::numeric_limits<float>::quiet_NaN());
    parallax_slice_t slice = {};
    slice.size = sizeof slice;
    slice.variable = ids_[choice.variable];
    slice.form = ids ? PARALLAX_FORM_ROWS : PARALLAX_FORM_DENSE;
    slice.row_count = choice.ids.size();
    call->slices.push_back(slice);
  }
  for (size_t i = 0; i < call->slices.size(); ++i) {
    call->slices[i].ids = call->ids[i].data();
    call->slices[i].values = call->values[i].data();
  }
  return engine_->step_calls().pull(op.step, call->slices, &call->request);
}

// What is given of a variable, in one slice or cut into several, whose sum in their order has its
// bits: pieces of its rows, or of dense numbers a half and a half, and zeros.
void SimRank::add_slices(const Op& op, uint32_t variable, Call* call) {
  const Contribution whole = scenario_.contribution(op.step, rank_, variable);
  const uint64_t width = scenario_.variables[variable].row_elements;
  const uint32_t pieces = scenario_.slices_of(op.step, rank_, variable);
  for (uint32_t piece = 0; piece < pieces; ++piece) {
    parallax_slice_t slice = {};
    slice.size = sizeof slice;
    slice.variable = ids_[variable];
    slice.form = scenario_.ids(variable) ? PARALLAX_FORM_ROWS : PARALLAX_FORM_DENSE;
    const size_t first = whole.ids.size() * piece / pieces;
    const size_t end = whole.ids.size() * (piece + 1) / pieces;
    std::vector<float> values = whole.values;
    if (scenario_.ids(variable)) {
      slice.row_count = end - first;
      values.assign(whole.values.begin() + static_cast<ptrdiff_t>(first * width),
                    whole.values.begin() + static_cast<ptrdiff_t>(end * width));
    } else if (pieces > 1) {
      for (float& value : values) value = piece < 2 ? value * 0.5f : 0.0f;
    }
    call->slices.push_back(slice);
    call->ids.emplace_back(whole.ids.begin() + static_cast<ptrdiff_t>(first),
                           whole.ids.begin() + static_cast<ptrdiff_t>(end));
    // Some aggregates go elsewhere, on one rank and not on another.
    const bool elsewhere = op.act == Act::kReduce && slice.form == PARALLAX_FORM_DENSE &&
                           (op.step + rank_ + variable + piece) % 2 == 0;
    call->into.emplace_back(elsewhere ? values.size() : 0, std::numeric_limits<float>::quiet_NaN());
    call->given.push_back(elsewhere ? values : std::vector<float>());
    call->values.push_back(std::move(values));
  }
}

Status SimRank::post_contribution(const Op& op, Call* call) {
  for (const uint32_t variable : op.list) add_slices(op, variable, call);
  for (size_t i = 0; i < call->slices.size(); ++i) {
    call->slices[i].ids = call->ids[i].data();
    call->slices[i].values = call->values[i].data();
    if (!call->into[i].empty()) call->slices[i].into = call->into[i].data();
  }
  return op.act == Act::kPush ? engine_->step_calls().push(op.step, call->slices, &call->request)
                              : engine_->step_calls().reduce(op.step, call->slices, &call->request);
}

Status SimRank::post_end(const Op& op, Call* call) {
  StepChoice choice = scenario_.step(op.step);
  parallax_step_end_options_t options = {};
  options.size = sizeof options;
  options.rates = choice.rates.data();
  options.rates_count = static_cast<uint32_t>(choice.rates.size());
  if (choice.rates.empty()) options.learning_rate = choice.learning_rate;
  if (choice.other_rate_rank == rank_) {
    (choice.rates.empty() ? options.learning_rate : choice.rates.back().learning_rate) += 1.0f;
  }
  options.clip_norm = choice.clip_norm;
  options.found_inf = choice.found_inf_rank == rank_ ? 1 : 0;
  options.absent = choice.absent[rank_] ? 1 : 0;
  const Status ended = engine_->step_calls().end(op.step, options, &call->request);
  if (ended.ok()) pacing_.ended[rank_] = op.step;
  return ended;
}

Status SimRank::post_broadcast(const Op& op, Call* call) {
  const uint64_t bytes = scenario_.broadcast_bytes(op.step);
  call->root = scenario_.broadcast_root(op.step);
  call->bytes.resize(bytes + 1);  // never empty, so that there is a pointer
  for (uint64_t i = 0; i < bytes && call->root == rank_; ++i) {
    call->bytes[i] = scenario_.broadcast_byte(op.step, i);
  }
  return engine_->collective_calls().broadcast(call->bytes.data(), bytes, call->root,
                                               &call->request);
}

Status SimRank::post_collective(const Op& op, Call* call) {
  const auto cases = scenario_.collectives(op.step);
  call->collective = std::make_shared<testkit::CollectiveBuffers>(cases[op.number], rank_);
  return engine_->collective_calls().collective(call->collective->call(), &call->request);
}

// ---- what comes back

bool SimRank::reap() {
  bool reaped = false;
  for (size_t i = 0; i < calls_.size();) {
    if (!calls_[i].request->done()) {
      ++i;
      continue;
    }
    Call call = std::move(calls_[i]);
    calls_.erase(calls_.begin() + static_cast<ptrdiff_t>(i));
    reaped = true;
    const Status status = call.request->status;
    if (status.ok()) {
      check(call);
    } else if (!expected(call, status)) {
      fail(status, "request in " + std::string(phase_of(call.act)));
    }
    spoil(call);
    const Status released = engine_->release(call.request);
    if (!released.ok()) error("release: " + released.message());
  }
  return reaped;
}

// A step that ranks disagree on is discarded with MISMATCH, and training goes on.
bool SimRank::expected(const Call& call, const Status& status) const {
  return call.act == Act::kEnd && status.code() == PARALLAX_MISMATCH &&
         scenario_.step(call.step).other_rate_rank != UINT32_MAX;
}

void SimRank::check(Call& call) {
  switch (call.act) {
    case Act::kPull:
      check_pull(call);
      break;
    case Act::kReduce:
      check_reduce(call);
      break;
    case Act::kEnd: {
      ++steps_ended_;
      if (oracle_.outcome(call.step).mismatch) {
        error("step " + std::to_string(call.step) + " should be a MISMATCH");
      }
      const std::string wrong = oracle_.check_outcome(call.step, call.request->info);
      if (!wrong.empty()) error(wrong);
      break;
    }
    case Act::kBroadcast:
      for (uint64_t i = 0; i + 1 < call.bytes.size(); ++i) {
        if (call.bytes[i] != scenario_.broadcast_byte(call.step, i)) {
          error("broadcast before step " + std::to_string(call.step) + " differs at byte " +
                std::to_string(i));
          break;
        }
      }
      break;
    case Act::kCollective: {
      const std::string wrong = call.collective->check();
      if (!wrong.empty()) error("step " + std::to_string(call.step) + ": " + wrong);
      ++collectives_checked_;
      break;
    }
    default:
      break;
  }
}

void SimRank::check_pull(const Call& call) {
  pacing_.pulled(call.step);
  const Oracle::Commits commits = {scenario_.oldest_seen(call.step), call.step - 1};
  for (size_t i = 0; i < call.slices.size(); ++i) {
    const uint32_t variable = variables_[call.slices[i].variable];
    const float* values = call.values[i].data();
    const std::string wrong = scenario_.ids(variable)
                                  ? oracle_.check_rows(commits, variable, call.ids[i], values)
                                  : oracle_.check_dense(commits, variable, values,
                                                        scenario_.plan_mode == PARALLAX_PLAN_PS);
    if (!wrong.empty()) error("pull of step " + std::to_string(call.step) + ": " + wrong);
    ++pulls_checked_;
  }
}

namespace {
std::vector<float> numbers_of(std::span<const std::byte> bytes) {
  std::vector<float> numbers(bytes.size() / sizeof(float));
  if (!bytes.empty()) std::memcpy(numbers.data(), bytes.data(), bytes.size());
  return numbers;
}
}  // namespace

void SimRank::check_reduce(const Call& call) {
  for (size_t i = 0; i < call.slices.size(); ++i) {
    const uint32_t variable = variables_[call.slices[i].variable];
    const RowsResult* rows = scenario_.ids(variable) ? &call.request->rows[i] : nullptr;
    const std::string wrong =
        rows == nullptr
            ? oracle_.check_reduced_dense(
                  call.step, variable,
                  call.into[i].empty() ? call.values[i].data() : call.into[i].data())
            : oracle_.check_reduced_rows(call.step, variable, rows->ids, numbers_of(rows->values));
    if (!wrong.empty()) error(wrong);
    ++reduces_checked_;
  }
}

// A gradient that is reduced out of place stays as it is, however its request ends.
void SimRank::check_untouched(const Call& call) {
  for (size_t i = 0; i < call.into.size(); ++i) {
    if (call.into[i].empty()) continue;
    const std::vector<float>& given = call.given[i];
    const auto same = [](float a, float b) {
      return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b);
    };
    if (!std::equal(given.begin(), given.end(), call.values[i].begin(), same)) {
      error("variable " + scenario_.names[variables_[call.slices[i].variable]] + ", step " +
            std::to_string(call.step) + ": a gradient was written to");
    }
  }
}

// The buffers are the caller's again: whoever still reads them reads this.
void SimRank::spoil(Call& call) {
  check_untouched(call);
  for (auto& values : call.values) {
    std::fill(values.begin(), values.end(), std::numeric_limits<float>::quiet_NaN());
  }
  for (auto& ids : call.ids) std::fill(ids.begin(), ids.end(), int64_t{0});
  std::fill(call.bytes.begin(), call.bytes.end(), std::byte{0xee});
}

void SimRank::fail(const Status& status, const std::string& what) {
  if (!failure_.ok()) return;
  failure_ = Status(status.code(), what + ": " + status.message());
  failed_ns_ = world_.now_ns();
}

// Pending requests end by themselves; then the job is closed, which answers at once.
bool SimRank::close_after_failure() {
  if (!calls_.empty()) return false;
  if (!close_posted_) {
    close_posted_ = true;
    Call& call = calls_.emplace_back();
    call.act = Act::kClose;
    const Status closed = engine_->job_calls().close(&call.request);
    if (!closed.ok()) calls_.pop_back();  // the script's own close had failed
    posted_ = true;
    return true;
  }
  if (leave_ns_ == kNever) leave_ns_ = world_.now_ns() + kFlushNs;
  return false;
}

}  // namespace parallax::simtest
