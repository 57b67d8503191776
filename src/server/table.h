// SPDX-License-Identifier: Apache-2.0
// Table: the values and the optimizer state of one managed variable that this rank holds: its shard
// of a sharded one, or all of a mirrored one. Rows of a variable with ids lie by row key
// (mirrored) or by local row (sharded); a dense variable's elements lie as they are. All of it is
// of the variable's sum type (number.h): a variable of f16 or bf16 has a float master. Where the
// variable names a narrower type (storage_dtype) values are kept in that (StoredValues), and states
// as they are. Owned by the engine's owner, except while an update runs as a job.
//
// A table on a device (Variable::table_memory) has a store instead of arrays: then what reads or
// updates is asked of the store, which answers later, and what is written goes there.
#ifndef PARALLAX_SERVER_TABLE_H_
#define PARALLAX_SERVER_TABLE_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "aggregate/reduced_gradient.h"
#include "base/arena.h"
#include "base/byte_range.h"
#include "base/number.h"
#include "message/wire.h"
#include "server/device_table.h"
#include "server/rule_blocks.h"
#include "server/stored_values.h"
#include "server/update_counts.h"
#include "server/update_rules.h"
#include "variable/partition.h"
#include "variable/variable.h"

namespace parallax {

// Before the values of a shard that neighbours read: odd while they are being written, and another
// number once they were. Who has read looks at it again.
using TableMark = std::atomic<uint32_t>;
static_assert(TableMark::is_always_lock_free);

// Where such a shard is to lie: in pages of its own, or in `pool`, which has room for
// shared_bytes().
struct SharedPages {
  Arena* pool = nullptr;
};

class Table {
 public:
  Table(const Variable& variable, const Partition& partition, uint32_t rank, bool sharded);

  bool sharded() const { return sharded_; }
  size_t needed_bytes() const;
  // Reserves the memory: of the share's device at that place, where the table lies on one. LIMIT;
  // UNSUPPORTED and IO say what of the device is missing.
  // A shard of rows in host memory may lie where the host's ranks can map it to read.
  Status reserve(const DeviceShare& share = {}, uint32_t place = 0,
                 const SharedPages* shared = nullptr);
  // Null: what lies here is in host memory.
  DeviceTable* device() const { return device_.get(); }
  DeviceStore* store() const { return device_ == nullptr ? nullptr : device_->store(); }
  const Arena& arena() const { return arena_; }
  // Fills in initial values: about so many elements, by which it lessens `elements_left`, so that
  // leases are kept meanwhile. True when all are there.
  [[nodiscard]] bool initialize(uint64_t* elements_left);
  // Initial values that come from elsewhere: elements of the variable from `first` on, row-major,
  // within it, of the sum type. Those that lie here are copied.
  void take_values(uint64_t first, std::span<const std::byte> values);

  // Applies a step's reduced gradient: owned (sharded) or whole (mirrored). with.updates is the
  // table's own to fill in. What a rule of the caller's own answered: not 0 where it failed, and
  // then it is applied in part.
  int apply(const ReducedGradient& gradient, const UpdateArguments& with);
  // Of a table on a device: begins it. The gradient stays until *left is lessened, which is raised
  // by one if there is something to apply.
  void start_apply(const ReducedGradient& gradient, const UpdateArguments& with, uint32_t* left);
  // apply() counts; what comes from elsewhere is set.
  UpdateCounts& updates() { return updates_; }
  const UpdateCounts& updates() const { return updates_; }

  // Values; with ids: where a row key's row lies here.
  const std::byte* row(uint32_t row_key) const { return row_at(0, row_of(row_key)); }
  uint64_t row_of(uint32_t row_key) const {
    return sharded_ ? partition_.local_row(row_key) : row_key;
  }
  // Dense: element `at` of the flattened variable; sharded: must lie in the range owned.
  const std::byte* element(uint64_t at) const { return element_at(0, at); }

