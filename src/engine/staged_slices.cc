// SPDX-License-Identifier: Apache-2.0
// Laying out the copies of a call. See staged_slices.h.
#include "engine/staged_slices.h"

#include <algorithm>
#include <new>
#include <utility>

#include "base/number.h"

namespace parallax {

namespace {

constexpr uint64_t kStagedMax = uint64_t{1} << 62;

const char* name_of_call(RequestKind kind) {
  if (kind == RequestKind::kPush) return "push";
  return kind == RequestKind::kReduce ? "reduce" : "pull";
}

// A pointer of a laid out slice before the block is there: its offset, and one more.
std::byte* at_offset(uint64_t offset) { return reinterpret_cast<std::byte*>(offset); }

}  // namespace

// ---- laying out

Status StagedSlices::part_of(const parallax_slice_t& slice, size_t* part) {
  for (*part = 0; *part < parts_.size(); ++*part) {
    if (parts_[*part].device == slice.device && parts_[*part].stream == slice.stream) return {};
  }
  const Status open = share_.devices->open(slice.device);
  if (!open.ok()) return open.reworded(open.message()).about_field("device");
  // Before there is a mark that could be lost.
  Part& added = parts_.emplace_back(Part{.device = slice.device, .stream = slice.stream});
  const Status marked = share_.devices->mark(slice.device, slice.stream, &added.mark);
  return marked.ok() ? marked : marked.reworded(marked.message()).about_field("stream");
}

Status StagedSlices::check_place(const void* address, uint32_t device, const char* field) const {
  const PlacedMemory found = share_.devices->place_of(address);
  if (found.place == MemoryPlace::kShared || found.place == MemoryPlace::kUnknown) return {};
  if (found.place == MemoryPlace::kHost) {
    return invalid(
               std::string(field) +
               " is in host memory, and memory is PARALLAX_MEMORY_CUDA; give memory of device " +
               std::to_string(device) + ", or memory = PARALLAX_MEMORY_HOST")
        .about_field(field);
  }
  if (found.device == device) return {};
  return invalid(std::string(field) + " is memory of device " + std::to_string(found.device) +
                 ", and device is " + std::to_string(device))
      .about_field("device");
}

// No machine has as much as would wrap: past kStagedMax the pool refuses it.
uint64_t StagedSlices::room_for(uint64_t bytes) {
  const uint64_t offset = block_bytes_;
  if (bytes > kStagedMax || offset > kStagedMax) return block_bytes_ = kStagedMax + 1;
  block_bytes_ += staged_bytes(bytes);
  return offset;
}

// Row ids may lie in host memory, where many a program makes them. They are ready in the order of
// the stream as every buffer of the slice is: a copy or a host function on it may write them.
Status StagedSlices::lay_out_ids(const parallax_slice_t& slice, size_t part,
                                 parallax_slice_t* host) {
  const bool wide = slice.ids != nullptr;
  const void* ids = wide ? static_cast<const void*>(slice.ids) : slice.ids_i32;
  const uint64_t bytes = slice.row_count * (wide ? sizeof(int64_t) : sizeof(int32_t));
  if (share_.devices->place_of(ids).place == MemoryPlace::kHost) {
    parts_[part].waits = true;
    left_.push_back(ByteRange::at(ids, bytes));
    return {};
  }
  PARALLAX_RETURN_IF_ERROR(check_place(ids, slice.device, wide ? "ids" : "ids_i32"));
  const uint64_t offset = room_for(bytes);
  copies_.push_back({.direction = CopyDirection::kToHost,
                     .part = part,
                     .outside = static_cast<std::byte*>(const_cast<void*>(ids)),
                     .offset = offset,
                     .bytes = bytes});
  if (wide) {
    host->ids = reinterpret_cast<const int64_t*>(at_offset(offset));
  } else {
    host->ids_i32 = reinterpret_cast<const int32_t*>(at_offset(offset));
  }
  return {};
}

// It is not copied: the reduction follows the mark, which takes the stream's place.
Status StagedSlices::lay_out_direct(const Variable& variable, const parallax_slice_t& slice,
                                    const PullSlice& taken, size_t part, parallax_slice_t* host) {
  PARALLAX_RETURN_IF_ERROR(check_place(slice.values, slice.device, "values"));
  if (slice.into != nullptr)
    PARALLAX_RETURN_IF_ERROR(check_place(slice.into, slice.device, "into"));
  *host = slice;
  host->stream = reinterpret_cast<void*>(uintptr_t{parts_[part].mark});
  leave(slice, taken, 0, variable.elements() * bytes_of_dtype(taken.dtype));
  if (taken.dtype == variable.dtype) return {};
  return converted_.add(share_, variable, taken, part, host);
}

// The caller's, read and written where it lies: by the engine, or by devices among themselves.
void StagedSlices::leave(const parallax_slice_t& slice, const PullSlice& taken, uint64_t row_count,
                         uint64_t bytes) {
  const ByteRange ranges[] = {ByteRange::at(taken.values, bytes), ByteRange::at(taken.into, bytes),
                              ByteRange::at(slice.ids, row_count * sizeof(int64_t)),
                              ByteRange::at(slice.ids_i32, row_count * sizeof(int32_t))};
  for (const ByteRange& each : ranges) {
    if (each.first != 0 && each.bytes > 0) left_.push_back(each);
  }
}

// Of a slice whose ids and values were the last to be laid out: whether its device does.
bool StagedSlices::coalesce(const Call& call, size_t at, uint32_t dtype, bool may_arrive) {
  const parallax_slice_t& slice = call.slices[at];
  const Variable& variable = call.registry[slice.variable];
  if (share_.scratch == nullptr || !call.first ||
      !CoalescedSlices::may_coalesce(variable, call.kind, dtype) || copies_.size() < 2) {
    return false;
  }
  const StagedCopy values = copies_[copies_.size() - 1], ids = copies_[copies_.size() - 2];
  const void* ids_here = slice.ids != nullptr ? static_cast<const void*>(slice.ids)
                                              : static_cast<const void*>(slice.ids_i32);
  if (ids.outside != ids_here) return false;
  for (const StagedCopy& each : {ids, values}) {
    if (share_.devices->place_of(each.outside).place != MemoryPlace::kDevice) return false;
  }
  const bool taken = coalesced_.offer({.at = at,
                                       .slice = slice,
                                       .variable = variable,
                                       .dtype = dtype,
                                       .ids = ids,
                                       .values = values,
                                       .may_arrive = may_arrive},
                                      call.first(slice.variable));
  if (taken) copies_.resize(copies_.size() - 2);
  return taken;
}

bool StagedSlices::comes_from_table(const Call& call, const parallax_slice_t& slice) const {
  return call.in_table && call.in_table(slice.variable, slice.device) &&
         share_.devices->place_of(slice.values).place == MemoryPlace::kDevice;
}

Status StagedSlices::lay_out_one(const Call& call, size_t at) {
  const parallax_slice_t& slice = call.slices[at];
  parallax_slice_t* const host = &host_[at];
  const Variable& variable = call.registry[slice.variable];
  const PullSlice taken = call.checks.slice_of(slice);
  const bool rows = slice.form == PARALLAX_FORM_ROWS;
  const uint64_t row_count = rows ? slice.row_count : variable.rows;
  const uint64_t bytes = row_count * variable.row_elements * bytes_of_dtype(taken.dtype);
  if (slice.memory == PARALLAX_MEMORY_HOST) {
    leave(slice, taken, rows ? row_count : 0, bytes);
    return {};
  }
  size_t part = 0;
  PARALLAX_RETURN_IF_ERROR(part_of(slice, &part));
  host->memory = PARALLAX_MEMORY_HOST;
  host->stream = host->into = nullptr;
  host->device = 0;
  if (variable.direct) return lay_out_direct(variable, slice, taken, part, host);
  if (row_count == 0) return {};
  PARALLAX_RETURN_IF_ERROR(check_place(slice.values, slice.device, "values"));
  if (slice.into != nullptr)
    PARALLAX_RETURN_IF_ERROR(check_place(slice.into, slice.device, "into"));
  if (rows) PARALLAX_RETURN_IF_ERROR(lay_out_ids(slice, part, host));
  if (comes_from_table(call, slice)) {
    from_tables_[at] = 1;
    parts_[part].waits = true;
    left_.push_back(ByteRange::at(taken.values, bytes));
    return {};
  }
  lay_out_values(call, at, part, taken, bytes);
  return {};
}

// What comes of its values, and what goes.
void StagedSlices::lay_out_values(const Call& call, size_t at, size_t part, const PullSlice& taken,
                                  uint64_t bytes) {
  const parallax_slice_t& slice = call.slices[at];
  const Variable& variable = call.registry[slice.variable];
  const bool rows = slice.form == PARALLAX_FORM_ROWS;
  const bool gives = call.kind == RequestKind::kPush || call.kind == RequestKind::kReduce;
  const bool returns = call.kind == RequestKind::kReduce && !rows && slice.more == 0;
  // Rows, or elements.
  const uint64_t unit_bytes =
      (variable.ids_declared() ? variable.row_elements : 1) * bytes_of_dtype(taken.dtype);
  const uint64_t offset = room_for(bytes);
  host_[at].values = at_offset(offset);
  uint64_t result_offset = offset;
  const bool may_arrive = gives && call.first && call.first(slice.variable) &&
                          ArrivingSlices::may_add(variable, call.slices, at);
  if (gives) {
    copies_.push_back({.direction = CopyDirection::kToHost,
                       .part = part,
                       .outside = taken.values,
                       .offset = offset,
                       .bytes = bytes});
  }
  const bool coalesced = gives && rows && coalesce(call, at, taken.dtype, may_arrive);
  if (may_arrive && !coalesced && arriving_.are_many(bytes)) {
    copies_.back().arriving = arriving_.add(at, part, unit_bytes);
    // Sums are made where the result is: in place over what has not come yet (Contribution).
    if (returns) host_[at].into = at_offset(result_offset = room_for(bytes));
  }
  if (gives && !returns) return;
  copies_.push_back({.direction = CopyDirection::kToDevice,
                     .part = part,
                     .outside = gives ? taken.into : taken.values,
                     .offset = result_offset,
                     .bytes = bytes});
  if (call.kind == RequestKind::kEvaluate || !leaving_.are_many(bytes)) return;
  copies_.back().leaving = leaving_.add(at, unit_bytes);
}

// Offsets become addresses.
void StagedSlices::place(std::span<const parallax_slice_t> slices) {
  const auto placed = [this](auto* pointer) {
    return reinterpret_cast<decltype(pointer)>(room_ + reinterpret_cast<uintptr_t>(pointer));
  };
  for (size_t i = 0; i < slices.size(); ++i) {
    parallax_slice_t& host = host_[i];
    if (slices[i].memory == PARALLAX_MEMORY_HOST || host.memory != PARALLAX_MEMORY_HOST) continue;
    const bool rows = host.form == PARALLAX_FORM_ROWS;
    if (rows && host.row_count == 0) continue;
    if (from_tables_[i] == 0) host.values = placed(host.values);
    if (host.into != nullptr) host.into = placed(host.into);
    if (!rows) continue;
    if (host.ids != slices[i].ids) host.ids = placed(host.ids);
    if (host.ids_i32 != slices[i].ids_i32) host.ids_i32 = placed(host.ids_i32);
  }
}

// Pinned memory for all of it, or pieces.
Status StagedSlices::take_room(const Call& call) {
  const uint64_t counts_at = room_for(coalesced_.counts_bytes());
  if (block_bytes_ == 0) return {};
  const bool fits = call.pieces == nullptr || block_bytes_ <= share_.pinned_call_max_bytes;
  const Status whole = fits ? share_.pinned->take(block_bytes_, &block_) : Status();
  if (!whole.ok() && (call.pieces == nullptr || block_bytes_ > kStagedMax)) return whole;
  if (block_.memory == nullptr) return take_room_for_pieces(call);
  room_ = block_.memory;
  counts_ = room_ + counts_at;
  return {};
}

Status StagedSlices::take_room_for_pieces(const Call& call) {
  // Counts come to pinned memory, too: where that is short the pieces come first.
  Status counts;
  if (coalesced_.any()) counts = share_.pinned->take(coalesced_.counts_bytes(), &counts_block_);
  Status joined = call.pieces->join(*share_.pinned);
  if (!joined.ok() && counts_block_.memory != nullptr) {
    share_.pinned->give_back(std::exchange(counts_block_, {}));
    counts = joined;
    joined = call.pieces->join(*share_.pinned);
  }
  PARALLAX_RETURN_IF_ERROR(joined);
  pieces_ = call.pieces;
  if (!counts.ok()) coalesced_.leave_to_host(counts.message(), &copies_);
  counts_ = counts_block_.memory;
  if (ordinary_bytes_ < block_bytes_) {
    ordinary_.reset();
    ordinary_bytes_ = 0;
    ordinary_.reset(new (std::nothrow) std::byte[block_bytes_]);
    if (ordinary_ == nullptr) {
      return limit(std::to_string(block_bytes_) +
                   " bytes of host memory, which the machine has not");
    }
    ordinary_bytes_ = block_bytes_;
  }
  room_ = ordinary_.get();
  return {};
}

// Where results are, and go. Those that go through pieces do so when all are there.
void StagedSlices::start_leaving() {
  if (pieces_ != nullptr) leaving_.clear();
  for (StagedCopy& copy : copies_) {
    if (pieces_ != nullptr) copy.leaving = 0;
    if (copy.leaving == 0) continue;
    leaving_.start(*share_.devices, copy.leaving, parts_[copy.part].mark,
                   {.to = copy.outside, .from = room_ + copy.offset, .bytes = copy.bytes});
  }
}

Status StagedSlices::lay_out_all(const Call& call, std::vector<ByteRange>* borrowed) {
  coalesced_.start(call.registry.size());
  for (size_t i = 0; i < call.slices.size(); ++i) {
    coalesced_.see(call.slices[i], call.checks.dtype_of_slice(call.slices[i]));
    const Status laid_out = lay_out_one(call, i);
    if (laid_out.ok()) continue;
    const uint32_t variable = call.slices[i].variable;
    return laid_out
        .prefixed(std::string(name_of_call(call.kind)) + ", slice " + std::to_string(i) +
                  " (variable '" + call.registry[variable].name + "'): ")
        .about_slice(i)
        .about_variable(variable);
  }
  coalesced_.settle(share_, call.counts, &copies_);
  for (const CoalescedSlices::Kept& each : coalesced_.kept()) {
    StagedCopy& values = copies_[each.copy];
    if (!arriving_.are_many(values.bytes)) continue;
    const uint64_t row_bytes = call.registry[call.slices[each.at].variable].row_elements *
                               bytes_of_dtype(coalesced_.dtypes()[each.at]);
    values.arriving = arriving_.add(each.at, values.part, row_bytes);
  }
  const Status room = take_room(call);
  if (!room.ok()) {
    return room.prefixed(std::string(name_of_call(call.kind)) + ": its slices need ");
  }
  place(call.slices);
  start_leaving();
  arriving_.reserve(coalesced_.count());
  brought_.reserve(coalesced_.count());
  batch_.reserve(std::max(copies_.size() + leaving_.most_copies(), coalesced_.most_copies()));
  borrowed->insert(borrowed->end(), left_.begin(), left_.end());
  for (const StagedCopy& copy : copies_) {
    borrowed->push_back(ByteRange::at(copy.outside, copy.bytes));
  }
  coalesced_.borrow(borrowed);
  return {};
}

Status StagedSlices::lay_out(const DeviceShare& share, const Call& call,
                             std::vector<ByteRange>* borrowed) {
  share_ = share;
  host_.assign(call.slices.begin(), call.slices.end());
  from_tables_.assign(call.slices.size(), 0);
  arriving_.begin(call.slices.size(), share.arriving_piece_bytes);
  leaving_.begin(call.slices.size(), share.arriving_piece_bytes);
  Status status;
  try {
    status = lay_out_all(call, borrowed);
  } catch (...) {
    release();
    throw;
  }
  if (!status.ok()) release();
  return status;
}

}  // namespace parallax
