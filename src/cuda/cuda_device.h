// SPDX-License-Identifier: Apache-2.0
// CudaDevice: one device that a job uses: its primary context, retained; queues of copies, which
// are streams of ours that no legacy default stream waits for; and the events that mark points of
// streams and ends of copies, used again. CudaDevices has one for each device.
//
// A queue waits for the caller's stream whose copies it has, and what is behind waits with it. So
// each of the caller's streams with copies under way has a queue to itself for each direction, up
// to kQueuesMax of them; beyond, streams share.
//
// Guarded by its owner's lock, but for context(), allocate() and release(), which any thread may
// call without it. Nothing else waits for the device.
#ifndef PARALLAX_CUDA_CUDA_DEVICE_H_
#define PARALLAX_CUDA_CUDA_DEVICE_H_

#include <chrono>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/status.h"
#include "cuda/event_pool.h"
#include "cuda/kernels/launcher.h"
#include "cuda/library.h"
#include "device/devices.h"

namespace parallax {

// A point of a stream of the caller's.
struct StreamMark {
  CUevent event = nullptr;
  void* stream = nullptr;
  std::thread::id thread = {};  // of CU_STREAM_PER_THREAD: whose

  bool of_same_stream(const StreamMark& other) const {
    return stream == other.stream && thread == other.thread;
  }
};

// Copies that were begun together.
struct QueuedCopies {
  CUevent ended = nullptr;  // null: no event could be recorded, and the queue is asked
  CopyDirection direction = CopyDirection::kToHost;
  size_t queue = 0;
};

class CudaDevice {
 public:
  static constexpr size_t kQueuesMax = 16;  // for each direction

  // `wake` outlives every copy. UNSUPPORTED, IO.
  static Status open(const DriverLibrary& driver, uint32_t number,
                     const std::function<void()>& wake, std::unique_ptr<CudaDevice>* device);
  ~CudaDevice();
  CudaDevice(const CudaDevice&) = delete;
  CudaDevice& operator=(const CudaDevice&) = delete;

  uint32_t number() const { return number_; }
  CUcontext context() const { return context_; }

  // mark->event is passed once all that is on the caller's stream by now is done.
  Status mark(void* stream, StreamMark* mark);
  // Copies that begin behind `after`. Not OK: `*begun` says whether some are under way
  // nevertheless, and *copies is theirs. Throws only where nothing has begun.
  Status copy(CopyDirection direction, const StreamMark& after, std::span<const DeviceCopy> each,
              QueuedCopies* copies, bool* begun);
  // The same of rows that kernels coalesce, and of their counts.
  Status coalesce(kernels::Launcher& launcher, const StreamMark& after,
                  std::span<const RowsToCoalesce> all, QueuedCopies* copies, bool* begun);
  // And of numbers that they convert.
  Status convert(kernels::Launcher& launcher, CopyDirection direction, const StreamMark& after,
                 std::span<const DeviceConversion> each, QueuedCopies* copies, bool* begun);
  // Makes a stream of another device, or of this one, wait for their end.
  Status follow(const QueuedCopies& copies, const CudaDevice& other, CUstream stream);
  // Of the device's primary context, and not being captured: UNSUPPORTED; IO.
  Status check_stream(CUstream stream) const;
  // Whether they have ended. IO: so says the driver, of these or of the device.
  Status look(const QueuedCopies& copies, bool* ended) const noexcept;
  // They have: their queue and event are free.
  void end(const QueuedCopies& copies) noexcept;
  // For another point.
  void give_back(CUevent event) noexcept { events_.give_back(event); }
  // Behind the last copy's event its host function may still be under way, and it calls `wake`.
  // False: it is, at that time.
  bool finish_queues(std::chrono::steady_clock::time_point until) const noexcept;

  // Zeros, once this returns. Blocks until they are written.
  Status allocate(uint64_t bytes, void** memory) const;
  // Whatever is in it.
  Status allocate_raw(uint64_t bytes, CUdeviceptr* memory) const;
  // Blocks until the device is done with all that it has to do.
  void release(void* memory) const;
  // The same of NCCL's memory.
  Status allocate(uint64_t bytes, const NcclLibrary& nccl, void** memory) const;
  void release(const NcclLibrary& nccl, void* memory) const;

  // "device 0: what: CUDA_ERROR_..."; without memory for that, LIMIT.
  Status failure(const char* what, CUresult error) const noexcept;

 private:
  // A stream of ours, and whose copies it had last.
  struct Queue {
    CUstream stream = nullptr;
    StreamMark behind;
    size_t under_way = 0;
  };
  using Queues = std::vector<Queue>;

  CudaDevice(const DriverLibrary& driver, uint32_t number, const std::function<void()>& wake)
      : api_(driver.api), number_(number), wake_(wake), events_(driver.api) {}

  Status prepare();
  Status take_event(CUevent* event);
  Status check_in_context(CUstream stream) const;
  Status make_stream(CUstream* stream) const;
  Status queue_for(CopyDirection direction, const StreamMark& after, size_t* at);
  template <typename Enqueue>
  Status queue_up(CopyDirection direction, const StreamMark& after, Enqueue enqueue,
                  QueuedCopies* copies, bool* begun);
  Status enqueue_copies(CopyDirection direction, std::span<const DeviceCopy> copies, CUstream queue,
                        bool* begun) const noexcept;
  CUresult enqueue_together(const RowsToCoalesce& rows, const CoalescePlaces& places,
                            CUstream queue) const noexcept;
  Status enqueue_coalescing(kernels::Launcher& launcher, const RowsToCoalesce& rows, CUstream queue,
                            bool* begun) const noexcept;
  Status passed(CUevent event, bool* passed) const noexcept;
  Status zero(CUdeviceptr memory, uint64_t bytes, bool* under_way) const;
  // Memory that free() gives back where it cannot be zeroed.
  template <typename Free>
  Status give_zeroed(CUdeviceptr address, uint64_t bytes, Free free, void** memory) const;

  const DriverApi& api_;
  const uint32_t number_;
  const std::function<void()>& wake_;
  CUdevice device_ = 0;
  CUcontext context_ = nullptr;
  Queues queues_[2];          // by CopyDirection
  CUstream zeros_ = nullptr;  // writes those of memory that is allocated
  EventPool events_;
};

}  // namespace parallax

#endif  // PARALLAX_CUDA_CUDA_DEVICE_H_
