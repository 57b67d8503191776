// SPDX-License-Identifier: Apache-2.0
// Memory of devices that ranks can register together. See cuda_devices.h.
#include "cuda/cuda_devices.h"
#include "cuda/gather_window.h"

namespace parallax {

Status CudaDevices::allocate_symmetric(uint32_t number, uint64_t bytes, void** memory) {
  const NcclLibrary* nccl = nullptr;
  PARALLAX_RETURN_IF_ERROR(load_nccl(&nccl));
  if (!GatherWindow::possible(nccl->api)) {
    return unsupported("NCCL " + nccl_version_text(nccl->version) +
                       " has no windows, or this was built without; they are of 2.27");
  }
  PARALLAX_RETURN_IF_ERROR(open(number));
  CudaDevice* device = nullptr;
  {
    const MutexLock lock(mutex_);
    PARALLAX_RETURN_IF_ERROR(find_open(number, &device));
  }
  return device->allocate(bytes, *nccl, memory);
}

void CudaDevices::release_symmetric(uint32_t number, void* memory) {
  const NcclLibrary* nccl = nullptr;
  if (left_ || !load_nccl(&nccl).ok()) return;  // it was there when the memory was made
  CudaDevice* device = nullptr;
  {
    const MutexLock lock(mutex_);
    device = find(number);
  }
  if (device != nullptr) device->release(*nccl, memory);
}

}  // namespace parallax
