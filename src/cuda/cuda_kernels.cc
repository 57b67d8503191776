// SPDX-License-Identifier: Apache-2.0
// Loading the image. See cuda_kernels.h.
#include "cuda/cuda_kernels.h"

#include "cuda/context.h"

namespace parallax {

namespace {

constexpr const char* kNoImage =
    "this libparallax_cuda.so was built without nvcc, and so without kernels";
constexpr int kOldestCapability = 75;  // of the image

}  // namespace

std::string CudaKernels::why_none(const DriverApi& driver, int devices) {
  if (kernels::image().empty()) return kNoImage;
  for (int i = 0; i < devices; ++i) {
    CUdevice device = 0;
    int major = 0, minor = 0;
    if (driver.cuDeviceGet(&device, i) != CUDA_SUCCESS) continue;
    driver.cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device);
    driver.cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device);
    if (major * 10 + minor >= kOldestCapability) continue;
    return "device " + std::to_string(i) + " is of compute capability " + std::to_string(major) +
           "." + std::to_string(minor) + ", and the kernels of libparallax_cuda.so take 7.5";
  }
  return "";
}

Status CudaKernels::load(const DriverLibrary& driver, const CudaDevice& device,
                         std::unique_ptr<CudaKernels>* kernels) {
  if (kernels::image().empty()) {
    return unsupported(std::string(kNoImage) + "; build it with nvcc");
  }
  std::unique_ptr<CudaKernels> loaded(new CudaKernels(driver, device));
  const ContextScope scope(driver.api, device.context());
  if (scope.status() != CUDA_SUCCESS) return device.failure("cuCtxPushCurrent", scope.status());
  int processors = 0;
  CUdevice number = 0;
  CUresult error = driver.api.cuDeviceGet(&number, static_cast<int>(device.number()));
  if (error == CUDA_SUCCESS) {
    error = driver.api.cuDeviceGetAttribute(&processors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT,
                                            number);
  }
  if (error != CUDA_SUCCESS) return device.failure("cuDeviceGetAttribute", error);
  error = loaded->launcher_.open(kernels::image(), static_cast<uint32_t>(processors));
  if (error == CUDA_ERROR_NO_BINARY_FOR_GPU || error == CUDA_ERROR_UNSUPPORTED_PTX_VERSION) {
    return unsupported("device " + std::to_string(device.number()) +
                       " has no kernels in this libparallax_cuda.so (compute capability 7.5 or "
                       "newer has): " +
                       error_text(driver.api, error));
  }
  if (error != CUDA_SUCCESS) return device.failure("its kernels (cuModuleLoadData)", error);
  *kernels = std::move(loaded);
  return {};
}

CudaKernels::~CudaKernels() {
  const ContextScope scope(api_, context_);
  if (scope.status() == CUDA_SUCCESS) static_cast<void>(launcher_.close());
}

}  // namespace parallax
