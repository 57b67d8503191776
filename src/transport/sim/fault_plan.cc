// SPDX-License-Identifier: Apache-2.0
// Drawing, printing and counting of faults.
#include "transport/sim/fault_plan.h"

#include <algorithm>
#include <cstdio>

#include "base/check.h"
#include "base/seeded_random.h"

namespace parallax {
namespace {

constexpr std::array<std::string_view, kFaultKinds> kNames = {
    "delay",
    "silence_one_way",
    "silence_both_ways",
    "cut_one_way",
    "cut_both_ways",
    "partition",
    "split",
    "close",
    "kill",
    "power_off",
    "stop",
    "freeze",
    "slow",
    "stray",
    "replay",
    "other_job",
};

constexpr int64_t kKillSeenMaxNs = 40 * kNanosecondsPerMillisecond;
constexpr uint32_t kUnknownRanks = 5;  // a stray may claim to come from just beyond the world

std::string milliseconds(int64_t ns) {
  if (ns == kNever) return "never";
  char text[32];
  std::snprintf(text, sizeof text, "%.3fms", static_cast<double>(ns) / 1e6);
  return text;
}

// Shorter than half a lease, so that it must go unnoticed whatever the heartbeat's period.
int64_t short_ns(SeededRandom& random, int64_t lease_ns) {
  return random.between(lease_ns / 200, lease_ns * 2 / 5);
}

std::vector<bool> draw_sides(SeededRandom& random, const std::vector<uint32_t>& host_of) {
  const uint32_t hosts = *std::max_element(host_of.begin(), host_of.end()) + 1;
  std::vector<bool> side(hosts);
  for (uint32_t host = 0; host < hosts; ++host) side[host] = random.chance(50);
  const auto alone = static_cast<size_t>(random.below(hosts));
  side[alone] = !side[(alone + 1) % hosts];  // neither side is empty
  return side;
}

void draw_trigger(SeededRandom& random, const FaultPlanOptions& options, Fault* fault) {
  const uint64_t draw = random.below(100);
  if (draw < 60 && !options.phases.empty()) {
    fault->trigger = FaultTrigger::kAtPhase;
    fault->phase = options.phases[random.below(options.phases.size())];
    fault->at = random.chance(60) ? 1 : random.between(1, 4);
    // Most phases are short: now, or soon after.
    fault->after_ns = random.chance(40) ? 0 : random.between(0, 100'000);
  } else if (draw < 80) {
    fault->trigger = FaultTrigger::kAtOperation;
    fault->at = random.between(1, std::max<int64_t>(1, options.operations));
  } else {
    fault->trigger = FaultTrigger::kAtTime;
    fault->at = random.between(0, options.horizon_ns);
  }
}

// All but the trigger.
Fault draw_effect(SeededRandom& random, const FaultPlanOptions& options, FaultKind kind) {
  const auto world = static_cast<uint32_t>(options.host_of.size());
  const bool one_host = std::all_of(options.host_of.begin(), options.host_of.end(),
                                    [](uint32_t host) { return host == 0; });
  Fault fault;
  fault.kind = kind;
  if (one_host && fault.kind == FaultKind::kPartition) fault.kind = FaultKind::kSilenceBothWays;
  if (one_host && fault.kind == FaultKind::kSplit) fault.kind = FaultKind::kCutBothWays;

  fault.rank = static_cast<uint32_t>(random.below(world));
  fault.peer = static_cast<uint32_t>((fault.rank + 1 + random.below(world - 1)) % world);
  fault.peer_choice = random.next();
  fault.seed = random.next();
  const int64_t lease_ns = options.lease_ns;
  fault.duration_ns = is_fatal(fault.kind) ? kNever : short_ns(random, lease_ns);
  switch (fault.kind) {
    case FaultKind::kDelay:
    case FaultKind::kSlow:
      fault.amount_ns = random.between(lease_ns / 2000, lease_ns / 20);
      break;
    case FaultKind::kKill:
      fault.amount_ns = random.between(0, kKillSeenMaxNs);
      break;
    case FaultKind::kFreeze:
      if (random.chance(60)) fault.duration_ns = lease_ns * 2 + random.between(0, lease_ns * 2);
      break;
    case FaultKind::kPartition:
    case FaultKind::kSplit:
      fault.side_of_host = draw_sides(random, options.host_of);
      break;
    case FaultKind::kStray:
      if (random.chance(30)) {
        fault.peer = world + static_cast<uint32_t>(random.below(kUnknownRanks));
      }
      break;
    default:
      break;
  }
  return fault;
}

Fault draw_fault(SeededRandom& random, const FaultPlanOptions& options) {
  FaultKind kind;
  do {
    kind = static_cast<FaultKind>(random.below(kFaultKinds));
  } while (!options.fatal && is_fatal(kind));
  Fault fault = draw_effect(random, options, kind);
  draw_trigger(random, options, &fault);
  return fault;
}

Fault draw_fault_of(SeededRandom& random, const FaultPlanOptions& options, uint64_t turn) {
  Fault fault = draw_effect(random, options, static_cast<FaultKind>(turn % kFaultKinds));
  fault.trigger = FaultTrigger::kAtPhase;
  fault.phase = options.phases[turn / kFaultKinds % options.phases.size()];
  fault.at = 1;
  return fault;
}

std::string describe_fault(const Fault& fault) {
  std::string text(fault_name(fault.kind));
  const bool of_hosts = !fault.side_of_host.empty();
  if (of_hosts) {
    text += " hosts=";
    for (const bool side : fault.side_of_host) text += side ? 'B' : 'A';
  } else {
    text += " rank=" + std::to_string(fault.rank) + " peer=" + std::to_string(fault.peer);
  }
  switch (fault.trigger) {
    case FaultTrigger::kAtTime:
      text += " at=" + milliseconds(fault.at);
      break;
    case FaultTrigger::kAtOperation:
      text += " at=operation#" + std::to_string(fault.at);
      if (of_hosts) text += " of rank " + std::to_string(fault.rank);
      break;
    case FaultTrigger::kAtPhase:
      text += " at=" + fault.phase + "#" + std::to_string(fault.at) + "+" +
              milliseconds(fault.after_ns);
      if (of_hosts) text += " of rank " + std::to_string(fault.rank);
      break;
  }
  if (fault.duration_ns != kNever) text += " for=" + milliseconds(fault.duration_ns);
  if (fault.amount_ns != 0) text += " amount=" + milliseconds(fault.amount_ns);
  return text;
}

}  // namespace

std::string_view fault_name(FaultKind kind) { return kNames[static_cast<size_t>(kind)]; }

bool is_fatal(FaultKind kind) {
  switch (kind) {
    case FaultKind::kDelay:
    case FaultKind::kSilenceOneWay:
    case FaultKind::kSilenceBothWays:
    case FaultKind::kPartition:
    case FaultKind::kStop:
    case FaultKind::kSlow:
    case FaultKind::kReplay:
    case FaultKind::kOtherJob:
      return false;
    default:
      return true;
  }
}

FaultPlan FaultPlan::generate(const FaultPlanOptions& options) {
  FaultPlan plan;
  SeededRandom random = SeededRandom(options.seed).fork(2);
  if (options.host_of.size() < 2) return plan;
  uint64_t count = random.below(options.faults_max + 1);
  if (options.turn != UINT64_MAX) count = std::max<uint64_t>(count, 1);
  for (uint64_t i = 0; i < count; ++i) plan.faults.push_back(draw_fault(random, options));
  if (options.turn != UINT64_MAX && count > 0) {
    plan.faults.front() = draw_fault_of(random, options, options.turn);
  }
  return plan;
}

bool FaultPlan::fatal() const {
  return std::any_of(faults.begin(), faults.end(),
                     [](const Fault& fault) { return is_fatal(fault.kind); });
}

std::string FaultPlan::describe() const {
  std::string text = "faults=[";
  for (size_t i = 0; i < faults.size(); ++i) {
    text += (i > 0 ? "; " : "") + describe_fault(faults[i]);
  }
  return text + "]";
}

void FaultCounts::add(FaultKind kind, const std::string& phase, uint64_t count) {
  counts_[{kind, phase}] += count;
}

void FaultCounts::merge(const FaultCounts& other) {
  for (const auto& [key, count] : other.counts_) counts_[key] += count;
}

uint64_t FaultCounts::of(FaultKind kind) const {
  uint64_t sum = 0;
  for (const auto& [key, count] : counts_) sum += key.first == kind ? count : 0;
  return sum;
}

uint64_t FaultCounts::of(FaultKind kind, const std::string& phase) const {
  const auto found = counts_.find({kind, phase});
  return found == counts_.end() ? 0 : found->second;
}

std::string FaultCounts::table(const std::vector<std::string>& phases) const {
  char cell[64];
  std::snprintf(cell, sizeof cell, "%-18s", "fault");
  std::string text = cell;
  for (const std::string& phase : phases) {
    std::snprintf(cell, sizeof cell, "%10s", phase.c_str());
    text += cell;
  }
  text += "\n";
  for (size_t kind = 0; kind < kFaultKinds; ++kind) {
    std::snprintf(cell, sizeof cell, "%-18s", std::string(kNames[kind]).c_str());
    text += cell;
    for (const std::string& phase : phases) {
      std::snprintf(cell, sizeof cell, "%10llu",
                    static_cast<unsigned long long>(of(static_cast<FaultKind>(kind), phase)));
      text += cell;
    }
    text += "\n";
  }
  return text;
}

}  // namespace parallax
