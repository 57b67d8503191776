// SPDX-License-Identifier: Apache-2.0
// Registering as a window, and taking it back. See gather_window.h.
#include "cuda/gather_window.h"

namespace parallax {

#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 0)

bool GatherWindow::possible(const NcclApi& nccl) {
  return nccl.ncclMemAlloc != nullptr && nccl.ncclMemFree != nullptr &&
         nccl.ncclCommWindowRegister != nullptr && nccl.ncclCommWindowDeregister != nullptr;
}

// Of NCCL's allocation, since a window wants memory whose handle another process can map.
ncclResult_t GatherWindow::offer(ncclComm_t communicator, CUcontext context, uint64_t bytes) {
  offered_ = true;
  last_call_ = "ncclMemAlloc of what ranks give, to sum it in order";
  memory_.push_front({.context = context, .nccl_free = nccl_.ncclMemFree});
  void* memory = nullptr;
  const ncclResult_t allocated = nccl_.ncclMemAlloc(&memory, bytes);
  if (allocated != ncclSuccess) {
    memory_.clear();
    return allocated;
  }
  memory_.front().memory = reinterpret_cast<CUdeviceptr>(memory);
  bytes_ = bytes;
  last_call_ = "ncclCommWindowRegister of what ranks give";
  return nccl_.ncclCommWindowRegister(communicator, memory, bytes, &window_,
                                      NCCL_WIN_COLL_SYMMETRIC);
}

void GatherWindow::settle() { taken_ = window_ != nullptr; }

// Whatever it answers: NCCL has it no more, or gives it up with the communicator.
void GatherWindow::deregister(ncclComm_t communicator) {
  if (!taken() || communicator == nullptr) return;
  static_cast<void>(nccl_.ncclCommWindowDeregister(communicator, window_));
  drop();
}

#else

bool GatherWindow::possible(const NcclApi&) { return false; }
ncclResult_t GatherWindow::offer(ncclComm_t, CUcontext, uint64_t) { return ncclInvalidUsage; }
void GatherWindow::settle() {}
void GatherWindow::deregister(ncclComm_t) {}

#endif

void GatherWindow::count(RegisteredMemory* counts) const {
  if (!taken()) return;
  counts->windows = 1;
  counts->window_bytes = bytes_;
}

}  // namespace parallax
