// SPDX-License-Identifier: Apache-2.0
// CudaDevices: Devices by the CUDA driver. See device/devices.h for the contract; cuda_device.h has
// what is each device's. Its end waits for copies that are under way, for a bounded while; beyond
// that what the driver may still use is left to it.
//
// What takes the driver long (a context, memory that is pinned, zeroed or given back) is called
// without the lock that the owner's calls need: a device that is open stays so. What kernels need
// is in cuda_devices_kernels.cc.
#ifndef PARALLAX_CUDA_CUDA_DEVICES_H_
#define PARALLAX_CUDA_CUDA_DEVICES_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "base/status.h"
#include "cuda/cuda_device.h"
#include "cuda/cuda_kernels.h"
#include "cuda/cuda_table_queue.h"
#include "cuda/device_blocks.h"
#include "cuda/library.h"
#include "cuda/meanwhile.h"
#include "device/devices.h"

namespace parallax {

class CudaDevices final : public Devices {
 public:
  // UNSUPPORTED: no driver, or no device.
  static Status create(const DeviceOptions& options, std::unique_ptr<Devices>* devices);
  ~CudaDevices() override;

  Status open(uint32_t device) override PARALLAX_EXCLUDES(mutex_);
  PlacedMemory place_of(const void* address) const override PARALLAX_EXCLUDES(mutex_);
  Status mark(uint32_t device, void* stream, DeviceMark* mark) override PARALLAX_EXCLUDES(mutex_);
  void release(DeviceMark mark) override PARALLAX_EXCLUDES(mutex_);
  Status copy(CopyDirection direction, DeviceMark mark, std::span<const DeviceCopy> copies,
              DeviceBatch* batch) override PARALLAX_EXCLUDES(mutex_);
  Status follow(DeviceBatch batch, uint32_t device, void* stream) override
      PARALLAX_EXCLUDES(mutex_);
  Status poll(DeviceBatch batch, bool* ended) override PARALLAX_EXCLUDES(mutex_);
  Status prepare_kernels(uint32_t device) override PARALLAX_EXCLUDES(mutex_);
  Status coalesce_bytes(uint32_t device, const RowsToCoalesce& rows, uint64_t* bytes) override
      PARALLAX_EXCLUDES(mutex_);
  Status coalesce(DeviceMark mark, std::span<const RowsToCoalesce> all, DeviceBatch* batch) override
      PARALLAX_EXCLUDES(mutex_);
  Status convert(CopyDirection direction, DeviceMark mark, std::span<const DeviceConversion> each,
                 DeviceBatch* batch) override PARALLAX_EXCLUDES(mutex_);
  bool drain(int64_t timeout_ns) override PARALLAX_EXCLUDES(mutex_);
  Status allocate_pinned(uint64_t bytes, std::byte** memory) override PARALLAX_EXCLUDES(mutex_);
  void release_pinned(std::byte* memory) noexcept override PARALLAX_EXCLUDES(freed_mutex_);
  Status allocate_scratch(uint32_t device, uint64_t bytes, std::byte** memory) override
      PARALLAX_EXCLUDES(mutex_);
  void release_scratch(uint32_t device, std::byte* memory) noexcept override
      PARALLAX_EXCLUDES(freed_mutex_);
  Status allocate(uint32_t device, uint64_t bytes, void** memory) override
      PARALLAX_EXCLUDES(mutex_);
  void release(uint32_t device, void* memory) override PARALLAX_EXCLUDES(mutex_);
  Status allocate_symmetric(uint32_t device, uint64_t bytes, void** memory) override
      PARALLAX_EXCLUDES(mutex_);
  void release_symmetric(uint32_t device, void* memory) override PARALLAX_EXCLUDES(mutex_);
  DeviceReport report() const override;
  CollectiveSupport collectives() const override;
  Status make_id(CommunicatorId* id) override;
  Status form(const CommunicatorOptions& options,
              std::unique_ptr<Communicator>* communicator) override PARALLAX_EXCLUDES(mutex_);
  Status form_table(uint32_t place, std::unique_ptr<TableQueue>* queue) override
      PARALLAX_EXCLUDES(mutex_);

 private:
  // By its number less one.
  struct Marked {
    CudaDevice* device = nullptr;  // null: free
    StreamMark mark;
  };
  struct Batch {
    CudaDevice* device = nullptr;  // null: free
    QueuedCopies copies;
    Status status;  // of those that could not be begun
    bool doubted = false;
  };

