// SPDX-License-Identifier: Apache-2.0
// StagedSlices: the slices of one call that lie on devices, and their copies in pinned host memory,
// which the engine works on as on any: ids and gradients are copied in before, aggregates and
// pulled values out behind. Copies follow what the caller had put on each slice's stream by the
// time of the call.
//
// A slice of a variable that devices sum among themselves (Variable::direct) stays where it is;
// what is handed on of it has the number of its mark as its stream.
//
// Used again for call after call, so that a step that is warm allocates nothing. Engine's owner
// only; nothing blocks but what the pool has to pin.
#ifndef PARALLAX_ENGINE_STAGED_SLICES_H_
#define PARALLAX_ENGINE_STAGED_SLICES_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/byte_range.h"
#include "base/status.h"
#include "device/device_share.h"
#include "engine/request.h"
#include "engine/slice_checks.h"
#include "variable/registry.h"

namespace parallax {

class StagedSlices {
 public:
  // Notes the points of streams, and lays out the copies, of slices that were checked; those in
  // host memory stay as they are. `borrowed` gets all of the caller's buffers. INVALID names the
  // slice and the field; UNSUPPORTED, LIMIT, IO. One that failed holds nothing.
  Status lay_out(const DeviceShare& share, const Registry& registry, const SliceChecks& checks,
                 RequestKind kind, std::span<const parallax_slice_t> slices,
                 std::vector<ByteRange>* borrowed);
  // The slices as the engine takes them.
  std::span<const parallax_slice_t> host_slices() const { return host_; }

  bool copies(CopyDirection direction) const;
  // Not OK: those that are under way nevertheless still are. To the host it waits for the streams
  // behind which row ids are read in host memory, too.
  Status begin(CopyDirection direction) noexcept;
  // True once no copy is under way. *status becomes the first failure.
  bool poll(Status* status);
  bool under_way() const;
  // "device 0", "devices 0 and 1": where the slices lie.
  std::string where() const;
  // The copies are over, or were never begun.
  void release();
  // A device does not end: what it may still write to is given up.
  void abandon();

 private:
  // Slices of one stream.
  struct Part {
    uint32_t device = 0;
    void* stream = nullptr;
    DeviceMark mark = 0;
    DeviceBatch batch = 0;
    bool has_host_ids = false;  // work on the stream may write them
  };
  struct Copy {
    CopyDirection direction = CopyDirection::kToHost;
    size_t part = 0;
    std::byte* outside = nullptr;  // the caller's
    uint64_t offset = 0;           // in the block
    uint64_t bytes = 0;
  };

  Status lay_out_all(const Registry& registry, const SliceChecks& checks, RequestKind kind,
                     std::span<const parallax_slice_t> slices, std::vector<ByteRange>* borrowed);
  Status lay_out_one(const Registry& registry, const SliceChecks& checks, RequestKind kind,
                     const parallax_slice_t& slice, parallax_slice_t* host);
  Status lay_out_direct(const parallax_slice_t& slice, const PullSlice& taken, uint64_t bytes,
                        size_t part, parallax_slice_t* host);
  Status lay_out_ids(const parallax_slice_t& slice, size_t part, parallax_slice_t* host);
  void leave(const parallax_slice_t& slice, const PullSlice& taken, uint64_t row_count,
             uint64_t bytes);
  Status begin_part(CopyDirection direction, size_t part);
  Status part_of(const parallax_slice_t& slice, size_t* part);
  Status check_place(const void* address, uint32_t device, const char* field) const;
  uint64_t room_for(uint64_t bytes);
  void place(std::span<const parallax_slice_t> slices);

  DeviceShare share_;
  std::vector<parallax_slice_t> host_;
  std::vector<Part> parts_;
  std::vector<Copy> copies_;
  std::vector<ByteRange> left_;    // the caller's buffers that are not copied
  std::vector<DeviceCopy> batch_;  // being begun; with room for all
  PinnedBlock block_;
  uint64_t block_bytes_ = 0;
};

}  // namespace parallax

#endif  // PARALLAX_ENGINE_STAGED_SLICES_H_
