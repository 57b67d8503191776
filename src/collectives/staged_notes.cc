// SPDX-License-Identifier: Apache-2.0
// What notes may say, and where that lies. See staged_notes.h.
#include "collectives/staged_notes.h"

#include <algorithm>

namespace parallax {

bool StagedNotes::reads_slice(const RowSlice& slice, const std::vector<uint32_t>& readers) const {
  const auto* const rows = slice.values.rows;
  const uint64_t bytes = slice.count * row_bytes_;
  if (!options_.rows_stay || options_.staging == nullptr || columns_.host_count() > 1 ||
      columns_.locals().size() == 1 || slice.count == 0 ||
      slice.values.dtype != dtype_of(options_.sum) || lending_.place_of(rows, bytes).buffer == 0 ||
      reinterpret_cast<uintptr_t>(rows) % bytes_of_sum(options_.sum) != 0) {
    return false;
  }
  return std::all_of(readers.begin(), readers.end(), [&](uint32_t rank) {
    return options_.staging->place_for(rank, options_.variable, 0).buffer != 0 &&
           lending_.place_for(rank, rows, bytes).buffer != 0;
  });
}

StagedNote StagedNotes::note_to(uint32_t rank, const RowCoalescer& rows, uint32_t column,
                                uint64_t step, const std::byte* slice, uint32_t slice_rows) const {
  StagedNote note = {.block = {},
                     .slice = {},
                     .rows = rows.block_rows(),
                     .items = rows.item_count(),
                     .first = rows.group_first(column),
                     .count = rows.group_count(column),
                     .slice_rows = slice_rows};
  if (rank == columns_.rank() || options_.staging == nullptr) return note;
  note.block = options_.staging->place_for(rank, options_.variable, step);
  if (slice_rows > 0) note.slice = lending_.place_of(slice, slice_rows * row_bytes_);
  return note;
}

bool StagedNotes::fits(uint32_t from, const StagedNote& note) const {
  const bool numbers_fit =
      note.items <= RowCoalescer::distinct_max(options_.rows_max, partition_) &&
      note.rows <= note.items && note.first <= note.items && note.count <= note.items - note.first;
  if (!numbers_fit || note.block.offset % kArenaAlignmentBytes != 0 ||
      !is_there(from, note.block, block_bytes(note))) {
    return false;
  }
  if (note.slice_rows == 0) return true;
  // Rows of others may stay in their slices though none stay here: then they are copied.
  return columns_.host_count() == 1 && note.slice_rows <= options_.rows_max &&
         note.slice.offset % bytes_of_sum(options_.sum) == 0 &&
         is_there(from, note.slice, note.slice_rows * row_bytes_);
}

// What is not mapped here can be that of a rank whose end is known already, and about to be told.
bool StagedNotes::is_there(uint32_t from, const BufferPlace& place, uint64_t bytes) const {
  return place.buffer != 0 && (lending_.find(from, place, bytes) != nullptr ||
                               (lending_.may_share() && !lending_.was_meant(from)));
}

bool StagedNotes::find(uint32_t rank, const StagedNote& note, uint64_t step,
                       StagedRows* there) const {
  there->block = lending_.find(rank, note.block, block_bytes(note));
  if (there->block == nullptr) return false;
  if (options_.rows_stay) options_.staging->lean_on(rank, note.block, there->block, step);
  if (note.slice_rows == 0) return true;
  there->slice = lending_.find(rank, note.slice, note.slice_rows * row_bytes_);
  if (there->slice == nullptr) return false;
  if (options_.rows_stay) options_.staging->lean_on(rank, note.slice, there->slice, step);
  return true;
}

}  // namespace parallax
