// SPDX-License-Identifier: Apache-2.0
// Registering them in turn. See program_windows.h.
#include "cuda/program_windows.h"

#include <algorithm>

namespace parallax {

#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 0)

ncclResult_t ProgramWindows::offer(ncclComm_t communicator) {
  Window& next = windows_[offered_++];
  return nccl_.ncclCommWindowRegister(communicator, reinterpret_cast<void*>(next.memory.first),
                                      next.memory.bytes, &next.handle, NCCL_WIN_COLL_SYMMETRIC);
}

void ProgramWindows::settle() {
  for (Window& each : windows_) each.taken = each.handle != nullptr;
}

// Whatever it answers: NCCL has it no more, or gives it up with the communicator.
void ProgramWindows::deregister(ncclComm_t communicator, NcclGate& gate) {
  for (const Window& each : windows_) {
    if (!each.taken || communicator == nullptr) continue;
    static_cast<void>(
        gate.call([&] { return nccl_.ncclCommWindowDeregister(communicator, each.handle); }));
  }
  drop();
}

#else

ncclResult_t ProgramWindows::offer(ncclComm_t) { return ncclInvalidUsage; }
void ProgramWindows::settle() {}
void ProgramWindows::deregister(ncclComm_t, NcclGate&) {}

#endif

void ProgramWindows::add(std::span<const ByteRange> windows) {
  for (const ByteRange& each : windows) windows_.push_back({.memory = each});
}

bool ProgramWindows::overlaps(const ByteRange& memory) const {
  return std::any_of(windows_.begin(), windows_.end(),
                     [&](const Window& each) { return each.memory.overlaps(memory); });
}

void ProgramWindows::count(RegisteredMemory* counts) const {
  for (const Window& each : windows_) {
    if (!each.taken) continue;
    ++counts->program_windows;
    counts->program_window_bytes += each.memory.bytes;
  }
}

}  // namespace parallax
