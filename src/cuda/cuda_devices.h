// SPDX-License-Identifier: Apache-2.0
// CudaDevices: Devices by the CUDA driver. See device/devices.h for the contract; cuda_device.h has
// what is each device's. Its end waits for copies that are under way, for a bounded while.
#ifndef PARALLAX_CUDA_CUDA_DEVICES_H_
#define PARALLAX_CUDA_CUDA_DEVICES_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "base/mutex.h"
#include "base/status.h"
#include "cuda/cuda_device.h"
#include "cuda/library.h"
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
  Status poll(DeviceBatch batch, bool* ended) override PARALLAX_EXCLUDES(mutex_);
  bool drain(int64_t timeout_ns) override PARALLAX_EXCLUDES(mutex_);
  Status allocate_pinned(uint64_t bytes, std::byte** memory) override PARALLAX_EXCLUDES(mutex_);
  void release_pinned(std::byte* memory) override PARALLAX_EXCLUDES(mutex_);
  Status allocate(uint32_t device, uint64_t bytes, void** memory) override
      PARALLAX_EXCLUDES(mutex_);
  void release(uint32_t device, void* memory) override PARALLAX_EXCLUDES(mutex_);
  DeviceReport report() const override;
  CollectiveSupport collectives() const override;
  Status make_id(CommunicatorId* id) override;
  Status form(const CommunicatorOptions& options,
              std::unique_ptr<Communicator>* communicator) override PARALLAX_EXCLUDES(mutex_);

 private:
  // A point of a stream, or the end of copies, by its number less one.
  struct Point {
    CudaDevice* device = nullptr;  // null: free
    CUevent event = nullptr;
    Status status;  // of copies: those that could not be begun
    bool doubted = false;
  };

  CudaDevices(const DriverLibrary& driver, int count, const DeviceOptions& options)
      : driver_(driver),
        api_(driver.api),
        count_(count),
        wake_(std::make_unique<std::function<void()>>(options.wake)) {}

  Status open_locked(uint32_t number, CudaDevice** device) PARALLAX_REQUIRES(mutex_);
  CUcontext any_context() const PARALLAX_REQUIRES(mutex_);
  CUevent event_of(DeviceMark mark) PARALLAX_EXCLUDES(mutex_);
  static uint32_t put(std::vector<Point>& points, const Point& point);
  bool under_way() PARALLAX_REQUIRES(mutex_);

  const DriverLibrary& driver_;
  const DriverApi& api_;
  const int count_;
  // The driver may call it as long as a copy is under way.
  std::unique_ptr<std::function<void()>> wake_;
  mutable Mutex mutex_;
  std::map<uint32_t, std::unique_ptr<CudaDevice>> devices_ PARALLAX_GUARDED_BY(mutex_);
  std::vector<Point> marks_ PARALLAX_GUARDED_BY(mutex_);
  std::vector<Point> batches_ PARALLAX_GUARDED_BY(mutex_);
};

// What any job would find: versions and devices.
Status describe_cuda(DeviceReport* report);

}  // namespace parallax

#endif  // PARALLAX_CUDA_CUDA_DEVICES_H_
