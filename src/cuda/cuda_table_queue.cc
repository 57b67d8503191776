// SPDX-License-Identifier: Apache-2.0
// The driver calls of a table on a device. See cuda_table_queue.h.
#include "cuda/cuda_table_queue.h"

#include <chrono>
#include <string>
#include <thread>
#include <utility>

#include "cuda/context.h"

namespace parallax {

namespace {

// For the end of a queue: what is under way is an update of some pieces.
constexpr int64_t kTableEndNs = 5'000'000'000;
constexpr std::chrono::microseconds kTableLook(20);

// The driver's thread: it may not call CUDA, and does not.
void CUDA_CB wake_of_table(void* wake) { (*static_cast<const std::function<void()>*>(wake))(); }

CUdeviceptr pointer(const std::byte* memory) { return reinterpret_cast<CUdeviceptr>(memory); }

kernels::DeviceRows rows_of(const std::byte* rows, uint32_t elements,
                            uint32_t dtype = PARALLAX_F32) {
  return {.rows = pointer(rows), .dtype = dtype, .elements = elements};
}

}  // namespace

// ---- life

Status CudaTableQueue::create(const DriverLibrary& driver, const CudaDevice& device,
                              CudaKernels& kernels, const std::function<void()>& wake,
                              std::unique_ptr<TableQueue>* queue) {
  std::unique_ptr<CudaTableQueue> made(new CudaTableQueue(driver, device, kernels, wake));
  PARALLAX_RETURN_IF_ERROR(made->prepare());
  *queue = std::move(made);
  return {};
}

Status CudaTableQueue::prepare() {
  PARALLAX_RETURN_IF_ERROR(with_context("a stream for a table (cuStreamCreate)", [this] {
    // The lowest priority: an update is not to hold up a framework's kernels.
    const CUresult error = api_.cuStreamCreateWithPriority(&stream_, CU_STREAM_NON_BLOCKING, 0);
    if (error != CUDA_SUCCESS) stream_ = nullptr;
    return error;
  }));
  std::byte* bad = nullptr;
  PARALLAX_RETURN_IF_ERROR(allocate(sizeof(uint32_t), &bad));
  bad_ = pointer(bad);
  return with_context("cuMemsetD8Async", [this] {
    return api_.cuMemsetD8Async(bad_, 0xff, sizeof(uint32_t), stream_);
  });
}

CudaTableQueue::~CudaTableQueue() {
  if (stream_ == nullptr) return;
  // A device that does not answer keeps its memory: it may still write there.
  const bool over = drain(kTableEndNs);
  const ContextScope scope(api_, device_.context());
  if (scope.status() != CUDA_SUCCESS) return;
  if (over) {
    for (const CUdeviceptr each : memory_) api_.cuMemFree_v2(each);
  }
  for (const Mark& each : marks_) events_.give_back(each.event);
  events_.destroy();
  api_.cuStreamDestroy_v2(stream_);
}

template <typename Enqueue>
Status CudaTableQueue::with_context(const char* what, Enqueue enqueue) {
  const ContextScope scope(api_, device_.context());
  if (scope.status() != CUDA_SUCCESS) return device_.failure("cuCtxPushCurrent", scope.status());
  const CUresult error = enqueue();
  if (error == CUDA_SUCCESS) return {};
  return device_.failure(what == nullptr ? launcher_.last_call() : what, error);
}

Status CudaTableQueue::allocate(uint64_t bytes, std::byte** memory) {
  CUdeviceptr address = 0;
  CUresult error = CUDA_SUCCESS;
  PARALLAX_RETURN_IF_ERROR(with_context("cuMemAlloc", [&] {
    error = api_.cuMemAlloc_v2(&address, bytes);
    return error == CUDA_ERROR_OUT_OF_MEMORY ? CUDA_SUCCESS : error;
  }));
  if (error == CUDA_ERROR_OUT_OF_MEMORY) {
    return limit("device " + std::to_string(device()) + " has no memory for " +
                 std::to_string(bytes) + " bytes: " + error_text(api_, error));
  }
  memory_.push_back(address);
  *memory = reinterpret_cast<std::byte*>(address);
  return with_context("cuMemsetD8Async",
                      [&] { return api_.cuMemsetD8Async(address, 0, bytes, stream_); });
}

// ---- what is enqueued

Status CudaTableQueue::copy_in(std::byte* to_device, const std::byte* from_host, uint64_t bytes) {
  return with_context("cuMemcpyHtoDAsync", [&] {
    return api_.cuMemcpyHtoDAsync_v2(pointer(to_device), from_host, bytes, stream_);
  });
}

Status CudaTableQueue::copy_out(std::byte* to_host, const std::byte* from_device, uint64_t bytes) {
  return with_context("cuMemcpyDtoHAsync", [&] {
    return api_.cuMemcpyDtoHAsync_v2(to_host, pointer(from_device), bytes, stream_);
  });
}

kernels::DeviceIds CudaTableQueue::ids_of(const TableRows& rows, uint64_t table_rows) const {
  return {.ids = pointer(rows.numbers),
          .width_bytes = sizeof(int64_t),
          .count = rows.count,
          .table_rows = table_rows,
          .count_here = 0,
          .bad = bad_};
}

Status CudaTableQueue::cast(const std::byte* values, uint64_t count, const TableTarget& to) {
  return with_context(nullptr, [&] {
    return launcher_.cast(stream_, pointer(values), PARALLAX_F32, pointer(to.values), to.dtype,
                          count);
  });
}

Status CudaTableQueue::gather(const TableArray& array, const TableRows& rows,
                              const TableTarget& to) {
  return with_context(nullptr, [&] {
    return launcher_.gather(stream_, rows_of(array.values, array.elements),
                            ids_of(rows, array.rows), rows_of(to.values, array.elements, to.dtype));
  });
}

Status CudaTableQueue::scatter(const TableArray& array, const TableRows& rows,
                               const std::byte* in) {
  return with_context(nullptr, [&] {
    return launcher_.scatter(stream_, rows_of(array.values, array.elements, array.dtype),
                             ids_of(rows, array.rows), rows_of(in, array.elements, array.dtype));
  });
}

Status CudaTableQueue::update(const TableUpdate& update) {
  return with_context(nullptr, [&] {
    return launcher_.update(stream_, update.arguments->rule,
                            kernels::rule_numbers(*update.arguments),
                            ids_of(update.rows, update.values.rows), update.values.elements,
                            pointer(update.values.values), pointer(update.state0.values),
                            pointer(update.state1.values), pointer(update.gradients));
  });
}

// ---- how far it has come

Status CudaTableQueue::take_event(CUevent* event) {
  return with_context("cuEventCreate", [&] { return events_.take(event); });
}

Status CudaTableQueue::mark(uint64_t* mark) {
  CUevent event = nullptr;
  PARALLAX_RETURN_IF_ERROR(take_event(&event));
  const Status recorded =
      with_context("cuEventRecord", [&] { return api_.cuEventRecord(event, stream_); });
  if (!recorded.ok()) {
    events_.give_back(event);
    return recorded;
  }
  marks_.push_back({++marked_, event});
  *mark = marked_;
  // Where it cannot wake, whoever asks finds the end nevertheless.
  return with_context("cuLaunchHostFunc", [&] {
    api_.cuLaunchHostFunc(stream_, wake_of_table, const_cast<std::function<void()>*>(&wake_));
    return CUDA_SUCCESS;
  });
}

Status CudaTableQueue::passed(uint64_t mark, bool* passed) {
  *passed = false;
  while (!marks_.empty() && marks_.front().number <= mark) {
    CUresult code = CUDA_SUCCESS;
    PARALLAX_RETURN_IF_ERROR(with_context("its work on a table", [&] {
      code = api_.cuEventQuery(marks_.front().event);
      return code == CUDA_ERROR_NOT_READY ? CUDA_SUCCESS : code;
    }));
    if (code == CUDA_ERROR_NOT_READY) return {};
    events_.give_back(marks_.front().event);
    marks_.pop_front();
  }
  *passed = true;
  return {};
}

// Behind the last mark its host function may still be under way, and it calls what goes with this:
// so one more event, behind all. A device that has failed has nothing under way, once it has said
// so twice: one answer alone frees nothing that it may write to.
bool CudaTableQueue::drain(int64_t timeout_ns) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::nanoseconds(timeout_ns);
  CUevent last = nullptr;
  if (!take_event(&last).ok()) return false;
  bool recorded = false;
  for (int i = 0; i < 2 && !recorded; ++i) {
    recorded =
        with_context("cuEventRecord", [&] { return api_.cuEventRecord(last, stream_); }).ok();
  }
  bool over = !recorded;
  uint32_t failures = 0;
  while (!over) {
    CUresult code = CUDA_SUCCESS;
    const Status asked =
        with_context("cuEventQuery", [&] { return code = api_.cuEventQuery(last); });
    failures = asked.ok() || code == CUDA_ERROR_NOT_READY ? 0 : failures + 1;
    over = asked.ok() || failures == 2;
    if (over || std::chrono::steady_clock::now() >= until) break;
    std::this_thread::sleep_for(kTableLook);
  }
  events_.give_back(last);
  return over;
}

}  // namespace parallax
