// SPDX-License-Identifier: Apache-2.0
// RowChunks: how many rows a chunk has (chunked_rows.h) for the exchange of a variable to take no
// more memory than its ceiling in as few chunks as that allows, all about as wide. What counts is
// what is staged: sums of a host, totals over hosts, what is held back for its turn, a round's own
// rows or elements and what it delivers. A rank's slice, coalesced, and the rows of the result are
// there with any ceiling, and do not count.
//
// All ranks must cut alike, so the answer is of the rank that needs most, and of memory that none
// shares with others; it is a function of the variable and the hosts. It is found by measuring, no
// memory is reserved. Engine's owner only; some hundred exchanges are made and dropped.
#ifndef PARALLAX_COLLECTIVES_ROW_CHUNKS_H_
#define PARALLAX_COLLECTIVES_ROW_CHUNKS_H_

#include <cstdint>

#include "base/compute.h"
#include "collectives/exchange.h"
#include "message/outbox.h"
#include "variable/partition.h"
#include "world/patterns.h"

namespace parallax {

// Of a step: each costs some messages even where it has no rows, and a word of memory.
inline constexpr uint64_t kRowChunksMax = 4096;

struct RowChunks {
  uint64_t rows = 0;   // of a chunk; 0: all go at once
  uint64_t count = 1;  // chunks; 0: none are small enough
  uint64_t bytes = 0;  // that count, of the rank that needs most; where none fit, of the smallest
  bool fit() const { return count > 0; }
};

// By options.method, a method of rows that gives them back.
RowChunks find_row_chunks(const Columns& columns, const Partition& partition, Outbox& outbox,
                          Compute& compute, const ExchangeOptions& options, uint64_t bytes_max);

}  // namespace parallax

#endif  // PARALLAX_COLLECTIVES_ROW_CHUNKS_H_
