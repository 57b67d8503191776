// SPDX-License-Identifier: Apache-2.0
// Scratch memory, kernels and the distinct rows behind them. See coalesced_slices.h.
#include "engine/coalesced_slices.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/log.h"
#include "base/number.h"

namespace parallax {

bool CoalescedSlices::may_coalesce(const Variable& variable, RequestKind kind, uint32_t dtype) {
  const bool gives = kind == RequestKind::kPush || kind == RequestKind::kReduce;
  return gives && is_floating(dtype) && variable.sum_type() == SumType::kF32 &&
         !variable.refuse_nonfinite;
}

// ---- laying out

void CoalescedSlices::start(size_t variables) {
  ++call_;
  dtypes_.clear();
  kept_.clear();
  seen_.resize(variables);  // grows with what was registered, not in a step
}

void CoalescedSlices::see(const parallax_slice_t& slice, uint32_t dtype) {
  dtypes_.push_back(dtype);
  if (slice.form == PARALLAX_FORM_ROWS && slice.row_count == 0) return;
  Seen& seen = seen_[slice.variable];
  if (seen.call != call_) seen = {.call = call_};
  ++seen.slices;
}

// One stream, so that one order is all, of one kind, and with its room right behind the others'.
bool CoalescedSlices::goes_on(const Coalesced& with, const Slice& slice) {
  const uint32_t id_bytes = slice.slice.ids != nullptr ? 8 : 4;
  return slice.ids.part == with.part && slice.dtype == with.rows.dtype &&
         id_bytes == with.rows.id_bytes && slice.ids.offset == with.room_end &&
         slice.slice.row_count <= UINT32_MAX - with.rows.count;
}

bool CoalescedSlices::offer(const Slice& slice, bool first) {
  const parallax_slice_t& given = slice.slice;
  Seen& seen = seen_[given.variable];
  if (seen.taken + 1 != seen.slices) return false;  // something else came between
  if (seen.taken == 0) {
    if (!first) return false;
    seen.of = all_.size();
    all_.push_back({.device = given.device, .part = slice.ids.part});
    Coalesced& made = all_.back();
    made.rows_max = slice.variable.rows_max;
    made.rows = {.slices = {},
                 .id_bytes = given.ids != nullptr ? 8u : 4u,
                 .table_rows = slice.variable.rows,
                 .dtype = slice.dtype,
                 .elements = static_cast<uint32_t>(slice.variable.row_elements)};
  } else if (!goes_on(all_[seen.of], slice)) {
    return false;
  }
  sources_.push_back({.of = seen.of,
                      .at = slice.at,
                      .ids = slice.ids,
                      .values = slice.values,
                      .may_arrive = slice.may_arrive});
  Coalesced& each = all_[seen.of];
  ++seen.taken;
  ++each.sources;
  each.rows.count += static_cast<uint32_t>(given.row_count);
  each.room_end = staged_bytes(slice.values.offset + slice.values.bytes);
  return true;
}

void CoalescedSlices::note_by_host(const Coalesced& each, size_t slices, const std::string& why) {
  counts_->slices_by_host += slices;
  if (counts_->why_by_host == why) return;
  PARALLAX_LOG(
      kInfo, kStep,
      "rows on device " + std::to_string(each.device) + " are coalesced by the host: " + why);
  counts_->why_by_host = why;
}

// Its first so many slices alone; the others are copied whole. There is room.
void CoalescedSlices::keep(Coalesced* each, size_t slices, std::vector<StagedCopy>* copies) {
  for (const Source& left : sources_of(*each).subspan(slices)) {
    copies->push_back(left.ids);
    if (left.may_arrive) kept_.push_back({left.at, copies->size()});
    copies->push_back(left.values);
  }
  each->sources = slices;
  each->rows.slices = std::span(there_).subspan(each->first, slices);
  each->rows.count = 0;
  for (const RowsThere& there : each->rows.slices) each->rows.count += there.count;
  each->bytes = 0;
  for (const Source& source : sources_of(*each))
    each->bytes += source.ids.bytes + source.values.bytes;
}

bool CoalescedSlices::take_scratch(const DeviceShare& share, Coalesced* each,
                                   std::vector<StagedCopy>* copies) {
  while (each->sources > 0 && each->bytes >= share.coalesce_bytes_min) {
    uint64_t bytes = 0;
    Status status = share.devices->coalesce_bytes(each->device, each->rows, &bytes);
    if (status.ok()) status = share.scratch->take(each->device, bytes, &each->scratch);
    if (status.ok()) {
      each->rows.scratch = each->scratch.memory;
      return true;
    }
    // Where there is no room for all of them there may be for the first.
    const size_t kept = each->sources > 1 ? 1 : 0;
    note_by_host(*each, each->sources - kept, status.message());
    keep(each, kept, copies);
  }
  keep(each, 0, copies);
  return false;
}

void CoalescedSlices::settle(const DeviceShare& share, CoalesceCounts* counts,
                             std::vector<StagedCopy>* copies) {
  if (all_.empty()) return;
  pool_ = share.scratch;
  counts_ = counts;
  // Before there is memory that could be lost.
  copies->reserve(copies->size() + most_copies());
  begun_.reserve(all_.size());
  there_.reserve(sources_.size());
  kept_.reserve(sources_.size());
  std::sort(sources_.begin(), sources_.end(), [](const Source& one, const Source& other) {
    return std::pair(one.of, one.at) < std::pair(other.of, other.at);
  });
  there_.clear();
  for (const Source& each : sources_) {
    const uint64_t id_bytes = all_[each.of].rows.id_bytes;
    there_.push_back({.ids = each.ids.outside,
                      .values = each.values.outside,
                      .count = static_cast<uint32_t>(each.ids.bytes / id_bytes)});
  }
  size_t first = 0;
  for (Coalesced& each : all_) {
    each.first = std::exchange(first, first + each.sources);
    keep(&each, each.sources, copies);
    take_scratch(share, &each, copies);
  }
  std::erase_if(all_, [](const Coalesced& each) { return each.sources == 0; });
}

void CoalescedSlices::leave_to_host(const std::string& why, std::vector<StagedCopy>* copies) {
  copies->reserve(copies->size() + most_copies());
  for (Coalesced& each : all_) {
    note_by_host(each, each.sources, why);
    keep(&each, 0, copies);
  }
  release();
}

void CoalescedSlices::borrow(std::vector<ByteRange>* borrowed) const {
  for (const Coalesced& each : all_) {
    for (const Source& source : sources_of(each)) {
      for (const StagedCopy& copy : {source.ids, source.values}) {
        borrowed->push_back(ByteRange::at(copy.outside, copy.bytes));
      }
    }
  }
}

// ---- coalescing

Status CoalescedSlices::begin(Devices& devices, size_t part, DeviceMark mark, std::byte* counts,
                              DeviceBatch* batch) {
  *batch = 0;
  begun_.clear();
  for (Coalesced& each : all_) {
    each.rows.counts = counts;
    counts += sizeof(CoalescedCounts);
    if (each.part == part) begun_.push_back(each.rows);
  }
  return begun_.empty() ? Status() : devices.coalesce(mark, begun_, batch);
}

void CoalescedSlices::bring(size_t part, std::byte* block, std::span<parallax_slice_t> slices,
                            std::vector<Brought>* brought) {
  for (const Coalesced& each : all_) {
    if (each.part == part) bring(each, block, slices, brought);
  }
}

void CoalescedSlices::bring(const Coalesced& each, std::byte* block,
                            std::span<parallax_slice_t> slices,
                            std::vector<Brought>* brought) const {
  const RowsToCoalesce& rows = each.rows;
  const std::span<const Source> sources = sources_of(each);
  CoalescedCounts found;
  std::memcpy(&found, rows.counts, sizeof found);
  const uint64_t id_bytes = uint64_t{found.rows} * rows.id_bytes;
  const uint64_t sum_bytes = uint64_t{found.rows} * rows.elements * sizeof(float);
  const bool alone = sources.size() == 1;  // what comes of several is no slice's own
  counts_->slices += sources.size();
  counts_->rows += rows.count;
  if (found.bad != CoalescedCounts::kNoneBad || found.rows > each.rows_max ||
      id_bytes + sum_bytes >= each.bytes) {
    counts_->copied_rows += rows.count;
    const uint64_t row_bytes = uint64_t{rows.elements} * bytes_of_dtype(rows.dtype);
    const auto whole_of = [block](const StagedCopy& copy) {
      return DeviceCopy{block + copy.offset, copy.outside, copy.bytes};
    };
    for (const Source& source : sources) {
      brought->push_back({source.at, whole_of(source.ids), whole_of(source.values), row_bytes,
                          alone && source.may_arrive});
    }
    return;
  }
  counts_->copied_rows += found.rows;
  counts_->saved_bytes += each.bytes - id_bytes - sum_bytes;
  for (const Source& source : sources) slices[source.at].row_count = 0;
  if (found.rows == 0) return;  // all of it is padding
  // The room of all of them is one, and these are fewer bytes.
  std::byte* const ids = block + sources.front().ids.offset;
  std::byte* const sums = ids + id_bytes;
  parallax_slice_t& first = slices[sources.front().at];
  first.row_count = found.rows;
  first.as_dtype = PARALLAX_AS(PARALLAX_F32);
  first.values = sums;
  const CoalescePlaces places = coalesce_places(rows);
  brought->push_back({sources.front().at,
                      {ids, rows.scratch + places.ids_at, id_bytes},
                      {sums, rows.scratch + places.sums_at, sum_bytes},
                      rows.elements * sizeof(float),
                      alone && sources.front().may_arrive});
}

void CoalescedSlices::release() {
  for (const Coalesced& each : all_) {
    if (each.scratch.memory != nullptr) pool_->give_back(each.device, each.scratch);
  }
  all_.clear();
  sources_.clear();
}

void CoalescedSlices::abandon() {
  for (const Coalesced& each : all_) pool_->abandon(each.device, each.scratch);
  all_.clear();
  sources_.clear();
}

}  // namespace parallax
