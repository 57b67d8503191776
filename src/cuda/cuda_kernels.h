// SPDX-License-Identifier: Apache-2.0
// CudaKernels: the module's kernels on one device, which its tables and communicators share.
//
// To load them takes a while, on any thread. Then their owner's alone, as Launcher says.
#ifndef PARALLAX_CUDA_CUDA_KERNELS_H_
#define PARALLAX_CUDA_CUDA_KERNELS_H_

#include <memory>
#include <string>

#include "base/status.h"
#include "cuda/cuda_device.h"
#include "cuda/kernels/launcher.h"

namespace parallax {

class CudaKernels {
 public:
  // Why devices that the process sees cannot run them, as far as is told without a context; "": all
  // can, it seems.
  static std::string why_none(const DriverApi& driver, int devices);
  // UNSUPPORTED: there are none for this device; IO. What is given outlives this.
  static Status load(const DriverLibrary& driver, const CudaDevice& device,
                     std::unique_ptr<CudaKernels>* kernels);
  ~CudaKernels();
  CudaKernels(const CudaKernels&) = delete;
  CudaKernels& operator=(const CudaKernels&) = delete;

  kernels::Launcher& launcher() { return launcher_; }

 private:
  CudaKernels(const DriverLibrary& driver, const CudaDevice& device)
      : api_(driver.api), context_(device.context()), launcher_(driver.api) {}

  const DriverApi& api_;
  const CUcontext context_;
  kernels::Launcher launcher_;
};

}  // namespace parallax

#endif  // PARALLAX_CUDA_CUDA_KERNELS_H_
