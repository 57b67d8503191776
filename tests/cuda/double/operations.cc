// SPDX-License-Identifier: Apache-2.0
// What streams execute: copies, fills, host functions and kernels. Arguments are checked when they
// are given; memory that one uses is in use until it is executed.
#include <cstring>
#include <memory>

#include "cuda/double/machine.h"

namespace cuda_double {

namespace {

// One end of a copy.
struct End {
  std::byte* at = nullptr;
  uint64_t block = 0;
};

bool find(Machine& all, CUdeviceptr pointer, size_t bytes, MemoryKind least, End* end) {
  Block* const block = block_of(all, pointer, bytes);
  if (block == nullptr || (least == MemoryKind::kDevice && block->kind != MemoryKind::kDevice)) {
    return false;
  }
  *end = {block->alias + (pointer - block->first), block->number};
  return true;
}

// Pinned or registered memory of the host; false: pageable.
bool find_host(Machine& all, const void* pointer, size_t bytes, End* end) {
  return find(all, reinterpret_cast<CUdeviceptr>(pointer), bytes, MemoryKind::kPinned, end);
}

CUresult enqueue_copy(Machine& all, CUstream stream, const char* name, End to, End from,
                      size_t bytes) {
  Operation operation;
  operation.name = name;
  if (to.block != 0) operation.blocks.push_back(to.block);
  if (from.block != 0) operation.blocks.push_back(from.block);
  operation.run = [to, from, bytes](int failed) {
    if (failed == 0) std::memmove(to.at, from.at, bytes);
  };
  return enqueue(all, stream, std::move(operation));
}

// A kernel's parameters as they were at the launch.
struct Launch {
  cuda_double_launch shape = {};
  Kernel kernel;
  std::vector<std::vector<std::byte>> values;
};

// Takes the parameters and turns device pointers into what the host may touch. A pointer that the
// device cannot reach is an illegal address when the kernel runs: false.
bool take_parameters(Machine& all, CUcontext context, void** parameters, Launch& launch,
                     Operation& operation) {
  bool legal = true;
  for (size_t i = 0; i < launch.kernel.parameters.size(); ++i) {
    const size_t bytes = launch.kernel.parameters[i];
    std::vector<std::byte> value(bytes == 0 ? sizeof(CUdeviceptr) : bytes);
    std::memcpy(value.data(), parameters[i], value.size());
    if (bytes == 0) {
      CUdeviceptr pointer = 0;
      std::memcpy(&pointer, value.data(), sizeof pointer);
      const std::byte* alias = reach(all, context, pointer, 1);
      if (pointer != 0 && alias == nullptr) legal = false;
      if (alias != nullptr) operation.blocks.push_back(block_of(all, pointer, 1)->number);
      std::memcpy(value.data(), &alias, sizeof alias);
    }
    launch.values.push_back(std::move(value));
  }
  return legal;
}

void run_kernel(const Launch& launch) {
  std::vector<void*> parameters;
  for (const std::vector<std::byte>& value : launch.values) {
    parameters.push_back(const_cast<std::byte*>(value.data()));
  }
  launch.kernel.run(&launch.shape, parameters.data());
}

bool is_image(const void* image) {
  uint32_t word = 0;
  std::memcpy(&word, image, sizeof word);
  constexpr uint32_t kFatBinary = 0xba55ed50, kElf = 0x464c457f;
  return word == kFatBinary || word == kElf;
}

}  // namespace

}  // namespace cuda_double

using namespace cuda_double;

