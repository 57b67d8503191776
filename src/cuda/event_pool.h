// SPDX-License-Identifier: Apache-2.0
// EventPool: events without times, used again and again. With the device's context; one owner.
#ifndef PARALLAX_CUDA_EVENT_POOL_H_
#define PARALLAX_CUDA_EVENT_POOL_H_

#include <cstddef>
#include <vector>

#include "cuda/driver_api.h"

namespace parallax {

class EventPool {
 public:
  explicit EventPool(const DriverApi& api) : api_(api) {}
  EventPool(const EventPool&) = delete;
  EventPool& operator=(const EventPool&) = delete;

  // As cuEventCreate; *event is null where there is none.
  CUresult take(CUevent* event) {
    *event = nullptr;
    if (!free_.empty()) {
      *event = free_.back();
      free_.pop_back();
      return CUDA_SUCCESS;
    }
    free_.reserve(made_ + 1);  // so that what comes back always has room
    const CUresult error = api_.cuEventCreate(event, CU_EVENT_DISABLE_TIMING);
    if (error == CUDA_SUCCESS) {
      ++made_;
    } else {
      *event = nullptr;
    }
    return error;
  }
  // For another point. A stream that waits for the event waits for what it was when it was told to.
  void give_back(CUevent event) noexcept {
    if (event != nullptr) free_.push_back(event);
  }
  // Those that are here.
  void destroy() noexcept {
    for (const CUevent event : free_) api_.cuEventDestroy_v2(event);
    free_.clear();
  }

 private:
  const DriverApi& api_;
  std::vector<CUevent> free_;
  size_t made_ = 0;
};

}  // namespace parallax

#endif  // PARALLAX_CUDA_EVENT_POOL_H_
