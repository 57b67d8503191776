// SPDX-License-Identifier: Apache-2.0
// Pieces of results, as they are written. See leaving_slices.h.
#include "engine/leaving_slices.h"

#include <algorithm>
#include <new>

#include "base/check.h"

namespace parallax {

namespace {

// Pieces begin at places that copy engines like.
constexpr uint64_t kPlaceAlignment = 4096;

}  // namespace

void LeavingSlices::begin(size_t slices, uint64_t piece_bytes) {
  slices_ = slices;
  piece_bytes_ = piece_bytes;
}

uint32_t LeavingSlices::add(size_t at, uint64_t element_bytes) {
  if (all_.empty()) of_slices_.assign(slices_, nullptr);
  Leaving& added = *all_.emplace_back(std::make_unique<Leaving>());
  added.element_bytes = element_bytes;
  added.elements.there = [this, &added](uint64_t first, uint64_t count) {
    there(added, first, count);
  };
  of_slices_[at] = &added.elements;
  return static_cast<uint32_t>(all_.size());
}

void LeavingSlices::start(Devices& devices, uint32_t number, DeviceMark mark,
                          const DeviceCopy& copy) {
  devices_ = &devices;
  Leaving& of = *all_[number - 1];
  of.mark = mark;
  of.copy = copy;
  const uint64_t most = std::max(piece_bytes_, (copy.bytes + kPiecesMax - 1) / kPiecesMax);
  of.piece_bytes = (most + kPlaceAlignment - 1) / kPlaceAlignment * kPlaceAlignment;
  of.pieces.resize((copy.bytes + of.piece_bytes - 1) / of.piece_bytes);
  for (size_t i = 0; i < of.pieces.size(); ++i) of.pieces[i].left = copy_of(of, i).bytes;
}

DeviceCopy LeavingSlices::copy_of(const Leaving& of, size_t piece) {
  const uint64_t at = piece * of.piece_bytes;
  return {.to = of.copy.to + at,
          .from = of.copy.from + at,
          .bytes = std::min(of.piece_bytes, of.copy.bytes - at)};
}

// Called by whoever writes results, who has nothing to do with devices: what fails is told later.
void LeavingSlices::there(Leaving& of, uint64_t first, uint64_t count) noexcept {
  if (closed_ || !status_.ok()) return;
  uint64_t at = first * of.element_bytes;
  const uint64_t end = std::min((first + count) * of.element_bytes, of.copy.bytes);
  while (at < end) {
    const size_t i = at / of.piece_bytes;
    Piece& piece = of.pieces[i];
    const uint64_t bytes = std::min(end, (i + 1) * of.piece_bytes) - at;
    at += bytes;
    // Told twice it would leave too early.
    PARALLAX_CHECK(bytes <= piece.left);
    piece.left -= bytes;
    if (piece.left > 0) continue;
    status_ = begin_piece(of, i, &piece.batch);
    if (!status_.ok()) return;
    piece.begun = true;
    ++left_;
  }
}

Status LeavingSlices::begin_piece(const Leaving& of, size_t piece, DeviceBatch* batch) noexcept {
  try {
    const DeviceCopy copy = copy_of(of, piece);
    return devices_->copy(CopyDirection::kToDevice, of.mark, std::span(&copy, 1), batch);
  } catch (const std::bad_alloc&) {
    return Status::out_of_memory();
  }
}

// Neighbours go as one.
void LeavingSlices::add_rest(uint32_t number, std::vector<DeviceCopy>* copies) const {
  const Leaving& of = *all_[number - 1];
  bool behind = false;  // the one before it was added
  for (size_t i = 0; i < of.pieces.size(); ++i) {
    const bool rest = !of.pieces[i].begun;
    if (rest && behind) {
      copies->back().bytes += copy_of(of, i).bytes;
    } else if (rest) {
      copies->push_back(copy_of(of, i));
    }
    behind = rest;
  }
}

void LeavingSlices::poll(Devices& devices, Status* status) {
  for (const auto& of : all_) {
    for (Piece& piece : of->pieces) {
      if (piece.batch == 0) continue;
      bool ended = false;
      const Status polled = devices.poll(piece.batch, &ended);
      if (!polled.ok() && status->ok()) *status = polled;
      if (!ended) continue;
      piece.batch = 0;
      --left_;
    }
  }
}

Status LeavingSlices::follow(Devices& devices, uint32_t device, void* stream) const {
  for (const auto& of : all_) {
    for (const Piece& piece : of->pieces) {
      if (piece.batch != 0) PARALLAX_RETURN_IF_ERROR(devices.follow(piece.batch, device, stream));
    }
  }
  return {};
}

void LeavingSlices::clear() {
  all_.clear();
  of_slices_.clear();
  left_ = 0;
  closed_ = false;
  status_ = {};
}

}  // namespace parallax
