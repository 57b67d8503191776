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

void CudaCommunicator::deregister_all() {
  memory_.buffers().forget_all(communicator_);
  windows_.deregister(communicator_);
  if (window_ != nullptr) window_->deregister(communicator_);
}

void CudaCommunicator::abort() {
  if (phase_ == Phase::kAborted) return;
  // It ends what is in progress, so that NCCL's threads write here no more.
  if (kin_.parent != nullptr) kin_.parent->abort();
  was_idle_ = phase_ == Phase::kReady && under_way_.empty();
  phase_ = Phase::kAborted;
  given_up();
}

// On a thread where it may take NCCL long, which has the communicator and what it knows.
void CudaCommunicator::end_with_nccl() {
  const ContextScope scope(driver_, parts_.context);
  // What kernels still use goes with the communicator; of a window NCCL before 2.29.7 keeps the
  // memory until the process ends.
  if (was_idle_) deregister_all();
  memory_.buffers().drop_all();
  windows_.drop();
  if (window_ != nullptr) window_->drop();
  if (communicator_ != nullptr) nccl_.ncclCommAbort(communicator_);
}

// Whether NCCL has nothing of it any more; then what the streams have ends.
bool CudaCommunicator::given_up() {
  if (over_) return true;
  if (leaves()) return false;
  if (kin_.parent != nullptr && !kin_.parent->given_up()) return false;
  if (communicator_ == nullptr) {
    meanwhile_.finish();
    end_with_nccl();
  } else {
    bool ended = false;
    static_cast<void>(meanwhile_.ask(
        kEnd,
        [this] {
          end_with_nccl();
          return Status();
        },
        &ended));
    if (!ended) return false;
  }
  over_ = true;
  communicator_ = nullptr;
  static_cast<void>(memory_.take());
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

// As NCCL wants it: what is left is flushed together with the other ranks, then it is destroyed.
void CudaCommunicator::close_in_good_order() {
  const ContextScope scope(driver_, parts_.context);
  if (scope.status() != CUDA_SUCCESS) return;
  deregister_all();
  ncclResult_t state = nccl_.ncclCommFinalize(communicator_);
  const auto until = std::chrono::steady_clock::now() + std::chrono::nanoseconds(kGoodbyeNs);
  while (state == ncclInProgress && std::chrono::steady_clock::now() < until) {
    std::this_thread::sleep_for(kLookAfter);
    if (nccl_.ncclCommGetAsyncError(communicator_, &state) != ncclSuccess) state = ncclSystemError;
  }
  if (state != ncclSuccess) return;
  if (nccl_.ncclCommDestroy(communicator_) == ncclSuccess) communicator_ = nullptr;
}

CudaCommunicator::~CudaCommunicator() {
  while (leaves()) meanwhile_.finish();
  if (phase_ == Phase::kReady && under_way_.empty()) close_in_good_order();
  abort();
  meanwhile_.finish();
  if (!drain(kGoodbyeNs)) {
    wakes_.abandon();
    return;
  }
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