extern "C" {

PARALLAX_DOUBLE_API CUresult cuMemcpyHtoDAsync(CUdeviceptr to, const void* from, size_t bytes,
                                               CUstream handle) {
  Lock lock;
  if (CUresult code = enter(lock, "cuMemcpyHtoDAsync_v2", Needs::kContext)) return code;
  Machine& all = machine();
  const CUstream stream = stream_of(all, handle);
  End target, source;
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (bytes == 0) return CUDA_SUCCESS;
  if (!find(all, to, bytes, MemoryKind::kDevice, &target)) return CUDA_ERROR_INVALID_VALUE;
  all.bytes_to_device += bytes;
  if (find_host(all, from, bytes, &source)) {
    return enqueue_copy(all, stream, "cuMemcpyHtoDAsync", target, source, bytes);
  }
  // Pageable memory is staged before the call returns.
  ++all.pageable_copies;
  const auto* const first = static_cast<const std::byte*>(from);
  const auto staged = std::make_shared<std::vector<std::byte>>(first, first + bytes);
  Operation operation;
  operation.name = "cuMemcpyHtoDAsync";
  operation.blocks.push_back(target.block);
  operation.run = [target, staged](int failed) {
    if (failed == 0) std::memcpy(target.at, staged->data(), staged->size());
  };
  return enqueue(all, stream, std::move(operation));
}

PARALLAX_DOUBLE_API CUresult cuMemcpyDtoHAsync(void* to, CUdeviceptr from, size_t bytes,
                                               CUstream handle) {
  Lock lock;
  if (CUresult code = enter(lock, "cuMemcpyDtoHAsync_v2", Needs::kContext)) return code;
  Machine& all = machine();
  const CUstream stream = stream_of(all, handle);
  End target, source;
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (bytes == 0) return CUDA_SUCCESS;
  if (!find(all, from, bytes, MemoryKind::kDevice, &source)) return CUDA_ERROR_INVALID_VALUE;
  all.bytes_to_host += bytes;
  if (find_host(all, to, bytes, &target)) {
    return enqueue_copy(all, stream, "cuMemcpyDtoHAsync", target, source, bytes);
  }
  // To pageable memory the call returns when the copy is done.
  ++all.pageable_copies;
  target.at = static_cast<std::byte*>(to);
  const CUresult code = enqueue_copy(all, stream, "cuMemcpyDtoHAsync", target, source, bytes);
  const Mark mark = {stream, stream->submitted};
  if (code == CUDA_SUCCESS) all.changed.wait(lock, [&] { return is_executed(mark); });
  return code == CUDA_SUCCESS ? stream->context->error : code;
}

PARALLAX_DOUBLE_API CUresult cuMemcpyDtoDAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes,
                                               CUstream handle) {
  Lock lock;
  if (CUresult code = enter(lock, "cuMemcpyDtoDAsync_v2", Needs::kContext)) return code;
  Machine& all = machine();
  const CUstream stream = stream_of(all, handle);
  End target, source;
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (bytes == 0) return CUDA_SUCCESS;
  if (!find(all, to, bytes, MemoryKind::kPinned, &target) ||
      !find(all, from, bytes, MemoryKind::kPinned, &source)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return enqueue_copy(all, stream, "cuMemcpyDtoDAsync", target, source, bytes);
}

PARALLAX_DOUBLE_API CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t bytes,
                                             CUstream handle) {
  Lock lock;
  if (CUresult code = enter(lock, "cuMemsetD8Async", Needs::kContext)) return code;
  Machine& all = machine();
  const CUstream stream = stream_of(all, handle);
  End target;
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (bytes == 0) return CUDA_SUCCESS;
  if (!find(all, to, bytes, MemoryKind::kPinned, &target)) return CUDA_ERROR_INVALID_VALUE;
  Operation operation;
  operation.name = "cuMemsetD8Async";
  operation.blocks.push_back(target.block);
  operation.run = [target, value, bytes](int failed) {
    if (failed == 0) std::memset(target.at, value, bytes);
  };
  return enqueue(all, stream, std::move(operation));
}

