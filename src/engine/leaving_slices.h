// SPDX-License-Identifier: Apache-2.0
// LeavingSlices: the results of one call that are copied to their devices while the rest of them is
// written: in pieces, each of which begins once all of it is as it will be. What has not begun when
// the result is whole goes with the last copies of the call. Engine's owner only; nothing blocks.
#ifndef PARALLAX_ENGINE_LEAVING_SLICES_H_
#define PARALLAX_ENGINE_LEAVING_SLICES_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/leaving_elements.h"
#include "base/status.h"
#include "device/devices.h"

namespace parallax {

class LeavingSlices {
 public:
  static constexpr uint64_t kPiecesMax = 16;  // of a slice

  // A call of so many slices is laid out.
  void begin(size_t slices, uint64_t piece_bytes);
  // Whether a result of so many bytes is worth it.
  bool are_many(uint64_t bytes) const { return piece_bytes_ > 0 && bytes >= 2 * piece_bytes_; }
  // Slice `at` of the call, whose elements, or rows, have so many bytes; its number, from 1 on.
  uint32_t add(size_t at, uint64_t element_bytes);
  // Where it is written, and goes behind the mark. Room for its pieces is taken.
  void start(Devices& devices, uint32_t number, DeviceMark mark, const DeviceCopy& copy);
  // By slice of the call; null: it is none of these. Empty: there are none.
  std::span<LeavingElements* const> of_slices() const { return of_slices_; }

  // From here on nothing begins. What has not of a number is added to `copies`, in few.
  void close() { closed_ = true; }
  bool closed() const { return closed_; }
  void add_rest(uint32_t number, std::vector<DeviceCopy>* copies) const;
  // The most that add_rest() adds, of all.
  size_t most_copies() const { return all_.size() * kPiecesMax; }
  // What kept a piece from beginning.
  const Status& status() const { return status_; }

  // Notes which pieces have ended; *status becomes the first failure.
  void poll(Devices& devices, Status* status);
  bool under_way() const { return left_ > 0; }
  // Makes a stream wait for those that are under way. IO.
  Status follow(Devices& devices, uint32_t device, void* stream) const;
  // Nothing is under way, or a device does not end.
  void clear();

 private:
  struct Piece {
    uint64_t left = 0;  // bytes that are not there yet
    DeviceBatch batch = 0;
    bool begun = false;
  };
  struct Leaving {
    LeavingElements elements;
    uint64_t element_bytes = 1;
    DeviceMark mark = 0;
    DeviceCopy copy;
    uint64_t piece_bytes = 1;
    std::vector<Piece> pieces;
  };

  static DeviceCopy copy_of(const Leaving& of, size_t piece);
  void there(Leaving& of, uint64_t first, uint64_t count) noexcept;
  Status begin_piece(const Leaving& of, size_t piece, DeviceBatch* batch) noexcept;

  Devices* devices_ = nullptr;
  std::vector<std::unique_ptr<Leaving>> all_;  // who writes them has their addresses
  size_t slices_ = 0;
  std::vector<LeavingElements*> of_slices_;
  uint64_t piece_bytes_ = 0;
  size_t left_ = 0;  // pieces that are under way
  bool closed_ = false;
  Status status_;
};

}  // namespace parallax

#endif  // PARALLAX_ENGINE_LEAVING_SLICES_H_
