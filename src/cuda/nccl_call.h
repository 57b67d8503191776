// SPDX-License-Identifier: Apache-2.0
// NcclCall: one collective of NCCL's as data, so that what is launched together is a list, whatever
// it consists of; and the calls of reductions that go in two legs with the host between.
//
// Pure values but for call(), which enqueues: the communicator's owner only.
#ifndef PARALLAX_CUDA_NCCL_CALL_H_
#define PARALLAX_CUDA_NCCL_CALL_H_

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "cuda/nccl_api.h"
#include "device/communicator.h"

namespace parallax {

enum class NcclKind : uint8_t { kAllReduce, kAllGather, kReduceScatter, kReduce, kBroadcast };

struct NcclCall {
  NcclKind kind = NcclKind::kAllReduce;
  const std::byte* from = nullptr;
  std::byte* to = nullptr;
  uint64_t count = 0;  // as NCCL has it for the kind
  uint32_t dtype = 0;
  bool average = false;
  int root = 0;
};

// As NCCL names it.
const char* name_of(NcclKind kind);
ncclResult_t call(const NcclApi& nccl, const NcclCall& what, ncclComm_t communicator,
                  CUstream stream);

// Which rank of how many, the first `shares` of which have a share.
struct ShareHolders {
  uint32_t rank = 0, ranks = 1, shares = 1;
};
// Of a leg to the host, which leaves a holder's share of the sum at its place in `to`, and of one
// from the host, which takes it from there.
void add_calls(const DeviceReduction& reduction, const ShareHolders& holders,
               std::vector<NcclCall>* calls);

}  // namespace parallax

#endif  // PARALLAX_CUDA_NCCL_CALL_H_
