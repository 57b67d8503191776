// SPDX-License-Identifier: Apache-2.0
// PiecedCopies: copies between a device and ordinary host memory, in pieces through a few blocks of
// pinned memory that the calls of a group share (PinnedPieces): so a call needs no pinned memory of
// its size. While the device copies a piece, the one before it is copied by the host.
//
// A piece is taken once the stream has come to the call, and given back when its copy ends: none
// waits for a stream, or for another call, and whoever waits for a piece gets one.
//
// Engine's owner only, which copies up to all pieces in a look. Nothing blocks but pinned memory
// that has to be made.
#ifndef PARALLAX_ENGINE_PIECED_COPIES_H_
#define PARALLAX_ENGINE_PIECED_COPIES_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "device/device_share.h"

namespace parallax {

class PinnedPieces {
 public:
  static constexpr size_t kPieces = 4;
  static constexpr uint64_t kPieceBytes = uint64_t{1} << 20;  // or less, where less can be had

  // A call that is about to copy in pieces; they are there from the first to the last. LIMIT: there
  // is not even one.
  Status join(PinnedPool& pool);
  void leave(PinnedPool& pool);

  // Null: all are in use, and whoever asked is to ask again once may_ask_again().
  std::byte* take();
  void give_back(std::byte* piece);
  // A device may still write to it.
  void abandon(PinnedPool& pool, std::byte* piece);
  uint64_t piece_bytes() const { return piece_bytes_; }
  // One was asked for in vain, and one came back since; told once.
  bool may_ask_again();

 private:
  struct Piece {
    MemoryBlock block;
    bool used = false;
  };

  std::array<Piece, kPieces> pieces_ = {};
  uint64_t piece_bytes_ = 0;
  uint32_t calls_ = 0;
  bool wanted_ = false, came_back_ = false;
};

class PiecedCopies {
 public:
  // Both outlive the copies. Room for so many of them.
  void start(Devices& devices, PinnedPieces& pieces, CopyDirection direction, size_t most);
  // Behind a mark that was passed; all of one direction. *here grows by what has come of it, front
  // to back; null: nobody asks.
  void add(DeviceMark mark, const DeviceCopy& copy, uint64_t* here = nullptr) {
    left_.push_back({mark, copy, here});
  }
  // Moves on; *status becomes the first failure, and then no other piece is begun.
  void advance(Status* status) noexcept;
  // No other piece is begun.
  void stop() { left_.clear(); }
  bool under_way() const { return !left_.empty() || begun_ > 0; }
  // What a device may still write to is given up; else nothing is under way.
  void end(PinnedPool& pool);

 private:
  struct Left {
    DeviceMark mark = 0;
    DeviceCopy copy;  // what is left of it
    uint64_t* here = nullptr;
  };
  struct Begun {
    DeviceBatch batch = 0;
    std::byte* piece = nullptr;
    std::byte* host = nullptr;
    uint64_t bytes = 0;
    uint64_t* here = nullptr;
  };

  Status begin_one(std::byte* piece);

  Devices* devices_ = nullptr;
  PinnedPieces* pieces_ = nullptr;
  CopyDirection direction_ = CopyDirection::kToHost;
  std::vector<Left> left_;
  std::array<Begun, PinnedPieces::kPieces> all_ = {};  // the first begun_ of them, in their order
  size_t begun_ = 0;
};

}  // namespace parallax

#endif  // PARALLAX_ENGINE_PIECED_COPIES_H_
