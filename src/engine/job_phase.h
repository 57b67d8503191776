// SPDX-License-Identifier: Apache-2.0
// JobPhase: how far a job has come at this rank, and so what may be called and what may come from
// others. It opens, commits, runs, closes and is closed, in this order, and from running it may
// commit again; a job that fails leaves phases out. One for a job; engine's owner only.
#ifndef PARALLAX_ENGINE_JOB_PHASE_H_
#define PARALLAX_ENGINE_JOB_PHASE_H_

#include <cstdint>

#include "base/status.h"
#include "group/step_window.h"

namespace parallax {

class JobPhase {
 public:
  // `failure` outlives this: why the job failed, or OK as long as it has not.
  explicit JobPhase(const Status& failure) : failure_(failure) {}

  // Nothing was committed: no variable is laid out, so nothing of a step may come.
  bool open() const { return phase_ == Phase::kOpen; }
  // This rank has called commit, the first or a later one, and not every rank has yet.
  bool committing() const { return phase_ == Phase::kCommitting; }
  // Every rank has committed; this one has not closed the job, nor called commit again.
  bool running() const { return phase_ == Phase::kRunning; }
  // It was running once.
  bool committed() const { return committed_; }
  bool closing() const { return phase_ == Phase::kClosing; }
  bool closed() const { return phase_ == Phase::kClosed; }

  // What happens, each when it does.
  void commit() { phase_ = Phase::kCommitting; }
  void run() {
    phase_ = Phase::kRunning;
    committed_ = true;
  }
  void close() { phase_ = Phase::kClosing; }
  void end() { phase_ = Phase::kClosed; }

  // It takes calls: it is running and has not failed.
  bool takes_calls() const { return running() && failure_.ok(); }
  // STATE where it takes none, or what failed it.
  Status check_running(const char* call) const { return takes_calls() ? Status() : refuse(call); }
  // For what makes a job ready, before its first commit and between steps.
  Status check_preparing(const char* call, const StepWindow& window) const;

 private:
  Status refuse(const char* call) const;

  enum class Phase : uint8_t { kOpen, kCommitting, kRunning, kClosing, kClosed };

  const Status& failure_;
  Phase phase_ = Phase::kOpen;
  bool committed_ = false;
};

}  // namespace parallax

#endif  // PARALLAX_ENGINE_JOB_PHASE_H_
