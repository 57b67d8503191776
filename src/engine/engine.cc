// SPDX-License-Identifier: Apache-2.0
// The engine's pass: messages in, state machines on, messages out; and what happens when a rank is
// lost. See engine.h.
#include "engine/engine.h"

#include "engine/borrowed_buffers.h"
#include "message/kinds.h"

namespace parallax {

namespace {

// Longer than any job, and far from overflow beside a time.
constexpr int64_t kNoLeaseNs = kNever / 8;
// Between two looks at copies whose end nobody told of.
constexpr int64_t kAskDeviceNs = 20 * kNanosecondsPerMillisecond;
// Of a communicator that forms or settles.
constexpr int64_t kAskFormingNs = kNanosecondsPerMillisecond / 10;
// For the end of a job: what launches may take at most.
constexpr int64_t kEndLaunchesNs = 5'000 * kNanosecondsPerMillisecond;

// Something long is done piece by piece: the next piece is due at once.
bool in_pieces(const JobCalls& job_calls, const CollectiveCalls& collectives) {
  return job_calls.filling() || collectives.rounds().giving();
}

// What lies in others' memory is read in turns; a job that has failed reads nothing more.
bool reads_on(const FirstFailure& failure, const Outbox& outbox) {
  return failure.status().ok() && outbox.lending().to_read();
}

}  // namespace

Engine::Engine(EngineOptions options, Transport& transport, const Clock& clock, Compute& compute,
               std::function<void()> completed)
    : options_(std::move(options)),
      transport_(transport),
      pass_(clock),
      membership_(options_.part == 0 ? watch_neighbours(options_.view.hosts, options_.rank)
                                     : std::vector<uint32_t>(),
                  options_.part == 0 ? options_.lease_ns : kNoLeaseNs, clock.now_ns()),
      traffic_({.rank = options_.rank, .epoch = options_.view.epoch}, options_.view.hosts,
               pass_.clock(), membership_),
      requests_(
          [this, completed = std::move(completed)] {
            pipeline_.own_time().completed(pass_.began_ns());
            if (completed) completed();
          },
          options_.part),
      outbox_(options_.rank, transport, intake_, traffic_),
      seldom_calls_({.clock = clock,
                     .group = group_,
                     .phase = phase_,
                     .failure = failure_,
                     .job_calls = job_calls_,
                     .row_calls = row_calls_,
                     .collective_calls = collective_calls_,
                     .step_calls = step_calls_}),
      group_(options_.view, options_.rank,
             {.plan_mode = options_.plan_mode,
              .deterministic = options_.deterministic,
              .memory_max_bytes = options_.memory_max_bytes,
              .memory_check = options_.memory_check,
              .machine = options_.machine,
              .other_footprints = options_.other_footprints,
              .marker_hosts_max = options_.marker_hosts_max,
              .boards = options_.boards,
              .row_ways = options_.row_ways,
              .devices = options_.devices,
              .staleness = options_.staleness},
             outbox_, compute),
      migration_(group_, outbox_),
      plan_control_(group_, migration_,
                    {.mode = options_.plan_mode,
                     .after_steps = options_.plan_after_steps,
                     .fixed = options_.staleness > 0}),
      broadcast_(options_.view.hosts, options_.rank, outbox_),
      trees_(options_.view.hosts, options_.rank, outbox_),
      pipeline_(
          {group_, plan_control_, migration_, trees_, outbox_, group_.compute(), pass_.clock()},
          options_.staleness),
      goodbye_(options_.rank, trees_),
      failure_({.columns = group_.columns(),
                .clock = clock,
                .window = pipeline_.window(),
                .membership = membership_,
                .transport = transport,
                .outbox = outbox_,
                .registry = registry_,
                .whole = options_.whole,
                .part = options_.part}),
      loss_watch_({.world = group_.columns().world(),
                   .clock = clock,
                   .membership = membership_,
                   .goodbye = goodbye_,
                   .failure = failure_,
                   .transport = transport,
                   .outbox = outbox_}),
      phase_(failure_.status()),
      row_calls_(group_, registry_, pipeline_.window(), phase_, outbox_, requests_),
      collective_calls_(group_.columns(), options_.deterministic, phase_, trees_, broadcast_,
                        outbox_, requests_),
      job_calls_({.rank = options_.rank,
                  .plan_mode = static_cast<uint32_t>(options_.plan_mode),
                  .plan_after_steps = options_.plan_after_steps,
                  .deterministic = options_.deterministic ? 1u : 0u,
                  .slots = group_.view().slots.slots(),
                  .staleness = options_.staleness},
                 {.registry = registry_,
                  .transport = transport,
                  .traffic = traffic_,
                  .outbox = outbox_,
                  .group = group_,
                  .pipeline = pipeline_,
                  .trees = trees_,
                  .broadcast = broadcast_,
                  .goodbye = goodbye_,
                  .failure = failure_,
                  .phase = phase_,
                  .requests = requests_,
                  .devices = options_.devices,
                  .memory_around = options_.memory_around,
                  .launches = seldom_calls_.launches(),
                  .nccl = options_.nccl,
                  .nccl_timeout_ns = options_.nccl_timeout_ns,
                  .clock = clock,
                  .costs = options_.costs,
                  .job = options_.launches_of_job,
                  .buffers = options_.buffers,
                  .pins = options_.pins,
                  .fuse_tables = options_.fuse_tables}),
      step_calls_({.clock = pass_.clock(),
                   .registry = registry_,
                   .phase = phase_,
                   .group = group_,
                   .pipeline = pipeline_,
                   .outbox = outbox_,
                   .row_calls = row_calls_,
                   .requests = requests_,
                   .devices = options_.devices,
                   .launches = &seldom_calls_.launches()}),
      layer_handlers_({.phase = phase_,
                       .group = group_,
                       .pipeline = pipeline_,
                       .migration = migration_,
                       .trees = trees_,
                       .broadcast = broadcast_,
                       .job_calls = job_calls_,
                       .row_calls = row_calls_,
                       .collective_calls = collective_calls_,
                       .loss_watch = loss_watch_,
                       .outbox = outbox_}),
      intake_({.hosts = options_.view.hosts,
               .pass = pass_,
               .failure = failure_,
               .traffic = traffic_,
               .loss_watch = loss_watch_,
               .outbox = outbox_,
               .handlers = layer_handlers_}) {
  outbox_.lending().set_misfit([this](uint32_t rank) {
    if (!failure_.status().ok()) return;
    failure_.fail(
        misfit(options_.view.hosts, rank, "has left what does not fit where others read it"),
        SectionKind::kAbort, rank);
  });
}

Engine::~Engine() = default;

Status Engine::start() {
  // At their bounds, so that no call of a step grows them.
  step_calls_.reserve();
  requests_.reserve();
  if (group_.columns().host_count() > 1) intake_.reserve(transport_.message_bytes_max());
  // A part's transport learns here whom it delivers to.
  if (options_.part != 0) transport_.poll(intake_);
  return outbox_.start(options_.view.epoch);
}

// ---- the pass

namespace {

// No exception leaves the engine: a failed check of our own, or no memory, ends the job.
template <typename Body>
bool guarded(FirstFailure& failure, const Group& group, Body body) {
  try {
    try {
      return body();
    } catch (const std::bad_alloc&) {
      failure.abort(limit("out of memory at " + group.name() +
                          "; lower rows_max or give the machine more memory"));
    } catch (const std::exception& error) {
      failure.abort(internal(error.what()));
    }
  } catch (...) {
    failure.give_up();
  }
  return true;
}

}  // namespace

bool Engine::run() {
  return guarded(failure_, group_, [this] {
    job_calls_.start_run();
    collective_calls_.rounds().start_run();
    const int64_t now_ns = pass_.begin_run();
    // Before messages are read: time that this rank lost itself is not held against its peers.
    membership_.passed(now_ns);
    // Once more as that comes: behind it what lies on boards may soon be another part's.
    const bool all_closing = goodbye_.all_closing();
    bool moved = transport_.poll(intake_);
    if (failure_.status().ok() && !all_closing && group_.entries().look()) {
      moved = true;
      pass_.give_steps();
    }
    // Most looks of a waiter find nothing, or that what it sent has left.
    const bool idle = pass_.settled() && failure_.status().ok() && !outbox_.needs_pass() &&
                      !outbox_.lending().to_read();
    if (!idle) pass();
    if (loss_watch_.check(now_ns)) pass();
    return moved || in_pieces(job_calls_, collective_calls_) || reads_on(failure_, outbox_);
  });
}

bool Engine::glance() {
  if (!pass_.settled() || !pass_.has_run_lately()) return false;
  if (!failure_.status().ok() || goodbye_.all_closing()) return false;
  return guarded(failure_, group_, [this] {
    if (!group_.entries().look()) return false;
    pass_.begin();
    pass_.give_steps();
    pass();
    return true;
  });
}

void Engine::kick(Kick how) {
  guarded(failure_, group_, [this, how] {
    pass_.begin();
    if (how == Kick::kHolds && failure_.status().ok()) {
      bool moved = false;  // or not: there is a next pass
      pass_.settle(false);
      advance(&moved);
      return true;
    }
    // As in run().
    const bool looks = how == Kick::kLooks && failure_.status().ok() && !goodbye_.all_closing();
    if (looks) group_.entries().look();
    pass();
    return true;
  });
}

namespace {

// Grows with every step that is decided, and again when it is finished.
uint64_t steps_over(const StepWindow& window) { return window.decided() + window.finished(); }

}  // namespace

// Until nothing moves: a loop, since messages to this rank itself come back at once. The bound only
// keeps one pass from taking long; what is left is done by the next.
//
// Of steps that are given something while nothing else is under way, as most small ones are, once
// is enough, unless it shows that there is more.
void Engine::pass() {
  constexpr int kRoundsMax = 64;
  const StepWindow& window = pipeline_.window();
  if (pass_.steps_alone() && failure_.status().ok() && !phase_.closed()) {
    const uint64_t stood = steps_over(window);
    const Status steps = step_calls_.advance();
    if (!steps.ok()) failure_.abort(steps);
    group_.entries().flush();
    const bool next_waits = steps_over(window) != stood && window.begun() > window.finished();
    if (steps.ok() && !next_waits && group_.compute().under_way() == 0 && !outbox_.needs_pass() &&
        !outbox_.lending().to_read() && !outbox_.take_news() && seldom_calls_.at_rest() &&
        step_calls_.held_until_ns() == kNever) {
      return pass_.settle(true);
    }
  }
  pass_.settle(false);
  for (int i = 0; i < kRoundsMax; ++i) {
    bool moved = false;
    const uint64_t stood = steps_over(window);
    const bool steps_alone = advance(&moved);
    while (ComputeJob* job =
               group_.compute().take_done()) {  // those done inline were submitted now
      job->done(*job);
      moved = true;
    }
    const bool sent = outbox_.pump();
    group_.entries().flush();
    moved |= outbox_.take_news() || (sent && !steps_alone);
    // Calls of the next step, which may have been made, were looked at before this one was over.
    moved |= steps_over(window) != stood && window.begun() > window.finished();
    // Behind what others wait for.
    if (failure_.status().ok()) moved |= outbox_.lending().read();
    if (moved) continue;
    // Of what is seldom steps begin nothing but what devices do.
    const bool rests = steps_alone ? !seldom_calls_.devices_busy() : seldom_calls_.at_rest();
    return pass_.settle(rests && group_.compute().under_way() == 0 &&
                        step_calls_.held_until_ns() == kNever);
  }
  group_.entries().flush();  // of what was read last
}

// True: there was nothing but steps.
bool Engine::advance(bool* moved) {
  const Status& failure = failure_.status();
  if (!failure.ok()) {
    // The notice goes out before requests complete: the program may end with its first error.
    if (failure_.speaking()) return false;
    failure_.said();
    seldom_calls_.launches().give_up();
    group_.abandon_devices();
    // Before a caller has its memory again: no peer may write there any more.
    if (outbox_.remote_writes() != nullptr) outbox_.remote_writes()->withdraw();
    // Where something is still pending, a compute job or a send uses the caller's buffers: only
    // those requests wait on.
    finish_unborrowed(failure);
    return false;
  }
  if (phase_.closed()) return false;
  const bool steps_alone = seldom_calls_.at_rest();
  if (!steps_alone) {
    seldom_calls_.advance_before();
    if (!failure.ok() || phase_.open()) return false;
  }
  const Status steps = step_calls_.advance();
  if (!steps.ok()) failure_.abort(steps);
  if (!steps_alone && failure.ok()) *moved = seldom_calls_.advance_behind();
  return steps_alone && failure.ok();
}

bool Engine::needs_pass() const {
  return outbox_.needs_pass() || reads_on(failure_, outbox_) ||
         in_pieces(job_calls_, collective_calls_);
}

int64_t Engine::next_deadline_ns() const {
  const bool in_turns = in_pieces(job_calls_, collective_calls_) || reads_on(failure_, outbox_);
  if (in_turns && failure_.job_goes_on()) return pass_.now_ns();
  const int64_t due_ns = failure_.job_goes_on()
                             ? std::min(membership_.next_deadline_ns(), step_calls_.held_until_ns())
                             : failure_.next_deadline_ns();
  if (seldom_calls_.launches().to_be_asked()) {
    return std::min(due_ns, pass_.now_ns() + kAskFormingNs);
  }
  // A device whose context has failed tells of no end any more: it is asked.
  return seldom_calls_.devices_busy() ? std::min(due_ns, pass_.now_ns() + kAskDeviceNs) : due_ns;
}

// ---- reports

Reports Engine::reports() const {
  const Communicator* const communicator = seldom_calls_.launches().communicator();
  return Reports(
      {.plan_mode = options_.plan_mode,
       .transport = transport_.name(),
       .registry = registry_,
       .group = group_,
       .plan_control = plan_control_,
       .pipeline = pipeline_,
       .trees = trees_,
       .broadcast = broadcast_,
       .goodbye = goodbye_,
       .row_calls = row_calls_,
       .device_calls = step_calls_.device_calls(),
       .registered = communicator == nullptr ? RegisteredMemory() : communicator->registered(),
       .splits = job_calls_.splits(),
       .collectives = collective_calls_.rounds(),
       .requests = requests_,
       .outbox = outbox_,
       .traffic = traffic_,
       .probe = job_calls_.probe(),
       .forms_communicator = job_calls_.forms_communicator()});
}

std::string Engine::borrower(const ByteRange& bytes) const {
  const Request* request =
      requests_.find_pending([&](const Request& each) { return borrows(each, registry_, bytes); });
  if (request != nullptr) return call_name(*request);
  // No request is there before a commit.
  for (uint32_t id = 0; id < registry_.size() && failure_.status().ok(); ++id) {
    const Variable& variable = registry_[id];
    if (!registry_.has_number(id) && borrows(variable, bytes)) {
      return "the next commit, for variable '" + variable.name + "',";
    }
  }
  return "";
}

// ---- the end of a job

// Completes all requests whose buffers no compute job and no send may still be reading.
void Engine::finish_unborrowed(const Status& status) {
  job_calls_.finish_all(status);
  collective_calls_.finish_all(status);
  step_calls_.finish_unborrowed(status);
  row_calls_.queue().finish_unborrowed(status);
}

void Engine::complete_all() {
  job_calls_.end();
  outbox_.drop_data();  // it would read buffers that are the caller's again
  const Status closed(PARALLAX_ABORTED, "the job was closed while this request was pending");
  seldom_calls_.launches().finish(kEndLaunchesNs);
  group_.abandon_devices();
  finish_unborrowed(closed);
  step_calls_.finish_all(closed);
  row_calls_.queue().finish_all(closed);
}

void Engine::follow_failure() {
  guarded(failure_, group_, [this] {
    failure_.follow();
    return true;
  });
}

void Engine::cancel(Request& request) {
  if (request.done()) return;
  failure_.abort({PARALLAX_CANCELED,
                  rank_name(options_.view.hosts, options_.rank) + " cancelled a request of step " +
                      std::to_string(request.step) + " that other ranks take part in"});
}

}  // namespace parallax
