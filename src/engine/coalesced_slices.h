// SPDX-License-Identifier: Apache-2.0
// CoalescedSlices: of one call the slices of rows that their devices coalesce before anything of
// them is copied: the first of two levels, of which the second is the host's (RowCoalescer). Only
// the distinct rows come to the host then, as sums in float; how many there are the device alone
// knows, so their number is copied first, and the rows once it is here. Slices of one variable that
// follow each other in the call are summed as one, by which a row comes once of all of them: the
// first of them goes on with the rows, the others without any.
//
// The bits are those of slices that are copied whole. A rank's sum of a row is +0 plus each of its
// occurrences in the order of the slices, in float, on the device as on the host; what the host
// adds to it later starts from +0, too, where +0 and -0 are the same. So it is left to the host
// where the sum of a rank begins before (`first`), where something else comes between, where it is
// not in float, and where each number is to be looked at (may_coalesce). A slice with an id that is
// no row is copied whole: the host finds it and names it as ever. So are those whose distinct rows
// are not fewer bytes, or are more than the variable has room for.
//
// Used again for call after call. Engine's owner only; nothing blocks but the scratch memory that
// has to be made.
#ifndef PARALLAX_ENGINE_COALESCED_SLICES_H_
#define PARALLAX_ENGINE_COALESCED_SLICES_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/byte_range.h"
#include "base/status.h"
#include "device/device_share.h"
#include "engine/request.h"
#include "variable/variable.h"

namespace parallax {

// Of the parts of a call's block: no kernel and no copy engine is slowed down by a worse one.
inline constexpr uint64_t kStagedAlignment = 256;
constexpr uint64_t staged_bytes(uint64_t bytes) {
  return (bytes + kStagedAlignment - 1) / kStagedAlignment * kStagedAlignment;
}

// A copy between the caller's memory on a device and the pinned block of a call.
struct StagedCopy {
  CopyDirection direction = CopyDirection::kToHost;
  size_t part = 0;  // slices of one stream
  std::byte* outside = nullptr;
  uint64_t offset = 0;  // in the block
  uint64_t bytes = 0;
  uint32_t arriving = 0;  // of those whose pieces are used as they come, from 1 on; 0: none of them
  uint32_t leaving = 0;   // of those whose pieces go as they are written, likewise
};

// What came of it so far, of all calls.
struct CoalesceCounts {
  // By devices: slices, the rows that they had, padding among them, those that were copied, and the
  // bytes that were not.
  uint64_t slices = 0, rows = 0, copied_rows = 0, saved_bytes = 0;
  uint64_t slices_by_host = 0;  // which a device would have, and
  std::string why_by_host;      // of the last one
};

class CoalescedSlices {
 public:
  // What is asked of a slice of rows, with values of `dtype`.
  static bool may_coalesce(const Variable& variable, RequestKind kind, uint32_t dtype);

  // A call is laid out, with variables below that number.
  void start(size_t variables);
  // The next slice of the call, in whichever form and memory, and of which dtype.
  void see(const parallax_slice_t& slice, uint32_t dtype);
  // By slice, as they were seen.
  std::span<const uint32_t> dtypes() const { return dtypes_; }
  struct Slice {
    size_t at = 0;  // in the call
    const parallax_slice_t& slice;
    const Variable& variable;
    uint32_t dtype = 0;
    // How they would be copied whole; into that room come the distinct ones.
    StagedCopy ids, values;
    bool may_arrive = false;  // its values may be used as they come (ArrivingSlices)
  };
  // The slice that was seen last. True: it is not to be copied. `first`: its step has nothing of
  // the variable before this call.
  bool offer(const Slice& slice, bool first);
  // All slices are there: takes scratch memory for them. Those of which a device cannot, and those
  // that are too few bytes, are copied whole; of the former the counts say why.
  void settle(const DeviceShare& share, CoalesceCounts* counts, std::vector<StagedCopy>* copies);
  // Of these, those whose values may be used as they come, and which copy is that of the values.
  struct Kept {
    size_t at = 0, copy = 0;
  };
  std::span<const Kept> kept() const { return kept_; }
  // None is: they are copied whole, as was noted.
  void leave_to_host(const std::string& why, std::vector<StagedCopy>* copies);
  // What they have of the caller's.
  void borrow(std::vector<ByteRange>* borrowed) const;

  bool any() const { return !all_.empty(); }
  // Of pinned memory.
  uint64_t counts_bytes() const { return all_.size() * sizeof(CoalescedCounts); }
  // Those of a part, behind its mark; *batch is 0 where there is none. `counts` has counts_bytes().
  Status begin(Devices& devices, size_t part, DeviceMark mark, std::byte* counts,
               DeviceBatch* batch);
  struct Brought {
    size_t at = 0;  // in the call
    DeviceCopy ids, values;
    uint64_t row_bytes = 0;   // of its values
    bool may_arrive = false;  // as Slice has it
  };
  // Their counts have come: adds what is to be copied to the block, and makes `slices` what they
  // are then. With room for all.
  void bring(size_t part, std::byte* block, std::span<parallax_slice_t> slices,
             std::vector<Brought>* brought);
  size_t count() const { return sources_.size(); }
  size_t most_copies() const { return 2 * sources_.size(); }

  // Nothing of it is under way.
  void release();
  // The device may still use it.
  void abandon();

 private:
  // A slice of the call.
  struct Source {
    size_t of = 0;  // all_
    size_t at = 0;
    StagedCopy ids, values;
    bool may_arrive = false;
  };
  // Slices that are summed as one: of sources_, once settled, `sources` from `first` on.
  struct Coalesced {
    uint32_t device = 0;
    size_t part = 0;
    size_t first = 0, sources = 0;
    uint64_t rows_max = 0;
    uint64_t bytes = 0;        // ids and values, of all
    uint64_t room_end = 0;     // in the call's block, of all
    RowsToCoalesce rows = {};  // .slices: of there_
    MemoryBlock scratch = {};
  };
  // Of a variable, in the call of that number: slices that were seen to give something, and how
  // many of them, from the first on, all_[of] has.
  struct Seen {
    uint64_t call = 0;
    uint32_t slices = 0, taken = 0;
    size_t of = 0;
  };

  void note_by_host(const Coalesced& each, size_t slices, const std::string& why);
  static bool goes_on(const Coalesced& with, const Slice& slice);
  std::span<const Source> sources_of(const Coalesced& each) const {
    return std::span(sources_).subspan(each.first, each.sources);
  }
  void keep(Coalesced* each, size_t slices, std::vector<StagedCopy>* copies);
  bool take_scratch(const DeviceShare& share, Coalesced* each, std::vector<StagedCopy>* copies);
  void bring(const Coalesced& each, std::byte* block, std::span<parallax_slice_t> slices,
             std::vector<Brought>* brought) const;

  ScratchPool* pool_ = nullptr;
  CoalesceCounts* counts_ = nullptr;
  uint64_t call_ = 0;
  std::vector<Seen> seen_;  // by variable
  std::vector<uint32_t> dtypes_;
  std::vector<Coalesced> all_;
  std::vector<Source> sources_;
  std::vector<Kept> kept_;
  std::vector<RowsThere> there_;       // of each source
  std::vector<RowsToCoalesce> begun_;  // of one part; with room for all
};

}  // namespace parallax

#endif  // PARALLAX_ENGINE_COALESCED_SLICES_H_
