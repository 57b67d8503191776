// SPDX-License-Identifier: Apache-2.0
// Beginning and ending the copies of a call. See staged_slices.h.
#include <algorithm>
#include <new>
#include <utility>

#include "engine/staged_slices.h"

namespace parallax {

bool StagedSlices::copies(CopyDirection direction) const {
  return converted_.any() ||
         std::any_of(copies_.begin(), copies_.end(),
                     [direction](const StagedCopy& copy) { return copy.direction == direction; });
}

Status StagedSlices::begin_part(CopyDirection direction, size_t part) {
  batch_.clear();
  const bool in = direction == CopyDirection::kToHost;
  bool any = in && parts_[part].waits;
  for (const StagedCopy& copy : copies_) {
    if (copy.part != part || copy.direction != direction) continue;
    if (pieces_ == nullptr && copy.arriving != 0) continue;  // below
    any = true;
    if (pieces_ != nullptr) break;  // add_pieces() has them
    if (copy.leaving != 0) {
      leaving_.add_rest(copy.leaving, &batch_);
      continue;
    }
    std::byte* inside = room_ + copy.offset;
    batch_.push_back({.to = in ? inside : copy.outside,
                      .from = in ? copy.outside : inside,
                      .bytes = copy.bytes});
  }
  // A batch of no copies ends once the stream has come to the mark.
  const DeviceMark mark = parts_[part].mark;
  if (any) {
    PARALLAX_RETURN_IF_ERROR(share_.devices->copy(direction, mark, batch_, &parts_[part].batch));
  }
  for (const StagedCopy& copy : copies_) {
    if (copy.part != part || copy.arriving == 0 || !in || pieces_ != nullptr) continue;
    PARALLAX_RETURN_IF_ERROR(arriving_.begin_copy(*share_.devices, mark, copy.arriving,
                                                  {room_ + copy.offset, copy.outside, copy.bytes}));
  }
  return {};
}

Status StagedSlices::begin(CopyDirection direction) noexcept {
  if (direction == CopyDirection::kToDevice) {
    leaving_.close();
    PARALLAX_RETURN_IF_ERROR(leaving_.status());
  }
  try {
    if (pieces_ != nullptr) {
      pieced_direction_ = direction;
      others_ = {};
      pieced_.start(*share_.devices, *pieces_, direction,
                    copies_.size() + coalesced_.most_copies());
    }
    for (size_t i = 0; i < parts_.size(); ++i) {
      PARALLAX_RETURN_IF_ERROR(begin_part(direction, i));
      PARALLAX_RETURN_IF_ERROR(
          converted_.begin(*share_.devices, direction, i, parts_[i].mark, &parts_[i].converting));
      if (direction == CopyDirection::kToDevice) continue;
      PARALLAX_RETURN_IF_ERROR(
          coalesced_.begin(*share_.devices, i, parts_[i].mark, counts_, &parts_[i].coalescing));
    }
  } catch (const std::bad_alloc&) {
    return Status::out_of_memory();
  }
  return {};
}

// Its stream has come to the mark. What is used as it comes is behind the rest.
void StagedSlices::add_pieces(size_t part) {
  const bool in = pieced_direction_ == CopyDirection::kToHost;
  for (const bool arriving : {false, true}) {
    for (const StagedCopy& copy : copies_) {
      if (copy.part != part || copy.direction != pieced_direction_) continue;
      if (arriving != (copy.arriving != 0)) continue;
      std::byte* inside = room_ + copy.offset;
      add_pieces_of(part,
                    {.to = in ? inside : copy.outside,
                     .from = in ? copy.outside : inside,
                     .bytes = copy.bytes},
                    copy.arriving);
    }
  }
}

void StagedSlices::add_pieces_of(size_t part, const DeviceCopy& copy, uint32_t arriving) {
  if (arriving == 0) others_.bytes += copy.bytes;
  pieced_.add(parts_[part].mark, copy, arriving == 0 ? &others_.here : arriving_.here(arriving));
}

// The counts of what its device has coalesced are here. Room was taken before.
Status StagedSlices::begin_distinct(size_t part) noexcept {
  try {
    return begin_brought(part);
  } catch (const std::bad_alloc&) {
    return Status::out_of_memory();
  }
}

// Ids first: what has them is taken when some of its values are here.
Status StagedSlices::begin_brought(size_t part) {
  brought_.clear();
  coalesced_.bring(part, room_, host_, &brought_);
  const DeviceMark mark = parts_[part].mark;
  batch_.clear();
  for (CoalescedSlices::Brought& each : brought_) {
    each.may_arrive = each.may_arrive && arriving_.are_many(each.values.bytes);
    batch_.push_back(each.ids);
    if (!each.may_arrive) batch_.push_back(each.values);
  }
  if (pieces_ != nullptr) {
    for (const DeviceCopy& copy : batch_) add_pieces_of(part, copy, 0);
  } else if (!batch_.empty()) {
    PARALLAX_RETURN_IF_ERROR(
        share_.devices->copy(CopyDirection::kToHost, mark, batch_, &parts_[part].distinct));
  }
  for (const CoalescedSlices::Brought& each : brought_) {
    if (!each.may_arrive) continue;
    const uint32_t number = arriving_.add(each.at, part, each.row_bytes);
    if (pieces_ != nullptr) {
      add_pieces_of(part, each.values, number);
    } else {
      PARALLAX_RETURN_IF_ERROR(arriving_.begin_copy(*share_.devices, mark, number, each.values));
    }
  }
  return {};
}

// All but what is used as it comes is here, and something of that.
bool StagedSlices::may_go_ahead() const {
  return arriving_.any() && arriving_.begun() && others_.here == others_.bytes &&
         std::none_of(parts_.begin(), parts_.end(), [](const Part& part) {
           return part.batch != 0 || part.coalescing != 0 || part.distinct != 0 ||
                  part.converting != 0;
         });
}

// Whether it is over, which it is but once.
bool StagedSlices::poll(DeviceBatch* batch, Status* status) {
  bool ended = false;
  *status = share_.devices->poll(*batch, &ended);
  if (ended) *batch = 0;
  return ended;
}

bool StagedSlices::poll(Status* status, bool goes_on) {
  const auto note = [status](const Status& failed) {
    if (!failed.ok() && status->ok()) *status = failed;
  };
  for (size_t i = 0; i < parts_.size(); ++i) {
    Part& part = parts_[i];
    Status polled;
    if (part.batch != 0) {
      const bool over = poll(&part.batch, &polled);
      note(polled);
      if (over && polled.ok() && goes_on && pieces_ != nullptr) add_pieces(i);
    }
    for (DeviceBatch* each : {&part.distinct, &part.converting}) {
      if (*each == 0) continue;
      poll(each, &polled);
      note(polled);
    }
    if (part.coalescing == 0) continue;
    const bool over = poll(&part.coalescing, &polled);
    note(polled);
    if (over && polled.ok() && goes_on) note(begin_distinct(i));
  }
  if (pieces_ != nullptr) {
    if (!goes_on || !status->ok()) pieced_.stop();
    pieced_.advance(status);
  }
  if (leaving_.closed() && leaving_.under_way()) leaving_.poll(*share_.devices, status);
  // Of a call that only waits for its turn there are no devices.
  if (arriving_.under_way()) arriving_.poll(*share_.devices, status);
  if (status->ok() && goes_on) arriving_.bring();
  return !comes() && !(leaving_.closed() && leaving_.under_way());
}

bool StagedSlices::comes() const {
  return pieced_.under_way() || arriving_.under_way() ||
         std::any_of(parts_.begin(), parts_.end(), [](const Part& part) {
           return part.batch != 0 || part.coalescing != 0 || part.distinct != 0 ||
                  part.converting != 0;
         });
}

Status StagedSlices::follow(uint32_t device, void* stream) const {
  for (const Part& part : parts_) {
    for (const DeviceBatch each : {part.batch, part.converting}) {
      if (each != 0) PARALLAX_RETURN_IF_ERROR(share_.devices->follow(each, device, stream));
    }
  }
  if (leaving_.under_way()) return leaving_.follow(*share_.devices, device, stream);
  return {};
}

std::string StagedSlices::where() const {
  std::string text = parts_.size() > 1 ? "devices " : "device ";
  for (size_t i = 0; i < parts_.size(); ++i) {
    text += (i == 0 ? "" : ", ") + std::to_string(parts_[i].device);
  }
  return text;
}

void StagedSlices::release() {
  for (const Part& part : parts_) {
    if (part.mark != 0) share_.devices->release(part.mark);
  }
  coalesced_.release();
  converted_.release();
  arriving_.clear();
  leaving_.clear();
  if (pieces_ != nullptr) {
    pieced_.end(*share_.pinned);
    std::exchange(pieces_, nullptr)->leave(*share_.pinned);
  }
  for (MemoryBlock* each : {&block_, &counts_block_}) {
    if (each->memory != nullptr) share_.pinned->give_back(std::exchange(*each, {}));
  }
  room_ = counts_ = nullptr;
  block_bytes_ = 0;
  parts_.clear();
  copies_.clear();
  left_.clear();
  host_.clear();
}

void StagedSlices::abandon() {
  coalesced_.abandon();
  converted_.abandon();
  for (MemoryBlock* each : {&block_, &counts_block_}) {
    if (each->memory != nullptr) share_.pinned->abandon(std::exchange(*each, {}));
  }
  parts_.clear();
  release();
}

}  // namespace parallax
