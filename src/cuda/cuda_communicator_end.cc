// SPDX-License-Identifier: Apache-2.0
// How a communicator ends: in good order, or given up. See cuda_communicator.h.
#include <chrono>
#include <thread>
#include <utility>

#include "cuda/context.h"
#include "cuda/cuda_communicator.h"

namespace parallax {

namespace {

// For the end of a communicator that nobody gave up: the other ranks end theirs at about the time.
constexpr int64_t kGoodbyeNs = 5'000'000'000;
constexpr std::chrono::microseconds kLookAfter(50);

}  // namespace

void CudaCommunicator::abort() {
  if (phase_ == Phase::kAborted) return;
  // It ends what is in progress, so that NCCL's threads write here no more.
  if (kin_.parent != nullptr) kin_.parent->abort();
  was_idle_ = phase_ == Phase::kReady && under_way_.empty();
  phase_ = Phase::kAborted;
  gate_.allow(parts_.abort_after);
  given_up();
}

// What kernels still use goes with the communicator; of a window NCCL before 2.29.7 keeps the
// memory until the process ends, unless it is deregistered before.
bool CudaCommunicator::let_go() {
  if (!was_idle_ || communicator_ == nullptr) return true;
  bool over = !leaves();
  if (over) {
    static_cast<void>(meanwhile_.ask(
        kLetGo,
        [this, communicator = communicator_] {
          say_goodbye(communicator, Goodbye::kBeforeAbort);
          return Status();
        },
        &over));
  }
  was_idle_ = !over && !gate_.late();
  return !was_idle_;
}

// Whether NCCL has nothing of it any more; then what the streams have ends.
bool CudaCommunicator::given_up() {
  if (over_) return true;
  if (kin_.parent != nullptr && !kin_.parent->given_up()) return false;
  if (!let_go() || !gate_.close()) return false;
  if (gate_.ended()) communicator_ = nullptr;
  if (communicator_ != nullptr) {
    bool aborted = false;
    static_cast<void>(aborting_.ask(
        kAbort,
        [this, communicator = communicator_] {
          const ContextScope scope(driver_, parts_.context);
          nccl_.ncclCommAbort(communicator);
          return Status();
        },
        &aborted));
    if (!aborted) return false;
    communicator_ = nullptr;
  }
  if (meanwhile_.working()) return false;
  over_ = true;
  static_cast<void>(memory_.take());
  memory_.buffers().drop_all();
  windows_.drop();
  if (window_ != nullptr) window_->drop();
  end_lending();
  const ContextScope scope(driver_, parts_.context);
  if (scope.status() != CUDA_SUCCESS || stream_ == nullptr) return true;
  // A context that has failed runs nothing of it.
  if (legs_ != nullptr) static_cast<void>(legs_->join(stream_));
  wakes_.wake_at_end(stream_);
  return true;
}

// A context that has failed executes nothing any more, and says so.
bool CudaCommunicator::quiet() {
  if (phase_ != Phase::kAborted || !given_up()) return false;
  const ContextScope scope(driver_, parts_.context);
  const bool asked = scope.status() == CUDA_SUCCESS;
  if (asked && (under_way(driver_, stream_) || wakes_.under_way())) return false;
  for (CUevent event : under_way_) events_.give_back(event);
  under_way_.clear();
  return true;
}

bool CudaCommunicator::drain(int64_t timeout_ns) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::nanoseconds(timeout_ns);
  while (!quiet()) {
    if (std::chrono::steady_clock::now() >= until) return false;
    std::this_thread::sleep_for(kLookAfter);
  }
  return true;
}

// On a thread. In good order as NCCL wants it: what is left is flushed together with the other
// ranks, then it is destroyed.
void CudaCommunicator::say_goodbye(ncclComm_t communicator, Goodbye how) {
  const ContextScope scope(driver_, parts_.context);
  if (scope.status() != CUDA_SUCCESS) return;
  memory_.buffers().deregister_all(communicator);
  windows_.deregister(communicator, gate_);
  if (window_ != nullptr) window_->deregister(communicator, gate_);
  if (how == Goodbye::kBeforeAbort) return;
  ncclResult_t state = gate_.call([&] { return nccl_.ncclCommFinalize(communicator); });
  while (state == ncclInProgress && !gate_.late()) {
    std::this_thread::sleep_for(kLookAfter);
    const ncclResult_t asked =
        gate_.call([&] { return nccl_.ncclCommGetAsyncError(communicator, &state); });
    if (asked != ncclSuccess) state = ncclSystemError;
  }
  if (state != ncclSuccess) return;
  static_cast<void>(gate_.last_call([&] { return nccl_.ncclCommDestroy(communicator); }));
}

bool CudaCommunicator::end() {
  // What was given up before has its time already.
  if (phase_ != Phase::kAborted) gate_.allow(std::chrono::nanoseconds(kGoodbyeNs));
  while (leaves() && !gate_.late()) std::this_thread::sleep_for(kLookAfter);
  const bool idles = phase_ == Phase::kReady && under_way_.empty();
  if (idles && !memory_.buffers().leaving()) {
    const auto close = [this, communicator = communicator_] {
      say_goodbye(communicator, Goodbye::kInGoodOrder);
      return Status();
    };
    for (bool over = false; !over && !gate_.late();) {
      static_cast<void>(meanwhile_.ask(kClose, close, &over));
      if (!over) std::this_thread::sleep_for(kLookAfter);
    }
    phase_ = Phase::kFailed;  // whatever came of it, NCCL was told that this is the end
  }
  abort();
  if (drain(parts_.abort_after.count() + kGoodbyeNs)) return true;
  parts_.left();
  return false;
}

CudaCommunicator::~CudaCommunicator() {
  const ContextScope scope(driver_, parts_.context);
  if (scope.status() != CUDA_SUCCESS) return;
  events_.destroy();
  wakes_.close();
  if (legs_ != nullptr) legs_->close();
  if (stream_ != nullptr) driver_.cuStreamDestroy_v2(stream_);
  parts_.give_back(memory_.take_zeros());
  parts_.give_back(memory_.take_scratch());
  if (sums_ != nullptr) parts_.give_back(sums_->take_memory());
  if (window_ != nullptr) parts_.give_back(window_->take_memory());
}

}  // namespace parallax