  // The arrays: 0 is the value, those after it the rule's state.
  uint32_t array_count() const { return array_count_; }
  // Elements of the array for each row.
  uint64_t array_width(uint32_t array) const { return widths_[array]; }
  // Dense: where the element `at` of the value has its own in the array. Of an array of another
  // width (a rule of the caller's own) that is known of whole rows alone.
  uint64_t place_in(uint32_t array, uint64_t at) const {
    return widths_[array] == row_elements() ? at : at / row_elements() * widths_[array];
  }
  Range place_in(uint32_t array, const Range& range) const {
    return {place_in(array, range.first), place_in(array, range.count)};
  }
  std::span<std::byte> array(uint32_t array) { return arrays_[array]; }
  std::span<const std::byte> array(uint32_t array) const { return arrays_[array]; }
  const std::byte* row_at(uint32_t array, uint64_t row_here) const {
    return &arrays_[array][row_here * array_width(array) * bytes_of_dtype(dtype(array))];
  }
  // `at` counts in the array.
  const std::byte* element_at(uint32_t array, uint64_t at) const {
    return &arrays_[array][(at - place_in(array, first_element_)) * bytes_of_dtype(dtype(array))];
  }
  SumType sum_type() const { return sum_; }
  // Of an element of the array: the sum type's dtype, or a narrower one of values alone.
  uint32_t dtype(uint32_t array) const { return array == 0 ? value_dtype_ : dtype_of(sum_); }
  uint64_t row_elements() const { return partition_.row_elements(); }
  const Partition& partition() const { return partition_; }
  // Elements of an array that an owner of a sharded table holds.
  uint64_t owned_elements(uint32_t owner, uint32_t array) const;

  // For moving between placements. Mirrored: copies a piece of an owner's shard, from its element
  // `first` on, to where it belongs here; false if it does not fit.
  [[nodiscard]] bool place_part(uint32_t array, uint32_t owner, uint64_t first,
                                std::span<const std::byte> part);
  // Elements from the wire, into rows that lie here; false if they do not fit, and then nothing was
  // written. The section's `part` is the number of an array that there is.
  [[nodiscard]] bool write_section(const Section& section);
  // Sharded: copies this rank's shard out of a mirror.
  void take_own_part(const Table& mirror);

 private:
  uint64_t element_count(uint32_t array) const;
  // Where element `at` of an owner's shard lies in a mirror.
  uint64_t place_of(uint32_t array, uint32_t owner, uint64_t at) const;
  // How many elements from there on lie next to each other in a mirror too.
  uint64_t run_at(uint32_t array, uint64_t at) const {
    return partition_.ids_declared() ? array_width(array) - at % array_width(array) : UINT64_MAX;
  }
  uint64_t row_here(uint64_t at) const;
  template <typename T>
  void initialize_as(uint64_t first, uint64_t end);
  template <typename T>
  void fill_values(uint64_t first, uint64_t end, T* out) const;
  void initialize_on_device(uint64_t first, uint64_t end);
  int apply_own(const ReducedGradient& gradient, const UpdateArguments& with);
  template <typename T, typename Values, typename Rule>
  void apply_as(const ReducedGradient& gradient, const UpdateArguments& with, const Rule& rule,
                Values& values);

  const Variable& variable_;
  const Partition& partition_;
  const SumType sum_;
  const uint32_t value_dtype_;
  const uint32_t rank_;
  const bool sharded_;
  std::array<uint64_t, 1 + kStatesMax> widths_ = {};
  uint32_t array_count_ = 1;
  uint64_t first_element_ = 0;
  uint64_t initialized_ = 0;  // elements
  UpdateCounts updates_;
  std::vector<AdamTime> adam_times_;  // by fused table
  Arena arena_;
  TableMark* mark_ = nullptr;  // null: nobody else reads what lies here
  std::array<std::span<std::byte>, 1 + kStatesMax> arrays_;
  std::unique_ptr<DeviceTable> device_;   // null: in host memory
  std::unique_ptr<RuleBlocks> own_rule_;  // null: the library's
  std::unique_ptr<StoredValues> stored_;  // null: values are kept as they are updated
};

inline size_t shared_bytes(const Table& table) {
  return table.needed_bytes() + Arena::bytes_for<TableMark>(1);
}
// What neighbours read of a shard, if it lies where they can: its mark, and behind it the values.
inline ByteRange shared_range(const Table& table) {
  ByteRange range = ByteRange::at(table.array(0).data(), table.array(0).size());
  range.first -= kArenaAlignmentBytes;
  range.bytes += kArenaAlignmentBytes;
  return range;
}

}  // namespace parallax

#endif  // PARALLAX_SERVER_TABLE_H_
