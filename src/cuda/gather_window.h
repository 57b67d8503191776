// SPDX-License-Identifier: Apache-2.0
// GatherWindow: memory of the library's own on a device that all ranks of a communicator register
// together as a window of symmetric memory (ncclCommWindowRegister, NCCL 2.27), so that what they
// gather goes from device to device, without NCCL's own buffers between.
//
// NCCL takes a launch for one in symmetric memory by its addresses alone, each rank by itself, and
// reaches other ranks' memory at this rank's offset in the window. So a window is for what every
// rank launches at the same place: memory that no program sees. To register is a collective call,
// the first one of the communicator on every rank; to deregister is not.
//
// NCCL may take no window, where devices do not reach each other's memory: then it is memory as
// any. Its owner's alone, with the device's context current; nothing waits but allocate().
#ifndef PARALLAX_CUDA_GATHER_WINDOW_H_
#define PARALLAX_CUDA_GATHER_WINDOW_H_

#include <cuda.h>

#include <cstdint>
#include <utility>

#include "cuda/device_blocks.h"
#include "cuda/nccl_api.h"
#include "cuda/nccl_gate.h"
#include "device/communicator.h"

namespace parallax {

class GatherWindow {
 public:
  explicit GatherWindow(const NcclApi& nccl) : nccl_(nccl) {}

  // This NCCL has windows, and so has the header that this was built with.
  static bool possible(const NcclApi& nccl);

  // Once, on any thread with the context current, while the owner leaves this alone: it may take
  // long.
  void allocate(CUcontext context, uint64_t bytes);
  // Then registers: once. ncclInProgress, ncclSuccess: it is over when the communicator says so.
  // Else what failed, that of allocate() too.
  ncclResult_t offer(ncclComm_t communicator);
  bool offered() const { return offered_; }
  // The offer is over: whether NCCL knows it is told from then on.
  void settle();
  bool taken() const { return taken_; }
  // What NCCL did not take goes as memory, too. Empty before allocate(), and behind the first call.
  DeviceBlocks take_memory() { return std::move(memory_); }
  // Of a communicator with no launch under way; any thread, while the owner leaves this alone.
  void deregister(ncclComm_t communicator, NcclGate& gate);
  // The communicator is given up, and what it knew with it.
  void drop() { taken_ = false; }

  void count(RegisteredMemory* counts) const;
  // What answered last, in words.
  const char* last_call() const { return last_call_; }

 private:
  const NcclApi& nccl_;
  bool offered_ = false, taken_ = false;
  DeviceBlocks memory_;
  uint64_t bytes_ = 0;
  ncclResult_t allocated_ = ncclInvalidUsage;
  const char* last_call_ = "";
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 0)
  // A thread of NCCL's writes it while the offer is under way.
  ncclWindow_t window_ = nullptr;
#endif
};

}  // namespace parallax

#endif  // PARALLAX_CUDA_GATHER_WINDOW_H_
