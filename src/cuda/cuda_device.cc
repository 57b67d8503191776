// SPDX-License-Identifier: Apache-2.0
// The driver calls of one device. See cuda_device.h.
#include "cuda/cuda_device.h"

#include <chrono>
#include <thread>

#include "cuda/context.h"

namespace parallax {

namespace {

// For memory to be zeroed, which is the copy engine's work of microseconds.
constexpr int64_t kAnswerNs = 5'000'000'000;
constexpr std::chrono::microseconds kLookAgain(20);

// The driver's thread: it may not call CUDA, and does not.
void CUDA_CB call_wake(void* wake) { (*static_cast<const std::function<void()>*>(wake))(); }

}  // namespace

Status CudaDevice::failure(const char* what, CUresult error) const {
  return io_error("device " + std::to_string(number_) + ": " + what + ": " +
                  error_text(api_, error));
}

Status CudaDevice::open(const DriverLibrary& driver, uint32_t number,
                        const std::function<void()>& wake, std::unique_ptr<CudaDevice>* device) {
  std::unique_ptr<CudaDevice> opened(new CudaDevice(driver, number, wake));
  PARALLAX_RETURN_IF_ERROR(opened->prepare());
  *device = std::move(opened);
  return {};
}

Status CudaDevice::prepare() {
  CUresult error = api_.cuDeviceGet(&device_, static_cast<int>(number_));
  if (error != CUDA_SUCCESS) return failure("cuDeviceGet", error);
  error = api_.cuDevicePrimaryCtxRetain(&context_, device_);
  if (error != CUDA_SUCCESS) {
    context_ = nullptr;
    return failure("its primary context (cuDevicePrimaryCtxRetain)", error);
  }
  const ContextScope scope(api_, context_);
  if (scope.status() != CUDA_SUCCESS) return failure("cuCtxPushCurrent", scope.status());
  for (CUstream& queue : queues_) {
    // The lowest priority: a copy is not to hold up a framework's kernels.
    error = api_.cuStreamCreateWithPriority(&queue, CU_STREAM_NON_BLOCKING, 0);
    if (error == CUDA_SUCCESS) continue;
    queue = nullptr;
    return failure("a stream for copies (cuStreamCreate)", error);
  }
  return {};
}

// Behind the last copy's event its host function may still be under way, and it calls what goes
// with this.
void CudaDevice::finish_queues() {
  const auto until = std::chrono::steady_clock::now() + std::chrono::nanoseconds(kAnswerNs);
  for (CUstream queue : queues_) {
    CUevent last = nullptr;
    if (queue == nullptr || !take_event(&last).ok()) continue;
    bool over = api_.cuEventRecord(last, queue) != CUDA_SUCCESS;
    while (!over && std::chrono::steady_clock::now() < until) {
      static_cast<void>(passed(last, &over));
      if (!over) std::this_thread::sleep_for(kLookAgain);
    }
    give_back(last);
  }
}

CudaDevice::~CudaDevice() {
  if (context_ == nullptr) return;
  {
    const ContextScope scope(api_, context_);
    if (scope.status() == CUDA_SUCCESS) {
      finish_queues();
      for (CUevent event : events_) api_.cuEventDestroy_v2(event);
      for (CUstream queue : queues_) {
        if (queue != nullptr) api_.cuStreamDestroy_v2(queue);
      }
    }
  }
  api_.cuDevicePrimaryCtxRelease_v2(device_);
}

Status CudaDevice::take_event(CUevent* event) {
  if (!events_.empty()) {
    *event = events_.back();
    events_.pop_back();
    return {};
  }
  const CUresult error = api_.cuEventCreate(event, CU_EVENT_DISABLE_TIMING);
  return error == CUDA_SUCCESS ? Status() : failure("cuEventCreate", error);
}

// Of the device's primary context, and not being captured.
Status CudaDevice::check_stream(CUstream stream) const {
  CUstreamCaptureStatus capture = CU_STREAM_CAPTURE_STATUS_NONE;
  CUresult error = api_.cuStreamIsCapturing(stream, &capture);
  if (error == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT) {
    capture = CU_STREAM_CAPTURE_STATUS_ACTIVE;  // the default stream, while another captures
    error = CUDA_SUCCESS;
  }
  if (error != CUDA_SUCCESS) return failure("its stream (cuStreamIsCapturing)", error);
  if (capture != CU_STREAM_CAPTURE_STATUS_NONE) {
    return unsupported(
        "its stream is being captured into a graph, which would replay the copies of this call "
        "without the call; call before the capture begins or after it ends");
  }
  CUcontext context = nullptr;
  error = api_.cuStreamGetCtx(stream, &context);
  if (error != CUDA_SUCCESS) return failure("its stream (cuStreamGetCtx)", error);
  if (context == context_) return {};
  return unsupported("its stream is not of the primary context of device " +
                     std::to_string(number_) +
                     ": it is another device's, or of a context that the program made itself; give "
                     "a stream of the device that the slice names");
}

Status CudaDevice::mark(void* stream, CUevent* event) {
  const ContextScope scope(api_, context_);
  if (scope.status() != CUDA_SUCCESS) return failure("cuCtxPushCurrent", scope.status());
  const auto of_caller = static_cast<CUstream>(stream);
  PARALLAX_RETURN_IF_ERROR(check_stream(of_caller));
  PARALLAX_RETURN_IF_ERROR(take_event(event));
  const CUresult error = api_.cuEventRecord(*event, of_caller);
  if (error == CUDA_SUCCESS) return {};
  give_back(*event);
  return failure("its stream (cuEventRecord)", error);
}

Status CudaDevice::copy(CopyDirection direction, CUevent after, std::span<const DeviceCopy> copies,
                        CUevent* ended) {
  *ended = nullptr;
  const ContextScope scope(api_, context_);
  if (scope.status() != CUDA_SUCCESS) return failure("cuCtxPushCurrent", scope.status());
  const CUstream queue = queues_[static_cast<size_t>(direction)];
  CUevent event = nullptr;
  PARALLAX_RETURN_IF_ERROR(take_event(&event));
  const char* what = "cuStreamWaitEvent";
  CUresult error = api_.cuStreamWaitEvent(queue, after, CU_EVENT_WAIT_DEFAULT);
  bool begun = false;
  for (const DeviceCopy& each : copies) {
    if (error != CUDA_SUCCESS) break;
    const bool in = direction == CopyDirection::kToHost;
    what = in ? "cuMemcpyDtoHAsync" : "cuMemcpyHtoDAsync";
    error = in ? api_.cuMemcpyDtoHAsync_v2(each.to, reinterpret_cast<CUdeviceptr>(each.from),
                                           each.bytes, queue)
               : api_.cuMemcpyHtoDAsync_v2(reinterpret_cast<CUdeviceptr>(each.to), each.from,
                                           each.bytes, queue);
    begun = begun || error == CUDA_SUCCESS;
  }
  const Status status = error == CUDA_SUCCESS ? Status() : failure(what, error);
  if (!status.ok() && !begun) {
    give_back(event);
    return status;
  }
  // What has begun is to end before its memory is used again. A device that has failed says so
  // again.
  error = api_.cuEventRecord(event, queue);
  if (error != CUDA_SUCCESS) error = api_.cuEventRecord(event, queue);
  if (error != CUDA_SUCCESS) {
    give_back(event);
    return status.ok() ? failure("cuEventRecord", error) : status;
  }
  *ended = event;
  // Where it cannot wake, whoever polls finds the end nevertheless.
  api_.cuLaunchHostFunc(queue, call_wake, const_cast<std::function<void()>*>(&wake_));
  return status;
}

Status CudaDevice::passed(CUevent event, bool* passed) {
  const ContextScope scope(api_, context_);
  CUresult error = scope.status();
  if (error == CUDA_SUCCESS) error = api_.cuEventQuery(event);
  *passed = error != CUDA_ERROR_NOT_READY;
  return !*passed || error == CUDA_SUCCESS ? Status() : failure("a copy", error);
}

Status CudaDevice::allocate(uint64_t bytes, void** memory) {
  CUdeviceptr address = 0;
  CUevent written = nullptr;
  {
    const ContextScope scope(api_, context_);
    if (scope.status() != CUDA_SUCCESS) return failure("cuCtxPushCurrent", scope.status());
    CUresult error = api_.cuMemAlloc_v2(&address, bytes);
    if (error == CUDA_ERROR_OUT_OF_MEMORY) {
      return limit("device " + std::to_string(number_) + " has no memory for " +
                   std::to_string(bytes) + " bytes: " + error_text(api_, error));
    }
    if (error != CUDA_SUCCESS) return failure("cuMemAlloc", error);
    *memory = reinterpret_cast<void*>(address);
    const CUstream queue = queues_[static_cast<size_t>(CopyDirection::kToDevice)];
    Status status = take_event(&written);
    error = api_.cuMemsetD8Async(address, 0, bytes, queue);
    if (status.ok() && error == CUDA_SUCCESS) error = api_.cuEventRecord(written, queue);
    if (status.ok() && error != CUDA_SUCCESS) status = failure("cuMemsetD8Async", error);
    if (!status.ok()) {
      release(*memory);
      return status;
    }
  }
  const auto until = std::chrono::steady_clock::now() + std::chrono::nanoseconds(kAnswerNs);
  bool done = false;
  Status status = passed(written, &done);
  while (!done && std::chrono::steady_clock::now() < until) {
    std::this_thread::sleep_for(kLookAgain);
    status = passed(written, &done);
  }
  give_back(written);
  if (!done) status = io_error("device " + std::to_string(number_) + " does not answer");
  if (!status.ok()) release(*memory);
  return status;
}

void CudaDevice::release(void* memory) {
  const ContextScope scope(api_, context_);
  if (scope.status() == CUDA_SUCCESS) api_.cuMemFree_v2(reinterpret_cast<CUdeviceptr>(memory));
}

}  // namespace parallax
