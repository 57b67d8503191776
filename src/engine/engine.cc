// SPDX-License-Identifier: Apache-2.0
// The engine's pass: messages in, state machines on, messages out; and what happens when a rank is
// lost. See engine.h.
#include "engine/engine.h"

#include <algorithm>

#include "base/check.h"
#include "base/log.h"
#include "base/text.h"
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
      group_(options_.hosts, options_.rank,
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
                        .deterministic = options_.deterministic ? 1u : 0u},
                       variables_, trees_, broadcast_),
      goodbye_(options_.rank, trees_) {}

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
      fail(limit("out of memory in the engine; lower rows_max or give the machine more memory"),
           SectionKind::kAbort, options_.rank);
    } catch (const std::exception& error) {
      fail(internal(error.what()), SectionKind::kAbort, options_.rank);
    }
  } catch (...) {  // no memory even to say so: short enough not to need any
    if (failure_.ok()) failure_ = Status(PARALLAX_LIMIT, "out of memory");
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
    // After messages were read, since they renew leases and may name who is lost. The second pass
    // sends what the checks queued.
    check_suspicions();
    check_leases(now_ns);
    pass();
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
  if (!failure_.ok()) {
    // The notice goes out before requests complete: the program may end with its first error.
    if (speaking()) return;
    unsaid_ = false;
    finish_unborrowed(failure_);
    // Where something is still pending, a compute job or a send uses the caller's buffers: only
    // those requests wait on.
    row_calls_.queue().finish_unborrowed(failure_);
    contribution_calls_.queue().finish_unborrowed(failure_);
    return;
  }
  if (phase_ == Phase::kClosed) return;
  // Before the commit and the steps: nothing may start that waits for a rank that has left.
  check_leaving();
  if (!failure_.ok()) return;
  advance_commit();
  if (phase_ == Phase::kOpen) return;
  pull_calls_.advance();
  contribution_calls_.advance();
  advance_step_end();
  row_calls_.advance();
  collective_calls_.advance_barrier();
  const Status broadcasts = collective_calls_.advance_broadcast();
  if (!broadcasts.ok()) fail(broadcasts, SectionKind::kAbort, options_.rank);
  advance_close();
}

int64_t Engine::next_deadline_ns() const {
  if (phase_ == Phase::kClosed) return kNever;
  if (!failure_.ok()) return unsaid_ ? words_end_ns_ : kNever;
  // Initial values are filled in piece by piece: the next piece is due at once.
  if (busy_) return clock_.now_ns();
  return membership_.next_deadline_ns();
}

// ---- messages

