// SPDX-License-Identifier: Apache-2.0
// The kernels of a job's devices, and memory for what they do. See cuda_devices.h.
#include <algorithm>
#include <string>
#include <utility>

#include "cuda/cuda_devices.h"

namespace parallax {

// The lock is not held meanwhile: calls of others go on.
Status CudaDevices::load_kernels(uint32_t number) {
  PARALLAX_RETURN_IF_ERROR(open(number));
  const MutexLock loading(loading_mutex_);
  const CudaDevice* device = nullptr;
  {
    const MutexLock lock(mutex_);
    if (kernels_.count(number) != 0) return {};
    device = find(number);
  }
  std::unique_ptr<CudaKernels> loaded;
  PARALLAX_RETURN_IF_ERROR(CudaKernels::load(driver_, *device, &loaded));
  const MutexLock lock(mutex_);
  kernels_.emplace(number, std::move(loaded));
  return {};
}

// What a device has not it will not have: it is asked once.
Status CudaDevices::prepare_kernels(uint32_t number) {
  {
    const MutexLock lock(mutex_);
    if (kernels_.count(number) != 0) return {};
    const auto why = without_kernels_.find(number);
    if (why != without_kernels_.end()) return why->second;
  }
  const Status loaded = load_kernels(number);
  if (loaded.code() != PARALLAX_UNSUPPORTED) return loaded;
  const MutexLock lock(mutex_);
  without_kernels_[number] = loaded;
  return loaded;
}

Status CudaDevices::coalesce_bytes(uint32_t number, const RowsToCoalesce& rows, uint64_t* bytes) {
  const MutexLock lock(mutex_);
  if (kernels_.count(number) == 0) {
    const auto why = without_kernels_.find(number);
    if (why != without_kernels_.end()) return why->second;
    return unsupported("the kernels of device " + std::to_string(number) + " are not loaded");
  }
  *bytes = coalesce_places(rows).work_at + kernels::coalesce_work_bytes(rows.count, rows.id_bytes);
  return {};
}

// In a list's node from the start: to give it back takes no memory then.
Status CudaDevices::allocate_scratch(uint32_t number, uint64_t bytes, std::byte** memory) {
  CudaDevice* device = nullptr;
  {
    const MutexLock lock(mutex_);
    PARALLAX_RETURN_IF_ERROR(find_open(number, &device));
  }
  DeviceBlocks block(1);
  block.front().context = device->context();
  PARALLAX_RETURN_IF_ERROR(device->allocate_raw(bytes, &block.front().memory));
  *memory = reinterpret_cast<std::byte*>(block.front().memory);
  const MutexLock lock(freed_mutex_);
  scratch_.splice(scratch_.end(), block);
  return {};
}

void CudaDevices::release_scratch(uint32_t, std::byte* memory) noexcept {
  DeviceBlocks block;
  {
    const MutexLock lock(freed_mutex_);
    const auto found =
        std::find_if(scratch_.begin(), scratch_.end(), [memory](const DeviceBlock& each) {
          return each.memory == reinterpret_cast<CUdeviceptr>(memory);
        });
    block.splice(block.end(), scratch_, found);
  }
  give_back(std::move(block));
}

}  // namespace parallax
