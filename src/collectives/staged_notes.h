// SPDX-License-Identifier: Apache-2.0
// StagedNotes: where the ranks of a host have the rows that they push, as they say it: the distinct
// rows in a block of HostStaging, or those of them that come more often, and the others in the
// slice itself, where that lies in memory which all read. Nothing of what a note says, nor of what
// lies there, is believed: numbers are checked as the note comes, and row keys and places as they
// are read. Of one variable. Engine's owner only.
#ifndef PARALLAX_COLLECTIVES_STAGED_NOTES_H_
#define PARALLAX_COLLECTIVES_STAGED_NOTES_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "aggregate/row_coalescer.h"
#include "aggregate/row_slice.h"
#include "base/prefetch.h"
#include "collectives/exchange.h"
#include "collectives/host_staging.h"
#include "message/lending.h"
#include "variable/partition.h"
#include "world/patterns.h"

namespace parallax {

// The payload of a section of leg 1 that tells where a rank's rows lie (Encoding::kBytes).
struct StagedNote {
  BufferPlace block;   // in no buffer: of this rank itself
  BufferPlace slice;   // the first of slice_rows rows; likewise
  uint32_t rows = 0;   // of the block, as RowCoalescer has it
  uint32_t items = 0;  // of it
  uint32_t first = 0;  // of these those of this column
  uint32_t count = 0;
  uint32_t slice_rows = 0;  // that items may lie in; 0: none does
  uint32_t unused = 0;
};
static_assert(sizeof(StagedNote) == 56);

// What a note tells of, where it is read.
struct StagedRows {
  const std::byte* block = nullptr;
  const std::byte* slice = nullptr;  // null: it tells of none
};

class StagedNotes {
 public:
  // All outlive this object. `row_bytes`: of a sum.
  StagedNotes(const Columns& columns, const Partition& partition, const Lending& lending,
              const ExchangeOptions& options, uint64_t row_bytes)
      : columns_(columns),
        partition_(partition),
        lending_(lending),
        options_(options),
        row_bytes_(row_bytes) {}

  // These ranks, of the one host that there is, read this slice as it lies, as well as the block,
  // and go on with rows that stay there.
  bool reads_slice(const RowSlice& slice, const std::vector<uint32_t>& readers) const;
  // What it is told of what was coalesced: of the rows of a column, in the block of that step.
  // `slice_rows`: of the slice, which begins there, that items may lie in. In no buffer: that rank
  // reads nothing here.
  StagedNote note_to(uint32_t rank, const RowCoalescer& rows, uint32_t column, uint64_t step,
                     const std::byte* slice, uint32_t slice_rows) const;

  // It may be that of another rank.
  bool fits(uint32_t from, const StagedNote& note) const;
  // Where another rank's is read, which a step leans on where its rows stay. False: it is not
  // mapped here any more.
  bool find(uint32_t rank, const StagedNote& note, uint64_t step, StagedRows* there) const;
  // Where `count` items lie, kRowsTogether at most, from that one on of those of the column, and
  // their row keys. False: not what may lie there. `belong` says so of row keys that exist, and
  // their number.
  template <typename Belong>
  bool read(const StagedNote& note, const StagedRows& there, uint32_t from, uint32_t count,
            Belong belong, uint32_t* row_keys, const std::byte** rows) const;

 private:
  bool is_there(uint32_t from, const BufferPlace& place, uint64_t bytes) const;
  uint64_t block_bytes(const StagedNote& note) const {
    return RowCoalescer::block_bytes(note.rows, row_bytes_, note.items);
  }

  const Columns& columns_;
  const Partition& partition_;
  const Lending& lending_;
  const ExchangeOptions& options_;
  const uint64_t row_bytes_;
};

template <typename Belong>
bool StagedNotes::read(const StagedNote& note, const StagedRows& there, uint32_t from,
                       uint32_t count, Belong belong, uint32_t* row_keys,
                       const std::byte** rows) const {
  const std::byte* const row_keys_there = there.block + note.rows * row_bytes_;
  const uint64_t at = uint64_t{note.first} + from;
  std::array<uint32_t, kRowsTogether> places;
  // Copied before they are looked at: their owner may write there whatever it likes.
  std::memcpy(row_keys, row_keys_there + at * sizeof(uint32_t), count * sizeof(uint32_t));
  std::memcpy(places.data(), row_keys_there + (note.items + at) * sizeof(uint32_t),
              count * sizeof(uint32_t));
  uint32_t misfits = 0;
  for (uint32_t i = 0; i < count; ++i) {
    const bool in_slice = places[i] >= RowsInPlace::kInSlice;
    const uint32_t row = places[i] & ~RowsInPlace::kInSlice;
    misfits += row_keys[i] >= partition_.rows() ? 1 : 0;
    const bool is_there = row < (in_slice ? note.slice_rows : note.rows);
    misfits += is_there ? 0 : 1;
    rows[i] = (in_slice ? there.slice : there.block) + (is_there ? row : 0) * row_bytes_;
    prefetch_row(rows[i], row_bytes_);
  }
  return misfits == 0 && belong(row_keys, count);
}

}  // namespace parallax

#endif  // PARALLAX_COLLECTIVES_STAGED_NOTES_H_
