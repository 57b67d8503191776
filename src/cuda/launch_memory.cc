// SPDX-License-Identifier: Apache-2.0
// Noting, getting and taking what launches lack. See launch_memory.h.
#include "cuda/launch_memory.h"

#include <algorithm>

#include "base/number.h"
#include "cuda/context.h"

namespace parallax {

namespace {

constexpr uint64_t kZerosAlignment = 256;

uint64_t padded_bytes(const DeviceReduction& reduction) {
  const uint64_t bytes = reduction.count * bytes_of_dtype(reduction.dtype);
  return (bytes + kZerosAlignment - 1) / kZerosAlignment * kZerosAlignment;
}

uint64_t zeros_of(std::span<const DeviceReduction> together) {
  uint64_t bytes = 0;
  for (const DeviceReduction& each : together) {
    bytes += each.from == nullptr ? padded_bytes(each) : 0;
  }
  return bytes;
}

}  // namespace

// ---- what is lacking

void LaunchMemory::note(std::span<const DeviceReduction> together, uint64_t scratch_bytes,
                        bool registers) {
  const uint64_t zeros = zeros_of(together);
  if (zeros > zeros_bytes_) zeros_lacking_ = zeros;
  scratch_lacking_ = scratch_bytes;
  if (registers && memory_around_ && buffers_.possible()) note_memory(together);
}

// What a program lets go of says so first (Communicator::forget): what it does not tell the job of,
// as tensors of a framework's allocator, is not registered.
void LaunchMemory::note_memory(std::span<const DeviceReduction> together) {
  const auto is_noted = [this](const std::byte* address) {
    const ByteRange byte = ByteRange::at(address, 1);
    return std::any_of(to_know_.begin(), to_know_.end(),
                       [&byte](const ByteRange& each) { return each.overlaps(byte); });
  };
  for (const DeviceReduction& each : together) {
    for (const std::byte* address : {each.from, static_cast<const std::byte*>(each.to)}) {
      if (address == nullptr || buffers_.knows(address) || is_noted(address)) continue;
      const ByteRange memory = memory_around_(address);
      if (memory.bytes == 0 || windows_.overlaps(memory)) continue;
      if (buffers_.has_room(to_know_.size())) to_know_.push_back(memory);
    }
  }
}

bool LaunchMemory::knows(const ByteRange& memory) const {
  return buffers_.knows(memory) ||
         std::any_of(to_know_.begin(), to_know_.end(),
                     [&memory](const ByteRange& each) { return each.overlaps(memory); });
}

void LaunchMemory::allocate(uint64_t bytes, const char* of_what, DeviceBlocks* block) {
  if (error_ != CUDA_SUCCESS || bytes == 0) return;
  what_ = "cuMemAlloc of " + std::to_string(bytes) + of_what;
  block->push_front({.context = context_});
  error_ = driver_.cuMemAlloc_v2(&block->front().memory, bytes);
  if (error_ != CUDA_SUCCESS) block->clear();
}

void LaunchMemory::get(ncclComm_t communicator) {
  const ContextScope scope(driver_, context_);
  what_ = "cuCtxPushCurrent";
  error_ = scope.status();
  allocate(zeros_lacking_, " bytes of zeros, for variables that this rank did not give",
           &more_zeros_);
  allocate(scratch_lacking_, " bytes of what ranks give, to sum it in order", &scratch_);
  for (const ByteRange& each : to_know_) {
    if (error_ == CUDA_SUCCESS) known_.push_back(buffers_.offer(communicator, each));
  }
}

CUresult LaunchMemory::take() {
  if (!more_zeros_.empty()) zeros_bytes_ = zeros_lacking_;
  zeros_.splice(zeros_.begin(), more_zeros_);
  for (const RegisteredBuffers::Known& each : known_) buffers_.take(each);
  zeros_lacking_ = scratch_lacking_ = 0;
  to_know_.clear();
  known_.clear();
  return std::exchange(error_, CUDA_SUCCESS);
}

// ---- zeros

CUresult LaunchMemory::clear_zeros(std::span<const DeviceReduction> together, CUstream stream) {
  what_ = "cuMemsetD8Async of a variable's place, which this rank did not give";
  for (const DeviceReduction& each : together) {
    if (!each.zeros) continue;
    const CUresult error = driver_.cuMemsetD8Async(reinterpret_cast<CUdeviceptr>(each.from), 0,
                                                   each.count * bytes_of_dtype(each.dtype), stream);
    if (error != CUDA_SUCCESS) return error;
  }
  const uint64_t bytes = zeros_of(together);
  if (bytes == 0) return CUDA_SUCCESS;
  what_ = "cuMemsetD8Async";
  return driver_.cuMemsetD8Async(zeros_.front().memory, 0, bytes, stream);
}

void LaunchMemory::give_zeros(std::span<DeviceReduction> together) const {
  auto* zeros = zeros_.empty() ? nullptr : reinterpret_cast<std::byte*>(zeros_.front().memory);
  for (DeviceReduction& each : together) {
    if (each.from != nullptr) continue;
    each.from = each.to = zeros;
    zeros += padded_bytes(each);
  }
}

bool LaunchMemory::of_zeros(const DeviceReduction& reduction) const {
  if (zeros_.empty()) return false;
  const CUdeviceptr first = zeros_.front().memory;
  const auto at = reinterpret_cast<CUdeviceptr>(reduction.to);
  return at >= first && at - first < zeros_bytes_;
}

}  // namespace parallax
