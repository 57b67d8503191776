// SPDX-License-Identifier: Apache-2.0
// The driver itself: versions, devices, contexts and the names of errors.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>

#include "cuda/double/machine.h"

namespace cuda_double {

namespace {

struct ErrorName {
  CUresult code;
  const char* name;
  const char* sentence;
};
#define CUDA_DOUBLE_ERROR(code, sentence) \
  { code, #code, sentence }
constexpr ErrorName kErrors[] = {
    CUDA_DOUBLE_ERROR(CUDA_SUCCESS, "no error"),
    CUDA_DOUBLE_ERROR(CUDA_ERROR_INVALID_VALUE, "invalid argument"),
    CUDA_DOUBLE_ERROR(CUDA_ERROR_OUT_OF_MEMORY, "out of memory"),
    CUDA_DOUBLE_ERROR(CUDA_ERROR_NOT_INITIALIZED, "initialization error"),
    CUDA_DOUBLE_ERROR(CUDA_ERROR_DEINITIALIZED, "driver shutting down"),
    CUDA_DOUBLE_ERROR(CUDA_ERROR_NO_DEVICE, "no CUDA-capable device is detected"),
    CUDA_DOUBLE_ERROR(CUDA_ERROR_INVALID_DEVICE, "invalid device ordinal"),
    CUDA_DOUBLE_ERROR(CUDA_ERROR_INVALID_IMAGE, "device kernel image is invalid"),
    CUDA_DOUBLE_ERROR(CUDA_ERROR_INVALID_CONTEXT, "invalid device context"),
    CUDA_DOUBLE_ERROR(CUDA_ERROR_NO_BINARY_FOR_GPU,
                      "no kernel image is available for execution on the device"),
    CUDA_DOUBLE_ERROR(CUDA_ERROR_ECC_UNCORRECTABLE, "uncorrectable ECC error encountered"),
    CUDA_DOUBLE_ERROR(CUDA_ERROR_INVALID_HANDLE, "invalid resource handle"),
    CUDA_DOUBLE_ERROR(CUDA_ERROR_NOT_FOUND, "named symbol not found"),
    CUDA_DOUBLE_ERROR(CUDA_ERROR_NOT_READY, "device not ready"),
    CUDA_DOUBLE_ERROR(CUDA_ERROR_ILLEGAL_ADDRESS, "an illegal memory access was encountered"),
    CUDA_DOUBLE_ERROR(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES,
                      "too many resources requested for launch"),
    CUDA_DOUBLE_ERROR(CUDA_ERROR_LAUNCH_TIMEOUT, "the launch timed out and was terminated"),
    CUDA_DOUBLE_ERROR(CUDA_ERROR_CONTEXT_IS_DESTROYED, "context is destroyed"),
    CUDA_DOUBLE_ERROR(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED,
                      "part or all of the requested memory range is already mapped"),
    CUDA_DOUBLE_ERROR(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED,
                      "pointer does not correspond to a registered memory region"),
    CUDA_DOUBLE_ERROR(CUDA_ERROR_LAUNCH_FAILED, "unspecified launch failure"),
    CUDA_DOUBLE_ERROR(CUDA_ERROR_NOT_PERMITTED, "operation not permitted"),
    CUDA_DOUBLE_ERROR(CUDA_ERROR_NOT_SUPPORTED, "operation not supported"),
    CUDA_DOUBLE_ERROR(CUDA_ERROR_SYSTEM_DRIVER_MISMATCH,
                      "system has unsupported display driver / cuda driver combination"),
    CUDA_DOUBLE_ERROR(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
                      "operation not permitted when stream is capturing"),
    CUDA_DOUBLE_ERROR(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED,
                      "operation failed due to a previous error during capture"),
    CUDA_DOUBLE_ERROR(CUDA_ERROR_UNKNOWN, "unknown error"),
};
#undef CUDA_DOUBLE_ERROR

const ErrorName* name_of(CUresult code) {
  for (const ErrorName& each : kErrors) {
    if (each.code == code) return &each;
  }
  return nullptr;
}

bool is_device(CUdevice device) {
  return device >= 0 && static_cast<size_t>(device) < machine().devices.size();
}

// What a device has that nobody changed.
bool attribute_of(CUdevice_attribute attribute, CUdevice device, int* value) {
  switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X:
      *value = 1024;
      return true;
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X:
      *value = 0x7fffffff;
      return true;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK:
      *value = 48 << 10;
      return true;
    case CU_DEVICE_ATTRIBUTE_WARP_SIZE:
      *value = 32;
      return true;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
      *value = 4;
      return true;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
      *value = 9;
      return true;
    case CU_DEVICE_ATTRIBUTE_PCI_BUS_ID:
      *value = 0x3b + device;
      return true;
    case CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING:
    case CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY:
    case CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS:
    case CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM:
      *value = 1;
      return true;
    case CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT:
      *value = 2;
      return true;
    default:
      *value = 0;
      return attribute > 0 && attribute < CU_DEVICE_ATTRIBUTE_MAX;
  }
}

}  // namespace

}  // namespace cuda_double

