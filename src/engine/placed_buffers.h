// SPDX-License-Identifier: Apache-2.0
// PlacedBuffers: the buffers that places of a commit's variables lie in on this rank, in the order
// in which the variables come to them, which have one order on every rank; what the rank says of
// them (PlaceTerms), and which become windows once all have spoken. A plain value.
#ifndef PARALLAX_ENGINE_PLACED_BUFFERS_H_
#define PARALLAX_ENGINE_PLACED_BUFFERS_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/byte_range.h"
#include "engine/place_terms.h"
#include "variable/variable.h"

namespace parallax {

class PlacedBuffers {
 public:
  PlacedBuffers() = default;
  // Of variables that devices may sum, by ascending number; those without a place are passed over.
  // `earlier`: of earlier commits, with which no buffer becomes a window any more.
  explicit PlacedBuffers(std::span<const Variable* const> variables,
                         std::span<const Variable* const> earlier = {});

  // The device that the first of them lies on; `otherwise`: there is none.
  uint32_t device(uint32_t otherwise) const {
    return buffers_.empty() ? otherwise : buffers_.front().memory.device;
  }
  // Of a rank that takes part with that device.
  PlaceTerms terms(uint32_t rank, uint32_t device) const;

  // As agreed: the memory of this rank's that is registered, in the order of all.
  std::vector<ByteRange> windows(const PlaceTerms& agreed) const;
  // How many ends of the variable's place lie in these: with both NCCL sums it there; with one it
  // goes its usual way, from there or to there on every rank.
  size_t ends_in_windows(const Variable& variable, const PlaceTerms& agreed) const;

 private:
  struct Buffer {
    DeviceBuffer memory;
    std::string contents;  // what its print is of
    bool earlier = false;  // a place of an earlier commit lies in it
  };

  size_t index_of(const DeviceBuffer& memory) const;

  std::vector<Buffer> buffers_;
};

}  // namespace parallax

#endif  // PARALLAX_ENGINE_PLACED_BUFFERS_H_
