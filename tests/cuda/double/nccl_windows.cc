// SPDX-License-Identifier: Apache-2.0
// Symmetric memory of the double of NCCL: memory of its own allocation, and windows, which ranks
// register together and each deregisters by itself. A collective is in symmetric memory where the
// addresses that a rank gives lie in windows, as NCCL has it; ranks that give other places fail,
// and, more strictly than NCCL, those of whom some give one of the two there and others do not.
#include <nccl.h>

#include <algorithm>
#include <atomic>

#include "cuda/double/nccl_communicator.h"

namespace nccl_double {

namespace {

std::atomic<int>& taken() {
  static std::atomic<int> windows{1};
  return windows;
}
std::atomic<uint64_t>& symmetric_count() {
  static std::atomic<uint64_t> count{0};
  return count;
}

const ncclWindow_vidmem* window_at(const ncclComm& own, CUdeviceptr pointer) {
  for (const auto& [number, window] : own.windows) {
    const bool here = pointer >= window->pointer && pointer - window->pointer < window->bytes;
    if (here && window->symmetric) return window;
  }
  return nullptr;
}

void drop(ncclWindow_t window) {
  cuda_double_count_registration(window->pointer, -1);
  delete window;
}

ncclResult_t agree_on(ncclComm& own, const ncclWindow_vidmem& window) {
  std::vector<Offer> offers;
  const Offer offer = {.kind = kWindow, .key = window.symmetric ? 1 : 0, .bytes = window.bytes};
  if (ncclResult_t code = exchange(own, offer, &offers)) return code;
  for (const Offer& other : offers) {
    if (other.bytes == offer.bytes && other.key == offer.key) continue;
    fail(own, ncclInvalidUsage,
         "ranks differ: windows of " + std::to_string(offer.bytes) + " and of " +
             std::to_string(other.bytes) + " bytes, or one of them not symmetric");
    return ncclInvalidUsage;
  }
  return ncclSuccess;
}

}  // namespace

void look_for_windows(Collective* collective) {
  ncclComm& own = *collective->communicator;
  const std::lock_guard lock(own.mutex);
  const ncclWindow_vidmem* const send = window_at(own, collective->send);
  const ncclWindow_vidmem* const receive = window_at(own, collective->receive);
  Descriptor& what = collective->what;
  if (receive != nullptr) {
    what.receive_window = receive->number;
    what.receive_offset = collective->receive - receive->pointer;
  }
  if (send != nullptr && what.kind != kAllGather) {
    what.send_window = send->number;
    what.send_offset = collective->send - send->pointer;
  }
  if (send != nullptr && receive != nullptr) ++symmetric_count();
}

void drop_windows(ncclComm& communicator) {
  for (const auto& [number, window] : communicator.windows) drop(window);
  communicator.windows.clear();
}

}  // namespace nccl_double

using namespace nccl_double;

extern "C" {

PARALLAX_DOUBLE_API ncclResult_t ncclMemAlloc(void** pointer, size_t bytes) {
  if (ncclResult_t code = nccl_double::enter("ncclMemAlloc")) return code;
  CUdeviceptr made = 0;
  if (pointer == nullptr || cuda_double_allocate_shareable(&made, bytes) != CUDA_SUCCESS) {
    return ncclUnhandledCudaError;
  }
  *pointer = reinterpret_cast<void*>(made);
  return ncclSuccess;
}

PARALLAX_DOUBLE_API ncclResult_t ncclMemFree(void* pointer) {
  if (ncclResult_t code = nccl_double::enter("ncclMemFree")) return code;
  const CUresult freed = cuda_double_free_shareable(reinterpret_cast<CUdeviceptr>(pointer));
  return freed == CUDA_SUCCESS ? ncclSuccess : ncclUnhandledCudaError;
}

PARALLAX_DOUBLE_API ncclResult_t ncclCommWindowRegister(ncclComm_t handle, void* buffer,
                                                        size_t bytes, ncclWindow_t* window,
                                                        int flags) {
  if (ncclResult_t code = nccl_double::enter("ncclCommWindowRegister")) return code;
  const Communicator own = find(handle);
  if (ncclResult_t code = ready(own, "ncclCommWindowRegister")) return code;
  const auto pointer = reinterpret_cast<CUdeviceptr>(buffer);
  const bool aligned = pointer % NCCL_WIN_REQUIRED_ALIGNMENT == 0;
  if (window == nullptr || !aligned || (flags & ~NCCL_WIN_COLL_SYMMETRIC) != 0 ||
      cuda_double_alias(pointer, bytes, own->device) == nullptr) {
    return refuse(own.get(), ncclInvalidArgument,
                  "ncclCommWindowRegister: flags, alignment, or no memory of " +
                      std::to_string(bytes) + " bytes that device " + std::to_string(own->device) +
                      " can reach");
  }
  *window = nullptr;
  if (taken() == 0) return ncclSuccess;
  // Before anybody is met: the others wait.
  if (cuda_double_is_shareable(pointer) == 0) {
    return refuse(own.get(), ncclUnhandledCudaError,
                  "ncclCommWindowRegister: memory that other processes cannot map (ncclMemAlloc)");
  }
  const ncclResult_t met = meet(own, [own, pointer, bytes, window, flags] {
    ncclWindow_vidmem made = {
        .pointer = pointer, .bytes = bytes, .symmetric = (flags & NCCL_WIN_COLL_SYMMETRIC) != 0};
    if (ncclResult_t code = agree_on(*own, made)) return code;
    const std::lock_guard lock(own->mutex);
    made.number = ++own->windows_made;
    cuda_double_count_registration(pointer, 1);
    *window = own->windows[made.number] = new ncclWindow_vidmem(made);
    return ncclSuccess;
  });
  // As NCCL 2.28.9: what is in progress is success, and the communicator says how it goes on.
  return met == ncclInProgress ? ncclSuccess : met;
}

PARALLAX_DOUBLE_API ncclResult_t ncclCommWindowDeregister(ncclComm_t handle, ncclWindow_t window) {
  if (ncclResult_t code = nccl_double::enter("ncclCommWindowDeregister")) return code;
  const Communicator own = find(handle);
  if (own == nullptr) return ncclInvalidArgument;
  if (window == nullptr) return ncclSuccess;
  std::unique_lock lock(own->mutex);
  const auto found = std::find_if(own->windows.begin(), own->windows.end(),
                                  [&](const auto& each) { return each.second == window; });
  if (found == own->windows.end()) return ncclInvalidArgument;
  const uint64_t left = own->launched - own->finished;
  own->windows.erase(found);
  lock.unlock();
  if (left > 0) {
    say("a window is deregistered while " + std::to_string(left) + " collectives are under way");
  }
  drop(window);
  return ncclSuccess;
}

void nccl_double_take_windows(int windows) { taken() = windows; }
uint64_t nccl_double_symmetric() { return symmetric_count(); }

}  // extern "C"
