// SPDX-License-Identifier: Apache-2.0
#include "device_memory.h"

#include <dlfcn.h>

#include <stdexcept>
#include <string>

namespace lm {

// The functions of libcuda.so.1 that are used, as cuda.h has them: CUresult is an int, CUdeviceptr
// a number of 64 bits, contexts and streams are pointers.
struct DeviceMemory::Driver {
  Driver();
  static const Driver& loaded();

  int (*init)(unsigned) = nullptr;
  int (*count)(int*) = nullptr;
  int (*retain)(void**, int) = nullptr;
  int (*release)(int) = nullptr;
  int (*push)(void*) = nullptr;
  int (*pop)(void**) = nullptr;
  int (*stream_create)(void**, unsigned, int) = nullptr;
  int (*stream_destroy)(void*) = nullptr;
  int (*synchronize)(void*) = nullptr;
  int (*to_device)(uint64_t, const void*, size_t, void*) = nullptr;
  int (*to_host)(void*, uint64_t, size_t, void*) = nullptr;
};

DeviceMemory::Driver::Driver() {
  void* library = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    throw std::runtime_error(std::string("--memory cuda needs a CUDA driver: ") + ::dlerror());
  }
  const auto find = [library](const char* name, auto* function) {
    void* found = ::dlsym(library, name);
    if (found == nullptr) {
      throw std::runtime_error(std::string("the CUDA driver has no ") + name);
    }
    *function = reinterpret_cast<std::remove_pointer_t<decltype(function)>>(found);
  };
  find("cuInit", &init);
  find("cuDeviceGetCount", &count);
  find("cuDevicePrimaryCtxRetain", &retain);
  find("cuDevicePrimaryCtxRelease_v2", &release);
  find("cuCtxPushCurrent_v2", &push);
  find("cuCtxPopCurrent_v2", &pop);
  find("cuStreamCreateWithPriority", &stream_create);
  find("cuStreamDestroy_v2", &stream_destroy);
  find("cuStreamSynchronize", &synchronize);
  find("cuMemcpyHtoDAsync_v2", &to_device);
  find("cuMemcpyDtoHAsync_v2", &to_host);
}

const DeviceMemory::Driver& DeviceMemory::Driver::loaded() {
  static const Driver driver;
  return driver;
}

namespace {

constexpr unsigned kNonBlocking = 1;  // CU_STREAM_NON_BLOCKING

uint64_t number(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer); }

}  // namespace

void DeviceMemory::must(int result, const char* what) const {
  if (result == 0) return;
  throw std::runtime_error(std::string(what) + " failed with CUDA error " + std::to_string(result) +
                           " on device " + std::to_string(device_));
}

DeviceMemory::DeviceMemory(parallax_job_t* job, uint32_t device, size_t slots)
    : job_(job), driver_(Driver::loaded()), blocks_(slots) {
  must(driver_.init(0), "cuInit");
  int count = 0;
  must(driver_.count(&count), "cuDeviceGetCount");
  if (count < 1) throw std::runtime_error("the CUDA driver shows no device");
  device_ = device % static_cast<uint32_t>(count);
  void* context = nullptr;
  must(driver_.retain(&context, static_cast<int>(device_)), "cuDevicePrimaryCtxRetain");
  must(driver_.push(context), "cuCtxPushCurrent");
  must(driver_.stream_create(&stream_, kNonBlocking, 0), "cuStreamCreateWithPriority");
}

DeviceMemory::~DeviceMemory() {
  driver_.synchronize(stream_);
  for (const Block& block : blocks_) (void)parallax_buffer_free(job_, block.address);
  driver_.stream_destroy(stream_);
  void* context = nullptr;
  driver_.pop(&context);
  driver_.release(static_cast<int>(device_));
}

void* DeviceMemory::room(size_t slot, size_t bytes) {
  Block& block = blocks_[slot];
  if (bytes <= block.bytes) return block.address;
  parallax_buffer_options_t options = {};
  options.size = sizeof options;
  options.memory = PARALLAX_MEMORY_CUDA;
  options.device = device_;
  const Block former = block;
  block = {};
  if (parallax_buffer_free(job_, former.address) != PARALLAX_OK ||
      parallax_buffer_alloc(job_, bytes, &options, &block.address) != PARALLAX_OK) {
    throw std::runtime_error(std::string("memory of device ") + std::to_string(device_) + ": " +
                             parallax_last_error());
  }
  block.bytes = bytes;
  return block.address;
}

void* DeviceMemory::put(size_t slot, const void* from, size_t bytes) {
  void* to = room(slot, bytes);
  if (bytes > 0) must(driver_.to_device(number(to), from, bytes, stream_), "cuMemcpyHtoDAsync");
  return to;
}

void DeviceMemory::get(void* to, const void* from, size_t bytes) {
  if (bytes == 0) return;
  must(driver_.to_host(to, number(from), bytes, stream_), "cuMemcpyDtoHAsync");
  must(driver_.synchronize(stream_), "cuStreamSynchronize");
}

}  // namespace lm
