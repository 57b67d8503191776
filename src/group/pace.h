// SPDX-License-Identifier: Apache-2.0
// Pace: which rank the others wait for. Each rank measures its own time of a step: how long its
// program took, since the last thing it had to wait for came, before it pulled, pushed or ended the
// step. What others make a rank wait for is not counted, and no two clocks are compared, so ranks
// of different hosts can be compared: votes carry the longest time and the sum of all to the root,
// which holds the longest against the mean of the others, over a window of steps.
//
// A rank that the job waits for is told from one that happened to be last: it must be the latest by
// kLateNsMin and an eighth of the step in kLateStepsMin of the last kWindowSteps steps. Pure; one
// owner.
#ifndef PARALLAX_GROUP_PACE_H_
#define PARALLAX_GROUP_PACE_H_

#include <array>
#include <cstdint>
#include <span>
#include <string>

#include "base/clock.h"

namespace parallax {

enum class StepPhase : uint8_t { kPull, kPush, kStepEnd };  // kPush: of reduces too
inline constexpr uint32_t kStepPhases = 3;
const char* step_phase_name(StepPhase phase);  // "pull"

// One rank's own time. A few additions a call.
class OwnTime {
 public:
  using Times = std::array<int64_t, kStepPhases>;  // ns

  // A step begins here; it may come before the one before it was decided.
  void begin(uint64_t step) { buffer(step) = {}; }
  // The step before this one is over: what was called before now was not waited for.
  void open(uint64_t step, int64_t now_ns) {
    buffer(step) = {};
    since_ns_ = now_ns;
  }
  // A request completed: from now on the program has what it waited for.
  void completed(int64_t now_ns) { since_ns_ = now_ns; }
  void called(uint64_t step, StepPhase phase, int64_t now_ns) {
    buffer(step)[static_cast<size_t>(phase)] += now_ns - since_ns_;
    since_ns_ = now_ns;
  }
  const Times& of(uint64_t step) const { return step_times_[step & 1]; }

 private:
  Times& buffer(uint64_t step) { return step_times_[step & 1]; }

  std::array<Times, 2> step_times_ = {};
  int64_t since_ns_ = 0;
};

// Own times over ranks, as a vote carries them: whose were the longest in all, what they were, and
// everyone's together.
struct PaceVote {
  std::array<uint32_t, kStepPhases> longest_us = {};
  uint32_t rank = UINT32_MAX;
  std::array<uint64_t, kStepPhases> sum_us = {};

  static PaceVote of(uint32_t rank, const OwnTime::Times& own);
  void merge(const PaceVote& other);
  uint64_t longest_total_us() const;
  bool operator==(const PaceVote&) const = default;
};

// The rank that the others wait for.
struct LateRank {
  uint32_t rank = 0;
  StepPhase phase = StepPhase::kPull;  // before this call most of it was, in most of those steps
  uint32_t late_ms = 0;                // behind the mean of the others: the median of those steps
  uint32_t steps = 0;                  // of the last kWindowSteps; 0: there is none
  bool operator==(const LateRank&) const = default;
};

// For the log; `name` as sentences have it.
std::string late_sentence(const std::string& name, const LateRank& late);

class LateWindow {
 public:
  static constexpr uint32_t kWindowSteps = 16;
  static constexpr uint32_t kLateStepsMin = 12;
  static constexpr int64_t kLateNsMin = 10 * kNanosecondsPerMillisecond;
  static constexpr int64_t kLatePartOfStep = 8;
  static constexpr int64_t kSayAgainNs = 60'000 * kNanosecondsPerMillisecond;

  // A step's times, and how long it took. A rank beyond the world counts as none.
  void add(const PaceVote& times, uint32_t world, int64_t step_ns);
  LateRank late() const;
  // True if this is worth a line in the log: another rank or phase than the line before said, and
  // not too soon after it.
  bool news(const LateRank& late, int64_t now_ns);

 private:
  struct Latest {
    uint32_t rank = UINT32_MAX;  // nobody
    StepPhase phase = StepPhase::kPull;
    uint32_t late_us = 0;
  };
  std::array<Latest, kWindowSteps> steps_ = {};
  uint64_t count_ = 0;
  uint32_t late_count_ = 0;  // of steps_, those with a rank
  LateRank said_;
  int64_t said_ns_ = 0;
};

}  // namespace parallax

#endif  // PARALLAX_GROUP_PACE_H_
