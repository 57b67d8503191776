// SPDX-License-Identifier: Apache-2.0
// RowColumns: which column a row of a variable belongs to: that of its owner, by hash, or by ranges
// of row keys, where rows are made dense. And whether the row keys that come in a section are of
// rows that there are, and belong there. A view; its references outlive it. Any thread.
#ifndef PARALLAX_COLLECTIVES_ROW_COLUMNS_H_
#define PARALLAX_COLLECTIVES_ROW_COLUMNS_H_

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>

#include "message/wire.h"
#include "variable/partition.h"
#include "world/patterns.h"

namespace parallax {

// True if a section holds `count` rows, or row keys, that all exist and are of one group, which
// groups.find() says of some row keys at a time.
template <typename Groups>
bool row_keys_fit(const Partition& partition, const Section& section, const Groups& groups,
                  uint32_t group) {
  const uint32_t count = section.header.count;
  if (section.payload.size() < sizeof(uint32_t) * count) return false;
  std::array<uint32_t, kKeysTogether> row_keys, found;
  for (uint32_t first = 0; first < count; first += kKeysTogether) {
    const uint32_t some = std::min<uint32_t>(count - first, kKeysTogether);
    // By memcpy: messages promise no alignment.
    std::memcpy(row_keys.data(), section.payload.data() + sizeof(uint32_t) * first,
                sizeof(uint32_t) * some);
    if (*std::max_element(row_keys.begin(), row_keys.begin() + some) >= partition.rows()) {
      return false;
    }
    groups.find(row_keys.data(), some, found.data());
    const bool fit = std::all_of(found.begin(), found.begin() + some,
                                 [group](uint32_t each) { return each == group; });
    if (!fit) return false;
  }
  return true;
}

// The groups of which are owners.
struct RowOwners {
  const Partition& partition;

  void find(const uint32_t* row_keys, uint32_t count, uint32_t* owners) const {
    partition.owners_of(row_keys, count, owners);
  }
};

class RowColumns {
 public:
  enum class Owners : uint8_t { kHashed, kRanges };

  RowColumns(const Columns& columns, const Partition& partition, Owners owners)
      : columns_(columns), partition_(partition), owners_(owners) {}

  uint32_t of(uint32_t row_key) const {
    return columns_.column_of(owners_ == Owners::kRanges ? partition_.range_owner_of(row_key)
                                                         : partition_.owner_of(row_key));
  }
  // The same of `count` row keys.
  void find(const uint32_t* row_keys, uint32_t count, uint32_t* columns) const {
    if (owners_ == Owners::kHashed) {
      return partition_.look_up_owners(
          row_keys, count,
          [column_of = columns_.columns_of_owners()](uint32_t owner) { return column_of[owner]; },
          columns);
    }
    for (uint32_t i = 0; i < count; ++i) columns[i] = of(row_keys[i]);
  }

  // It owns something.
  bool active(uint32_t owner) const {
    return owners_ == Owners::kRanges ? partition_.range_of(owner).count > 0
                                      : partition_.rows_owned(owner) > 0;
  }
  // Rows of a column.
  uint64_t rows_of(uint32_t column) const {
    uint64_t rows = 0;
    for (const uint32_t owner : columns_.owners(column)) {
      rows += owners_ == Owners::kRanges
                  ? partition_.range_of(owner).count / partition_.row_elements()
                  : partition_.rows_owned(owner);
    }
    return rows;
  }

 private:
  const Columns& columns_;
  const Partition& partition_;
  const Owners owners_;
};

}  // namespace parallax

#endif  // PARALLAX_COLLECTIVES_ROW_COLUMNS_H_
