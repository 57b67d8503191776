// SPDX-License-Identifier: Apache-2.0
// ArrivingSlices: the gradients of one call, elements or rows, that are used as they come from
// their devices: copied in pieces, each with an end of its own, so that what is here is summed and
// sent while the next piece is copied. A call has few pieces of each, whatever its size. Row ids
// are copied before, as a whole. Engine's owner only.
#ifndef PARALLAX_ENGINE_ARRIVING_SLICES_H_
#define PARALLAX_ENGINE_ARRIVING_SLICES_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/status.h"
#include "collectives/exchange.h"
#include "device/devices.h"
#include "variable/variable.h"

namespace parallax {

class ArrivingSlices {
 public:
  static constexpr uint64_t kPiecesMax = 16;  // of a slice

  // A call of so many slices is laid out.
  void begin(size_t slices, uint64_t piece_bytes);
  // Whether slice `at` can be one: it is all that its variable gets of the call, and the call has
  // nobody look at it as a whole first.
  static bool may_add(const Variable& variable, std::span<const parallax_slice_t> slices,
                      size_t at);
  // Whether so many bytes of it are worth it.
  bool are_many(uint64_t bytes) const { return piece_bytes_ > 0 && bytes >= 2 * piece_bytes_; }
  // Slice `at` of the call, of a part; its number, from 1 on. Its elements, or rows, have so many
  // bytes.
  uint32_t add(size_t at, size_t part, uint64_t element_bytes);
  bool any() const { return !all_.empty(); }
  // Room for the pieces of all, and of so many more, so that begin_copy() needs none.
  void reserve(size_t more = 0) { pieces_.reserve((all_.size() + more) * kPiecesMax); }

  // By slice of the call; null: it is not one of these.
  std::span<ArrivingElements* const> of_slices() const { return of_slices_; }
  // Begins the pieces of a copy to the host. Not OK: those that have begun are under way.
  Status begin_copy(Devices& devices, DeviceMark mark, uint32_t number, const DeviceCopy& copy);
  // What has come of it by other ways (PiecedCopies), which bring() tells then.
  uint64_t* here(uint32_t number) { return &all_[number - 1]->here; }

  // Notes which pieces have ended; *status becomes the first failure. Those behind a failed one
  // are not here.
  void poll(Devices& devices, Status* status);
  // Tells who reads them what is here.
  void bring();
  bool under_way() const { return left_ > 0; }
  // Of every part that has any, something is here: the part's stream has come to the call.
  bool begun() const;
  // Nobody reads them any more.
  void give_up();
  // Nothing is under way, or a device does not end.
  void clear();

 private:
  struct Arriving {
    ArrivingElements elements;
    size_t part = 0;
    uint64_t element_bytes = 1;
    uint64_t here = 0;    // bytes, from the first on
    bool behind = false;  // in this look: a piece of it is still under way
    bool failed = false;
  };
  struct Piece {
    DeviceBatch batch = 0;  // 0: it has ended
    uint32_t number = 0;
    uint64_t bytes = 0;
  };

  std::vector<std::unique_ptr<Arriving>> all_;  // who brings and who reads has their addresses
  size_t slices_ = 0;
  std::vector<ArrivingElements*> of_slices_;
  std::vector<Piece> pieces_;
  size_t left_ = 0;  // pieces that are under way
  uint64_t piece_bytes_ = 0;
};

}  // namespace parallax

#endif  // PARALLAX_ENGINE_ARRIVING_SLICES_H_
