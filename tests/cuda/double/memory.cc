// SPDX-License-Identifier: Apache-2.0
// Memory of the double. A block on a device is one file in memory, mapped twice: its address, which
// nobody may touch, and an alias for copies and kernels. So a host that reads or writes device
// memory crashes, where on a real machine it would, too. What is past the end of a block is
// watched: whoever wrote there is found when the block is freed.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "cuda/double/machine.h"

namespace cuda_double {

namespace {

constexpr size_t kPageBytes = 4096;
constexpr unsigned char kFresh = 0xa5;  // what memory holds that nobody wrote
constexpr unsigned char kBeyond = 0x5c;

size_t mapped_bytes_of(size_t bytes) {
  return (bytes + kPageBytes) / kPageBytes * kPageBytes;  // one byte at least is beyond
}

bool map_twice(Block& block) {
  block.mapped_bytes = mapped_bytes_of(block.bytes);
  const int file = memfd_create("cuda_double", MFD_CLOEXEC);
  if (file < 0) return false;
  void* alias = MAP_FAILED;
  void* address = MAP_FAILED;
  if (ftruncate(file, static_cast<off_t>(block.mapped_bytes)) == 0) {
    alias = mmap(nullptr, block.mapped_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    address = mmap(nullptr, block.mapped_bytes, PROT_NONE, MAP_SHARED, file, 0);
  }
  close(file);
  if (alias == MAP_FAILED || address == MAP_FAILED) {
    if (alias != MAP_FAILED) munmap(alias, block.mapped_bytes);
    return false;
  }
  block.alias = static_cast<std::byte*>(alias);
  block.first = reinterpret_cast<uintptr_t>(address);
  std::memset(block.alias, kFresh, block.bytes);
  std::memset(block.alias + block.bytes, kBeyond, block.mapped_bytes - block.bytes);
  return true;
}

const char* name_of(MemoryKind kind) {
  switch (kind) {
    case MemoryKind::kDevice:
      return "device memory";
    case MemoryKind::kPinned:
      return "pinned memory";
    default:
      return "registered memory";
  }
}

Block& add(Machine& all, Block block) {
  block.number = ++all.blocks_made;
  block.context = current_context();
  return all.blocks[block.first] = block;
}

// The block that begins at `first`, ready to be given back; null: there is none of that kind.
Block* to_release(Machine& all, uintptr_t first, MemoryKind kind) {
  const auto found = all.blocks.find(first);
  if (found == all.blocks.end() || found->second.kind != kind) return nullptr;
  Block& block = found->second;
  if (block.users > 0) {
    fault(std::string(name_of(kind)) + " is given back while " + std::to_string(block.users) +
          " operations that use it are queued or under way");
  }
  if (block.registrations > 0) {
    fault(std::string(name_of(kind)) + " is given back while " +
          std::to_string(block.registrations) + " communicators have it registered");
  }
  for (size_t i = block.bytes; kind == MemoryKind::kDevice && i < block.mapped_bytes; ++i) {
    if (block.alias[i] != std::byte{kBeyond}) {
      fault("byte " + std::to_string(i) + " of a block of " + std::to_string(block.bytes) +
            " bytes of device memory was written");
    }
  }
  return &block;
}

// As a driver does before it gives memory back: what any stream of the context was given is
// executed first, whether it uses that memory or not.
void wait_for_device(Machine& all, Lock& lock, CUcontext context) {
  std::vector<Mark> marks;
  for (CUstream_st& stream : all.streams) {
    if (stream.context == context) marks.push_back({&stream, stream.submitted});
  }
  all.changed.wait(lock, [&] { return std::all_of(marks.begin(), marks.end(), is_executed); });
}

CUresult allocate(CUdeviceptr* pointer, size_t bytes, bool shareable) {
  if (pointer == nullptr || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  Device& device = machine().devices[static_cast<size_t>(current_context()->device)];
  Block block;
  block.bytes = bytes;
  block.shareable = shareable;
  if (bytes > device.memory_bytes - device.memory_used || !map_twice(block)) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  device.memory_used += bytes;
  *pointer = add(machine(), block).first;
  return CUDA_SUCCESS;
}

CUresult release(Lock& lock, CUdeviceptr pointer, bool shareable) {
  Block* const block = to_release(machine(), pointer, MemoryKind::kDevice);
  if (block == nullptr || block->shareable != shareable) return CUDA_ERROR_INVALID_VALUE;
  wait_for_device(machine(), lock, block->context);
  machine().devices[static_cast<size_t>(block->context->device)].memory_used -= block->bytes;
  munmap(block->alias, block->mapped_bytes);
  munmap(reinterpret_cast<void*>(block->first), block->mapped_bytes);
  machine().blocks.erase(pointer);
  return CUDA_SUCCESS;
}

}  // namespace

Block* block_of(Machine& all, uintptr_t pointer, size_t bytes) {
  auto after = all.blocks.upper_bound(pointer);
  if (after == all.blocks.begin()) return nullptr;
  Block& block = std::prev(after)->second;
  const size_t offset = pointer - block.first;
  return offset < block.bytes && bytes <= block.bytes - offset ? &block : nullptr;
}

std::byte* reach(Machine& all, CUcontext context, CUdeviceptr pointer, size_t bytes) {
  Block* const block = block_of(all, pointer, bytes);
  if (block == nullptr) return nullptr;
  const bool elsewhere = block->kind == MemoryKind::kDevice && context != nullptr &&
                         block->context->device != context->device;
  return elsewhere ? nullptr : block->alias + (pointer - block->first);
}

}  // namespace cuda_double

using namespace cuda_double;

extern "C" {

PARALLAX_DOUBLE_API CUresult cuMemAlloc(CUdeviceptr* pointer, size_t bytes) {
  Lock lock;
  if (CUresult code = enter(lock, "cuMemAlloc_v2", Needs::kContext)) return code;
  return allocate(pointer, bytes, false);
}

CUresult cuda_double_allocate_shareable(CUdeviceptr* pointer, size_t bytes) {
  const Lock lock(machine().mutex);
  return current_context() == nullptr ? CUDA_ERROR_INVALID_CONTEXT : allocate(pointer, bytes, true);
}

CUresult cuda_double_free_shareable(CUdeviceptr pointer) {
  Lock lock(machine().mutex);
  return release(lock, pointer, true);
}

int cuda_double_is_shareable(CUdeviceptr pointer) {
  const Lock lock(machine().mutex);
  const Block* const block = block_of(machine(), pointer, 0);
  return block != nullptr && block->shareable ? 1 : 0;
}

void cuda_double_count_registration(CUdeviceptr pointer, int change) {
  const Lock lock(machine().mutex);
  Block* const block = block_of(machine(), pointer, 0);
  if (block != nullptr) block->registrations += static_cast<uint32_t>(change);
}

PARALLAX_DOUBLE_API CUresult cuMemFree(CUdeviceptr pointer) {
  Lock lock;
  if (CUresult code = enter(lock, "cuMemFree_v2", Needs::kContext)) return code;
  if (pointer == 0) return CUDA_SUCCESS;
  return release(lock, pointer, false);
}

PARALLAX_DOUBLE_API CUresult cuMemHostAlloc(void** pointer, size_t bytes, unsigned int) {
  Lock lock;
  if (CUresult code = enter(lock, "cuMemHostAlloc", Needs::kContext)) return code;
  if (pointer == nullptr || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  Block block;
  block.kind = MemoryKind::kPinned;
  block.bytes = bytes;
  block.mapped_bytes = mapped_bytes_of(bytes);
  void* const address =
      mmap(nullptr, block.mapped_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (address == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  block.first = reinterpret_cast<uintptr_t>(address);
  block.alias = static_cast<std::byte*>(address);
  std::memset(address, kFresh, bytes);
  add(machine(), block);
  *pointer = address;
  return CUDA_SUCCESS;
}

PARALLAX_DOUBLE_API CUresult cuMemFreeHost(void* pointer) {
  Lock lock;
  if (CUresult code = enter(lock, "cuMemFreeHost", Needs::kContext)) return code;
  const uintptr_t first = reinterpret_cast<uintptr_t>(pointer);
  Block* const block = to_release(machine(), first, MemoryKind::kPinned);
  if (block == nullptr) return CUDA_ERROR_INVALID_VALUE;
  wait_for_device(machine(), lock, block->context);
  munmap(pointer, block->mapped_bytes);
  machine().blocks.erase(first);
  return CUDA_SUCCESS;
}

PARALLAX_DOUBLE_API CUresult cuMemHostRegister(void* pointer, size_t bytes, unsigned int) {
  Lock lock;
  if (CUresult code = enter(lock, "cuMemHostRegister_v2", Needs::kContext)) return code;
  if (pointer == nullptr || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  const uintptr_t first = reinterpret_cast<uintptr_t>(pointer);
  const auto next = machine().blocks.lower_bound(first);
  if (block_of(machine(), first, 0) != nullptr ||
      (next != machine().blocks.end() && next->first < first + bytes)) {
    return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
  }
  Block block;
  block.kind = MemoryKind::kRegistered;
  block.first = first;
  block.bytes = block.mapped_bytes = bytes;
  block.alias = static_cast<std::byte*>(pointer);
  add(machine(), block);
  return CUDA_SUCCESS;
}

PARALLAX_DOUBLE_API CUresult cuMemHostUnregister(void* pointer) {
  Lock lock;
  if (CUresult code = enter(lock, "cuMemHostUnregister", Needs::kContext)) return code;
  const uintptr_t first = reinterpret_cast<uintptr_t>(pointer);
  const Block* const block = to_release(machine(), first, MemoryKind::kRegistered);
  if (block == nullptr) return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
  wait_for_device(machine(), lock, block->context);
  machine().blocks.erase(first);
  return CUDA_SUCCESS;
}

}  // extern "C"
