// SPDX-License-Identifier: Apache-2.0
// GatheredSums: reductions whose sums have an order of ours. NCCL brings what all ranks gave into
// scratch memory of the device, and a kernel adds it there as host memory would, bit for bit. What
// does not fit into the scratch at once goes in parts, which every rank cuts alike: begin(), then
// for each part gather what part() says, and sum() it.
//
// Knows nothing of NCCL: whose stream has come to a gather is the caller's. Its owner's alone, with
// the device's context current; nothing waits.
#ifndef PARALLAX_CUDA_GATHERED_SUMS_H_
#define PARALLAX_CUDA_GATHERED_SUMS_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "cuda/device_blocks.h"
#include "cuda/kernels/launcher.h"
#include "device/communicator.h"

namespace parallax {

class GatheredSums {
 public:
  // Of a device's memory, once there is something to sum; a rank has its share of it in each part.
  static constexpr uint64_t kScratchBytes = 16 << 20;

  // `count` numbers from each rank to `gathered`, rank after rank.
  struct Piece {
    const std::byte* given = nullptr;
    const std::byte* from = nullptr;  // `given`, or this rank's own place among what is gathered
    std::byte* gathered = nullptr;
    std::byte* to = nullptr;
    uint64_t count = 0;
    uint32_t dtype = 0;
    double factor = 1;
  };

  // `host_ranks`: see CommunicatorOptions. The others outlive this.
  GatheredSums(const DriverApi& driver, kernels::Launcher& launcher,
               std::span<const uint32_t> host_ranks);

  uint64_t scratch_bytes() const { return room_bytes_ * ranks_; }
  // Before the first begin(): what to gather into, one block of scratch_bytes().
  void use_scratch(DeviceBlocks&& memory) { scratch_ = std::move(memory); }
  bool has_scratch() const { return !scratch_.empty(); }
  // What this rank gives is gathered from its own place in the scratch, to which stage() copies it.
  void gather_in_place(uint32_t rank) { place_ = rank; }

  // Of reductions that all have buffers; the first part is there.
  void begin(std::span<const DeviceReduction> together);
  // Empty: all is summed.
  std::span<const Piece> part() const { return part_; }
  // Enqueues what comes before the part is gathered.
  CUresult stage(CUstream stream);
  // Enqueues the sums of a part that the stream has gathered; then the next one is there.
  CUresult sum(CUstream stream);
  // The function of the driver that answered last.
  const char* last_call() const { return last_call_; }
  // Nothing uses it any more.
  DeviceBlocks take_memory() { return std::move(scratch_); }

 private:
  static constexpr uint32_t kNone = UINT32_MAX;

  void cut_part();

  const DriverApi& driver_;
  kernels::Launcher& launcher_;
  uint32_t ranks_ = 0;
  uint32_t place_ = kNone;  // of this rank, gathered in place
  kernels::HostEnds ends_ = {};
  uint64_t room_bytes_ = 0;  // of each rank in a part
  DeviceBlocks scratch_;     // one block, once it is there
  std::vector<DeviceReduction> together_;
  size_t at_ = 0;       // of together_, what the next part begins with
  uint64_t first_ = 0;  // of its numbers
  std::vector<Piece> part_;
  const char* last_call_ = "";
};

}  // namespace parallax

#endif  // PARALLAX_CUDA_GATHERED_SUMS_H_
