// SPDX-License-Identifier: Apache-2.0
// NcclGate: the calls that a thread beside the owner makes of a communicator, and their end. One
// may wait for a rank that is gone, until the communicator is aborted; and what is aborted is not
// to be called. So each goes through here: once it is closed none begins any more, and the owner
// knows whether one is still in NCCL, and since when it may be so.
//
// Any thread; nothing here waits but for the other side's look.
#ifndef PARALLAX_CUDA_NCCL_GATE_H_
#define PARALLAX_CUDA_NCCL_GATE_H_

#include <chrono>
#include <cstdint>

#include "base/mutex.h"
#include "cuda/nccl_api.h"

namespace parallax {

class NcclGate {
 public:
  // What `work` answers; ncclInvalidUsage: it is closed, and nothing was called.
  template <typename Work>
  ncclResult_t call(Work&& work) PARALLAX_EXCLUDES(mutex_) {
    return pass(State::kWithin, work);
  }
  // The one that ends the communicator by itself: where it has begun that is not to be aborted, and
  // where it has succeeded it is not there any more.
  template <typename Work>
  ncclResult_t last_call(Work&& work) PARALLAX_EXCLUDES(mutex_) {
    return pass(State::kEnding, work);
  }

  // What is called is waited for so long from now on, and no longer.
  void allow(std::chrono::nanoseconds time) PARALLAX_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    until_ = std::chrono::steady_clock::now() + time;
  }
  bool late() const PARALLAX_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    return std::chrono::steady_clock::now() >= until_;
  }
  // No call begins any more. Whether the communicator may be aborted, if it is there: nothing is in
  // NCCL, or only an abort ends it.
  bool close() PARALLAX_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    closed_ = true;
    if (state_ == State::kOutside || state_ == State::kEnded) return true;
    return state_ == State::kWithin && std::chrono::steady_clock::now() >= until_;
  }
  bool ended() const PARALLAX_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    return state_ == State::kEnded;
  }

 private:
  enum class State : uint8_t { kOutside, kWithin, kEnding, kEnded };

  template <typename Work>
  ncclResult_t pass(State state, Work&& work) PARALLAX_EXCLUDES(mutex_) {
    {
      const MutexLock lock(mutex_);
      if (closed_) return ncclInvalidUsage;
      state_ = state;
    }
    const ncclResult_t result = work();
    const MutexLock lock(mutex_);
    const bool ended = state == State::kEnding && result == ncclSuccess;
    state_ = ended ? State::kEnded : State::kOutside;
    return result;
  }

  mutable Mutex mutex_;
  bool closed_ PARALLAX_GUARDED_BY(mutex_) = false;
  State state_ PARALLAX_GUARDED_BY(mutex_) = State::kOutside;
  std::chrono::steady_clock::time_point until_ PARALLAX_GUARDED_BY(mutex_) = {};
};

}  // namespace parallax

#endif  // PARALLAX_CUDA_NCCL_GATE_H_