void Engine::on_message(uint32_t from, std::span<const std::byte> message) {
  if (!failure_.ok() || phase_ == Phase::kClosed) return;
  SectionReader reader(message);
  if (!traffic_.take(from, reader, message.size())) return;
  Section section;
  while (failure_.ok() && reader.next(&section)) dispatch(from, section);
  if (failure_.ok() && reader.malformed()) {
    fail(internal(rank_name(options_.hosts, from) +
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
  if ((this->*row.handle)(from, section) || !failure_.ok()) return;
  fail(internal(rank_name(options_.hosts, from) + " sent a message that does not fit (" +
                name_of(header.kind) + ", variable or tag " + std::to_string(header.tag) +
                ", step " + std::to_string(header.step) +
                "); check that all ranks run the same "
                "version"),
       SectionKind::kAbort, from);
}

bool Engine::on_membership(uint32_t, const Section& section) {
  const auto sentence = [&section] {
    return std::string(reinterpret_cast<const char*>(section.payload.data()),
                       section.payload.size());
  };
  switch (section.header.kind) {
    case SectionKind::kHeartbeat:
      return true;
    case SectionKind::kLost:
      if (!goodbye_.confirmed())
        fail(peer_lost(sentence()), SectionKind::kLost, section.header.tag);
      return true;
    case SectionKind::kAbort: {
      // The status is a peer's number: what this version does not know becomes ABORTED.
      const auto code = static_cast<int32_t>(section.header.first);
      const bool known = code <= PARALLAX_INVALID && code >= PARALLAX_INTERNAL;
      fail({known ? static_cast<parallax_status_t>(code) : PARALLAX_ABORTED, sentence()},
           SectionKind::kAbort, section.header.tag);
      return true;
    }
    default:
      return false;
  }
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

// ---- life and loss

void Engine::check_leases(int64_t now_ns) {
  if (!failure_.ok() || phase_ == Phase::kClosed) return;
  uint32_t expired = membership_.expired(now_ns);
  while (failure_.ok() && expired != Membership::kNoNeighbour) {
    // So that the transport does not report the same loss again.
    transport_.forget(expired);
    outbox_.drop(expired);
    on_peer_gone(expired, "silent for its lease of " +
                              std::to_string(options_.lease_ns / kNanosecondsPerMillisecond) +
                              " ms (process stopped, host down or network cut)");
    expired = membership_.expired(now_ns);
  }
  if (!failure_.ok()) return;
  uint32_t due = membership_.heartbeat_due(now_ns);
  while (due != Membership::kNoNeighbour) {
    SectionHeader header;
    if (!outbox_.has_queued(due)) outbox_.send_bytes(due, header, {});
    membership_.sent(due, now_ns);  // queued: what credits hold back is no reason to queue more
    due = membership_.heartbeat_due(now_ns);
  }
}

void Engine::on_lost(uint32_t rank, Loss loss, std::string_view why) {
  outbox_.drop(rank);
  if (loss == Loss::kBroken && group_.columns().world() > 2) {
    membership_.suspect(rank, why, clock_.now_ns());
  } else {
    on_peer_gone(rank, std::string(why));  // of two ranks nobody else can bring other news
  }
}

// A rank has ended or fallen silent, and no notice said why. Its leaving counts as the answer to
// the goodbye that this rank still waits for, unless this rank was held up for so long that the
// others may have lost it, and left for that.
void Engine::on_peer_gone(uint32_t rank, const std::string& why) {
  if (!goodbye_.may_have_left(rank)) return lose(rank, why);
  membership_.dismiss(rank);
  if (!goodbye_.waits_for(rank)) return;
  if (membership_.lapsed()) {
    return lose(rank, why + "; this rank was held up before, and the others may have lost it");
  }
  goodbye_.take_leaving_as_answer();
}

void Engine::check_suspicions() {
  if (phase_ == Phase::kClosed) return;
  Membership::Suspicion ripe;
  while (failure_.ok() && membership_.take_ripe(&ripe)) on_peer_gone(ripe.rank, ripe.why);
}

void Engine::lose(uint32_t rank, const std::string& why) {
  if (!failure_.ok()) return;
  fail(peer_lost(rank_name(options_.hosts, rank) + " is lost: " + why + "; seen by " +
                 rank_name(options_.hosts, options_.rank)),
       SectionKind::kLost, rank);
}

namespace {

// What to do about a job that ended so.
const char* remedy_of(parallax_status_t code) {
  if (code == PARALLAX_PEER_LOST) {
    return ". Close the job; open a new one with the ranks that are left";
  }
  if (code == PARALLAX_MISMATCH) return ". Close the job; open it alike on every rank";
  return ". Close the job";
}

}  // namespace

// The first failure ends the epoch here and, by the notice, everywhere.
void Engine::fail(Status failure, SectionKind notice, uint32_t culprit) {
  if (!failure_.ok() || phase_ == Phase::kClosed) return;
  constexpr size_t kSentenceMax = 512;
  // It may be a peer's, and goes on to every rank's log and parallax_request_error.
  const std::string sentence = printable(failure.message().substr(0, kSentenceMax));
  const bool mine = culprit == options_.rank && notice == SectionKind::kLost;
  failure_ = Status(failure.code(),
                    sentence + (mine ? " (this rank)" : "") + "; last step committed here: " +
                        std::to_string(pipeline_.window().finished()) + remedy_of(failure.code()));
  PARALLAX_LOG(kInfo, kMember,
               rank_name(options_.hosts, options_.rank) + ": " + failure_.message());
  // Frees what data sends borrow, and leaves send buffers and credits to the notice.
  outbox_.drop_data();
  if (notice == SectionKind::kLost && culprit != options_.rank &&
      culprit < group_.columns().world()) {
    // A lost rank takes nothing any more, and requests wait until all that is queued has left.
    outbox_.drop(culprit);
    transport_.forget(culprit);
  }
  SectionHeader header;
  header.kind = notice;
  header.tag = culprit;
  header.first = static_cast<uint32_t>(failure.code());
  for (const uint32_t watched : membership_.watched()) {
    outbox_.send_bytes(watched, header, std::as_bytes(std::span(sentence)));
  }
  unsaid_ = true;
  words_end_ns_ = clock_.now_ns() + std::min(kLastWordsNs, options_.lease_ns / 4);
}

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

void Engine::complete_all() {
  phase_ = Phase::kClosed;
  outbox_.drop_data();  // it would read buffers that are the caller's again
  const Status closed(PARALLAX_ABORTED, "the job was closed while this request was pending");
  finish_unborrowed(closed);
  row_calls_.queue().finish_all(closed);
  contribution_calls_.queue().finish_all(closed);
}

void Engine::abort(const std::string& reason) {
  fail({PARALLAX_ABORTED, rank_name(options_.hosts, options_.rank) + " aborted the job: " +
                              (reason.empty() ? std::string("no reason given") : reason)},
       SectionKind::kAbort, options_.rank);
}

void Engine::cancel(Request& request) {
  if (request.done()) return;
  fail({PARALLAX_CANCELED, rank_name(options_.hosts, options_.rank) +
                               " cancelled a request of step " + std::to_string(request.step) +
                               " that other ranks take part in"},
       SectionKind::kAbort, options_.rank);
}

}  // namespace parallax
