// SPDX-License-Identifier: Apache-2.0
// RowSlice: rows of a variable as a caller gives them, and as they are once duplicates are
// coalesced. Plain views of memory that somebody else owns; any thread may read them.
#ifndef PARALLAX_AGGREGATE_ROW_SLICE_H_
#define PARALLAX_AGGREGATE_ROW_SLICE_H_

#include <cstddef>
#include <cstdint>

#include "base/number.h"

namespace parallax {

inline constexpr int64_t kPaddingId = -1;

// The row ids of a slice, of either width; id -1 is padding. Both null: row i has id i, as in a
// dense slice.
struct RowIds {
  const int64_t* wide = nullptr;
  const int32_t* narrow = nullptr;
  // Of one of several tables whose rows lie one behind the other: what its ids begin at.
  uint32_t first = 0;
  int64_t at(uint64_t i) const {
    if (wide == nullptr && narrow == nullptr) return static_cast<int64_t>(i) + first;
    const int64_t id = wide != nullptr ? wide[i] : narrow[i];
    return id == kPaddingId ? id : id + first;
  }
};

// A slice's rows as the caller has them.
struct RowValues {
  const std::byte* rows = nullptr;  // null: ids alone
  uint32_t dtype = PARALLAX_F32;
};
struct RowSlice {
  RowIds ids;
  uint32_t count = 0;
  RowValues values;
};

// Rows that were coalesced before, as a block has them: item i has the row key row_keys[i], and is
// the order[i]-th of `rows`, of the sum type. No row key comes twice.
struct DistinctRows {
  const uint32_t* row_keys = nullptr;  // null: there are none
  const uint32_t* order = nullptr;
  const std::byte* rows = nullptr;
  uint32_t count = 0;
};

}  // namespace parallax

#endif  // PARALLAX_AGGREGATE_ROW_SLICE_H_