  CudaDevices(const DriverLibrary& driver, int count, const DeviceOptions& options)
      : driver_(driver),
        api_(driver.api),
        count_(count),
        abort_after_(options.abort_after_ns),
        wake_(std::make_unique<std::function<void()>>(options.wake)),
        opener_(*wake_) {}

  CudaDevice* find(uint32_t number) const PARALLAX_REQUIRES(mutex_);
  Status find_open(uint32_t number, CudaDevice** device) const PARALLAX_REQUIRES(mutex_);
  void tell_places(int nccl_version, std::vector<DeviceIdentity>* places) const;
  CUcontext any_context() const PARALLAX_EXCLUDES(mutex_);
  CUevent event_of(DeviceMark mark) PARALLAX_EXCLUDES(mutex_);
  bool under_way() PARALLAX_REQUIRES(mutex_);
  // What is queued up on the mark's device by queue_up(device, mark, &copies, &begun), as a batch.
  template <typename QueueUp>
  Status begin(DeviceMark mark, DeviceBatch* batch, QueueUp queue_up) PARALLAX_REQUIRES(mutex_);
  Status load_kernels(uint32_t number) PARALLAX_EXCLUDES(mutex_);
  // What a communicator works with; no context while a thread opens the device.
  struct Opened {
    CUcontext context = nullptr;
    CudaKernels* kernels = nullptr;
  };
  Opened opened(uint32_t number, bool with_kernels) const PARALLAX_EXCLUDES(mutex_);
  Status open_meanwhile(uint32_t number, bool with_kernels, Opened* opened)
      PARALLAX_EXCLUDES(mutex_);
  void give_back(DeviceBlocks&& blocks) noexcept PARALLAX_EXCLUDES(freed_mutex_);
  void start_freer() PARALLAX_REQUIRES(freed_mutex_);
  void free_all() noexcept PARALLAX_EXCLUDES(freed_mutex_);
  bool free_one() noexcept PARALLAX_EXCLUDES(freed_mutex_);

  const DriverLibrary& driver_;
  const DriverApi& api_;
  const int count_;
  const std::chrono::nanoseconds abort_after_;  // of DeviceOptions
  // The driver may call it as long as a copy is under way.
  std::unique_ptr<std::function<void()>> wake_;
  Mutex opening_mutex_ PARALLAX_ACQUIRED_BEFORE(mutex_);  // one device is opened at a time
  // And one's kernels are loaded, while others are opened.
  Mutex loading_mutex_ PARALLAX_ACQUIRED_BEFORE(mutex_);
  mutable Mutex mutex_;
  // None goes before the end.
  std::map<uint32_t, std::unique_ptr<CudaDevice>> devices_ PARALLAX_GUARDED_BY(mutex_);
  // Of devices that have tables, coalesce or sum in order; who uses those of one has one owner at a
  // time.
  std::map<uint32_t, std::unique_ptr<CudaKernels>> kernels_ PARALLAX_GUARDED_BY(mutex_);
  std::map<uint32_t, Status> without_kernels_ PARALLAX_GUARDED_BY(mutex_);  // and why
  std::vector<Marked> marks_ PARALLAX_GUARDED_BY(mutex_);
  std::vector<Batch> batches_ PARALLAX_GUARDED_BY(mutex_);
  Meanwhile opener_;  // of the devices of communicators
  // A communicator does not end: NCCL may use memory of any device still, and none is given back.
  std::atomic<bool> left_ = false;
  // Memory to be given back. Of what is pinned each block has the address of the next: a list that
  // takes no memory. A thread that is there as long as it has something to do calls the driver.
  Mutex freed_mutex_;
  std::byte* freed_ PARALLAX_GUARDED_BY(freed_mutex_) = nullptr;
  DeviceBlocks freed_on_devices_ PARALLAX_GUARDED_BY(freed_mutex_);
  DeviceBlocks scratch_ PARALLAX_GUARDED_BY(freed_mutex_);  // in use
  bool freeing_ PARALLAX_GUARDED_BY(freed_mutex_) = false;
  std::thread freer_ PARALLAX_GUARDED_BY(freed_mutex_);
};

// What any job would find: versions and devices.
Status describe_cuda(DeviceReport* report);

}  // namespace parallax

#endif  // PARALLAX_CUDA_CUDA_DEVICES_H_
