// SPDX-License-Identifier: Apache-2.0
// cuPointerGetAttributes: what a pointer is. One that CUDA does not know has no attributes, and
// that is no error, unless it is asked for one of them.
#include <cstring>

#include "cuda/double/machine.h"

namespace cuda_double {

namespace {

template <typename T>
void put(void* to, T value) {
  std::memcpy(to, &value, sizeof value);
}

// False: there is no such attribute.
bool describe(CUpointer_attribute attribute, const Block* block, CUdeviceptr pointer, void* to) {
  const bool host = block != nullptr && block->kind != MemoryKind::kDevice;
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
      put<CUcontext>(to, block == nullptr ? nullptr : block->context);
      return true;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      put<unsigned>(to, block == nullptr ? 0 : host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE);
      return true;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
      put<CUdeviceptr>(to, block == nullptr ? 0 : pointer);
      return true;
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
      put<CUdeviceptr>(to, host ? pointer : 0);
      return true;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
      put<unsigned long long>(to, block == nullptr ? 0 : block->number);
      return true;
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
      put<unsigned>(to, 0);  // a bool by the documentation, and an unsigned by the driver
      return true;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      put<int>(to, block == nullptr ? -2 : block->context->device);
      return true;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
      put<CUdeviceptr>(to, block == nullptr ? 0 : block->first);
      return true;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
      put<size_t>(to, block == nullptr ? 0 : block->bytes);
      return true;
    default:
      return false;
  }
}

}  // namespace

}  // namespace cuda_double

using namespace cuda_double;

extern "C" {

PARALLAX_DOUBLE_API CUresult cuPointerGetAttributes(unsigned int count,
                                                    CUpointer_attribute* attributes, void** data,
                                                    CUdeviceptr pointer) {
  Lock lock;
  if (CUresult code = enter(lock, "cuPointerGetAttributes", Needs::kDriver)) return code;
  if (count == 0 || attributes == nullptr || data == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Block* const block = block_of(machine(), pointer, 1);
  for (unsigned i = 0; i < count; ++i) {
    if (data[i] == nullptr || !describe(attributes[i], block, pointer, data[i])) {
      return CUDA_ERROR_INVALID_VALUE;
    }
  }
  return CUDA_SUCCESS;
}

PARALLAX_DOUBLE_API CUresult cuPointerGetAttribute(void* data, CUpointer_attribute attribute,
                                                   CUdeviceptr pointer) {
  Lock lock;
  if (CUresult code = enter(lock, "cuPointerGetAttribute", Needs::kDriver)) return code;
  const Block* const block = block_of(machine(), pointer, 1);
  if (data == nullptr || block == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return describe(attribute, block, pointer, data) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

}  // extern "C"
