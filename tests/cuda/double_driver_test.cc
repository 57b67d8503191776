// SPDX-License-Identifier: Apache-2.0
// The double of libcuda.so.1: memory, contexts, errors.
#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

#include "cuda/double_fixture.h"
#include "cuda/driver_api.h"
#include "cuda/nccl_api.h"

namespace cuda_double_test {

class DriverDouble : public DoubleTest {};

TEST_F(DriverDouble, HasEveryFunctionThatTheModuleCalls) {
  void* const cuda = dlopen("libcuda.so.1", RTLD_NOW);
  void* const nccl = dlopen("libnccl.so.2", RTLD_NOW);
  ASSERT_NE(cuda, nullptr);
  ASSERT_NE(nccl, nullptr);
#define PARALLAX_IN_CUDA(symbol) EXPECT_NE(dlsym(cuda, #symbol), nullptr) << #symbol;
#define PARALLAX_IN_NCCL(symbol, ...) EXPECT_NE(dlsym(nccl, #symbol), nullptr) << #symbol;
  PARALLAX_CUDA_DRIVER_FUNCTIONS(PARALLAX_IN_CUDA)
  PARALLAX_NCCL_FUNCTIONS(PARALLAX_IN_NCCL)
  PARALLAX_NCCL_OPTIONAL_FUNCTIONS(PARALLAX_IN_NCCL)
#undef PARALLAX_IN_CUDA
#undef PARALLAX_IN_NCCL
  // Found by their names, they are the ones that this test is linked with.
  EXPECT_EQ(dlsym(cuda, "cuInit"), reinterpret_cast<void*>(&cuInit));
}

TEST_F(DriverDouble, NothingBeforeInit) {
  cuda_double_reset(2);
  int count = 0;
  EXPECT_EQ(cuDeviceGetCount(&count), CUDA_ERROR_NOT_INITIALIZED);
  EXPECT_EQ(cuDriverGetVersion(&count), CUDA_SUCCESS);
  EXPECT_EQ(cuInit(1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuInit(0), CUDA_SUCCESS);
  EXPECT_EQ(cuDeviceGetCount(&count), CUDA_SUCCESS);
  EXPECT_EQ(count, 2);
}

TEST_F(DriverDouble, AMachineWithoutDevices) {
  cuda_double_reset(0);
  EXPECT_EQ(cuInit(0), CUDA_ERROR_NO_DEVICE);
}

TEST_F(DriverDouble, DevicesTellWhatTheyAre) {
  cuda_double_set_attribute(1, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 7);
  int value = 0;
  EXPECT_EQ(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 0),
            CUDA_SUCCESS);
  EXPECT_EQ(value, 9);
  EXPECT_EQ(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 1),
            CUDA_SUCCESS);
  EXPECT_EQ(value, 7);
  EXPECT_EQ(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_WARP_SIZE, 2),
            CUDA_ERROR_INVALID_DEVICE);
  char text[32] = "";
  EXPECT_EQ(cuDeviceGetPCIBusId(text, sizeof text, 1), CUDA_SUCCESS);
  EXPECT_STREQ(text, "0000:3c:00.0");
  EXPECT_EQ(cuDeviceGetPCIBusId(text, 4, 1), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(DriverDouble, CallsNeedAContext) {
  CUdeviceptr pointer = 0;
  CUevent event = nullptr;
  CUstream stream = nullptr;
  EXPECT_EQ(cuMemAlloc(&pointer, 16), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(cuEventCreate(&event, 0), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(cuStreamCreateWithPriority(&stream, 0, 0), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(cuStreamQuery(nullptr), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_TRUE(log_has("cuMemAlloc_v2 was called without a current context"));
  CUcontext context = nullptr;
  ASSERT_EQ(cuDevicePrimaryCtxRetain(&context, 0), CUDA_SUCCESS);
  ASSERT_EQ(cuCtxPushCurrent(context), CUDA_SUCCESS);
  ASSERT_EQ(cuDevicePrimaryCtxRelease(0), CUDA_SUCCESS);
  EXPECT_EQ(cuMemAlloc(&pointer, 16), CUDA_ERROR_CONTEXT_IS_DESTROYED);
  ASSERT_EQ(cuCtxPopCurrent(&context), CUDA_SUCCESS);
  EXPECT_EQ(cuCtxPopCurrent(&context), CUDA_ERROR_INVALID_CONTEXT);
}

TEST_F(DriverDouble, TheHostCannotTouchDeviceMemory) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  const Current current(0);
  const DeviceNumbers<int> numbers({1, 2, 3});
  EXPECT_DEATH(*reinterpret_cast<volatile int*>(numbers.pointer()) = 7, "");
  EXPECT_EQ(numbers.values(), (std::vector<int>{1, 2, 3}));
}

TEST_F(DriverDouble, WhatNobodyWroteIsNotZero) {
  const Current current(0);
  CUdeviceptr pointer = 0;
  ASSERT_EQ(cuMemAlloc(&pointer, 8), CUDA_SUCCESS);
  EXPECT_EQ(pointer % 4096, 0u);
  EXPECT_EQ(*static_cast<unsigned char*>(cuda_double_alias(pointer, 8, -1)), 0xa5);
  EXPECT_EQ(cuda_double_alias(pointer, 9, -1), nullptr);
  EXPECT_EQ(cuda_double_alias(pointer, 8, 1), nullptr);  // of another device
  EXPECT_EQ(cuMemFree(pointer), CUDA_SUCCESS);
  EXPECT_EQ(cuMemFree(pointer), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(DriverDouble, WritesBeyondABlockAreFoundWhenItIsFreed) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_DEATH(
      {
        const Current current(0);
        const DeviceNumbers<char> numbers({1, 2, 3});
        numbers.host()[3] = 0;
      },
      "byte 3 of a block of 3 bytes of device memory was written");
}

TEST_F(DriverDouble, DeviceMemoryEnds) {
  const Current current(0);
  cuda_double_set_memory(0, 4096);
  const DeviceNumbers<char> most(std::vector<char>(4000));
  CUdeviceptr pointer = 0;
  EXPECT_EQ(cuMemAlloc(&pointer, 97), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(cuMemAlloc(&pointer, 0), CUDA_ERROR_INVALID_VALUE);
}

struct Attributes {
  unsigned type = 9;
  int device = 9;
  CUdeviceptr start = 9;
  size_t size = 9;
};

Attributes attributes_of(const void* pointer) {
  Attributes found;
  CUpointer_attribute which[] = {
      CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
      CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, CU_POINTER_ATTRIBUTE_RANGE_SIZE};
  void* to[] = {&found.type, &found.device, &found.start, &found.size};
  EXPECT_EQ(cuPointerGetAttributes(4, which, to, reinterpret_cast<CUdeviceptr>(pointer)),
            CUDA_SUCCESS);
  return found;
}

TEST_F(DriverDouble, KnowsWhatAPointerIs) {
  const Current current(1);
  const DeviceNumbers<int> numbers({1, 2, 3, 4});
  const Attributes device = attributes_of(static_cast<char*>(numbers.address()) + 8);
  EXPECT_EQ(device.type, unsigned{CU_MEMORYTYPE_DEVICE});
  EXPECT_EQ(device.device, 1);
  EXPECT_EQ(device.start, numbers.pointer());
  EXPECT_EQ(device.size, 16u);

  void* pinned = nullptr;
  ASSERT_EQ(cuMemHostAlloc(&pinned, 100, 0), CUDA_SUCCESS);
  EXPECT_EQ(attributes_of(pinned).type, unsigned{CU_MEMORYTYPE_HOST});
  EXPECT_EQ(cuMemFreeHost(pinned), CUDA_SUCCESS);

  std::vector<int> pageable(64);
  EXPECT_EQ(attributes_of(pageable.data()).type, 0u);
  EXPECT_EQ(attributes_of(pageable.data()).device, -2);
  unsigned type = 0;
  EXPECT_EQ(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                  reinterpret_cast<CUdeviceptr>(pageable.data())),
            CUDA_ERROR_INVALID_VALUE);
  ASSERT_EQ(cuMemHostRegister(pageable.data(), 256, 0), CUDA_SUCCESS);
  EXPECT_EQ(attributes_of(&pageable[63]).type, unsigned{CU_MEMORYTYPE_HOST});
  EXPECT_EQ(cuMemHostRegister(&pageable[10], 4, 0), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
  EXPECT_EQ(cuMemHostUnregister(&pageable[10]), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
  EXPECT_EQ(cuMemHostUnregister(pageable.data()), CUDA_SUCCESS);
}

TEST_F(DriverDouble, AnyCallFailsWhenItIsTold) {
  const Current current(0);
  cuda_double_fail("cuMemAlloc_v2", 2, CUDA_ERROR_OUT_OF_MEMORY, 0);
  {
    const DeviceNumbers<int> first({1});
    CUdeviceptr pointer = 0;
    EXPECT_EQ(cuMemAlloc(&pointer, 4), CUDA_ERROR_OUT_OF_MEMORY);
    const DeviceNumbers<int> third({1});
  }
  EXPECT_EQ(cuda_double_calls("cuMemAlloc_v2") > 2, true);
  cuda_double_fail_always("cuEventCreate", CUDA_ERROR_UNKNOWN);
  CUevent event = nullptr;
  for (int i = 0; i < 3; ++i) EXPECT_EQ(cuEventCreate(&event, 0), CUDA_ERROR_UNKNOWN);
  cuda_double_clear_failures();
  EXPECT_EQ(cuEventCreate(&event, 0), CUDA_SUCCESS);
  EXPECT_EQ(cuEventDestroy(event), CUDA_SUCCESS);
}

TEST_F(DriverDouble, AStickyErrorIsEveryLaterCalls) {
  CUevent event = nullptr;
  {
    const Current current(0);
    const Stream stream;
    cuda_double_fail("cuEventCreate", 1, CUDA_ERROR_ECC_UNCORRECTABLE, 1);
    EXPECT_EQ(cuEventCreate(&event, 0), CUDA_ERROR_ECC_UNCORRECTABLE);
    EXPECT_EQ(cuEventCreate(&event, 0), CUDA_ERROR_ECC_UNCORRECTABLE);
    EXPECT_EQ(cuStreamQuery(stream.get()), CUDA_ERROR_ECC_UNCORRECTABLE);
    {
      // The other device is well.
      const Current other(1);
      EXPECT_EQ(cuEventCreate(&event, 0), CUDA_SUCCESS);
      EXPECT_EQ(cuEventDestroy(event), CUDA_SUCCESS);
    }
    cuda_double_poison(0, CUDA_SUCCESS);
  }
  cuda_double_poison(1, CUDA_ERROR_ILLEGAL_ADDRESS);
  CUcontext context = nullptr;
  EXPECT_EQ(cuDevicePrimaryCtxRetain(&context, 1), CUDA_ERROR_ILLEGAL_ADDRESS);
}

TEST_F(DriverDouble, ErrorsHaveNames) {
  const char* text = nullptr;
  EXPECT_EQ(cuGetErrorName(CUDA_ERROR_ECC_UNCORRECTABLE, &text), CUDA_SUCCESS);
  EXPECT_STREQ(text, "CUDA_ERROR_ECC_UNCORRECTABLE");
  EXPECT_EQ(cuGetErrorString(CUDA_ERROR_OUT_OF_MEMORY, &text), CUDA_SUCCESS);
  EXPECT_STREQ(text, "out of memory");
  EXPECT_EQ(cuGetErrorName(CUresult(12345), &text), CUDA_ERROR_INVALID_VALUE);
}

// What a process does that the environment tells, by its exit status: this program again.
TEST_F(DriverDouble, ProcessesAreToldByTheirEnvironment) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  const auto told = [](const char* devices, const char* failures, int expected) {
    EXPECT_EXIT(
        {
          setenv("CUDA_DOUBLE_DEVICES", devices, 1);
          setenv("CUDA_DOUBLE_FAIL", failures, 1);
          cuda_double_reset(-1);
          int count = 0;
          CUresult code = cuInit(0);
          if (code == CUDA_SUCCESS) code = cuDeviceGetCount(&count);
          _exit(code == CUDA_SUCCESS ? count : 100 + code);
        },
        testing::ExitedWithCode(expected), "");
  };
  told("5", "", 5);
  told("3", "cuDeviceGetCount:2:1", 3);
  told("3", "cuMemAlloc_v2:1:2;cuDeviceGetCount:1:3:sticky", 103);
  EXPECT_DEATH(
      {
        setenv("CUDA_DOUBLE_FAIL", "cuInit:1", 1);
        cuda_double_reset(-1);
      },
      "is not FUNCTION:NTH:CODE");
}

TEST_F(DriverDouble, AChildThatWasForkedHasNoDriver) {
  const pid_t child = fork();
  if (child == 0) {
    int count = 0;
    _exit(cuDeviceGetCount(&count) == CUDA_ERROR_NOT_INITIALIZED ? 0 : 1);
  }
  int status = 1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST_F(DriverDouble, WhatIsLeftBehindIsTold) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        setenv("CUDA_DOUBLE_LEAKS", "fail", 1);
        CUcontext context = nullptr;
        CUdeviceptr pointer = 0;
        CUevent event = nullptr;
        CUstream stream = nullptr;
        cuDevicePrimaryCtxRetain(&context, 0);
        cuCtxPushCurrent(context);
        cuMemAlloc(&pointer, 77);
        cuEventCreate(&event, 0);
        cuStreamCreateWithPriority(&stream, 0, 0);
        std::exit(0);
      },
      testing::ExitedWithCode(86),
      "stream [0-9]+\nan event\nblock [0-9]+, 77 bytes of device memory\n"
      "the context of device 0, retained 1 times");
}

}  // namespace cuda_double_test
