// SPDX-License-Identifier: Apache-2.0
// StagedSlices: the slices of one call that lie on devices, and their copies in pinned host memory,
// which the engine works on as on any: ids and gradients are copied in before, aggregates and
// pulled values out behind. Copies follow what the caller had put on each slice's stream by the
// time of the call.
//
// What is pulled from a table in the same device's memory stays there: the table writes it.
//
// Slices of rows that a device coalesces first (CoalescedSlices) come by two steps.
//
// A slice of a variable that devices sum among themselves (Variable::direct) stays where it is;
// what is handed on of it has the number of its mark as its stream. One of another dtype comes and
// goes by the device's scratch memory (ConvertedSlices).
//
// A call of more than pinned_call_max_bytes, or than can be pinned now, has its copies in ordinary
// memory, and they come and go in pieces (PiecedCopies).
//
// Used again for call after call, so that a step that is warm allocates nothing. Engine's owner
// only; nothing blocks but what the pool has to pin.
#ifndef PARALLAX_ENGINE_STAGED_SLICES_H_
#define PARALLAX_ENGINE_STAGED_SLICES_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/byte_range.h"
#include "base/status.h"
#include "device/device_share.h"
#include "engine/arriving_slices.h"
#include "engine/coalesced_slices.h"
#include "engine/converted_slices.h"
#include "engine/leaving_slices.h"
#include "engine/pieced_copies.h"
#include "engine/request.h"
#include "engine/slice_checks.h"
#include "variable/registry.h"

namespace parallax {

class StagedSlices {
 public:
  // Notes the points of streams, and lays out the copies, of slices that were checked; those in
  // host memory stay as they are. `borrowed` gets all of the caller's buffers. INVALID names the
  // slice and the field; UNSUPPORTED, LIMIT, IO. One that failed holds nothing.
  struct Call {
    const Registry& registry;
    const SliceChecks& checks;
    RequestKind kind = RequestKind::kPull;
    std::span<const parallax_slice_t> slices;
    // Whether its step has nothing of a variable before this call; null: that is not known.
    std::function<bool(uint32_t variable)> first = {};
    CoalesceCounts* counts = nullptr;
    // Of a pull or an evaluation: whether a table on the device writes such a slice; null: none.
    std::function<bool(uint32_t variable, uint32_t device)> in_table = {};
    PinnedPieces* pieces = nullptr;  // null: what cannot be pinned is LIMIT
  };
  Status lay_out(const DeviceShare& share, const Call& call, std::vector<ByteRange>* borrowed);
  // The slices as the engine takes them.
  std::span<const parallax_slice_t> host_slices() const { return host_; }
  // By slice: 1 where a table on the device is to write its values to the caller's, which are the
  // host slice's then.
  std::span<const uint8_t> from_tables() const { return from_tables_; }

  // By slice, the dtype that the caller's has: of one that its device has coalesced the engine
  // takes sums in float.
  std::span<const uint32_t> result_dtypes() const { return coalesced_.dtypes(); }

  bool copies(CopyDirection direction) const;
  // Not OK: those that are under way nevertheless still are. To the host it waits for the streams
  // behind which row ids are read in host memory, too.
  Status begin(CopyDirection direction) noexcept;
  // True once nothing is under way. *status becomes the first failure. What is to follow what has
  // ended (pieces, and rows that were coalesced) follows as long as the call goes on.
  bool poll(Status* status, bool goes_on);
  bool under_way() const { return comes() || leaving_.under_way(); }
  // But for results that went before.
  bool comes() const;
  // Makes a stream, which Devices::follow() has found fit, wait for what is under way, all of which
  // is (not in_pieces()). IO.
  Status follow(uint32_t device, void* stream) const;
  // What is under way may have pieces behind it.
  bool in_pieces() const { return pieces_ != nullptr && under_way(); }
  // By slice, of those whose values are used as they come; empty: there are none.
  std::span<ArrivingElements* const> arriving() const {
    return arriving_.any() ? arriving_.of_slices() : std::span<ArrivingElements* const>();
  }
  // All but these is here, and of them something.
  bool may_go_ahead() const;
  // Nobody reads them any more.
  void stop_arriving() { arriving_.give_up(); }
  // By slice, of those whose results go to their device as they are written; empty: there are none.
  std::span<LeavingElements* const> leaving() const { return leaving_.of_slices(); }
  // There will be no results.
  void stop_leaving() { leaving_.close(); }
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
    DeviceBatch coalescing = 0;  // and then, of what came of it
    DeviceBatch distinct = 0;
    DeviceBatch converting = 0;
    // There is what is used where it lies, and work on the stream may write it: ids in host memory,
    // and what a table writes to.
    bool waits = false;
  };

  // Of what goes through pieces to the host, and is not used as it comes.
  struct Others {
    uint64_t bytes = 0;
    uint64_t here = 0;
  };

  Status lay_out_all(const Call& call, std::vector<ByteRange>* borrowed);
  Status lay_out_one(const Call& call, size_t at);
  bool coalesce(const Call& call, size_t at, uint32_t dtype, bool may_arrive);
  bool comes_from_table(const Call& call, const parallax_slice_t& slice) const;
  Status lay_out_direct(const Variable& variable, const parallax_slice_t& slice,
                        const PullSlice& taken, size_t part, parallax_slice_t* host);
  void lay_out_values(const Call& call, size_t at, size_t part, const PullSlice& taken,
                      uint64_t bytes);
  Status lay_out_ids(const parallax_slice_t& slice, size_t part, parallax_slice_t* host);
  void leave(const parallax_slice_t& slice, const PullSlice& taken, uint64_t row_count,
             uint64_t bytes);
  Status begin_part(CopyDirection direction, size_t part);
  Status take_room(const Call& call);
  void start_leaving();
  Status take_room_for_pieces(const Call& call);
  void add_pieces(size_t part);
  void add_pieces_of(size_t part, const DeviceCopy& copy, uint32_t arriving);
  Status begin_distinct(size_t part) noexcept;
  Status begin_brought(size_t part);
  bool poll(DeviceBatch* batch, Status* status);
  Status part_of(const parallax_slice_t& slice, size_t* part);
  Status check_place(const void* address, uint32_t device, const char* field) const;
  uint64_t room_for(uint64_t bytes);
  void place(std::span<const parallax_slice_t> slices);

  DeviceShare share_;
  std::vector<parallax_slice_t> host_;
  std::vector<uint8_t> from_tables_;
  std::vector<Part> parts_;
  std::vector<StagedCopy> copies_;
  CoalescedSlices coalesced_;
  ConvertedSlices converted_;
  ArrivingSlices arriving_;
  LeavingSlices leaving_;
  std::vector<ByteRange> left_;    // the caller's buffers that are not copied
  std::vector<DeviceCopy> batch_;  // being begun; with room for all
  std::vector<CoalescedSlices::Brought> brought_;
  MemoryBlock block_;  // pinned, of all; or
  PinnedPieces* pieces_ = nullptr;
  PiecedCopies pieced_;
  Others others_;
  CopyDirection pieced_direction_ = CopyDirection::kToHost;
  std::unique_ptr<std::byte[]> ordinary_;  // kept for the next call that needs as much
  uint64_t ordinary_bytes_ = 0;
  MemoryBlock counts_block_;
  std::byte* room_ = nullptr;    // of either
  std::byte* counts_ = nullptr;  // of what devices coalesce
  uint64_t block_bytes_ = 0;
};

}  // namespace parallax

#endif  // PARALLAX_ENGINE_STAGED_SLICES_H_
