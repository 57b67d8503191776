// SPDX-License-Identifier: Apache-2.0
// Registering with NCCL, and taking it back. See registered_buffers.h.
#include "cuda/registered_buffers.h"

#include <algorithm>

namespace parallax {

#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 19, 0)

bool RegisteredBuffers::possible() const {
  return nccl_.ncclCommRegister != nullptr && nccl_.ncclCommDeregister != nullptr;
}

RegisteredBuffers::Known RegisteredBuffers::offer(ncclComm_t communicator,
                                                  const ByteRange& memory) const {
  Known known = {.memory = memory};
  const ncclResult_t result = gate_.call([&] {
    return nccl_.ncclCommRegister(communicator, reinterpret_cast<void*>(memory.first), memory.bytes,
                                  &known.handle);
  });
  if (result != ncclSuccess) known.handle = nullptr;
  return known;
}

ncclResult_t RegisteredBuffers::deregister(ncclComm_t communicator, const Known& known) const {
  if (known.handle == nullptr || communicator == nullptr) return ncclSuccess;
  return gate_.call([&] { return nccl_.ncclCommDeregister(communicator, known.handle); });
}

#else

bool RegisteredBuffers::possible() const { return false; }
RegisteredBuffers::Known RegisteredBuffers::offer(ncclComm_t, const ByteRange& memory) const {
  return {.memory = memory};
}
ncclResult_t RegisteredBuffers::deregister(ncclComm_t, const Known&) const { return ncclSuccess; }

#endif

bool RegisteredBuffers::knows(const ByteRange& memory) const {
  return std::any_of(known_.begin(), known_.end(),
                     [&](const Known& each) { return each.memory.overlaps(memory); });
}

void RegisteredBuffers::drop_refused(const ByteRange& memory) {
  std::erase_if(known_, [&memory](const Known& each) {
    return each.handle == nullptr && each.memory.overlaps(memory);
  });
}

void RegisteredBuffers::leave(const ByteRange& memory) {
  drop_refused(memory);
  for (const Known& each : known_) {
    if (each.memory.overlaps(memory) && each.kept == ncclSuccess) leaving_.push_back(each);
  }
}

void RegisteredBuffers::deregister(ncclComm_t communicator) {
  for (Known& each : leaving_) each.kept = deregister(communicator, each);
}

void RegisteredBuffers::settle() {
  for (const Known& each : leaving_) {
    const auto known = std::find_if(known_.begin(), known_.end(), [&each](const Known& other) {
      return other.memory.first == each.memory.first;
    });
    known->kept = each.kept;
    if (each.kept == ncclSuccess) known_.erase(known);
  }
  leaving_.clear();
  handed_over_ = false;
}

// Whatever it answers: NCCL has it no more, or gives it up with the communicator.
void RegisteredBuffers::deregister_all(ncclComm_t communicator) const {
  for (const Known& each : known_) {
    if (each.kept == ncclSuccess) static_cast<void>(deregister(communicator, each));
  }
}

RegisteredMemory RegisteredBuffers::counts() const {
  RegisteredMemory counts;
  for (const Known& each : known_) {
    const bool there = each.handle != nullptr;
    counts.count += there ? 1 : 0;
    counts.bytes += there ? each.memory.bytes : 0;
    counts.refused += there ? 0 : 1;
  }
  return counts;
}

}  // namespace parallax
