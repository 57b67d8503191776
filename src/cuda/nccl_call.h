// SPDX-License-Identifier: Apache-2.0
// NcclCall: one collective of NCCL's as data, so that what is launched together is a list, whatever
// it consists of; the calls of reductions that go in two legs with the host between; and the one
// that makes a communicator out of another.
//
// Pure values but for call() and begin(): the communicator's owner only.
#ifndef PARALLAX_CUDA_NCCL_CALL_H_
#define PARALLAX_CUDA_NCCL_CALL_H_

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
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

// A communicator that is to be made out of another, by all of its ranks but some.
class SplitCall {
 public:
  // What this NCCL, or the environment, has against it; "": nothing.
  static std::string why_not(const NcclApi& nccl);

  // `without` ascends, of the numbers there. Where all ranks are in it that is ncclCommSplit.
  explicit SplitCall(std::span<const uint32_t> without)
      : without_(without.begin(), without.end()) {}

  const char* name() const { return without_.empty() ? "ncclCommSplit" : "ncclCommShrink"; }
  // Of one that does not block it is in progress until *made is there, which a thread of NCCL's
  // writes meanwhile.
  ncclResult_t begin(const NcclApi& nccl, ncclComm_t out_of, ncclConfig_t* config,
                     ncclComm_t* made);

 private:
  std::vector<int> without_;
};

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
