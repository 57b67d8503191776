// SPDX-License-Identifier: Apache-2.0
// Pieces of gradients, as they come. See arriving_slices.h.
#include "engine/arriving_slices.h"

#include <algorithm>

namespace parallax {

namespace {

// Pieces begin at whole elements of every dtype, and at places that copy engines like.
constexpr uint64_t kPieceAlignment = 4096;

}  // namespace

void ArrivingSlices::begin(size_t slices, uint64_t piece_bytes) {
  slices_ = slices;
  piece_bytes_ = piece_bytes;
}

bool ArrivingSlices::may_add(const Variable& variable, std::span<const parallax_slice_t> slices,
                             size_t at) {
  const parallax_slice_t& slice = slices[at];
  if (variable.refuse_nonfinite || slice.more != 0) return false;
  return std::count_if(slices.begin(), slices.end(), [&slice](const parallax_slice_t& each) {
           return each.variable == slice.variable;
         }) == 1;
}

uint32_t ArrivingSlices::add(size_t at, size_t part, uint64_t element_bytes) {
  if (all_.empty()) of_slices_.assign(slices_, nullptr);
  Arriving& added = *all_.emplace_back(std::make_unique<Arriving>());
  added.part = part;
  added.element_bytes = element_bytes;
  of_slices_[at] = &added.elements;
  return static_cast<uint32_t>(all_.size());
}

Status ArrivingSlices::begin_copy(Devices& devices, DeviceMark mark, uint32_t number,
                                  const DeviceCopy& copy) {
  const uint64_t most = std::max(piece_bytes_, (copy.bytes + kPiecesMax - 1) / kPiecesMax);
  const uint64_t piece_bytes = (most + kPieceAlignment - 1) / kPieceAlignment * kPieceAlignment;
  for (uint64_t at = 0; at < copy.bytes; at += piece_bytes) {
    const DeviceCopy piece = {.to = copy.to + at,
                              .from = copy.from + at,
                              .bytes = std::min(piece_bytes, copy.bytes - at)};
    DeviceBatch batch = 0;
    PARALLAX_RETURN_IF_ERROR(
        devices.copy(CopyDirection::kToHost, mark, std::span(&piece, 1), &batch));
    pieces_.push_back({batch, number, piece.bytes});
    ++left_;
  }
  return {};
}

// Of one slice they end in their order, and one that has ended since the one before it was asked is
// found by the next look.
void ArrivingSlices::poll(Devices& devices, Status* status) {
  for (const auto& each : all_) each->behind = false;
  for (Piece& piece : pieces_) {
    Arriving& of = *all_[piece.number - 1];
    if (piece.batch == 0 || of.behind) continue;
    bool ended = false;
    const Status polled = devices.poll(piece.batch, &ended);
    if (!polled.ok() && status->ok()) *status = polled;
    of.failed = of.failed || !polled.ok();
    of.behind = !ended;
    if (!ended) continue;
    piece.batch = 0;
    --left_;
    if (!of.failed) of.here += piece.bytes;
  }
}

void ArrivingSlices::bring() {
  for (const auto& each : all_) each->elements.bring(each->here / each->element_bytes);
}

bool ArrivingSlices::begun() const {
  return std::all_of(all_.begin(), all_.end(), [this](const auto& one) {
    return std::any_of(all_.begin(), all_.end(), [&one](const auto& each) {
      return each->part == one->part && each->here > 0;
    });
  });
}

void ArrivingSlices::give_up() {
  for (const auto& each : all_) each->elements.give_up();
}

void ArrivingSlices::clear() {
  all_.clear();
  of_slices_.clear();
  pieces_.clear();
  left_ = 0;
}

}  // namespace parallax
