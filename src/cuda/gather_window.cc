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
void GatherWindow::allocate(CUcontext context, uint64_t bytes) {
  last_call_ = "ncclMemAlloc of what ranks give, to sum it in order";
  memory_.push_front({.context = context, .nccl_free = nccl_.ncclMemFree});
  void* memory = nullptr;
  allocated_ = nccl_.ncclMemAlloc(&memory, bytes);
  if (allocated_ != ncclSuccess) return memory_.clear();
  memory_.front().memory = reinterpret_cast<CUdeviceptr>(memory);
  bytes_ = bytes;
}

ncclResult_t GatherWindow::offer(ncclComm_t communicator) {
  offered_ = true;
  if (allocated_ != ncclSuccess) return allocated_;
  last_call_ = "ncclCommWindowRegister of what ranks give";
  return nccl_.ncclCommWindowRegister(communicator, reinterpret_cast<void*>(memory_.front().memory),
                                      bytes_, &window_, NCCL_WIN_COLL_SYMMETRIC);
}

void GatherWindow::settle() { taken_ = window_ != nullptr; }

// Whatever it answers: NCCL has it no more, or gives it up with the communicator.
void GatherWindow::deregister(ncclComm_t communicator, NcclGate& gate) {
  if (!taken() || communicator == nullptr) return;
  static_cast<void>(
      gate.call([&] { return nccl_.ncclCommWindowDeregister(communicator, window_); }));
  drop();
}

#else

bool GatherWindow::possible(const NcclApi&) { return false; }
void GatherWindow::allocate(CUcontext, uint64_t) {}
ncclResult_t GatherWindow::offer(ncclComm_t) { return ncclInvalidUsage; }
void GatherWindow::settle() {}
void GatherWindow::deregister(ncclComm_t, NcclGate&) {}

#endif

void GatherWindow::count(RegisteredMemory* counts) const {
  if (!taken()) return;
  counts->windows = 1;
  counts->window_bytes = bytes_;
}

}  // namespace parallax
