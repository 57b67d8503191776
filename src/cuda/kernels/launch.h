// SPDX-License-Identifier: Apache-2.0
// Launcher::launch, for the sources of the launcher alone: the parameters of a kernel as the driver
// takes them, an array of pointers to each. Their types are those that the kernel is declared with,
// device pointers as CUdeviceptr.
#ifndef PARALLAX_CUDA_KERNELS_LAUNCH_H_
#define PARALLAX_CUDA_KERNELS_LAUNCH_H_

#include <string>

#include "cuda/kernels/launcher.h"

namespace parallax::kernels {

template <typename... Parameters>
CUresult Launcher::launch(CUstream stream, const std::string& kernel, uint32_t blocks,
                          Parameters... parameters) {
  CUfunction function = nullptr;
  if (const CUresult code = function_of(kernel, &function); code != CUDA_SUCCESS) return code;
  void* pointers[] = {&parameters...};
  last_call_ = "cuLaunchKernel";
  return driver_.cuLaunchKernel(function, blocks, 1, 1, kBlockThreads, 1, 1, 0, stream, pointers,
                                nullptr);
}

}  // namespace parallax::kernels

#endif  // PARALLAX_CUDA_KERNELS_LAUNCH_H_
