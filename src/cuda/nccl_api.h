// SPDX-License-Identifier: Apache-2.0
// NcclApi: the functions of NCCL that the module calls, as a table of pointers typed by nccl.h. The
// module does not link libnccl.so.2: the process often has one already, and a second one of another
// version beside it would be a second library with its own threads and buffers.
//
// Pure data. Any thread may call through a table that was filled.
#ifndef PARALLAX_CUDA_NCCL_API_H_
#define PARALLAX_CUDA_NCCL_API_H_

#include <nccl.h>

// X(symbol). NCCL 2.18 has them; without one of them NCCL is not used.
#define PARALLAX_NCCL_FUNCTIONS(X) \
  X(ncclGetVersion)                \
  X(ncclGetErrorString)            \
  X(ncclGetLastError)              \
  X(ncclGetUniqueId)               \
  X(ncclCommInitRankConfig)        \
  X(ncclCommFinalize)              \
  X(ncclCommDestroy)               \
  X(ncclCommAbort)                 \
  X(ncclCommGetAsyncError)         \
  X(ncclCommSplit)                 \
  X(ncclAllReduce)                 \
  X(ncclAllGather)                 \
  X(ncclReduceScatter)             \
  X(ncclReduce)                    \
  X(ncclBroadcast)                 \
  X(ncclGroupStart)                \
  X(ncclGroupEnd)

// X(symbol, since). Null where the library found is older, or the header that this was built with.
// Buffers registered for a communicator, and as windows of symmetric memory, of NCCL's allocation;
// communicators made out of another by those alone that are in them.
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 19, 0)
#define PARALLAX_NCCL_REGISTER_FUNCTIONS(X)   \
  X(ncclCommRegister, NCCL_VERSION(2, 19, 0)) \
  X(ncclCommDeregister, NCCL_VERSION(2, 19, 0))
#else
#define PARALLAX_NCCL_REGISTER_FUNCTIONS(X)
#endif
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 0)
#define PARALLAX_NCCL_SHRINK_FUNCTIONS(X) X(ncclCommShrink, NCCL_VERSION(2, 27, 0))
#define PARALLAX_NCCL_WINDOW_FUNCTIONS(X)           \
  X(ncclMemAlloc, NCCL_VERSION(2, 19, 0))           \
  X(ncclMemFree, NCCL_VERSION(2, 19, 0))            \
  X(ncclCommWindowRegister, NCCL_VERSION(2, 27, 0)) \
  X(ncclCommWindowDeregister, NCCL_VERSION(2, 27, 0))
#else
#define PARALLAX_NCCL_SHRINK_FUNCTIONS(X)
#define PARALLAX_NCCL_WINDOW_FUNCTIONS(X)
#endif
#define PARALLAX_NCCL_OPTIONAL_FUNCTIONS(X) \
  PARALLAX_NCCL_REGISTER_FUNCTIONS(X)       \
  PARALLAX_NCCL_SHRINK_FUNCTIONS(X)         \
  PARALLAX_NCCL_WINDOW_FUNCTIONS(X)

namespace parallax {

struct NcclApi {
#define PARALLAX_NCCL_POINTER(symbol, ...) decltype(&::symbol) symbol = nullptr;
  PARALLAX_NCCL_FUNCTIONS(PARALLAX_NCCL_POINTER)
  PARALLAX_NCCL_OPTIONAL_FUNCTIONS(PARALLAX_NCCL_POINTER)
#undef PARALLAX_NCCL_POINTER
};

}  // namespace parallax

#endif  // PARALLAX_CUDA_NCCL_API_H_
