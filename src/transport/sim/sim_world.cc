// SPDX-License-Identifier: Apache-2.0
// The simulator's loop: which rank runs when.
#include "transport/sim/sim_world.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace parallax {
namespace {

// One rank's end of the simulated wires.
class SimTransport final : public Transport {
 public:
  SimTransport(SimNetwork& network, uint32_t rank, size_t message_bytes_max)
      : network_(network), rank_(rank), message_bytes_max_(message_bytes_max) {}

  std::string_view name() const override { return "sim"; }
  size_t message_bytes_max() const override { return message_bytes_max_; }
  bool writable(uint32_t to) const override { return network_.writable(rank_, to); }
  Status send(uint32_t to, std::span<const Segment> segments, uint64_t cookie) override {
    return network_.send(rank_, to, segments, cookie);
  }
  bool poll(Receiver& receiver) override { return network_.poll(rank_, receiver); }
  int wait_fd() const override { return -1; }
  bool arm() override { return !network_.deliverable(rank_); }
  void forget(uint32_t rank) override { network_.forget(rank_, rank); }

 private:
  SimNetwork& network_;
  uint32_t rank_;
  size_t message_bytes_max_;
};

}  // namespace

SimWorld::SimWorld(SimOptions options)
    : options_(std::move(options)),
      clock_(queue_),
      network_(options_, queue_, *this),
      faults_(queue_, network_, *this, options_.world),
      ranks_(options_.world) {}

SimWorld::~SimWorld() = default;

Transport& SimWorld::transport(uint32_t rank) {
  Rank& r = ranks_[rank];
  if (r.transport == nullptr) {
    r.transport = std::make_unique<SimTransport>(network_, rank, options_.message_bytes_max);
  }
  return *r.transport;
}

void SimWorld::attach(uint32_t rank, Actor* actor) {
  ranks_[rank].actor = actor;
  poke(rank);
}

void SimWorld::leave(uint32_t rank) {
  Rank& r = ranks_[rank];
  r.actor = nullptr;
  if (r.gone) return;
  r.gone = true;
  network_.leave(rank);
}

void SimWorld::poke(uint32_t rank) {
  ranks_[rank].poked = true;
  wake(rank, queue_.now_ns());
}

void SimWorld::charge(uint32_t rank, uint64_t bytes) {
  charge_ns(rank, static_cast<int64_t>(static_cast<double>(bytes) * options_.compute_ns_per_byte));
}

int64_t SimWorld::local_now_ns(uint32_t rank) const {
  return std::max(queue_.now_ns(), ranks_[rank].busy_until_ns);
}

void SimWorld::charge_ns(uint32_t rank, int64_t ns) {
  ranks_[rank].busy_until_ns = local_now_ns(rank) + ns;
}

void SimWorld::on_deliverable(uint32_t rank) { wake(rank, queue_.now_ns()); }

// Asks for a run at `at_ns` or as soon after as the rank can; one already asked for earlier stands.
void SimWorld::wake(uint32_t rank, int64_t at_ns) {
  Rank& r = ranks_[rank];
  if (r.actor == nullptr || r.gone || r.stopped || at_ns == kNever) return;
  at_ns = std::max({at_ns, r.busy_until_ns, queue_.now_ns()});
  if (r.slow.until_ns > queue_.now_ns()) {
    at_ns += r.slow.by_ns;
    on_fault_felt(r.slow.fault, rank);
  }
  if (at_ns >= r.run_at_ns) return;
  r.run_at_ns = at_ns;
  queue_.push(at_ns, SimEventKind::kRun, rank);
}

// False if the event was stale, the rank busy, or nothing due.
bool SimWorld::run(uint32_t rank) {
  Rank& r = ranks_[rank];
  const int64_t now_ns = queue_.now_ns();
  if (r.run_at_ns != now_ns) return false;
  r.run_at_ns = kNever;
  if (r.actor == nullptr || r.gone || r.stopped) return false;
  if (r.busy_until_ns > now_ns) {
    wake(rank, r.busy_until_ns);
    return false;
  }
  const int64_t deadline_ns = r.actor->next_deadline_ns();
  if (!r.poked && !network_.deliverable(rank) && deadline_ns > now_ns) {
    wake(rank, deadline_ns);
    return false;
  }
  r.poked = false;
  ++runs_count_;
  charge_ns(rank, options_.run_overhead_ns);
  r.actor->run(now_ns);
  if (r.actor == nullptr || r.gone) return true;
  if (r.poked || network_.deliverable(rank)) {
    wake(rank, now_ns);
  } else {
    wake(rank, r.actor->next_deadline_ns());
  }
  return true;
}

void SimWorld::stop(uint32_t rank, int64_t until_ns) {
  Rank& r = ranks_[rank];
  r.stopped = true;
  r.run_at_ns = kNever;
  r.stopped_until_ns = std::max(r.stopped_until_ns, until_ns);
  if (until_ns != kNever) queue_.push(r.stopped_until_ns, SimEventKind::kResume, rank);
}

void SimWorld::resume(uint32_t rank) {
  Rank& r = ranks_[rank];
  if (!r.stopped || r.stopped_until_ns > queue_.now_ns()) return;
  r.stopped = false;
  poke(rank);
}

void SimWorld::trace(const SimEvent& event) {
  const auto mix = [this](uint64_t value) {
    trace_hash_ = SeededRandom(trace_hash_ ^ value).next();
  };
  mix(static_cast<uint64_t>(event.at_ns));
  mix(uint64_t{static_cast<uint8_t>(event.kind)} << 32 | event.subject);
  if (event.message != nullptr) {
    mix(uint64_t{event.message->from} << 32 | event.message->to);
    mix(event.message->bytes);
  }
}

// True if an actor ran.
bool SimWorld::handle(const SimEvent& event) {
  switch (event.kind) {
    case SimEventKind::kRun:
      return run(event.subject);
    case SimEventKind::kArrive:
      network_.arrive(event.message);
      return false;
    case SimEventKind::kDeliver:
      network_.deliver(event.message);
      return false;
    case SimEventKind::kHeal:
      network_.heal();
      return false;
    case SimEventKind::kFault:
      faults_.strike(event.subject);
      return false;
    case SimEventKind::kResume:
      resume(event.subject);
      return false;
  }
  return false;
}

bool SimWorld::run_until(const std::function<bool()>& done, int64_t limit_ns) {
  if (done()) return true;
  while (!queue_.empty() && queue_.next_ns() <= limit_ns && events_count_ < options_.events_max) {
    const SimEvent event = queue_.pop();
    ++events_count_;
    trace(event);
    if (handle(event) && done()) return true;
  }
  if (events_count_ < options_.events_max) queue_.advance_to(limit_ns);
  return done();
}

}  // namespace parallax
