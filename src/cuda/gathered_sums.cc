// SPDX-License-Identifier: Apache-2.0
// Cutting reductions into parts, and their kernels. See gathered_sums.h.
#include "cuda/gathered_sums.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/number.h"

namespace parallax {

namespace {

// Pieces begin at multiples of it, as NCCL and wide loads like them.
constexpr uint64_t kPieceAlignment = 256;

}  // namespace

GatheredSums::GatheredSums(const DriverApi& driver, kernels::Launcher& launcher,
                           std::span<const uint32_t> host_ranks)
    : driver_(driver), launcher_(launcher) {
  for (const uint32_t ranks : host_ranks) {
    ranks_ += ranks;
    PARALLAX_CHECK(ranks > 0 && ranks_ <= kernels::kSumRanksMax);
    ends_.bits[(ranks_ - 1) / 64] |= uint64_t{1} << (ranks_ - 1) % 64;
  }
  room_bytes_ = std::max(kScratchBytes / ranks_ / kPieceAlignment, uint64_t{1}) * kPieceAlignment;
}

void GatheredSums::begin(std::span<const DeviceReduction> together) {
  PARALLAX_CHECK(has_scratch());
  together_.assign(together.begin(), together.end());
  at_ = first_ = 0;
  cut_part();
}

void GatheredSums::cut_part() {
  part_.clear();
  auto* const scratch = reinterpret_cast<std::byte*>(scratch_.front().memory);
  uint64_t used = 0;  // of each rank's room
  while (at_ < together_.size() && used < room_bytes_) {
    const DeviceReduction& each = together_[at_];
    const uint64_t bytes = bytes_of_dtype(each.dtype);
    const uint64_t count = std::min(each.count - first_, (room_bytes_ - used) / bytes);
    const std::byte* const given = each.from + first_ * bytes;
    std::byte* const gathered = scratch + used * ranks_;
    part_.push_back({.given = given,
                     .from = place_ == kNone ? given : gathered + place_ * count * bytes,
                     .gathered = gathered,
                     .to = each.to + first_ * bytes,
                     .count = count,
                     .dtype = each.dtype,
                     .factor = each.average ? 1.0 / ranks_ : 1.0});
    used += (count * bytes + kPieceAlignment - 1) / kPieceAlignment * kPieceAlignment;
    first_ += count;
    if (first_ < each.count) continue;
    first_ = 0;
    ++at_;
  }
}

CUresult GatheredSums::stage(CUstream stream) {
  last_call_ = "cuMemcpyDtoDAsync of what this rank gives";
  for (const Piece& piece : part_) {
    if (piece.from == piece.given) continue;
    const CUresult error = driver_.cuMemcpyDtoDAsync_v2(
        reinterpret_cast<CUdeviceptr>(piece.from), reinterpret_cast<CUdeviceptr>(piece.given),
        piece.count * bytes_of_dtype(piece.dtype), stream);
    if (error != CUDA_SUCCESS) return error;
  }
  return CUDA_SUCCESS;
}

CUresult GatheredSums::sum(CUstream stream) {
  for (const Piece& piece : part_) {
    const CUresult error =
        launcher_.sum_in_order(stream,
                               {.numbers = reinterpret_cast<CUdeviceptr>(piece.gathered),
                                .dtype = piece.dtype,
                                .ranks = ranks_,
                                .count = piece.count},
                               ends_, piece.factor, reinterpret_cast<CUdeviceptr>(piece.to));
    last_call_ = launcher_.last_call();
    if (error != CUDA_SUCCESS) return error;
  }
  cut_part();
  return CUDA_SUCCESS;
}

}  // namespace parallax
