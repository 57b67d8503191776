// SPDX-License-Identifier: Apache-2.0
// What tests of the doubles begin with: devices, a current context, memory and streams of it; and
// that nothing is left of them at the end.
#ifndef PARALLAX_TESTS_CUDA_DOUBLE_FIXTURE_H_
#define PARALLAX_TESTS_CUDA_DOUBLE_FIXTURE_H_

#include <cuda.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "cuda/double/control.h"

namespace cuda_double_test {

inline std::string log() {
  std::string text(cuda_double_log(nullptr, 0) + 1, 0);
  cuda_double_log(text.data(), text.size());
  return text.c_str();
}

inline bool log_has(const std::string& words) { return log().find(words) != std::string::npos; }

inline std::string leaks() {
  std::string text(4096, 0);
  cuda_double_leaks(text.data(), text.size());
  return text.c_str();
}

// What CUDA allows and this library does not want: to wait for what was never recorded, and copies
// that block because the host's memory is not pinned.
inline std::string doubtful() {
  std::string text;
  if (log_has("was never recorded")) text += log();
  const uint64_t pageable = cuda_double_pageable_copies();
  if (pageable > 0) text += std::to_string(pageable) + " copies of memory that is not pinned\n";
  return text;
}

// A context made current, for a scope.
class Current {
 public:
  explicit Current(int device) : device_(device) {
    CUcontext context = nullptr;
    EXPECT_EQ(cuDevicePrimaryCtxRetain(&context, device), CUDA_SUCCESS);
    EXPECT_EQ(cuCtxPushCurrent(context), CUDA_SUCCESS);
  }
  ~Current() {
    CUcontext context = nullptr;
    EXPECT_EQ(cuCtxPopCurrent(&context), CUDA_SUCCESS);
    EXPECT_EQ(cuDevicePrimaryCtxRelease(device_), CUDA_SUCCESS);
  }
  Current(const Current&) = delete;
  Current& operator=(const Current&) = delete;

 private:
  const int device_;
};

// `count` numbers on the current device.
template <typename T>
class DeviceNumbers {
 public:
  explicit DeviceNumbers(const std::vector<T>& values) : count_(values.size()) {
    EXPECT_EQ(cuMemAlloc(&pointer_, count_ * sizeof(T)), CUDA_SUCCESS);
    std::memcpy(host(), values.data(), count_ * sizeof(T));
  }
  ~DeviceNumbers() { EXPECT_EQ(cuMemFree(pointer_), CUDA_SUCCESS); }
  DeviceNumbers(const DeviceNumbers&) = delete;
  DeviceNumbers& operator=(const DeviceNumbers&) = delete;

  CUdeviceptr pointer() const { return pointer_; }
  void* address() const { return reinterpret_cast<void*>(pointer_); }
  // What lies on the device; for when nothing is under way.
  T* host() const { return static_cast<T*>(cuda_double_alias(pointer_, count_ * sizeof(T), -1)); }
  std::vector<T> values() const { return {host(), host() + count_}; }

 private:
  CUdeviceptr pointer_ = 0;
  size_t count_;
};

class Stream {
 public:
  explicit Stream(unsigned flags = CU_STREAM_NON_BLOCKING) {
    EXPECT_EQ(cuStreamCreateWithPriority(&stream_, flags, 0), CUDA_SUCCESS);
  }
  ~Stream() { EXPECT_EQ(cuStreamDestroy(stream_), CUDA_SUCCESS); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  CUstream get() const { return stream_; }

 private:
  CUstream stream_ = nullptr;
};

class DoubleTest : public testing::Test {
 protected:
  explicit DoubleTest(int devices = 2) {
    cuda_double_reset(devices);
    EXPECT_EQ(cuInit(0), CUDA_SUCCESS);
  }
  ~DoubleTest() override {
    cuda_double_hold_all(0);
    EXPECT_EQ(cuda_double_drain(20000), 1);
    EXPECT_EQ(leaks(), "");
  }
};

}  // namespace cuda_double_test

#endif  // PARALLAX_TESTS_CUDA_DOUBLE_FIXTURE_H_
