// SPDX-License-Identifier: Apache-2.0
// A device for tests of kernels: the first one of whichever libcuda.so.1 the process finds, a real
// driver or the double. Without one a test skips itself and says why; where the environment says
// that there is the double (CUDA_DOUBLE_DEVICES), it fails.
#ifndef PARALLAX_TESTS_CUDA_ON_DEVICE_TEST_DEVICE_H_
#define PARALLAX_TESTS_CUDA_ON_DEVICE_TEST_DEVICE_H_

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "cuda/kernels/launcher.h"

namespace parallax::kernels {

class Device {
 public:
  // Null, and *why is set, where there is none.
  static std::unique_ptr<Device> open(std::string* why) {
    std::unique_ptr<Device> device(new Device);
    *why = device->start();
    return why->empty() ? std::move(device) : nullptr;
  }
  ~Device() {
    launcher.close();
    if (stream != nullptr) driver.cuStreamDestroy_v2(stream);
    CUcontext context = nullptr;
    if (retained_) {
      driver.cuCtxPopCurrent_v2(&context);
      driver.cuDevicePrimaryCtxRelease_v2(device_);
    }
  }

  void wait() {
    CUresult code = CUDA_ERROR_NOT_READY;
    while (code == CUDA_ERROR_NOT_READY) {
      code = driver.cuStreamQuery(stream);
      std::this_thread::yield();
    }
    ASSERT_EQ(code, CUDA_SUCCESS);
  }

  DriverApi driver;
  CUstream stream = nullptr;
  Launcher launcher{driver};

 private:
  std::string start() {
    void* const library = dlopen("libcuda.so.1", RTLD_NOW);
    if (library == nullptr) return dlerror();
#define PARALLAX_FIND(symbol) \
  driver.symbol = reinterpret_cast<decltype(driver.symbol)>(dlsym(library, #symbol));
    PARALLAX_CUDA_DRIVER_FUNCTIONS(PARALLAX_FIND)
#undef PARALLAX_FIND
    CUcontext context = nullptr;
    int processors = 0;
    CUresult code = driver.cuInit(0);
    if (code == CUDA_SUCCESS) code = driver.cuDeviceGet(&device_, 0);
    if (code == CUDA_SUCCESS) code = driver.cuDevicePrimaryCtxRetain(&context, device_);
    if (code != CUDA_SUCCESS) return "no device: CUDA error " + std::to_string(code);
    retained_ = true;
    driver.cuCtxPushCurrent_v2(context);
    driver.cuDeviceGetAttribute(&processors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device_);
    code = driver.cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, 0);
    if (code == CUDA_SUCCESS && image().empty()) return "no kernels: nvcc was not there";
    if (code == CUDA_SUCCESS) {
      code = launcher.open(image(), static_cast<uint32_t>(processors));
    }
    return code == CUDA_SUCCESS ? "" : "CUDA error " + std::to_string(code);
  }

  CUdevice device_ = 0;
  bool retained_ = false;
};

// Bytes on the device.
class DeviceBytes {
 public:
  DeviceBytes(Device& device, size_t bytes) : device_(device), bytes_(bytes) {
    if (bytes == 0) return;
    EXPECT_EQ(device.driver.cuMemAlloc_v2(&first_, bytes), CUDA_SUCCESS);
  }
  template <typename T>
  DeviceBytes(Device& device, const std::vector<T>& values)
      : DeviceBytes(device, values.size() * sizeof(T)) {
    if (bytes_ == 0) return;
    EXPECT_EQ(device.driver.cuMemcpyHtoDAsync_v2(first_, values.data(), bytes_, device.stream),
              CUDA_SUCCESS);
    device.wait();
  }
  ~DeviceBytes() {
    device_.wait();
    if (bytes_ == 0) return;
    EXPECT_EQ(device_.driver.cuMemFree_v2(first_), CUDA_SUCCESS);
  }
  DeviceBytes(const DeviceBytes&) = delete;
  DeviceBytes& operator=(const DeviceBytes&) = delete;

  CUdeviceptr get() const { return first_; }
  template <typename T>
  std::vector<T> values(size_t count) const {
    std::vector<T> read(count);
    device_.wait();
    if (count == 0) return read;
    EXPECT_EQ(
        device_.driver.cuMemcpyDtoHAsync_v2(read.data(), first_, count * sizeof(T), device_.stream),
        CUDA_SUCCESS);
    device_.wait();
    return read;
  }

 private:
  Device& device_;
  const size_t bytes_;
  CUdeviceptr first_ = 0;
};

class KernelTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string why;
    device_ = Device::open(&why);
    if (device_ != nullptr) return;
    if (std::getenv("CUDA_DOUBLE_DEVICES") != nullptr && !image().empty()) FAIL() << why;
    GTEST_SKIP() << why;
  }
  Device& device() { return *device_; }
  // All ones, as ids that are no rows are looked for.
  static std::vector<uint32_t> none_bad() { return {0xffffffffu}; }

 private:
  std::unique_ptr<Device> device_;
};

}  // namespace parallax::kernels

#endif  // PARALLAX_TESTS_CUDA_ON_DEVICE_TEST_DEVICE_H_
