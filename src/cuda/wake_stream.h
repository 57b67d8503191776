// SPDX-License-Identifier: Apache-2.0
// WakeStream: wakes who sleeps until a point of another stream is passed. A host function takes the
// thread that enqueues it longer than all other calls of a small launch, so there is one only where
// somebody is about to sleep; and it has a stream to itself, so that it comes behind that point and
// not behind all that follows. With the device's context; one owner.
#ifndef PARALLAX_CUDA_WAKE_STREAM_H_
#define PARALLAX_CUDA_WAKE_STREAM_H_

#include <functional>
#include <memory>
#include <utility>

#include "cuda/driver_api.h"

namespace parallax {

// A stream has something to do. One that has failed has not.
inline bool under_way(const DriverApi& api, CUstream stream) {
  return stream != nullptr && api.cuStreamQuery(stream) == CUDA_ERROR_NOT_READY;
}

class WakeStream {
 public:
  // `wake` is called by the driver's threads.
  WakeStream(const DriverApi& api, std::function<void()> wake)
      : api_(api), wake_(std::make_unique<std::function<void()>>(std::move(wake))) {}
  WakeStream(const WakeStream&) = delete;
  WakeStream& operator=(const WakeStream&) = delete;

  const std::function<void()>& wake() const { return *wake_; }
  CUresult open() {
    const CUresult error = api_.cuStreamCreateWithPriority(&stream_, CU_STREAM_NON_BLOCKING, 0);
    if (error != CUDA_SUCCESS) stream_ = nullptr;
    return error;
  }
  // Once for each number that is not 0. Where it cannot wake, whoever looks now and then finds the
  // end nevertheless.
  bool armed_for(uint64_t number) const { return armed_for_ == number; }
  void wake_behind(CUevent end, uint64_t number) {
    armed_for_ = number;
    if (api_.cuStreamWaitEvent(stream_, end, CU_EVENT_WAIT_DEFAULT) != CUDA_SUCCESS) return;
    api_.cuLaunchHostFunc(stream_, call_wake, wake_.get());
  }
  // Behind what another stream has now.
  void wake_at_end(CUstream stream) { api_.cuLaunchHostFunc(stream, call_wake, wake_.get()); }
  // Something is still to wake.
  bool under_way() const { return parallax::under_way(api_, stream_); }
  void close() {
    if (stream_ != nullptr) api_.cuStreamDestroy_v2(std::exchange(stream_, nullptr));
  }

 private:
  // The driver's thread: it may not call CUDA, and does not.
  static void CUDA_CB call_wake(void* wake) {
    (*static_cast<const std::function<void()>*>(wake))();
  }

  const DriverApi& api_;
  std::unique_ptr<std::function<void()>> wake_;
  CUstream stream_ = nullptr;
  uint64_t armed_for_ = 0;
};

}  // namespace parallax

#endif  // PARALLAX_CUDA_WAKE_STREAM_H_
