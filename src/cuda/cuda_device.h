// SPDX-License-Identifier: Apache-2.0
// CudaDevice: one device that a job uses: its primary context, retained; a queue of copies for each
// direction, which are streams of ours that no legacy default stream waits for; and the events that
// mark points of streams and ends of copies, used again. CudaDevices has one for each device.
//
// Guarded by its owner's lock. Nothing waits for the device.
#ifndef PARALLAX_CUDA_CUDA_DEVICE_H_
#define PARALLAX_CUDA_CUDA_DEVICE_H_

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "cuda/library.h"
#include "device/devices.h"

namespace parallax {

class CudaDevice {
 public:
  // `wake` outlives every copy. UNSUPPORTED, IO.
  static Status open(const DriverLibrary& driver, uint32_t number,
                     const std::function<void()>& wake, std::unique_ptr<CudaDevice>* device);
  ~CudaDevice();
  CudaDevice(const CudaDevice&) = delete;
  CudaDevice& operator=(const CudaDevice&) = delete;

  uint32_t number() const { return number_; }
  CUcontext context() const { return context_; }

  // *event is passed once all that is on the caller's stream by now is done.
  Status mark(void* stream, CUevent* event);
  // *ended is passed once the copies are done, which begin behind `after`. IO: some may have begun
  // nevertheless; where *ended is set, it is passed once those are done.
  Status copy(CopyDirection direction, CUevent after, std::span<const DeviceCopy> copies,
              CUevent* ended);
  // Whether an event is passed. IO: the device has failed, and nothing is under way on it any more.
  Status passed(CUevent event, bool* passed);
  // For another point.
  void give_back(CUevent event) { events_.push_back(event); }

  // Zeros, once this returns. Blocks until they are written.
  Status allocate(uint64_t bytes, void** memory);
  void release(void* memory);

  // "device 0: what: CUDA_ERROR_...".
  Status failure(const char* what, CUresult error) const;

 private:
  CudaDevice(const DriverLibrary& driver, uint32_t number, const std::function<void()>& wake)
      : driver_(driver), api_(driver.api), number_(number), wake_(wake) {}

  Status prepare();
  Status take_event(CUevent* event);
  void finish_queues();
  Status check_stream(CUstream stream) const;

  const DriverLibrary& driver_;
  const DriverApi& api_;
  const uint32_t number_;
  const std::function<void()>& wake_;
  CUdevice device_ = 0;
  CUcontext context_ = nullptr;
  CUstream queues_[2] = {};  // by CopyDirection
  std::vector<CUevent> events_;
};

}  // namespace parallax

#endif  // PARALLAX_CUDA_CUDA_DEVICE_H_
