// SPDX-License-Identifier: Apache-2.0
// Faults of the simulator: when they strike and what they do to ranks; the wires' part is in
// sim_network_faults.cc.
#include <algorithm>
#include <utility>

#include "base/check.h"
#include "transport/sim/sim_world.h"

namespace parallax {
namespace {

constexpr size_t kStrayBytesMax = 512;
constexpr int64_t kStrikeLaterNs = 20'000;

}  // namespace

void SimWorld::set_faults(FaultPlan plan) {
  plan_ = std::move(plan);
  phase_entries_.assign(plan_.faults.size(), 0);
  felt_.assign(plan_.faults.size(), false);
  felt_at_ns_.assign(plan_.faults.size(), kNever);
  for (size_t i = 0; i < plan_.faults.size(); ++i) {
    const Fault& fault = plan_.faults[i];
    if (fault.kind == FaultKind::kReplay || fault.kind == FaultKind::kOtherJob) {
      network_.remember(fault.rank);
    }
    if (fault.trigger == FaultTrigger::kAtTime) {
      queue_.push(fault.at, SimEventKind::kFault, static_cast<uint32_t>(i));
    }
  }
}

void SimWorld::set_phase(uint32_t rank, std::string_view phase) {
  Rank& r = ranks_[rank];
  if (r.phase == phase) return;
  r.phase = phase;
  for (size_t i = 0; i < plan_.faults.size(); ++i) {
    const Fault& fault = plan_.faults[i];
    if (fault.trigger != FaultTrigger::kAtPhase || fault.rank != rank || fault.phase != phase ||
        ++phase_entries_[i] != fault.at) {
      continue;
    }
    queue_.push(queue_.now_ns() + fault.after_ns, SimEventKind::kFault, static_cast<uint32_t>(i));
  }
}

// An event, not a call: the send that counts is still on the stack.
void SimWorld::on_send(uint32_t rank) {
  const int64_t operation = ++ranks_[rank].operations;
  for (size_t i = 0; i < plan_.faults.size(); ++i) {
    const Fault& fault = plan_.faults[i];
    if (fault.trigger == FaultTrigger::kAtOperation && fault.rank == rank &&
        fault.at == operation) {
      queue_.push(queue_.now_ns(), SimEventKind::kFault, static_cast<uint32_t>(i));
    }
  }
}

void SimWorld::on_fault_felt(int fault, uint32_t rank) {
  if (fault < 0) return;
  const auto index = static_cast<size_t>(fault);
  if (felt_[index]) return;
  felt_[index] = true;
  felt_at_ns_[index] = queue_.now_ns();
  counts_.add(plan_.faults[index].kind, ranks_[rank].phase);
}

int64_t SimWorld::first_felt_ns(bool fatal) const {
  int64_t first_ns = kNever;
  for (size_t i = 0; i < plan_.faults.size(); ++i) {
    if (is_fatal(plan_.faults[i].kind) == fatal) first_ns = std::min(first_ns, felt_at_ns_[i]);
  }
  return first_ns;
}

void SimWorld::apply(const Fault& fault) {
  plan_.faults.push_back(fault);
  phase_entries_.push_back(0);
  felt_.push_back(false);
  felt_at_ns_.push_back(kNever);
  network_.remember(fault.rank);
  const Fault now = fault;  // apply_fault may not see the vector move
  apply_fault(now, static_cast<int>(plan_.faults.size()) - 1);
}

int64_t SimWorld::until_ns(const Fault& fault) const {
  return fault.duration_ns == kNever ? kNever : queue_.now_ns() + fault.duration_ns;
}

// The peer that was drawn, if the two talk; else one that the rank does talk to.
uint32_t SimWorld::peer_of(const Fault& fault) const {
  if (network_.connected(fault.rank, fault.peer)) return fault.peer;
  return network_.nth_peer(fault.rank, fault.peer_choice);
}

// The rank has talked to nobody yet: as soon as it may have.
void SimWorld::strike_later(int index) {
  const int64_t again_ns = queue_.now_ns() + kStrikeLaterNs + queue_.now_ns() / 4;
  queue_.push(again_ns, SimEventKind::kFault, static_cast<uint32_t>(index));
}

void SimWorld::silence(const Fault& fault, int index, bool both_ways) {
  const uint32_t peer = peer_of(fault);
  if (peer == fault.rank) {
    strike_later(index);
    return;
  }
  network_.silence(fault.rank, peer, until_ns(fault), index);
  if (both_ways) network_.silence(peer, fault.rank, until_ns(fault), index);
}

void SimWorld::stop(const Fault& fault, int index) {
  Rank& r = ranks_[fault.rank];
  on_fault_felt(index, fault.rank);
  r.stopped = true;
  r.run_at_ns = kNever;
  r.stopped_until_ns = std::max(r.stopped_until_ns, until_ns(fault));
  if (fault.duration_ns != kNever) {
    queue_.push(r.stopped_until_ns, SimEventKind::kResume, fault.rank);
  }
}

// Random bytes, or the head of a real message cut short.
void SimWorld::stray(const Fault& fault) {
  SeededRandom random(fault.seed);
  std::vector<std::byte> bytes;
  const auto sample = network_.sample();
  if (sample.size() > 1 && random.chance(50)) {
    const auto kept = static_cast<ptrdiff_t>(random.below(sample.size()));
    bytes.assign(sample.begin(), sample.begin() + kept);
  } else {
    bytes.resize(random.below(kStrayBytesMax));
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random.next());
  }
  network_.inject(fault.peer, fault.rank, bytes);
}

void SimWorld::replay(const Fault& fault, int index) {
  SimNetwork::Remembered again = network_.remembered(fault.rank);
  const bool disguised = fault.kind == FaultKind::kOtherJob;
  if (again.bytes.empty() || (disguised && !disguise_)) {
    strike_later(index);
    return;
  }
  on_fault_felt(index, fault.rank);
  if (disguised) disguise_(again.bytes);
  network_.inject(again.from, fault.rank, again.bytes);
}

void SimWorld::apply_fault(const Fault& fault, int index) {
  Rank& r = ranks_[fault.rank];
  if (r.gone) return;
  switch (fault.kind) {
    case FaultKind::kDelay:
      network_.delay_from(fault.rank, fault.amount_ns, until_ns(fault), index);
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
      network_.partition(fault.side_of_host, until_ns(fault), index);
      break;
    case FaultKind::kClose: {
      const uint32_t peer = peer_of(fault);
      if (peer == fault.rank) {
        strike_later(index);
        break;
      }
      on_fault_felt(index, fault.rank);
      network_.close_connection(fault.rank, peer);
      break;
    }
    case FaultKind::kKill:
    case FaultKind::kPowerOff:
      on_fault_felt(index, fault.rank);
      r.gone = true;
      network_.kill(fault.rank, fault.kind == FaultKind::kKill ? fault.amount_ns : kNever);
      break;
    case FaultKind::kStop:
    case FaultKind::kFreeze:
      stop(fault, index);
      break;
    case FaultKind::kSlow:
      r.slow_until_ns = until_ns(fault);
      r.slow_by_ns = fault.amount_ns;
      r.slow_fault = index;
      break;
    case FaultKind::kStray:
      on_fault_felt(index, fault.rank);
      stray(fault);
      break;
    case FaultKind::kReplay:
    case FaultKind::kOtherJob:
      replay(fault, index);
      break;
  }
}

}  // namespace parallax
