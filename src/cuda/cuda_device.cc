// SPDX-License-Identifier: Apache-2.0
// The driver calls of one device. See cuda_device.h.
#include "cuda/cuda_device.h"

#include <cstddef>
#include <new>
#include <utility>

#include "cuda/context.h"

namespace parallax {

namespace {

// For memory to be zeroed, which is the copy engine's work of microseconds.
constexpr int64_t kAnswerNs = 5'000'000'000;
constexpr std::chrono::microseconds kLookAgain(20);

// The driver's thread: it may not call CUDA, and does not.
void CUDA_CB call_wake(void* wake) { (*static_cast<const std::function<void()>*>(wake))(); }

}  // namespace

Status CudaDevice::failure(const char* what, CUresult error) const noexcept {
  try {
    return io_error("device " + std::to_string(number_) + ": " + what + ": " +
                    error_text(api_, error));
  } catch (const std::bad_alloc&) {
    return Status::out_of_memory();
  }
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
  return make_stream(&zeros_);
}

Status CudaDevice::make_stream(CUstream* stream) const {
  // The lowest priority: a copy is not to hold up a framework's kernels.
  const CUresult error = api_.cuStreamCreateWithPriority(stream, CU_STREAM_NON_BLOCKING, 0);
  if (error == CUDA_SUCCESS) return {};
  *stream = nullptr;
  return failure("a stream for copies (cuStreamCreate)", error);
}

bool CudaDevice::finish_queues(std::chrono::steady_clock::time_point until) const noexcept {
  const ContextScope scope(api_, context_);
  if (scope.status() != CUDA_SUCCESS) return false;
  for (const Queues& queues : queues_) {
    for (const Queue& queue : queues) {
      // One that has failed executes nothing any more.
      while (api_.cuStreamQuery(queue.stream) == CUDA_ERROR_NOT_READY) {
        if (std::chrono::steady_clock::now() >= until) return false;
        std::this_thread::sleep_for(kLookAgain);
      }
    }
  }
  return true;
}

CudaDevice::~CudaDevice() {
  if (context_ == nullptr) return;
  {
    const ContextScope scope(api_, context_);
    if (scope.status() == CUDA_SUCCESS) {
      events_.destroy();
      for (const Queues& queues : queues_) {
        for (const Queue& queue : queues) api_.cuStreamDestroy_v2(queue.stream);
      }
      if (zeros_ != nullptr) api_.cuStreamDestroy_v2(zeros_);
    }
  }
  api_.cuDevicePrimaryCtxRelease_v2(device_);
}

Status CudaDevice::take_event(CUevent* event) {
  const CUresult error = events_.take(event);
  return error == CUDA_SUCCESS ? Status() : failure("cuEventCreate", error);
}

Status CudaDevice::check_stream(CUstream stream) const {
  const ContextScope scope(api_, context_);
  if (scope.status() != CUDA_SUCCESS) return failure("cuCtxPushCurrent", scope.status());
  return check_in_context(stream);
}

Status CudaDevice::check_in_context(CUstream stream) const {
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

Status CudaDevice::mark(void* stream, StreamMark* mark) {
  const auto of_caller = static_cast<CUstream>(stream);
  const ContextScope scope(api_, context_);
  if (scope.status() != CUDA_SUCCESS) return failure("cuCtxPushCurrent", scope.status());
  PARALLAX_RETURN_IF_ERROR(check_in_context(of_caller));
  mark->stream = stream;
  if (of_caller == CU_STREAM_PER_THREAD) mark->thread = std::this_thread::get_id();
  PARALLAX_RETURN_IF_ERROR(take_event(&mark->event));
  const CUresult error = api_.cuEventRecord(mark->event, of_caller);
  if (error == CUDA_SUCCESS) return {};
  give_back(std::exchange(mark->event, nullptr));
  return failure("its stream (cuEventRecord)", error);
}

// ---- copies

// That which has the stream's copies already; else one that has nothing to do; else a new one; else
// that with the least.
Status CudaDevice::queue_for(CopyDirection direction, const StreamMark& after, size_t* at) {
  Queues& queues = queues_[static_cast<size_t>(direction)];
  size_t least = 0;
  for (size_t i = 0; i < queues.size(); ++i) {
    *at = i;
    if (queues[i].under_way > 0 && queues[i].behind.of_same_stream(after)) return {};
    if (queues[i].under_way < queues[least].under_way) least = i;
  }
  *at = least;
  if (!queues.empty() && queues[least].under_way == 0) return {};
  if (queues.size() == kQueuesMax) return {};
  queues.reserve(kQueuesMax);
  Queue made;
  const Status status = make_stream(&made.stream);
  // Where the device has no more streams it shares one.
  if (!status.ok()) return queues.empty() ? status : Status();
  *at = queues.size();
  queues.push_back(made);
  return {};
}

Status CudaDevice::enqueue_copies(CopyDirection direction, std::span<const DeviceCopy> copies,
                                  CUstream queue, bool* begun) const noexcept {
  *begun = copies.empty();
  for (const DeviceCopy& each : copies) {
    const bool in = direction == CopyDirection::kToHost;
    const CUresult error =
        in ? api_.cuMemcpyDtoHAsync_v2(each.to, reinterpret_cast<CUdeviceptr>(each.from),
                                       each.bytes, queue)
           : api_.cuMemcpyHtoDAsync_v2(reinterpret_cast<CUdeviceptr>(each.to), each.from,
                                       each.bytes, queue);
    if (error != CUDA_SUCCESS) {
      return failure(in ? "cuMemcpyDtoHAsync" : "cuMemcpyHtoDAsync", error);
    }
    *begun = true;
  }
  return {};
}

// Slices that are summed as one lie one behind the other then.
CUresult CudaDevice::enqueue_together(const RowsToCoalesce& rows, const CoalescePlaces& places,
                                      CUstream queue) const noexcept {
  const auto pointer = [](const std::byte* memory) {
    return reinterpret_cast<CUdeviceptr>(memory);
  };
  CUdeviceptr ids = pointer(rows.scratch) + places.given_ids_at;
  CUdeviceptr values = pointer(rows.scratch) + places.given_values_at;
  for (const RowsThere& each : rows.slices) {
    const uint64_t id_bytes = uint64_t{each.count} * rows.id_bytes;
    const uint64_t value_bytes = uint64_t{each.count} * rows.elements * bytes_of_dtype(rows.dtype);
    CUresult error = api_.cuMemcpyDtoDAsync_v2(ids, pointer(each.ids), id_bytes, queue);
    if (error == CUDA_SUCCESS) {
      error = api_.cuMemcpyDtoDAsync_v2(values, pointer(each.values), value_bytes, queue);
    }
    if (error != CUDA_SUCCESS) return error;
    ids += id_bytes;
    values += value_bytes;
  }
  return CUDA_SUCCESS;
}

// Counts of earlier rows may be under way behind kernels that were not all launched.
Status CudaDevice::enqueue_coalescing(kernels::Launcher& launcher, const RowsToCoalesce& rows,
                                      CUstream queue, bool* begun) const noexcept {
  const auto scratch = reinterpret_cast<CUdeviceptr>(rows.scratch);
  const CoalescePlaces places = coalesce_places(rows);
  const RowsThere& first = rows.slices.front();
  auto ids = reinterpret_cast<CUdeviceptr>(first.ids);
  auto values = reinterpret_cast<CUdeviceptr>(first.values);
  // No bad id yet: all ones.
  CUresult error = api_.cuMemsetD8Async(scratch, 0xff, sizeof(CoalescedCounts), queue);
  if (error != CUDA_SUCCESS) return failure("cuMemsetD8Async", error);
  *begun = true;
  if (rows.slices.size() > 1) {
    error = enqueue_together(rows, places, queue);
    if (error != CUDA_SUCCESS) return failure("cuMemcpyDtoDAsync", error);
    ids = scratch + places.given_ids_at;
    values = scratch + places.given_values_at;
  }
  try {
    error = launcher.coalesce(queue,
                              {.ids = ids,
                               .width_bytes = rows.id_bytes,
                               .count = rows.count,
                               .table_rows = rows.table_rows,
                               .bad = scratch + offsetof(CoalescedCounts, bad)},
                              {.rows = values, .dtype = rows.dtype, .elements = rows.elements},
                              {.unique_ids = scratch + places.ids_at,
                               .sums = scratch + places.sums_at,
                               .unique_count = scratch + offsetof(CoalescedCounts, rows),
                               .work = scratch + places.work_at});
  } catch (const std::bad_alloc&) {
    return Status::out_of_memory();
  }
  if (error != CUDA_SUCCESS) return failure(launcher.last_call(), error);
  error = api_.cuMemcpyDtoHAsync_v2(rows.counts, scratch, sizeof(CoalescedCounts), queue);
  return error == CUDA_SUCCESS ? Status() : failure("cuMemcpyDtoHAsync", error);
}

Status CudaDevice::coalesce(kernels::Launcher& launcher, const StreamMark& after,
                            std::span<const RowsToCoalesce> all, QueuedCopies* copies,
                            bool* begun) {
  const auto enqueue = [&](CUstream queue) -> Status {
    for (const RowsToCoalesce& each : all) {
      PARALLAX_RETURN_IF_ERROR(enqueue_coalescing(launcher, each, queue, begun));
    }
    return {};
  };
  return queue_up(CopyDirection::kToHost, after, enqueue, copies, begun);
}

Status CudaDevice::convert(kernels::Launcher& launcher, CopyDirection direction,
                           const StreamMark& after, std::span<const DeviceConversion> each,
                           QueuedCopies* copies, bool* begun) {
  const auto enqueue = [&](CUstream queue) -> Status {
    for (const DeviceConversion& one : each) {
      CUresult error = CUDA_SUCCESS;
      try {
        error = launcher.cast(queue, reinterpret_cast<CUdeviceptr>(one.from), one.from_dtype,
                              reinterpret_cast<CUdeviceptr>(one.to), one.to_dtype, one.count);
      } catch (const std::bad_alloc&) {
        return Status::out_of_memory();
      }
      if (error != CUDA_SUCCESS) return failure(launcher.last_call(), error);
      *begun = true;
    }
    return {};
  };
  return queue_up(direction, after, enqueue, copies, begun);
}

Status CudaDevice::copy(CopyDirection direction, const StreamMark& after,
                        std::span<const DeviceCopy> each, QueuedCopies* copies, bool* begun) {
  const auto enqueue = [&](CUstream queue) {
    return enqueue_copies(direction, each, queue, begun);
  };
  return queue_up(direction, after, enqueue, copies, begun);
}

// Behind `after` what enqueue(queue) puts there, which throws nothing and sets *begun.
template <typename Enqueue>
Status CudaDevice::queue_up(CopyDirection direction, const StreamMark& after, Enqueue enqueue,
                            QueuedCopies* copies, bool* begun) {
  *begun = false;
  const ContextScope scope(api_, context_);
  if (scope.status() != CUDA_SUCCESS) return failure("cuCtxPushCurrent", scope.status());
  *copies = {.ended = nullptr, .direction = direction};
  PARALLAX_RETURN_IF_ERROR(queue_for(direction, after, &copies->queue));
  PARALLAX_RETURN_IF_ERROR(take_event(&copies->ended));
  // From here on nothing throws.
  Queue& queue = queues_[static_cast<size_t>(direction)][copies->queue];
  const CUresult waits = api_.cuStreamWaitEvent(queue.stream, after.event, CU_EVENT_WAIT_DEFAULT);
  const Status status =
      waits == CUDA_SUCCESS ? enqueue(queue.stream) : failure("cuStreamWaitEvent", waits);
  if (!*begun) {
    give_back(copies->ended);
    return status;
  }
  queue.behind = after;
  ++queue.under_way;
  if (api_.cuEventRecord(copies->ended, queue.stream) != CUDA_SUCCESS) {
    give_back(std::exchange(copies->ended, nullptr));
  }
  // Where it cannot wake, whoever polls finds the end nevertheless.
  api_.cuLaunchHostFunc(queue.stream, call_wake, const_cast<std::function<void()>*>(&wake_));
  return status;
}

// Where their end has no event the queue has nothing but them, or more of the same stream's.
Status CudaDevice::follow(const QueuedCopies& copies, const CudaDevice& other, CUstream stream) {
  const ContextScope scope(api_, context_);
  if (scope.status() != CUDA_SUCCESS) return failure("cuCtxPushCurrent", scope.status());
  CUevent event = copies.ended;
  if (event == nullptr) PARALLAX_RETURN_IF_ERROR(take_event(&event));
  CUresult error = CUDA_SUCCESS;
  if (copies.ended == nullptr) {
    const Queue& queue = queues_[static_cast<size_t>(copies.direction)][copies.queue];
    error = api_.cuEventRecord(event, queue.stream);
  }
  if (error == CUDA_SUCCESS) {
    const ContextScope of_stream(api_, other.context_);  // whose default stream it may be
    error = of_stream.status();
    if (error == CUDA_SUCCESS) error = api_.cuStreamWaitEvent(stream, event, CU_EVENT_WAIT_DEFAULT);
  }
  if (copies.ended == nullptr) give_back(event);
  return error == CUDA_SUCCESS ? Status() : failure("a stream's wait (cuStreamWaitEvent)", error);
}

Status CudaDevice::look(const QueuedCopies& copies, bool* ended) const noexcept {
  if (copies.ended != nullptr) return passed(copies.ended, ended);
  const ContextScope scope(api_, context_);
  CUresult error = scope.status();
  const Queue& queue = queues_[static_cast<size_t>(copies.direction)][copies.queue];
  if (error == CUDA_SUCCESS) error = api_.cuStreamQuery(queue.stream);
  *ended = error != CUDA_ERROR_NOT_READY;
  return !*ended || error == CUDA_SUCCESS ? Status() : failure("a copy", error);
}

void CudaDevice::end(const QueuedCopies& copies) noexcept {
  --queues_[static_cast<size_t>(copies.direction)][copies.queue].under_way;
  give_back(copies.ended);
}

Status CudaDevice::passed(CUevent event, bool* passed) const noexcept {
  const ContextScope scope(api_, context_);
  CUresult error = scope.status();
  if (error == CUDA_SUCCESS) error = api_.cuEventQuery(event);
  *passed = error != CUDA_ERROR_NOT_READY;
  return !*passed || error == CUDA_SUCCESS ? Status() : failure("a copy", error);
}

// ---- memory

// With an event of its own: those that are kept are guarded by the owner's lock.
Status CudaDevice::zero(CUdeviceptr memory, uint64_t bytes, bool* under_way) const {
  *under_way = false;
  CUevent written = nullptr;
  CUresult error = api_.cuEventCreate(&written, CU_EVENT_DISABLE_TIMING);
  if (error != CUDA_SUCCESS) return failure("cuEventCreate", error);
  error = api_.cuMemsetD8Async(memory, 0, bytes, zeros_);
  if (error == CUDA_SUCCESS) error = api_.cuEventRecord(written, zeros_);
  Status status = error == CUDA_SUCCESS ? Status() : failure("cuMemsetD8Async", error);
  const auto until = std::chrono::steady_clock::now() + std::chrono::nanoseconds(kAnswerNs);
  for (bool done = false; status.ok() && !done;) {
    status = passed(written, &done);
    if (!status.ok() || done) break;
    *under_way = std::chrono::steady_clock::now() >= until;
    if (*under_way) {
      status = io_error("device " + std::to_string(number_) + " does not answer; the " +
                        std::to_string(bytes) + " bytes stay its own");
    } else {
      std::this_thread::sleep_for(kLookAgain);
    }
  }
  api_.cuEventDestroy_v2(written);
  return status;
}

Status CudaDevice::allocate_raw(uint64_t bytes, CUdeviceptr* memory) const {
  const ContextScope scope(api_, context_);
  if (scope.status() != CUDA_SUCCESS) return failure("cuCtxPushCurrent", scope.status());
  const CUresult error = api_.cuMemAlloc_v2(memory, bytes);
  if (error == CUDA_ERROR_OUT_OF_MEMORY) {
    return limit("device " + std::to_string(number_) + " has no memory for " +
                 std::to_string(bytes) + " bytes: " + error_text(api_, error));
  }
  return error == CUDA_SUCCESS ? Status() : failure("cuMemAlloc", error);
}

template <typename Free>
Status CudaDevice::give_zeroed(CUdeviceptr address, uint64_t bytes, Free free,
                               void** memory) const {
  const ContextScope scope(api_, context_);
  if (scope.status() != CUDA_SUCCESS) return failure("cuCtxPushCurrent", scope.status());
  bool under_way = false;
  const Status zeroed = zero(address, bytes, &under_way);
  // To free it would wait for the device.
  if (!zeroed.ok() && !under_way) free();
  if (zeroed.ok()) *memory = reinterpret_cast<void*>(address);
  return zeroed;
}

Status CudaDevice::allocate(uint64_t bytes, void** memory) const {
  CUdeviceptr address = 0;
  PARALLAX_RETURN_IF_ERROR(allocate_raw(bytes, &address));
  return give_zeroed(
      address, bytes, [&] { api_.cuMemFree_v2(address); }, memory);
}

void CudaDevice::release(void* memory) const {
  const ContextScope scope(api_, context_);
  if (scope.status() == CUDA_SUCCESS) api_.cuMemFree_v2(reinterpret_cast<CUdeviceptr>(memory));
}

#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 0)

Status CudaDevice::allocate(uint64_t bytes, const NcclLibrary& nccl, void** memory) const {
  const ContextScope scope(api_, context_);
  if (scope.status() != CUDA_SUCCESS) return failure("cuCtxPushCurrent", scope.status());
  void* made = nullptr;
  const ncclResult_t error = nccl.api.ncclMemAlloc(&made, bytes);
  if (error != ncclSuccess) {
    return limit(
        "device " + std::to_string(number_) + " has no memory for " + std::to_string(bytes) +
        " bytes, in NCCL's multiples: ncclMemAlloc: " + nccl.api.ncclGetErrorString(error));
  }
  return give_zeroed(
      reinterpret_cast<CUdeviceptr>(made), bytes, [&] { nccl.api.ncclMemFree(made); }, memory);
}

void CudaDevice::release(const NcclLibrary& nccl, void* memory) const {
  const ContextScope scope(api_, context_);
  if (scope.status() == CUDA_SUCCESS) nccl.api.ncclMemFree(memory);
}

#else

Status CudaDevice::allocate(uint64_t, const NcclLibrary&, void**) const {
  return unsupported("this was built without windows, which are of NCCL 2.27");
}
void CudaDevice::release(const NcclLibrary&, void*) const {}

#endif

}  // namespace parallax
