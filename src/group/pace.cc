// SPDX-License-Identifier: Apache-2.0
// Own times, merged and judged. See pace.h.
#include "group/pace.h"

#include <algorithm>
#include <numeric>

namespace parallax {

namespace {

constexpr int64_t kNanosecondsPerMicrosecond = 1000;

}  // namespace

const char* step_phase_name(StepPhase phase) {
  constexpr std::array<const char*, kStepPhases> kNames = {"pull", "push", "step_end"};
  return kNames[static_cast<size_t>(phase)];
}

PaceVote PaceVote::of(uint32_t rank, const OwnTime::Times& own) {
  PaceVote vote;
  vote.rank = rank;
  for (size_t phase = 0; phase < kStepPhases; ++phase) {
    const int64_t us = std::clamp<int64_t>(own[phase] / kNanosecondsPerMicrosecond, 0, UINT32_MAX);
    vote.longest_us[phase] = static_cast<uint32_t>(us);
    vote.sum_us[phase] = static_cast<uint64_t>(us);
  }
  return vote;
}

uint64_t PaceVote::longest_total_us() const {
  return std::accumulate(longest_us.begin(), longest_us.end(), uint64_t{0});
}

void PaceVote::merge(const PaceVote& other) {
  const uint64_t total_us = longest_total_us();
  const uint64_t other_us = other.longest_total_us();
  // Of equals the lower rank, so that no order of merging changes the outcome.
  if (other_us > total_us || (other_us == total_us && other.rank < rank)) {
    longest_us = other.longest_us;
    rank = other.rank;
  }
  for (size_t phase = 0; phase < kStepPhases; ++phase) sum_us[phase] += other.sum_us[phase];
}

std::string late_sentence(const std::string& name, const LateRank& late) {
  return name + " is late: in " + std::to_string(late.steps) + " of the last " +
         std::to_string(LateWindow::kWindowSteps) + " steps the others waited for it, " +
         std::to_string(late.late_ms) + " ms a step, most of it before its " +
         step_phase_name(late.phase) + (late.phase == StepPhase::kPush ? " or reduce" : "") +
         "; its own program takes so long, not the network: look at its input, and for a busy or "
         "slow machine";
}

void LateWindow::add(const PaceVote& times, uint32_t world, int64_t step_ns) {
  Latest& latest = steps_[count_++ % kWindowSteps];
  if (latest.rank != UINT32_MAX) --late_count_;
  latest = {};
  if (world < 2 || times.rank >= world) return;
  // No rank is later than it took itself, and in most steps that is nothing.
  if (times.longest_total_us() <= kLateNsMin / kNanosecondsPerMicrosecond) return;
  int64_t late_us = 0;
  int64_t most_us = INT64_MIN;
  StepPhase phase = StepPhase::kPull;
  for (size_t i = 0; i < kStepPhases; ++i) {
    const uint64_t longest_us = times.longest_us[i];
    if (times.sum_us[i] < longest_us) return;  // a peer's numbers may be anything
    const uint64_t others_us = (times.sum_us[i] - longest_us) / (world - 1);
    const int64_t more_us = static_cast<int64_t>(longest_us) -
                            static_cast<int64_t>(std::min<uint64_t>(others_us, UINT32_MAX));
    late_us += more_us;
    if (more_us <= most_us) continue;
    most_us = more_us;
    phase = static_cast<StepPhase>(i);
  }
  // The step still takes its place in the window, as one in which nobody was late.
  if (late_us * kNanosecondsPerMicrosecond <= std::max(kLateNsMin, step_ns / kLatePartOfStep))
    return;
  latest = {times.rank, phase, static_cast<uint32_t>(std::min<int64_t>(late_us, UINT32_MAX))};
  ++late_count_;
}

LateRank LateWindow::late() const {
  LateRank late;
  if (late_count_ < kLateStepsMin) return late;  // nearly always
  for (const Latest& candidate : steps_) {
    if (candidate.rank == UINT32_MAX) continue;
    std::array<uint32_t, kWindowSteps> late_us;
    std::array<uint32_t, kStepPhases> phases = {};
    uint32_t steps = 0;
    for (const Latest& each : steps_) {
      if (each.rank != candidate.rank) continue;
      late_us[steps++] = each.late_us;
      ++phases[static_cast<size_t>(each.phase)];
    }
    // More than half of the window, so at most one rank comes past this.
    if (steps < kLateStepsMin) continue;
    const auto middle = late_us.begin() + steps / 2;
    std::nth_element(late_us.begin(), middle, late_us.begin() + steps);
    const auto most = std::max_element(phases.begin(), phases.end());
    constexpr uint32_t kUsPerMs = 1000;
    late = {candidate.rank, static_cast<StepPhase>(most - phases.begin()), *middle / kUsPerMs,
            steps};
  }
  return late;
}

bool LateWindow::news(const LateRank& late, int64_t now_ns) {
  if (late.steps == 0) return false;
  if (said_.steps != 0) {
    if (late.rank == said_.rank && late.phase == said_.phase) return false;
    if (now_ns - said_ns_ < kSayAgainNs) return false;
  }
  said_ = late;
  said_ns_ = now_ns;
  return true;
}

}  // namespace parallax
