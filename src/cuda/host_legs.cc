// SPDX-License-Identifier: Apache-2.0
// Shares on their way to the host and back. See host_legs.h.
#include "cuda/host_legs.h"

#include "base/number.h"

namespace parallax {

CUresult HostLegs::open(Lane* lane) {
  last_call_ = "a stream for copies of shares (cuStreamCreate)";
  CUresult error = driver_.cuStreamCreateWithPriority(&lane->stream, CU_STREAM_NON_BLOCKING, 0);
  if (error != CUDA_SUCCESS) {
    lane->stream = nullptr;
    return error;
  }
  last_call_ = "cuEventCreate";
  error = driver_.cuEventCreate(&lane->turn, CU_EVENT_DISABLE_TIMING);
  if (error != CUDA_SUCCESS) lane->turn = nullptr;
  return error;
}

CUresult HostLegs::open() {
  const CUresult error = open(&down_);
  return error == CUDA_SUCCESS ? open(&up_) : error;
}

void HostLegs::close() {
  for (Lane* lane : {&down_, &up_}) {
    if (lane->turn != nullptr) driver_.cuEventDestroy_v2(lane->turn);
    if (lane->stream != nullptr) driver_.cuStreamDestroy_v2(lane->stream);
    *lane = {};
  }
}

// An event may be recorded again while a wait for what it was before is still under way.
CUresult HostLegs::follow(CUstream stream, CUstream first, CUevent turn) {
  last_call_ = "cuEventRecord";
  const CUresult error = driver_.cuEventRecord(turn, first);
  if (error != CUDA_SUCCESS) return error;
  last_call_ = "cuStreamWaitEvent";
  return driver_.cuStreamWaitEvent(stream, turn, CU_EVENT_WAIT_DEFAULT);
}

CUresult HostLegs::copy(const DeviceReduction& reduction, CUstream stream) {
  const ShareRange share = share_range(reduction.count, holders_.shares, holders_.rank);
  const uint64_t bytes = bytes_of_dtype(reduction.dtype);
  const auto at = reinterpret_cast<CUdeviceptr>(reduction.to + share.first * bytes);
  if (reduction.leg == DeviceLeg::kToHost) {
    last_call_ = "cuMemcpyDtoHAsync of a share";
    return driver_.cuMemcpyDtoHAsync_v2(reduction.staged, at, share.count * bytes, stream);
  }
  last_call_ = "cuMemcpyHtoDAsync of a share";
  return driver_.cuMemcpyHtoDAsync_v2(at, reduction.staged, share.count * bytes, stream);
}

CUresult HostLegs::to_host(std::span<const DeviceReduction> together, CUstream stream,
                           const Shared& shared, CUstream* behind) {
  *behind = stream;
  bool aside = false;
  for (const DeviceReduction& each : together) {
    if (each.staged == nullptr) continue;
    aside = aside || !shared(each);
    if (!shared(each)) continue;
    const CUresult error = copy(each, stream);
    if (error != CUDA_SUCCESS) return error;
  }
  if (!aside) return CUDA_SUCCESS;
  CUresult error = follow(down_.stream, stream, down_.turn);
  for (const DeviceReduction& each : together) {
    if (error != CUDA_SUCCESS) return error;
    if (each.staged != nullptr && !shared(each)) error = copy(each, down_.stream);
  }
  *behind = down_.stream;
  return error;
}

CUresult HostLegs::from_host(std::span<const DeviceReduction> together, CUstream stream,
                             const Shared& shared) {
  bool aside = false;
  for (const DeviceReduction& each : together) {
    if (each.staged == nullptr) continue;
    const bool own = !shared(each);
    const CUresult error = copy(each, own ? up_.stream : stream);
    if (error != CUDA_SUCCESS) return error;
    aside = aside || own;
  }
  return aside ? follow(stream, up_.stream, up_.turn) : CUDA_SUCCESS;
}

CUresult HostLegs::join(CUstream stream) {
  for (const Lane& lane : {down_, up_}) {
    if (lane.turn == nullptr) continue;
    const CUresult error = follow(stream, lane.stream, lane.turn);
    if (error != CUDA_SUCCESS) return error;
  }
  return CUDA_SUCCESS;
}

}  // namespace parallax
