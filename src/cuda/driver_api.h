// SPDX-License-Identifier: Apache-2.0
// DriverApi: the functions of the CUDA driver API that the module calls, as a table of pointers
// typed by cuda.h. The module links no CUDA library: libcuda.so.1 belongs to the driver of the
// machine that it runs on. Names are those of the symbols, with the version that cuda.h's macros
// would add. Those of the legacy default stream: a stream of NULL is that one.
//
// Pure data. Any thread may call through a table that was filled.
#ifndef PARALLAX_CUDA_DRIVER_API_H_
#define PARALLAX_CUDA_DRIVER_API_H_

#include <cuda.h>

#if defined(CUDA_API_PER_THREAD_DEFAULT_STREAM) || defined(__CUDA_API_VERSION_INTERNAL)
#error "cuda.h would rename the functions of this table"
#endif

// X(symbol). All are needed; CUDA 11.4 has them.
#define PARALLAX_CUDA_DRIVER_FUNCTIONS(X) \
  X(cuInit)                               \
  X(cuDriverGetVersion)                   \
  X(cuGetErrorName)                       \
  X(cuGetErrorString)                     \
  X(cuDeviceGetCount)                     \
  X(cuDeviceGet)                          \
  X(cuDeviceGetName)                      \
  X(cuDeviceGetAttribute)                 \
  X(cuDeviceGetPCIBusId)                  \
  X(cuDeviceGetUuid_v2)                   \
  X(cuDevicePrimaryCtxRetain)             \
  X(cuDevicePrimaryCtxRelease_v2)         \
  X(cuCtxPushCurrent_v2)                  \
  X(cuCtxPopCurrent_v2)                   \
  X(cuCtxGetCurrent)                      \
  X(cuCtxGetDevice)                       \
  X(cuPointerGetAttributes)               \
  X(cuMemAlloc_v2)                        \
  X(cuMemFree_v2)                         \
  X(cuMemHostAlloc)                       \
  X(cuMemFreeHost)                        \
  X(cuMemHostRegister_v2)                 \
  X(cuMemHostUnregister)                  \
  X(cuMemcpyHtoDAsync_v2)                 \
  X(cuMemcpyDtoHAsync_v2)                 \
  X(cuMemcpyDtoDAsync_v2)                 \
  X(cuMemsetD8Async)                      \
  X(cuStreamCreateWithPriority)           \
  X(cuStreamDestroy_v2)                   \
  X(cuStreamWaitEvent)                    \
  X(cuStreamQuery)                        \
  X(cuStreamIsCapturing)                  \
  X(cuStreamGetCtx)                       \
  X(cuThreadExchangeStreamCaptureMode)    \
  X(cuEventCreate)                        \
  X(cuEventRecord)                        \
  X(cuEventQuery)                         \
  X(cuEventDestroy_v2)                    \
  X(cuLaunchHostFunc)                     \
  X(cuModuleLoadData)                     \
  X(cuModuleUnload)                       \
  X(cuModuleGetFunction)                  \
  X(cuLaunchKernel)

namespace parallax {

struct DriverApi {
#define PARALLAX_CUDA_POINTER(symbol) decltype(&::symbol) symbol = nullptr;
  PARALLAX_CUDA_DRIVER_FUNCTIONS(PARALLAX_CUDA_POINTER)
#undef PARALLAX_CUDA_POINTER
};

}  // namespace parallax

#endif  // PARALLAX_CUDA_DRIVER_API_H_
