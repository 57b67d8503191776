// SPDX-License-Identifier: Apache-2.0
// When faults strike, and what each kind does.
#include "transport/sim/fault_injector.h"

#include <algorithm>

#include "base/seeded_random.h"

namespace parallax {
namespace {

constexpr size_t kStrayBytesMax = 512;
constexpr int64_t kStrikeLaterNs = 20'000;

bool sends_again(FaultKind kind) {
  return kind == FaultKind::kReplay || kind == FaultKind::kOtherJob;
}

}  // namespace

void FaultInjector::set_plan(FaultPlan plan) {
  plan_ = std::move(plan);
  progress_.assign(plan_.faults.size(), {});
  for (size_t i = 0; i < plan_.faults.size(); ++i) {
    const Fault& fault = plan_.faults[i];
    if (sends_again(fault.kind)) network_.seen().remember(fault.rank);
    if (fault.trigger == FaultTrigger::kAtTime) {
      queue_.push(fault.at, SimEventKind::kFault, static_cast<uint32_t>(i));
    }
  }
}

void FaultInjector::set_phase(uint32_t rank, std::string_view phase) {
  if (ranks_[rank].phase == phase) return;
  ranks_[rank].phase = phase;
  for (size_t i = 0; i < plan_.faults.size(); ++i) {
    const Fault& fault = plan_.faults[i];
    if (fault.trigger != FaultTrigger::kAtPhase || fault.rank != rank || fault.phase != phase ||
        ++progress_[i].phase_entries != fault.at) {
      continue;
    }
    queue_.push(queue_.now_ns() + fault.after_ns, SimEventKind::kFault, static_cast<uint32_t>(i));
  }
}

// An event, not a call: the send that counts is still on the stack.
void FaultInjector::on_send(uint32_t rank) {
  const int64_t operation = ++ranks_[rank].operations;
  for (size_t i = 0; i < plan_.faults.size(); ++i) {
    const Fault& fault = plan_.faults[i];
    if (fault.trigger == FaultTrigger::kAtOperation && fault.rank == rank &&
        fault.at == operation) {
      queue_.push(queue_.now_ns(), SimEventKind::kFault, static_cast<uint32_t>(i));
    }
  }
}

void FaultInjector::on_felt(int fault, uint32_t rank) {
  if (fault < 0 || felt(static_cast<size_t>(fault))) return;
  const auto index = static_cast<size_t>(fault);
  progress_[index].felt_at_ns = queue_.now_ns();
  counts_.add(plan_.faults[index].kind, ranks_[rank].phase);
}

int64_t FaultInjector::first_felt_ns(bool fatal) const {
  int64_t first_ns = kNever;
  for (size_t i = 0; i < plan_.faults.size(); ++i) {
    if (is_fatal(plan_.faults[i].kind) == fatal) first_ns = std::min(first_ns, felt_at_ns(i));
  }
  return first_ns;
}

void FaultInjector::strike_now(const Fault& fault) {
  plan_.faults.push_back(fault);
  progress_.emplace_back();
  if (sends_again(fault.kind)) network_.seen().remember(fault.rank);
  strike(static_cast<uint32_t>(plan_.faults.size()) - 1);
}

void FaultInjector::strike(uint32_t fault) { apply(plan_.faults[fault], static_cast<int>(fault)); }

int64_t FaultInjector::until_ns(const Fault& fault) const {
  return fault.duration_ns == kNever ? kNever : queue_.now_ns() + fault.duration_ns;
}

// The peer that was drawn, if the two talk; else one that the rank does talk to.
uint32_t FaultInjector::peer_of(const Fault& fault) {
  const SimConnections& connections = network_.connections();
  if (connections.connected(fault.rank, fault.peer)) return fault.peer;
  return connections.nth_peer(fault.rank, fault.peer_choice);
}

// The rank has talked to nobody yet: as soon as it may have.
void FaultInjector::strike_later(int index) {
  const int64_t again_ns = queue_.now_ns() + kStrikeLaterNs + queue_.now_ns() / 4;
  queue_.push(again_ns, SimEventKind::kFault, static_cast<uint32_t>(index));
}

void FaultInjector::silence(const Fault& fault, int index, bool both_ways) {
  const uint32_t peer = peer_of(fault);
  if (peer == fault.rank) {
    strike_later(index);
    return;
  }
  Interference& interference = network_.interference();
  SimConnections& connections = network_.connections();
  interference.silence(connections.link(fault.rank, peer), until_ns(fault), index);
  if (both_ways) {
    interference.silence(connections.link(peer, fault.rank), until_ns(fault), index);
  }
}

void FaultInjector::close(const Fault& fault, int index) {
  const uint32_t peer = peer_of(fault);
  if (peer == fault.rank) {
    strike_later(index);
    return;
  }
  on_felt(index, fault.rank);
  network_.close_connection(fault.rank, peer);
}

// Random bytes, or the head of a real message cut short.
void FaultInjector::stray(const Fault& fault) {
  SeededRandom random(fault.seed);
  std::vector<std::byte> bytes;
  const auto sample = network_.seen().sample();
  if (sample.size() > 1 && random.chance(50)) {
    const auto kept = static_cast<ptrdiff_t>(random.below(sample.size()));
    bytes.assign(sample.begin(), sample.begin() + kept);
  } else {
    bytes.resize(random.below(kStrayBytesMax));
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random.next());
  }
  network_.inject(fault.peer, fault.rank, bytes);
}

void FaultInjector::replay(const Fault& fault, int index) {
  SeenMessages::Remembered again = network_.seen().remembered(fault.rank);
  const bool disguised = fault.kind == FaultKind::kOtherJob;
  if (again.bytes.empty() || (disguised && !disguise_)) {
    strike_later(index);
    return;
  }
  on_felt(index, fault.rank);
  if (disguised) disguise_(again.bytes);
  network_.inject(again.from, fault.rank, again.bytes);
}

void FaultInjector::apply(const Fault& fault, int index) {
  if (targets_.gone(fault.rank)) return;
  switch (fault.kind) {
    case FaultKind::kDelay:
      network_.interference().delay_from(fault.rank, fault.amount_ns, until_ns(fault), index);
      break;
    case FaultKind::kSilenceOneWay:
    case FaultKind::kCutOneWay:
      silence(fault, index, false);
      break;
    case FaultKind::kSilenceBothWays:
    case FaultKind::kCutBothWays:
      silence(fault, index, true);
      break;
    case FaultKind::kPartition:
    case FaultKind::kSplit:
      network_.interference().partition(fault.side_of_host, until_ns(fault), index);
      break;
    case FaultKind::kClose:
      close(fault, index);
      break;
    case FaultKind::kKill:
    case FaultKind::kPowerOff:
      on_felt(index, fault.rank);
      targets_.end(fault.rank);
      network_.kill(fault.rank, fault.kind == FaultKind::kKill ? fault.amount_ns : kNever);
      break;
    case FaultKind::kStop:
    case FaultKind::kFreeze:
      on_felt(index, fault.rank);
      targets_.stop(fault.rank, until_ns(fault));
      break;
    case FaultKind::kSlow:
      targets_.slow_down(fault.rank, {until_ns(fault), fault.amount_ns, index});
      break;
    case FaultKind::kStray:
      on_felt(index, fault.rank);
      stray(fault);
      break;
    case FaultKind::kReplay:
    case FaultKind::kOtherJob:
      replay(fault, index);
      break;
  }
}

}  // namespace parallax
