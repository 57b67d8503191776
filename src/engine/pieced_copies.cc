// SPDX-License-Identifier: Apache-2.0
// Pieces in turn. See pieced_copies.h.
#include "engine/pieced_copies.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <span>

#include "base/check.h"

namespace parallax {

// ---- the blocks

Status PinnedPieces::join(PinnedPool& pool) {
  if (calls_ == 0) {
    piece_bytes_ = kPieceBytes;
    Status first = pool.take(piece_bytes_, &pieces_[0].block);
    while (!first.ok() && piece_bytes_ > BlockPool::kSmallestBytes) {
      piece_bytes_ = std::max(piece_bytes_ / 4, BlockPool::kSmallestBytes);
      first = pool.take(piece_bytes_, &pieces_[0].block);
    }
    if (!first.ok()) return first;
    for (size_t i = 1; i < kPieces; ++i) {
      if (!pool.take(piece_bytes_, &pieces_[i].block).ok()) break;
    }
  }
  ++calls_;
  return {};
}

void PinnedPieces::leave(PinnedPool& pool) {
  if (--calls_ > 0) return;
  for (Piece& each : pieces_) {
    PARALLAX_CHECK(!each.used);
    pool.give_back(each.block);
    each = {};
  }
}

std::byte* PinnedPieces::take() {
  for (Piece& each : pieces_) {
    if (each.block.memory == nullptr || each.used) continue;
    each.used = true;
    return each.block.memory;
  }
  wanted_ = true;
  came_back_ = false;
  return nullptr;
}

void PinnedPieces::give_back(std::byte* piece) {
  for (Piece& each : pieces_) {
    if (each.block.memory == piece) each.used = false;
  }
  came_back_ = true;
}

void PinnedPieces::abandon(PinnedPool& pool, std::byte* piece) {
  for (Piece& each : pieces_) {
    if (each.block.memory != piece) continue;
    pool.abandon(each.block);
    each = {};
  }
}

bool PinnedPieces::may_ask_again() {
  if (!wanted_ || !came_back_) return false;
  wanted_ = came_back_ = false;
  return true;
}

// ---- copies

void PiecedCopies::start(Devices& devices, PinnedPieces& pieces, CopyDirection direction,
                         size_t most) {
  devices_ = &devices;
  pieces_ = &pieces;
  direction_ = direction;
  left_.reserve(most);
}

// The next piece of what is left.
Status PiecedCopies::begin_one(std::byte* piece) {
  Left& next = left_.front();
  const bool in = direction_ == CopyDirection::kToHost;
  const uint64_t bytes = std::min(next.copy.bytes, pieces_->piece_bytes());
  Begun begun = {.piece = piece,
                 .host = in ? next.copy.to : const_cast<std::byte*>(next.copy.from),
                 .bytes = bytes,
                 .here = next.here};
  if (!in) std::memcpy(piece, begun.host, bytes);
  const DeviceCopy copy = {
      .to = in ? piece : next.copy.to, .from = in ? next.copy.from : piece, .bytes = bytes};
  PARALLAX_RETURN_IF_ERROR(
      devices_->copy(direction_, next.mark, std::span(&copy, 1), &begun.batch));
  all_[begun_++] = begun;
  next.copy.to += bytes;
  next.copy.from += bytes;
  next.copy.bytes -= bytes;
  if (next.copy.bytes == 0) left_.erase(left_.begin());
  return {};
}

void PiecedCopies::advance(Status* status) noexcept {
  for (size_t i = 0; i < begun_;) {
    Begun& each = all_[i];
    // What has come is told front to back: one that ended since the one before it was asked waits.
    const auto before = [&each](const Begun& other) { return other.here == each.here; };
    if (each.here != nullptr && std::any_of(all_.begin(), all_.begin() + i, before)) {
      ++i;
      continue;
    }
    bool ended = false;
    const Status polled = devices_->poll(each.batch, &ended);
    if (!polled.ok() && status->ok()) *status = polled;
    if (!ended) {
      ++i;
      continue;
    }
    const bool here = polled.ok() && direction_ == CopyDirection::kToHost;
    if (here) std::memcpy(each.host, each.piece, each.bytes);
    if (here && each.here != nullptr) *each.here += each.bytes;
    pieces_->give_back(each.piece);
    std::move(all_.begin() + static_cast<std::ptrdiff_t>(i) + 1,
              all_.begin() + static_cast<std::ptrdiff_t>(begun_),
              all_.begin() + static_cast<std::ptrdiff_t>(i));
    --begun_;
  }
  if (!status->ok()) stop();
  while (!left_.empty() && begun_ < all_.size()) {
    std::byte* const piece = pieces_->take();
    if (piece == nullptr) return;
    Status begun;
    try {
      begun = begin_one(piece);
    } catch (const std::bad_alloc&) {
      begun = Status::out_of_memory();
    }
    if (begun.ok()) continue;
    pieces_->give_back(piece);
    *status = begun;
    stop();
  }
}

void PiecedCopies::end(PinnedPool& pool) {
  stop();
  for (size_t i = 0; i < begun_; ++i) pieces_->abandon(pool, all_[i].piece);
  begun_ = 0;
}

}  // namespace parallax
