// SPDX-License-Identifier: Apache-2.0
// DeviceTable: what a rank holds of a managed variable in a device's memory, its shard or the
// whole: where in the store its rows and elements lie, and what is given to the store of them. Part
// of Table. With row ids a unit of the store is a row; without, an element, of which every state
// has one.
//
// Engine's owner only; what blocks is DeviceStore's.
#ifndef PARALLAX_SERVER_DEVICE_TABLE_H_
#define PARALLAX_SERVER_DEVICE_TABLE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "aggregate/reduced_gradient.h"
#include "base/status.h"
#include "device/device_share.h"
#include "server/device_store.h"
#include "variable/partition.h"
#include "variable/variable.h"

namespace parallax {

class DeviceTable {
 public:
  // The partition outlives this.
  DeviceTable(const Variable& variable, const Partition& partition, uint32_t rank, bool sharded);

  bool holds_nothing() const { return shape_.units == 0; }
  uint64_t needed_bytes() const { return DeviceStore::needed_bytes(shape_); }
  // Of the share's device at that place. UNSUPPORTED, LIMIT, IO.
  Status reserve(const DeviceShare& share, uint32_t place);
  // Once reserved.
  DeviceStore* store() const { return store_.get(); }

  // Whether initial values may come: else the device is behind, and is to be asked again.
  bool takes_values() const { return store_->backlog_bytes() < DeviceStore::kBacklogMax; }
  // Numbers of an array of what lies here, from its number `first` on: whole units.
  void write(uint32_t array, uint64_t first, std::vector<std::byte> numbers);
  // Elements of the variable from `first` on, piece after piece: those that lie here are taken.
  void take_values(uint64_t first, std::span<const std::byte> values);
  // A step's gradient, which stays until *left is back where it was.
  void apply(const ReducedGradient& gradient, const UpdateArguments& arguments, uint32_t* left);
  // Rows of the value by their ids: those that lie here.
  StoreUnits rows_by_ids(const RowIds& ids, uint64_t count) const {
    return {.count = count, .ids = ids, .keys = &partition_, .owner = sharded_ ? rank_ : kNoOwner};
  }
  // Whether all of the variable does.
  bool holds_all() const {
    return shape_.units == (partition_.ids_declared() ? partition_.rows() : partition_.elements());
  }
  // Without row ids: elements of an array from `first` on, which counts in the variable.
  StoreUnits elements_from(uint32_t array, uint64_t first, uint64_t count) const {
    return {.array = array, .first = first - first_element_, .count = count};
  }

 private:
  const Partition& partition_;
  const uint32_t rank_;
  const bool sharded_;
  uint64_t first_element_ = 0;
  DeviceStore::Shape shape_;
  std::unique_ptr<DeviceStore> store_;
  std::vector<std::byte> begun_row_;  // of take_values(): what has come of a row that is ours
};

}  // namespace parallax

#endif  // PARALLAX_SERVER_DEVICE_TABLE_H_
