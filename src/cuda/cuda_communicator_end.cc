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
  buffers_.forget_all(communicator_);
  windows_.deregister(communicator_);
  if (window_ != nullptr) window_->deregister(communicator_);
}

void CudaCommunicator::abort() {
  if (phase_ == Phase::kAborted) return;
  // It ends what is in progress, so that NCCL's threads write here no more.
  if (kin_.parent != nullptr) kin_.parent->abort();
  const bool idle = phase_ == Phase::kReady;
  phase_ = Phase::kAborted;
  const ContextScope scope(driver_, parts_.context);
  // What kernels still use goes with the communicator; of a window NCCL before 2.29.7 keeps the
  // memory until the process ends.
  if (under_way_.empty() && idle) deregister_all();
  buffers_.drop_all();
  windows_.drop();
  if (window_ != nullptr) window_->drop();
  if (communicator_ != nullptr) {
    nccl_.ncclCommAbort(std::exchange(communicator_, nullptr));
  }
  end_lending();
  if (scope.status() != CUDA_SUCCESS || !take_event(&last_).ok()) return;
  // A context that has failed runs nothing of it.
  if (legs_ != nullptr) static_cast<void>(legs_->join(stream_));
  if (driver_.cuEventRecord(last_, stream_) != CUDA_SUCCESS) {
    give_back(std::exchange(last_, nullptr));
  }
}

// A context that has failed executes nothing any more, and says so.
bool CudaCommunicator::quiet() {
  if (phase_ != Phase::kAborted) return false;
  if (last_ == nullptr) return true;
  const ContextScope scope(driver_, parts_.context);
  CUresult error = scope.status();
  if (error == CUDA_SUCCESS && !passed(last_, &error)) return false;
  for (CUevent event : under_way_) give_back(event);
  under_way_.clear();
  give_back(std::exchange(last_, nullptr));
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
  if (phase_ == Phase::kReady && under_way_.empty()) close_in_good_order();
  abort();
  if (!drain(kGoodbyeNs)) {
    // The device does not end: it keeps the stream, and the driver what it still calls.
    static_cast<void>(wake_.release());
    return;
  }
  const ContextScope scope(driver_, parts_.context);
  if (scope.status() != CUDA_SUCCESS) return;
  for (CUevent event : events_) driver_.cuEventDestroy_v2(event);
  if (legs_ != nullptr) legs_->close();
  if (stream_ != nullptr) driver_.cuStreamDestroy_v2(stream_);
  parts_.give_back(std::move(zeros_));
  if (sums_ != nullptr) parts_.give_back(sums_->take_memory());
  if (window_ != nullptr) parts_.give_back(window_->take_memory());
}

}  // namespace parallax
