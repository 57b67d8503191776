// SPDX-License-Identifier: Apache-2.0
// DeviceBlocks: memory of devices that goes from whoever used it to whoever gives it back. A list,
// so that to hand it on takes no memory and cannot fail.
#ifndef PARALLAX_CUDA_DEVICE_BLOCKS_H_
#define PARALLAX_CUDA_DEVICE_BLOCKS_H_

#include <cuda.h>
#include <nccl.h>

#include <list>

namespace parallax {

struct DeviceBlock {
  CUcontext context = nullptr;
  CUdeviceptr memory = 0;
  ncclResult_t (*nccl_free)(void* memory) = nullptr;  // whose memory it is; null: the driver's
};

using DeviceBlocks = std::list<DeviceBlock>;

}  // namespace parallax

#endif  // PARALLAX_CUDA_DEVICE_BLOCKS_H_
