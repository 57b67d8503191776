// SPDX-License-Identifier: Apache-2.0
// What a program for a machine with GPUs needs beside libparallax.so: the driver's and NCCL's own
// functions, one rank's device with a stream and memory, and the words for a test that cannot run.
#ifndef PARALLAX_TESTS_GPU_RAW_LIBRARIES_H_
#define PARALLAX_TESTS_GPU_RAW_LIBRARIES_H_

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "cuda/driver_api.h"
#include "cuda/nccl_api.h"

namespace parallax::gpu_test {

// ctest's word for a test that did not run.
inline constexpr int kNotRun = 77;

[[noreturn]] inline void not_run(const std::string& why) {
  std::printf("NOT RUN: %s\nSkipped\n%s\n", why.c_str(), why.c_str());
  std::fflush(stdout);
  std::_Exit(kNotRun);
}

[[noreturn]] inline void failed(const std::string& what) {
  std::fprintf(stderr, "FAILED: %s\n", what.c_str());
  std::fflush(nullptr);
  std::_Exit(1);
}

struct RawLibraries {
  DriverApi driver;
  NcclApi nccl;
  int devices = 0;

  // NOT RUN where one of them is missing, or there is no device.
  static const RawLibraries& get() {
    static const RawLibraries all = [] {
      RawLibraries made;
      made.open();
      return made;
    }();
    return all;
  }

 private:
  void open() {
    void* const cuda = dlopen("libcuda.so.1", RTLD_NOW);
    if (cuda == nullptr) not_run(std::string("no driver: ") + dlerror());
    void* const collectives = dlopen("libnccl.so.2", RTLD_NOW);
    if (collectives == nullptr) not_run(std::string("no NCCL: ") + dlerror());
#define PARALLAX_FIND(symbol)                                                      \
  driver.symbol = reinterpret_cast<decltype(driver.symbol)>(dlsym(cuda, #symbol)); \
  if (driver.symbol == nullptr) not_run("the driver has no " #symbol);
    PARALLAX_CUDA_DRIVER_FUNCTIONS(PARALLAX_FIND)
#undef PARALLAX_FIND
#define PARALLAX_FIND(symbol)                                                         \
  nccl.symbol = reinterpret_cast<decltype(nccl.symbol)>(dlsym(collectives, #symbol)); \
  if (nccl.symbol == nullptr) not_run("NCCL has no " #symbol);
    PARALLAX_NCCL_FUNCTIONS(PARALLAX_FIND)
#undef PARALLAX_FIND
    if (driver.cuInit(0) != CUDA_SUCCESS) not_run("cuInit fails");
    if (driver.cuDeviceGetCount(&devices) != CUDA_SUCCESS || devices == 0) not_run("no device");
  }
};

// Of the thread that made it.
class RankDevice {
 public:
  RankDevice(int number, size_t bytes) : driver_(RawLibraries::get().driver) {
    CUcontext context = nullptr;
    call(driver_.cuDeviceGet(&device_, number), "cuDeviceGet");
    call(driver_.cuDevicePrimaryCtxRetain(&context, device_), "cuDevicePrimaryCtxRetain");
    call(driver_.cuCtxPushCurrent_v2(context), "cuCtxPushCurrent");
    call(driver_.cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, 0), "cuStreamCreate");
    call(driver_.cuMemAlloc_v2(&memory_, bytes), "cuMemAlloc");
    used_ = memory_;
    call(driver_.cuMemAlloc_v2(&other_, bytes), "cuMemAlloc");
    call(driver_.cuMemHostAlloc(&pinned_, bytes, 0), "cuMemHostAlloc");
  }
  ~RankDevice() {
    CUcontext context = nullptr;
    driver_.cuMemFreeHost(pinned_);
    driver_.cuMemFree_v2(memory_);
    driver_.cuMemFree_v2(other_);
    driver_.cuStreamDestroy_v2(stream);
    driver_.cuCtxPopCurrent_v2(&context);
    driver_.cuDevicePrimaryCtxRelease_v2(device_);
  }
  RankDevice(const RankDevice&) = delete;
  RankDevice& operator=(const RankDevice&) = delete;

  void* memory() const { return reinterpret_cast<void*>(used_); }
  // As many bytes more.
  void* other() const { return reinterpret_cast<void*>(other_); }
  // Of somebody else, as many bytes or more, from now on.
  void use(void* memory) { used_ = reinterpret_cast<CUdeviceptr>(memory); }
  void write(const std::vector<float>& values) {
    std::memcpy(pinned_, values.data(), values.size() * sizeof(float));
    call(driver_.cuMemcpyHtoDAsync_v2(used_, pinned_, values.size() * sizeof(float), stream),
         "cuMemcpyHtoDAsync");
    wait();
  }
  // Of memory of the device; null: memory().
  std::vector<float> read(size_t count, void* from) {
    const CUdeviceptr here = from == nullptr ? used_ : reinterpret_cast<CUdeviceptr>(from);
    call(driver_.cuMemcpyDtoHAsync_v2(pinned_, here, count * sizeof(float), stream),
         "cuMemcpyDtoHAsync");
    wait();
    std::vector<float> values(count);
    std::memcpy(values.data(), pinned_, count * sizeof(float));
    return values;
  }
  // Looks until the stream is done, as who measures latency does.
  void wait() const {
    CUresult code = CUDA_ERROR_NOT_READY;
    while (code == CUDA_ERROR_NOT_READY) code = driver_.cuStreamQuery(stream);
    call(code, "cuStreamQuery");
  }

  CUstream stream = nullptr;

 private:
  static void call(CUresult code, const char* what) {
    if (code != CUDA_SUCCESS) failed(std::string(what) + ": CUDA error " + std::to_string(code));
  }

  const DriverApi& driver_;
  CUdevice device_ = 0;
  CUdeviceptr memory_ = 0, other_ = 0, used_ = 0;
  void* pinned_ = nullptr;
};

}  // namespace parallax::gpu_test

#endif  // PARALLAX_TESTS_GPU_RAW_LIBRARIES_H_