PARALLAX_DOUBLE_API CUresult cuLaunchHostFunc(CUstream handle, CUhostFn function, void* argument) {
  Lock lock;
  if (CUresult code = enter(lock, "cuLaunchHostFunc", Needs::kContext)) return code;
  Machine& all = machine();
  const CUstream stream = stream_of(all, handle);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (function == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Operation operation;
  operation.name = "cuLaunchHostFunc";
  operation.host_function = true;
  // Not called where the context has failed, as CUDA says.
  operation.run = [function, argument](int failed) {
    if (failed == 0) function(argument);
  };
  return enqueue(all, stream, std::move(operation));
}

PARALLAX_DOUBLE_API CUresult cuModuleLoadData(CUmodule* module, const void* image) {
  Lock lock;
  if (CUresult code = enter(lock, "cuModuleLoadData", Needs::kContext)) return code;
  if (module == nullptr || image == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!is_image(image)) return CUDA_ERROR_INVALID_IMAGE;
  *module = new CUmod_st{current_context(), {}};
  machine().modules.insert(*module);
  return CUDA_SUCCESS;
}

PARALLAX_DOUBLE_API CUresult cuModuleUnload(CUmodule module) {
  Lock lock;
  if (CUresult code = enter(lock, "cuModuleUnload", Needs::kContext)) return code;
  if (machine().modules.count(module) == 0) return CUDA_ERROR_INVALID_HANDLE;
  if (module->context != current_context()) return CUDA_ERROR_INVALID_CONTEXT;
  machine().modules.erase(module);
  delete module;
  return CUDA_SUCCESS;
}

PARALLAX_DOUBLE_API CUresult cuModuleGetFunction(CUfunction* function, CUmodule module,
                                                 const char* name) {
  Lock lock;
  if (CUresult code = enter(lock, "cuModuleGetFunction", Needs::kContext)) return code;
  Machine& all = machine();
  if (function == nullptr || name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (all.modules.count(module) == 0) return CUDA_ERROR_INVALID_HANDLE;
  const auto kernel = all.kernels.find(name);
  if (kernel == all.kernels.end()) return CUDA_ERROR_NOT_FOUND;
  CUfunc_st& kept = module->functions[name];
  kept = {module, name, kernel->second};
  *function = &kept;
  return CUDA_SUCCESS;
}

PARALLAX_DOUBLE_API CUresult cuLaunchKernel(CUfunction function, unsigned int grid_x,
                                            unsigned int grid_y, unsigned int grid_z,
                                            unsigned int block_x, unsigned int block_y,
                                            unsigned int block_z, unsigned int shared_bytes,
                                            CUstream handle, void** parameters, void** extra) {
  Lock lock;
  if (CUresult code = enter(lock, "cuLaunchKernel", Needs::kContext)) return code;
  Machine& all = machine();
  const CUstream stream = stream_of(all, handle);
  if (stream == nullptr || function == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  // Of copies CUDA lets the stream be another device's; of kernels not.
  if (stream->context != current_context() || function->module->context != current_context()) {
    say(all, "cuLaunchKernel: stream, kernel and current context are not of one device");
    return CUDA_ERROR_INVALID_HANDLE;
  }
  if (extra != nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  const uint64_t threads = uint64_t{block_x} * block_y * block_z;
  const bool wrong = threads == 0 || threads > 1024 || grid_x == 0 || grid_y == 0 || grid_z == 0 ||
                     grid_x > 0x7fffffff || grid_y > 65535 || grid_z > 65535 ||
                     shared_bytes > 48 << 10;
  if (wrong || (parameters == nullptr && !function->kernel.parameters.empty())) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  auto launch = std::make_shared<Launch>();
  launch->shape = {{grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, all.seed};
  launch->kernel = function->kernel;
  Operation operation;
  operation.name = "cuLaunchKernel " + function->name;
  const bool legal = take_parameters(all, stream->context, parameters, *launch, operation);
  operation.run = [&all, launch, legal, context = stream->context,
                   name = function->name](int failed) {
    if (failed != 0) return;
    if (legal) return run_kernel(*launch);
    const Lock within(all.mutex);
    say(all, name + ": a pointer that device " + std::to_string(context->device) + " cannot reach");
    context->error = CUDA_ERROR_ILLEGAL_ADDRESS;
  };
  return enqueue(all, stream, std::move(operation));
}

}  // extern "C"
