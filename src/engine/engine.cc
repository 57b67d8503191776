// SPDX-License-Identifier: Apache-2.0
// The engine's pass: messages in, state machines on, messages out; and what happens when a rank is
// lost. See engine.h.
#include "engine/engine.h"

#include "base/check.h"
#include "message/kinds.h"

namespace parallax {

Engine::Engine(EngineOptions options, Transport& transport, const Clock& clock, Compute& compute,
               std::function<void()> completed)
    : options_(std::move(options)),
      transport_(transport),
      clock_(clock),
      compute_(compute),
      membership_(watch_neighbours(options_.hosts, options_.rank), options_.lease_ns,
                  clock.now_ns()),
      traffic_({.rank = options_.rank, .epoch = options_.epoch}, options_.hosts, clock,
               membership_),
      requests_([this, completed = std::move(completed)] {
        pipeline_.own_time().completed(clock_.now_ns());
        if (completed) completed();
      }),
      outbox_(options_.rank, transport, *this, traffic_),
      group_(first_view(options_.hosts, options_.epoch, options_.slots), options_.rank,
             {.plan_mode = options_.plan_mode,
              .deterministic = options_.deterministic,
              .memory_max_bytes = options_.memory_max_bytes,
              .memory_check = options_.memory_check,
              .machine = options_.machine},
             outbox_, compute_),
      migration_(group_, outbox_),
      plan_control_(group_, migration_,
                    {.mode = options_.plan_mode, .after_steps = options_.plan_after_steps}),
      broadcast_(options_.hosts, options_.rank, outbox_),
      trees_(options_.hosts, options_.rank, outbox_),
      pipeline_({group_, plan_control_, migration_, trees_, outbox_, compute_, clock_}),
      pull_calls_(group_, pipeline_, requests_),
      contribution_calls_(group_, pipeline_, slice_checks_, requests_),
      row_calls_(group_, pipeline_.window(), outbox_, requests_),
      collective_calls_(group_.columns().world(), trees_, broadcast_, requests_),
      commit_protocol_({.rank = options_.rank,
                        .plan_mode = static_cast<uint32_t>(options_.plan_mode),
                        .plan_after_steps = options_.plan_after_steps,
                        .deterministic = options_.deterministic ? 1u : 0u,
                        .slots = group_.view().slots.slots()},
                       variables_, trees_, broadcast_),
      goodbye_(options_.rank, trees_),
      failure_({.columns = group_.columns(),
                .clock = clock,
                .window = pipeline_.window(),
                .membership = membership_,
                .transport = transport,
                .outbox = outbox_}),
      loss_watch_({.world = group_.columns().world(),
                   .clock = clock,
                   .membership = membership_,
                   .goodbye = goodbye_,
                   .failure = failure_,
                   .transport = transport,
                   .outbox = outbox_}) {}

Engine::~Engine() = default;

Status Engine::start() {
  // At their bounds, so that no call of a step grows them.
  contribution_calls_.reserve();
  pull_calls_.reserve();
  requests_.reserve();
  return outbox_.start(options_.epoch);
}

// ---- the pass

// No exception leaves the engine: a failed check of our own, or no memory, ends the job.
template <typename Body>
bool Engine::guarded(Body body) {
  try {
    try {
      return body();
    } catch (const std::bad_alloc&) {
      failure_.abort(
          limit("out of memory in the engine; lower rows_max or give the machine more memory"));
    } catch (const std::exception& error) {
      failure_.abort(internal(error.what()));
    }
  } catch (...) {
    failure_.give_up();
  }
  return true;
}

bool Engine::run() {
  return guarded([this] {
    busy_ = false;
    const int64_t now_ns = clock_.now_ns();
    // Before messages are read: time that this rank lost itself is not held against its peers.
    membership_.passed(now_ns);
    const bool moved = transport_.poll(*this);
    pass();
    loss_watch_.check(now_ns);
    pass();  // sends what the checks queued
    return moved || busy_;
  });
}

void Engine::kick() {
  guarded([this] {
    pass();
    return true;
  });
}

// Until nothing moves: a loop, since messages to this rank itself come back at once. The bound only
// keeps one pass from taking long; what is left is done by the next.
void Engine::pass() {
  constexpr int kRoundsMax = 64;
  for (int i = 0; i < kRoundsMax; ++i) {
    bool moved = false;
    advance();
    while (ComputeJob* job = compute_.take_done()) {  // those done inline were submitted just now
      job->done(*job);
      moved = true;
    }
    moved |= outbox_.pump();
    if (!moved) return;
  }
}

void Engine::advance() {
  const Status& failure = failure_.status();
  if (!failure.ok()) {
    // The notice goes out before requests complete: the program may end with its first error.
    if (failure_.speaking()) return;
    failure_.said();
    finish_unborrowed(failure);
    // Where something is still pending, a compute job or a send uses the caller's buffers: only
    // those requests wait on.
    row_calls_.queue().finish_unborrowed(failure);
    contribution_calls_.queue().finish_unborrowed(failure);
    return;
  }
  if (phase_ == Phase::kClosed) return;
  // Before the commit and the steps: nothing may start that waits for a rank that has left.
  check_leaving();
  if (!failure.ok()) return;
  advance_commit();
  if (phase_ == Phase::kOpen) return;
  pull_calls_.advance();
  contribution_calls_.advance();
  advance_step_end();
  row_calls_.advance();
  collective_calls_.advance_barrier();
  const Status broadcasts = collective_calls_.advance_broadcast();
  if (!broadcasts.ok()) failure_.abort(broadcasts);
  advance_close();
}

int64_t Engine::next_deadline_ns() const {
  if (!failure_.job_goes_on()) return failure_.next_deadline_ns();
  // Initial values are filled in piece by piece: the next piece is due at once.
  if (busy_) return clock_.now_ns();
  return membership_.next_deadline_ns();
}

// ---- messages

void Engine::on_message(uint32_t from, std::span<const std::byte> message) {
  if (!failure_.job_goes_on()) return;
  SectionReader reader(message);
  if (!traffic_.take(from, reader, message.size())) return;
  Section section;
  while (failure_.status().ok() && reader.next(&section)) dispatch(from, section);
  if (failure_.status().ok() && reader.malformed()) {
    failure_.fail(internal(rank_name(options_.hosts, from) +
                           " sent a malformed message; check that all ranks run the same "
                           "version and that no stranger reaches the job's ports"),
                  SectionKind::kAbort, from);
  }
}

// What takes each layer's sections, in the order of Layer. It returns false if one is not what
// this rank may be sent, now or from that rank.
struct Engine::LayerRow {
  Layer layer;
  bool (Engine::*handle)(uint32_t from, const Section& section);
};

constexpr Engine::LayerRow Engine::kLayers[] = {
    {Layer::kMembership, &Engine::on_membership}, {Layer::kTree, &Engine::on_tree},
    {Layer::kBroadcast, &Engine::on_broadcast},   {Layer::kStep, &Engine::on_step_ended},
    {Layer::kExchange, &Engine::on_exchange},     {Layer::kPull, &Engine::on_pull},
    {Layer::kMigration, &Engine::on_migrate},     {Layer::kRowAccess, &Engine::on_rows},
};

void Engine::dispatch(uint32_t from, const Section& section) {
  static_assert(std::size(kLayers) == kLayerCount);
  const SectionHeader& header = section.header;
  const LayerRow& row = kLayers[static_cast<size_t>(layer_of(header.kind))];
  PARALLAX_CHECK(row.layer == layer_of(header.kind));
  traffic_.take_section(from, header);
  if ((this->*row.handle)(from, section) || !failure_.status().ok()) return;
  failure_.fail(internal(rank_name(options_.hosts, from) + " sent a message that does not fit (" +
                         name_of(header.kind) + ", variable or tag " + std::to_string(header.tag) +
                         ", step " + std::to_string(header.step) +
                         "); check that all ranks run the same "
                         "version"),
                SectionKind::kAbort, from);
}

bool Engine::on_membership(uint32_t, const Section& section) {
  return loss_watch_.on_section(section);
}

bool Engine::on_broadcast(uint32_t from, const Section& section) {
  return broadcast_.on_section(from, section);
}

bool Engine::is_open(uint64_t step) const {
  return phase_ != Phase::kOpen && pipeline_.window().admits(step);
}

// May come after this rank has finished the step, if none of the step's reductions passed through
// it.
bool Engine::on_step_ended(uint32_t from, const Section& section) {
  const uint64_t step = section.header.step;
  if (phase_ != Phase::kOpen && pipeline_.window().is_over(step)) return true;
  if (!is_open(step) || group_.columns().host_of(from) != group_.columns().host()) return false;
  // For every variable: what the rank has not contributed to is complete without it.
  group_.pulls().end_local(from, step);
  for (const auto& runtime : group_.runtimes()) runtime->exchange_at(step).end(from, step);
  return true;
}

bool Engine::on_exchange(uint32_t from, const Section& section) {
  const SectionHeader& header = section.header;
  return is_open(header.step) && header.tag < group_.size() &&
         group_.runtime(header.tag).exchange_at(header.step).on_section(from, section);
}

// A variable that is mirrored in that step is not pulled: its pull buffers are freed when it
// becomes so. A tag beyond the variables ends a rank's pull.
bool Engine::on_pull(uint32_t from, const Section& section) {
  const SectionHeader& header = section.header;
  if (!is_open(header.step)) return false;
  const bool sharded =
      header.tag >= group_.size() || group_.runtime(header.tag).sharded_at(header.step);
  return sharded && group_.pulls().on_section(from, section);
}

bool Engine::on_migrate(uint32_t from, const Section& section) {
  return migration_.on_section(from, section);
}

bool Engine::on_rows(uint32_t from, const Section& section) {
  return phase_ != Phase::kOpen && row_calls_.on_section(from, section);
}

// ---- reports

Reports Engine::reports() const {
  return Reports({.plan_mode = options_.plan_mode,
                  .transport = transport_.name(),
                  .group = group_,
                  .plan_control = plan_control_,
                  .pipeline = pipeline_,
                  .trees = trees_,
                  .broadcast = broadcast_,
                  .goodbye = goodbye_,
                  .row_calls = row_calls_,
                  .requests = requests_,
                  .outbox = outbox_,
                  .traffic = traffic_});
}

// ---- the end of a job

// Completes all requests whose buffers no compute job may still be reading.
void Engine::finish_unborrowed(const Status& status) {
  for (Request** request : {&commit_request_, &close_request_}) {
    if (*request != nullptr) requests_.finish(*request, status);
    *request = nullptr;
  }
  collective_calls_.finish_all(status);
  pull_calls_.queue().finish_all(status);
  for (Request*& end : step_ends_) {
    if (end != nullptr) requests_.finish(end, status);
    end = nullptr;
  }
}

void Engine::end() {
  phase_ = Phase::kClosed;
  failure_.close();
}

void Engine::complete_all() {
  end();
  outbox_.drop_data();  // it would read buffers that are the caller's again
  const Status closed(PARALLAX_ABORTED, "the job was closed while this request was pending");
  finish_unborrowed(closed);
  row_calls_.queue().finish_all(closed);
  contribution_calls_.queue().finish_all(closed);
}

void Engine::abort(const std::string& reason) {
  failure_.abort(
      {PARALLAX_ABORTED, rank_name(options_.hosts, options_.rank) + " aborted the job: " +
                             (reason.empty() ? std::string("no reason given") : reason)});
}

void Engine::cancel(Request& request) {
  if (request.done()) return;
  failure_.abort({PARALLAX_CANCELED,
                  rank_name(options_.hosts, options_.rank) + " cancelled a request of step " +
                      std::to_string(request.step) + " that other ranks take part in"});
}

}  // namespace parallax
