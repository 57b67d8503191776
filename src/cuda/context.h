// SPDX-License-Identifier: Apache-2.0
// ContextScope: as long as it lives the calling thread's current context is a device's primary one,
// as frameworks have it, and what the thread does spoils no capture of a graph: a query of an event
// or an allocation by any thread would invalidate the capture of another that captures in
// cudaStreamCaptureModeGlobal, which is the default. Both are put back behind it. One thread.
#ifndef PARALLAX_CUDA_CONTEXT_H_
#define PARALLAX_CUDA_CONTEXT_H_

#include "cuda/driver_api.h"

namespace parallax {

class ContextScope {
 public:
  ContextScope(const DriverApi& api, CUcontext context) : api_(api) {
    status_ = api_.cuCtxPushCurrent_v2(context);
    if (status_ != CUDA_SUCCESS) return;
    mode_kept_ = api_.cuThreadExchangeStreamCaptureMode(&mode_) == CUDA_SUCCESS;
  }
  ~ContextScope() {
    if (status_ != CUDA_SUCCESS) return;
    if (mode_kept_) api_.cuThreadExchangeStreamCaptureMode(&mode_);
    CUcontext popped = nullptr;
    api_.cuCtxPopCurrent_v2(&popped);
  }
  ContextScope(const ContextScope&) = delete;
  ContextScope& operator=(const ContextScope&) = delete;

  // Not CUDA_SUCCESS: nothing was changed, and nothing may be called.
  CUresult status() const { return status_; }

 private:
  const DriverApi& api_;
  CUresult status_ = CUDA_SUCCESS;
  CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;
  bool mode_kept_ = false;
};

}  // namespace parallax

#endif  // PARALLAX_CUDA_CONTEXT_H_