using namespace cuda_double;

extern "C" {

PARALLAX_DOUBLE_API CUresult cuInit(unsigned int flags) {
  Lock lock;
  if (CUresult code = enter(lock, "cuInit", Needs::kNothing)) return code;
  Machine& all = machine();
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (all.devices.empty()) return CUDA_ERROR_NO_DEVICE;
  if (all.initialised && all.process != getpid()) return CUDA_ERROR_NOT_INITIALIZED;
  all.initialised = true;
  all.process = getpid();
  return CUDA_SUCCESS;
}

PARALLAX_DOUBLE_API CUresult cuDriverGetVersion(int* version) {
  Lock lock;
  if (CUresult code = enter(lock, "cuDriverGetVersion", Needs::kNothing)) return code;
  if (version == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *version = machine().driver_version;
  return CUDA_SUCCESS;
}

PARALLAX_DOUBLE_API CUresult cuGetErrorName(CUresult error, const char** name) {
  Lock lock;
  if (CUresult code = enter(lock, "cuGetErrorName", Needs::kNothing)) return code;
  const ErrorName* const found = name_of(error);
  if (name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *name = found == nullptr ? nullptr : found->name;
  return found == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

PARALLAX_DOUBLE_API CUresult cuGetErrorString(CUresult error, const char** sentence) {
  Lock lock;
  if (CUresult code = enter(lock, "cuGetErrorString", Needs::kNothing)) return code;
  const ErrorName* const found = name_of(error);
  if (sentence == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *sentence = found == nullptr ? nullptr : found->sentence;
  return found == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

PARALLAX_DOUBLE_API CUresult cuDeviceGetCount(int* count) {
  Lock lock;
  if (CUresult code = enter(lock, "cuDeviceGetCount", Needs::kDriver)) return code;
  if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *count = static_cast<int>(machine().devices.size());
  return CUDA_SUCCESS;
}

PARALLAX_DOUBLE_API CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  Lock lock;
  if (CUresult code = enter(lock, "cuDeviceGet", Needs::kDriver)) return code;
  if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!is_device(ordinal)) return CUDA_ERROR_INVALID_DEVICE;
  *device = ordinal;
  return CUDA_SUCCESS;
}

PARALLAX_DOUBLE_API CUresult cuDeviceGetName(char* name, int bytes, CUdevice device) {
  Lock lock;
  if (CUresult code = enter(lock, "cuDeviceGetName", Needs::kDriver)) return code;
  if (name == nullptr || bytes <= 0) return CUDA_ERROR_INVALID_VALUE;
  if (!is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  std::snprintf(name, static_cast<size_t>(bytes), "Double %d", device);
  return CUDA_SUCCESS;
}

PARALLAX_DOUBLE_API CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute,
                                                  CUdevice device) {
  Lock lock;
  if (CUresult code = enter(lock, "cuDeviceGetAttribute", Needs::kDriver)) return code;
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  const std::map<int, int>& told = machine().devices[static_cast<size_t>(device)].attributes;
  if (const auto found = told.find(attribute); found != told.end()) {
    *value = found->second;
    return CUDA_SUCCESS;
  }
  return attribute_of(attribute, device, value) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

PARALLAX_DOUBLE_API CUresult cuDeviceGetPCIBusId(char* text, int bytes, CUdevice device) {
  Lock lock;
  if (CUresult code = enter(lock, "cuDeviceGetPCIBusId", Needs::kDriver)) return code;
  if (text == nullptr || bytes < 13) return CUDA_ERROR_INVALID_VALUE;
  if (!is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  const int told = machine().devices[static_cast<size_t>(device)].bus;
  const int bus = told < 0 ? device : told;
  std::snprintf(text, static_cast<size_t>(bytes), "0000:%02x:00.0", (0x3b + bus) & 0xff);
  return CUDA_SUCCESS;
}

PARALLAX_DOUBLE_API CUresult cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice device) {
  Lock lock;
  if (CUresult code = enter(lock, "cuDeviceGetUuid_v2", Needs::kDriver)) return code;
  if (uuid == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  const int told = machine().devices[static_cast<size_t>(device)].uuid;
  *uuid = {};
  uuid->bytes[0] = 0x5a;
  uuid->bytes[15] = static_cast<char>(told < 0 ? device : told);
  return CUDA_SUCCESS;
}

PARALLAX_DOUBLE_API CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  Lock lock;
  if (CUresult code = enter(lock, "cuDevicePrimaryCtxRetain", Needs::kDriver)) return code;
  if (context == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  CUctx_st& primary = machine().contexts[static_cast<size_t>(device)];
  if (primary.error != CUDA_SUCCESS) return primary.error;
  if (primary.retained == 0 && machine().open_ms > 0) {
    const std::chrono::milliseconds pause(machine().open_ms);
    lock.unlock();
    std::this_thread::sleep_for(pause);
    lock.lock();
  }
  ++primary.retained;
  *context = &primary;
  return CUDA_SUCCESS;
}

PARALLAX_DOUBLE_API CUresult cuDevicePrimaryCtxRelease(CUdevice device) {
  Lock lock;
  if (CUresult code = enter(lock, "cuDevicePrimaryCtxRelease_v2", Needs::kDriver)) return code;
  if (!is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  CUctx_st& primary = machine().contexts[static_cast<size_t>(device)];
  if (primary.retained == 0) return CUDA_ERROR_INVALID_CONTEXT;
  if (--primary.retained > 0) return CUDA_SUCCESS;
  // A driver waits for what is under way; what a test holds would never end.
  const auto busy = [&primary](const CUstream_st& stream) {
    return stream.context == &primary && stream.executed < stream.submitted;
  };
  const auto& streams = machine().streams;
  machine().changed.wait_for(lock, std::chrono::seconds(1),
                             [&] { return std::none_of(streams.begin(), streams.end(), busy); });
  const auto held = std::find_if(streams.begin(), streams.end(), busy);
  if (held != streams.end()) {
    fault("the context of device " + std::to_string(device) + " is released while stream " +
          std::to_string(held->number) + " has operations that are queued or under way");
  }
  return CUDA_SUCCESS;
}

PARALLAX_DOUBLE_API CUresult cuCtxPushCurrent(CUcontext context) {
  Lock lock;
  if (CUresult code = enter(lock, "cuCtxPushCurrent_v2", Needs::kDriver)) return code;
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (context->retained == 0) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  pushed_contexts().push_back(context);
  return CUDA_SUCCESS;
}

PARALLAX_DOUBLE_API CUresult cuCtxPopCurrent(CUcontext* context) {
  Lock lock;
  if (CUresult code = enter(lock, "cuCtxPopCurrent_v2", Needs::kDriver)) return code;
  if (pushed_contexts().empty()) return CUDA_ERROR_INVALID_CONTEXT;
  if (context != nullptr) *context = pushed_contexts().back();
  pushed_contexts().pop_back();
  return CUDA_SUCCESS;
}

PARALLAX_DOUBLE_API CUresult cuCtxSetCurrent(CUcontext context) {
  Lock lock;
  if (CUresult code = enter(lock, "cuCtxSetCurrent", Needs::kDriver)) return code;
  if (!pushed_contexts().empty()) pushed_contexts().pop_back();
  if (context != nullptr) pushed_contexts().push_back(context);
  return CUDA_SUCCESS;
}

PARALLAX_DOUBLE_API CUresult cuCtxGetCurrent(CUcontext* context) {
  Lock lock;
  if (CUresult code = enter(lock, "cuCtxGetCurrent", Needs::kDriver)) return code;
  if (context == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *context = current_context();
  return CUDA_SUCCESS;
}

PARALLAX_DOUBLE_API CUresult cuCtxGetDevice(CUdevice* device) {
  Lock lock;
  if (CUresult code = enter(lock, "cuCtxGetDevice", Needs::kContext)) return code;
  if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *device = current_context()->device;
  return CUDA_SUCCESS;
}

PARALLAX_DOUBLE_API CUresult cuCtxSynchronize() {
  Lock lock;
  if (CUresult code = enter(lock, "cuCtxSynchronize", Needs::kContext)) return code;
  machine().changed.wait(lock, [] { return is_idle(machine()); });
  return current_context()->error;
}

PARALLAX_DOUBLE_API CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
  Lock lock;
  if (CUresult code = enter(lock, "cuThreadExchangeStreamCaptureMode", Needs::kDriver)) {
    return code;
  }
  if (mode == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::swap(*mode, capture_mode());
  return CUDA_SUCCESS;
}

}  // extern "C"
