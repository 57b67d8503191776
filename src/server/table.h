// SPDX-License-Identifier: Apache-2.0
// Table: the values and the optimizer state of one managed variable that this rank holds: its part
// of a sharded one, or all of a mirrored one. Rows of a variable with ids lie by position
// (mirrored) or by local row (sharded); a dense variable's elements lie as they are. Owned by the
// engine's owner, except while an update runs as a job.
#ifndef PARALLAX_SERVER_TABLE_H_
#define PARALLAX_SERVER_TABLE_H_

#include <cstdint>
#include <span>

#include "base/arena.h"
#include "collectives/gradient_road.h"
#include "server/update_rules.h"
#include "variable/partition.h"
#include "variable/variable.h"

namespace parallax {

class Table {
 public:
  Table(const Variable& variable, const Partition& partition, uint32_t rank, bool sharded)
      : variable_(variable), partition_(partition), rank_(rank), sharded_(sharded) {}

  bool sharded() const { return sharded_; }
  size_t needed_bytes() const;
  // Reserves the memory. LIMIT.
  Status reserve();
  // Fills in initial values, about so many elements a call, so that leases are kept meanwhile. True
  // when all are there.
  [[nodiscard]] bool initialize(uint64_t elements_max);

  // The commit pass: applies a reduced gradient, owned (sharded) or whole (mirrored).
  void apply(const ReducedGradient& gradient, const UpdateArguments& with);

  // With ids: where a position's row lies here.
  const float* row(uint32_t position) const { return &values_[row_of(position) * row_elements()]; }
  const float* first_row() const { return values_.data(); }
  uint64_t row_of(uint32_t position) const {
    return sharded_ ? partition_.local_row(position) : position;
  }
  // Dense: element `at` of the flattened variable; sharded: must lie in the range owned.
  const float* element(uint64_t at) const { return &values_[at - first_element_]; }

  // For moving between placements: what lies here, from the first row or element on.
  std::span<float> values() { return values_; }
  std::span<float> state() { return state_; }
  // Mirrored: puts an owner's part, from its element `first` on, in its place in `into`.
  void place_part(uint32_t owner, uint64_t first, std::span<const float> part,
                  std::span<float> into) const;
  // The same from a message; false if it does not fit.
  [[nodiscard]] bool place_bytes(uint32_t owner, uint64_t first, std::span<const std::byte> part,
                                 std::span<float> into) const;
  // Sharded: takes this rank's part out of a mirror.
  void take_own_part(std::span<const float> mirror, std::span<float> into) const;
  uint64_t row_elements() const { return partition_.row_elements(); }

 private:
  uint64_t element_count() const;
  // Where element `at` of an owner's part lies in a mirror.
  uint64_t place_of(uint32_t owner, uint64_t at) const;

  const Variable& variable_;
  const Partition& partition_;
  const uint32_t rank_;
  const bool sharded_;
  uint64_t first_element_ = 0;
  uint64_t initialized_ = 0;  // elements
  Arena arena_;
  std::span<float> values_, state_;
};

}  // namespace parallax

#endif  // PARALLAX_SERVER_TABLE_H_
