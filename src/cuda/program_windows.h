// SPDX-License-Identifier: Apache-2.0
// ProgramWindows: memory of the program's that all ranks of a communicator register together as
// windows of symmetric memory (ncclCommWindowRegister, NCCL 2.27), so that NCCL sums what lies in
// it from device to device, without its own buffers between. See gather_window.h for what that
// asks of launches; here it is the ranks' agreement at commit that gives it.
//
// One after the other, in the order in which they were added, which is that of every rank. NCCL may
// take none, where devices do not reach each other's memory: then it is memory as any. Its owner's
// alone, with the device's context current; nothing waits.
#ifndef PARALLAX_CUDA_PROGRAM_WINDOWS_H_
#define PARALLAX_CUDA_PROGRAM_WINDOWS_H_

#include <cstddef>
#include <deque>
#include <span>

#include "base/byte_range.h"
#include "cuda/nccl_api.h"
#include "cuda/nccl_gate.h"
#include "device/communicator.h"

namespace parallax {

class ProgramWindows {
 public:
  static constexpr const char* kCall = "ncclCommWindowRegister of memory that variables lie in";

  explicit ProgramWindows(const NcclApi& nccl) : nccl_(nccl) {}

  void add(std::span<const ByteRange> windows);
  bool any() const { return !windows_.empty(); }
  // Some were not offered yet.
  bool more() const { return offered_ < windows_.size(); }
  // The next one. ncclInProgress, ncclSuccess: it is over when the communicator says so.
  ncclResult_t offer(ncclComm_t communicator);
  // All that were offered are over.
  void settle();
  bool overlaps(const ByteRange& memory) const;
  // Of a communicator with no launch under way; any thread, while the owner leaves this alone.
  void deregister(ncclComm_t communicator, NcclGate& gate);
  // The communicator is given up, and what it knew with it; its threads may still write here.
  void drop() {
    for (Window& each : windows_) each.taken = false;
  }

  void count(RegisteredMemory* counts) const;

 private:
  struct Window {
    ByteRange memory;
    bool taken = false;
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 0)
    // A thread of NCCL's writes it while the offer is under way.
    ncclWindow_t handle = nullptr;
#endif
  };

  const NcclApi& nccl_;
  std::deque<Window> windows_;  // stay where they are
  size_t offered_ = 0;          // of these
};

}  // namespace parallax

#endif  // PARALLAX_CUDA_PROGRAM_WINDOWS_H_
