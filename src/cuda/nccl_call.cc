// SPDX-License-Identifier: Apache-2.0
// Which function of NCCL's does what. See nccl_call.h.
#include "cuda/nccl_call.h"

#include "base/environment.h"
#include "base/number.h"

namespace parallax {

namespace {

ncclDataType_t type_of(uint32_t dtype) {
  switch (dtype) {
    case PARALLAX_F64:
      return ncclFloat64;
    case PARALLAX_F16:
      return ncclFloat16;
    case PARALLAX_BF16:
      return ncclBfloat16;
    case PARALLAX_I32:
      return ncclInt32;
    case PARALLAX_I64:
      return ncclInt64;
    default:
      return ncclFloat32;
  }
}

}  // namespace

const char* name_of(NcclKind kind) {
  switch (kind) {
    case NcclKind::kAllGather:
      return "ncclAllGather";
    case NcclKind::kReduceScatter:
      return "ncclReduceScatter";
    case NcclKind::kReduce:
      return "ncclReduce";
    case NcclKind::kBroadcast:
      return "ncclBroadcast";
    default:
      return "ncclAllReduce";
  }
}

ncclResult_t call(const NcclApi& nccl, const NcclCall& what, ncclComm_t communicator,
                  CUstream stream) {
  const ncclDataType_t type = type_of(what.dtype);
  const ncclRedOp_t op = what.average ? ncclAvg : ncclSum;
  switch (what.kind) {
    case NcclKind::kAllGather:
      return nccl.ncclAllGather(what.from, what.to, what.count, type, communicator, stream);
    case NcclKind::kReduceScatter:
      return nccl.ncclReduceScatter(what.from, what.to, what.count, type, op, communicator, stream);
    case NcclKind::kReduce:
      return nccl.ncclReduce(what.from, what.to, what.count, type, op, what.root, communicator,
                             stream);
    case NcclKind::kBroadcast:
      return nccl.ncclBroadcast(what.from, what.to, what.count, type, what.root, communicator,
                                stream);
    default:
      return nccl.ncclAllReduce(what.from, what.to, what.count, type, op, communicator, stream);
  }
}

// ---- out of another

// Resources that parent and child share want one order of launches on both, which groups have not.
std::string SplitCall::why_not(const NcclApi& nccl) {
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 0)
  if (nccl.ncclCommShrink == nullptr) return "its NCCL has no ncclCommShrink, which is of 2.27";
#else
  static_cast<void>(nccl);
  return "the module was built without ncclCommShrink, which is of NCCL 2.27";
#endif
  for (const char* name : {"NCCL_COMM_SPLIT_SHARE_RESOURCES", "NCCL_COMM_SHRINK_SHARE_RESOURCES"}) {
    const std::string said = process_variable(name);
    if (said.empty() || said == "0") continue;
    return std::string(name) + " is set, and communicators are to share nothing";
  }
  return "";
}

ncclResult_t SplitCall::begin(const NcclApi& nccl, ncclComm_t out_of, ncclConfig_t* config,
                              ncclComm_t* made) {
  if (without_.empty()) return nccl.ncclCommSplit(out_of, 0, 0, made, config);
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 0)
  return nccl.ncclCommShrink(out_of, without_.data(), static_cast<int>(without_.size()), made,
                             config, NCCL_SHRINK_DEFAULT);
#else
  return ncclInvalidUsage;
#endif
}

// ---- by the host

// Where every rank has a share the equal parts of all of them are one call, and what the last one
// has beyond that another; else each share is.
void add_calls(const DeviceReduction& reduction, const ShareHolders& holders,
               std::vector<NcclCall>* calls) {
  const bool to_host = reduction.leg == DeviceLeg::kToHost;
  const uint64_t bytes = bytes_of_dtype(reduction.dtype);
  const std::byte* const from = to_host ? reduction.from : reduction.to;
  const auto add_one = [&](const ShareRange& range, uint32_t root) {
    if (range.count == 0) return;
    calls->push_back({.kind = to_host ? NcclKind::kReduce : NcclKind::kBroadcast,
                      .from = from + range.first * bytes,
                      .to = reduction.to + range.first * bytes,
                      .count = range.count,
                      .dtype = reduction.dtype,
                      .root = static_cast<int>(root)});
  };
  if (holders.shares < holders.ranks) {
    for (uint32_t share = 0; share < holders.shares; ++share) {
      add_one(share_range(reduction.count, holders.shares, share), share);
    }
    return;
  }
  const uint64_t each = reduction.count / holders.shares;
  const uint64_t own = each * holders.rank * bytes;
  if (each > 0) {
    calls->push_back({.kind = to_host ? NcclKind::kReduceScatter : NcclKind::kAllGather,
                      .from = to_host ? from : from + own,
                      .to = to_host ? reduction.to + own : reduction.to,
                      .count = each,
                      .dtype = reduction.dtype});
  }
  const uint64_t covered = each * holders.shares;
  add_one({covered, reduction.count - covered}, holders.shares - 1);
}

}  // namespace parallax
