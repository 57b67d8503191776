// SPDX-License-Identifier: Apache-2.0
// LaunchMemory: what a communicator's launches use beside the buffers that they are given: zeros of
// which this rank gives nothing, and what NCCL is told of the program's memory; and what sums in an
// order work in, on its way there. To get it takes the driver and NCCL long, so that comes in three
// parts: the owner notes what a launch lacks, a thread of another's gets it (get(), while the owner
// leaves this alone but for the questions it may ask), and the owner takes it.
//
// Its owner's alone but for get(), with the device's context current; nothing else waits.
#ifndef PARALLAX_CUDA_LAUNCH_MEMORY_H_
#define PARALLAX_CUDA_LAUNCH_MEMORY_H_

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/byte_range.h"
#include "cuda/device_blocks.h"
#include "cuda/driver_api.h"
#include "cuda/program_windows.h"
#include "cuda/registered_buffers.h"
#include "device/communicator.h"

namespace parallax {

class LaunchMemory {
 public:
  // The memory that the job knows of around an address; null: none is known. What is in `windows`
  // NCCL knows already.
  using MemoryAround = std::function<ByteRange(const void* address)>;

  LaunchMemory(const DriverApi& driver, const NcclApi& nccl, CUcontext context,
               MemoryAround memory_around, const ProgramWindows& windows, NcclGate& gate)
      : driver_(driver),
        context_(context),
        memory_around_(std::move(memory_around)),
        windows_(windows),
        buffers_(nccl, gate) {}

  // What NCCL knows: the owner's at any time.
  RegisteredBuffers& buffers() { return buffers_; }
  const RegisteredBuffers& buffers() const { return buffers_; }

  // What these lack, and scratch memory of so many bytes. `registers`: NCCL reads the program's
  // buffers, and is to know them.
  void note(std::span<const DeviceReduction> together, uint64_t scratch_bytes, bool registers);
  // NCCL has some of this, or is about to.
  bool knows(const ByteRange& memory) const;
  bool lacks() const { return zeros_lacking_ > 0 || scratch_lacking_ > 0 || !to_know_.empty(); }
  // Any thread, with or without a context; nobody else calls the communicator.
  void get(ncclComm_t communicator);
  // What came of it, as far as nothing failed; not success: what failed is in failed().
  CUresult take();
  const std::string& failed() const { return what_; }
  DeviceBlocks take_scratch() { return std::move(scratch_); }

  // Enqueues that the zeros are zeros: at a place in a window, where others find them, and of ours.
  // What failed is in failed().
  CUresult clear_zeros(std::span<const DeviceReduction> together, CUstream stream);
  // Those of which this rank gives nothing get zeros, where their sums come, too, which are
  // nobody's.
  void give_zeros(std::span<DeviceReduction> together) const;
  // It works on zeros, which the next launches use too.
  bool of_zeros(const DeviceReduction& reduction) const;
  // Nothing uses them any more.
  DeviceBlocks take_zeros() { return std::move(zeros_); }

 private:
  void note_memory(std::span<const DeviceReduction> together);
  void allocate(uint64_t bytes, const char* of_what, DeviceBlocks* block);

  const DriverApi& driver_;
  const CUcontext context_;
  const MemoryAround memory_around_;
  const ProgramWindows& windows_;
  RegisteredBuffers buffers_;
  // Larger ones came before, which work on the stream may still use.
  DeviceBlocks zeros_;
  uint64_t zeros_bytes_ = 0;  // of the first
  // What is lacking, and what came of it.
  uint64_t zeros_lacking_ = 0, scratch_lacking_ = 0;
  std::vector<ByteRange> to_know_;
  std::vector<RegisteredBuffers::Known> known_;
  DeviceBlocks more_zeros_, scratch_;
  CUresult error_ = CUDA_SUCCESS;
  std::string what_;
};

}  // namespace parallax

#endif  // PARALLAX_CUDA_LAUNCH_MEMORY_H_
