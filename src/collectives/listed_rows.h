// SPDX-License-Identifier: Apache-2.0
// Listed rows: rows on their way to their owner that their host has pulled from it in the same step
// (PulledKeys). A section of them (Encoding::kListedRows) has no row keys: `first` is the place of
// its first row in the list of what was pulled, and the others are those that follow it there, or,
// where some were left out, those that have a bit. An owner has checked the row keys when it was
// asked.
//
// Pure; allocates nothing; any thread.
#ifndef PARALLAX_COLLECTIVES_LISTED_ROWS_H_
#define PARALLAX_COLLECTIVES_LISTED_ROWS_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "aggregate/row_scratch.h"
#include "message/wire.h"

namespace parallax {

// Of rows for one owner, each a row key and an item: puts those that were pulled first, in the
// order of `pulled`, and writes each one's place there over its row key; the others are behind
// them. Returns how many were pulled; 0 where telling which would take more than row keys do, or
// rows are few beside those that were pulled. Rows in the order of the pull, but for some here and
// there, are found by a walk along both. With a `scratch`, which is for where 4 bytes are worth 10
// ns, those of another order are found by its index.
uint32_t list_rows(std::span<const uint32_t> pulled, std::span<uint32_t> row_keys,
                   std::span<uint32_t> items, RowScratch* scratch);

// The row keys of a section of listed rows, and where its rows begin. False: it is malformed, or
// names rows that were not pulled. `row_keys` has room for all that can be of `pulled`.
[[nodiscard]] bool read_listed(const Section& section, size_t row_bytes,
                               std::span<const uint32_t> pulled, std::span<uint32_t> row_keys,
                               std::span<const std::byte>* rows);

}  // namespace parallax

#endif  // PARALLAX_COLLECTIVES_LISTED_ROWS_H_
