// SPDX-License-Identifier: Apache-2.0
// The one entry of libparallax_cuda.so. Any thread; does not block.
#include "cuda/cuda_devices.h"
#include "device/module.h"

extern "C" const parallax::ParallaxDeviceModule* parallax_cuda_module(void) {
  // The string must outlive us.
  static const std::string made = "CUDA " + parallax::cuda_version_text(CUDA_VERSION) + ", NCCL " +
                                  parallax::nccl_version_text(NCCL_VERSION_CODE);
  static const parallax::ParallaxDeviceModule module = {
      .abi = parallax::kDeviceModuleAbi,
      .struct_bytes = sizeof(parallax::ParallaxDeviceModule),
      .build = PARALLAX_DEVICE_MODULE_BUILD,
      .name = "cuda",
      .made = made.c_str(),
      .create = parallax::CudaDevices::create,
      .describe = parallax::describe_cuda,
  };
  return &module;
}
