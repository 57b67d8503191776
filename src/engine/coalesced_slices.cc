// SPDX-License-Identifier: Apache-2.0
// Scratch memory, kernels and the distinct rows behind them. See coalesced_slices.h.
#include "engine/coalesced_slices.h"

#include <cstring>

#include "base/log.h"
#include "base/number.h"

namespace parallax {

bool CoalescedSlices::may_coalesce(const Variable& variable, RequestKind kind, uint32_t dtype) {
  const bool gives = kind == RequestKind::kPush || kind == RequestKind::kReduce;
  return gives && is_floating(dtype) && variable.sum_type() == SumType::kF32 &&
         !variable.refuse_nonfinite;
}

void CoalescedSlices::start(size_t variables) {
  ++call_;
  dtypes_.clear();
  seen_.resize(variables);  // grows with what was registered, not in a step
}

void CoalescedSlices::see(const parallax_slice_t& slice, uint32_t dtype) {
  dtypes_.push_back(dtype);
  if (slice.form == PARALLAX_FORM_ROWS && slice.row_count == 0) return;
  Seen& seen = seen_[slice.variable];
  if (seen.call != call_) seen = {.call = call_};
  ++seen.slices;
}

bool CoalescedSlices::add(const DeviceShare& share, const Slice& slice, CoalesceCounts* counts) {
  const parallax_slice_t& given = slice.slice;
  Coalesced made = {
      .at = slice.at, .device = given.device, .ids = slice.ids, .values = slice.values};
  made.rows = {.ids = slice.ids.outside,
               .id_bytes = given.ids != nullptr ? 8u : 4u,
               .count = static_cast<uint32_t>(given.row_count),
               .table_rows = slice.variable.rows,
               .values = slice.values.outside,
               .dtype = slice.dtype,
               .elements = static_cast<uint32_t>(slice.variable.row_elements)};
  all_.reserve(all_.size() + 1);  // before there is memory that could be lost
  begun_.reserve(all_.size() + 1);
  uint64_t bytes = 0;
  Status status = share.devices->coalesce_bytes(given.device, made.rows, &bytes);
  if (status.ok()) status = share.scratch->take(given.device, bytes, &made.scratch);
  if (!status.ok()) {
    note_by_host(given.device, status.message(), counts);
    return false;
  }
  made.rows.scratch = made.scratch.memory;
  pool_ = share.scratch;
  counts_ = counts;
  all_.push_back(made);
  return true;
}

void CoalescedSlices::note_by_host(uint32_t device, const std::string& why,
                                   CoalesceCounts* counts) {
  ++counts->slices_by_host;
  if (counts->why_by_host == why) return;
  PARALLAX_LOG(kInfo, kStep,
               "rows on device " + std::to_string(device) + " are coalesced by the host: " + why);
  counts->why_by_host = why;
}

void CoalescedSlices::leave_to_host(const std::string& why, std::vector<StagedCopy>* copies) {
  copies->reserve(copies->size() + most_copies());
  for (const Coalesced& each : all_) {
    note_by_host(each.device, why, counts_);
    copies->push_back(each.ids);
    copies->push_back(each.values);
  }
  release();
}

void CoalescedSlices::borrow(std::vector<ByteRange>* borrowed) const {
  for (const Coalesced& each : all_) {
    for (const StagedCopy& copy : {each.ids, each.values}) {
      borrowed->push_back(ByteRange::at(copy.outside, copy.bytes));
    }
  }
}

Status CoalescedSlices::begin(Devices& devices, size_t part, DeviceMark mark, std::byte* counts,
                              DeviceBatch* batch) {
  *batch = 0;
  begun_.clear();
  for (Coalesced& each : all_) {
    each.rows.counts = counts;
    counts += sizeof(CoalescedCounts);
    if (each.ids.part != part) continue;
    begun_.push_back(each.rows);
  }
  return begun_.empty() ? Status() : devices.coalesce(mark, begun_, batch);
}

void CoalescedSlices::bring(size_t part, std::byte* block, std::span<parallax_slice_t> slices,
                            std::vector<DeviceCopy>* copies) {
  for (const Coalesced& each : all_) {
    if (each.ids.part != part) continue;
    const RowsToCoalesce& rows = each.rows;
    CoalescedCounts found;
    std::memcpy(&found, rows.counts, sizeof found);
    const uint64_t whole = each.ids.bytes + each.values.bytes;
    const uint64_t id_bytes = uint64_t{found.rows} * rows.id_bytes;
    const uint64_t sum_bytes = uint64_t{found.rows} * rows.elements * sizeof(float);
    ++counts_->slices;
    counts_->rows += rows.count;
    const bool fits = sum_bytes <= each.values.bytes;  // floats where values of half their size lie
    if (found.bad != CoalescedCounts::kNoneBad || !fits || id_bytes + sum_bytes >= whole) {
      counts_->copied_rows += rows.count;
      for (const StagedCopy& copy : {each.ids, each.values}) {
        copies->push_back({block + copy.offset, copy.outside, copy.bytes});
      }
      continue;
    }
    counts_->copied_rows += found.rows;
    counts_->saved_bytes += whole - id_bytes - sum_bytes;
    slices[each.at].row_count = found.rows;
    slices[each.at].as_dtype = PARALLAX_AS(PARALLAX_F32);
    if (found.rows == 0) continue;  // all of it is padding
    const CoalescePlaces places = coalesce_places(rows);
    copies->push_back({block + each.ids.offset, rows.scratch + places.ids_at, id_bytes});
    copies->push_back({block + each.values.offset, rows.scratch + places.sums_at, sum_bytes});
  }
}

void CoalescedSlices::release() {
  for (const Coalesced& each : all_) pool_->give_back(each.device, each.scratch);
  all_.clear();
}

void CoalescedSlices::abandon() {
  for (const Coalesced& each : all_) pool_->abandon(each.device, each.scratch);
  all_.clear();
}

}  // namespace parallax
