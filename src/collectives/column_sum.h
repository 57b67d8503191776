// SPDX-License-Identifier: Apache-2.0
// ColumnSum: the rows of one column that ranks of a host give in a step, summed at one of them: all
// of them at the column's leader; or, on a host of several NUMA nodes, those of each node at one of
// its ranks, who gives that sum to the leader (world/domain_columns.h).
//
// Rows come in messages and are added as they do; or a note comes that tells where they lie
// (staged_notes.h), which is read once all ranks that give have given or ended the step, in the
// order of the ranks: at once, or, where it is much, in turns as Lending has them. Nothing of a
// block is believed: each row key and place is copied, checked and then used.
//
// Part of HostRows, two of each for the two steps under way. Engine's owner only.
#ifndef PARALLAX_COLLECTIVES_COLUMN_SUM_H_
#define PARALLAX_COLLECTIVES_COLUMN_SUM_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "aggregate/accumulator.h"
#include "base/arena.h"
#include "collectives/exchange.h"
#include "collectives/row_columns.h"
#include "collectives/staged_notes.h"
#include "message/lending.h"
#include "message/wire.h"
#include "variable/partition.h"
#include "world/domain_columns.h"
#include "world/patterns.h"

namespace parallax {

class ColumnSum {
 public:
  // What the sums of a variable have in common. All of it outlives them.
  struct Variable {
    const Columns& columns;
    const Partition& partition;
    const RowColumns& row_columns;
    const ExchangeOptions& options;
    const StagedNotes& notes;
    Lending& lending;
    size_t row_bytes = 0;
    uint64_t item_bytes = 0;  // of a block: the row, its row key and its place
  };
  struct Shape {
    uint32_t column = 0;
    const RowGivers* givers = nullptr;  // outlives it; null: each rank of the host gives its own
    bool rows_stay = false;             // as RowAccumulatorOptions has it
  };
  enum class Turn : uint8_t { kDone, kMore, kGone };
  // Read at once, as much as a message may bring.
  static constexpr uint64_t kAtOnceBytes = 64 * 1024;

  void lay_out(Arena& arena, const Variable& variable, const Shape& shape);
  void open(uint64_t step);

  // A rank of the host that is awaited still. Any other may send nothing.
  bool awaits(uint32_t rank) const {
    const uint32_t source = source_of(rank);
    return source != kNoSource && sources_[source].came == Came::kNothing;
  }
  // False: not what that rank may send.
  [[nodiscard]] bool on_section(uint32_t from, const Section& section);
  // It gives no more than it has.
  void end(uint32_t rank);
  // This rank's own rows, which lie there.
  void give(const StagedNote& note, const StagedRows& there);
  // Of a rank that is alone: so many, which it adds to rows() itself, and that it has.
  void promise(uint32_t rows);
  void end_promised();

  // Reads what notes tell of, if all have come. False: that is much, and left to turns as a whole;
  // begun here, it would have lost the scratch by the next.
  [[nodiscard]] bool read_if_all_came();
  // Up to so many bytes, which it counts down.
  Turn read(uint64_t* left_bytes);
  bool all_came() const { return missing_ == 0; }

  bool complete() const { return rows_.complete(); }
  RowAccumulator& rows() { return rows_; }
  const RowAccumulator& rows() const { return rows_; }
  uint32_t column() const { return column_; }
  uint64_t step() const { return step_; }
  // Somebody gave a slice, if only one without rows.
  bool contributed() const { return contributed_; }
  // Distinct rows of each rank that gives its own, added up.
  uint64_t given_rows() const { return given_rows_; }
  // Adds the ranks that are awaited: to give what is theirs, or to return what they sum.
  void add_missing(MissingRanks* missing) const;

 private:
  // How far a rank is.
  enum class Came : uint8_t { kNothing, kNote, kAll };
  struct Source {
    Came came = Came::kNothing;
    StagedNote note;  // where it has come
  };

  static constexpr uint32_t kNoSource = UINT32_MAX;
  // Of a rank of the host.
  uint32_t source_of(uint32_t rank) const {
    return givers_ == nullptr ? variable_->columns.local_of(rank) : find_giver(rank);
  }
  uint32_t find_giver(uint32_t rank) const;
  uint32_t rank_of(uint32_t source) const {
    return givers_ == nullptr ? variable_->columns.locals()[source] : givers_->ranks[source];
  }
  // It gives its own rows, not several ranks'.
  bool gives_own(uint32_t source) const {
    return givers_ == nullptr || givers_->rows_of[source] == 1;
  }
  void came(uint32_t source, Came how) {
    sources_[source].came = how;
    --missing_;
  }
  [[nodiscard]] bool take_note(uint32_t source, const StagedNote& note);
  [[nodiscard]] bool on_note(uint32_t from, const Section& section);
  [[nodiscard]] bool on_rows(uint32_t from, const Section& section);
  Turn read_source(uint64_t* left_bytes);
  [[nodiscard]] bool read_items(const StagedRows& there, uint32_t count);

  const Variable* variable_ = nullptr;
  RowAccumulator rows_;
  uint64_t step_ = 0;
  uint64_t given_rows_ = 0;
  std::span<Source> sources_;  // those that give, in the order of the ranks
  const RowGivers* givers_ = nullptr;
  StagedRows own_;
  uint32_t column_ = 0;
  uint32_t missing_ = 0;  // of the sources
  uint32_t reading_ = 0;  // the source whose rows are read next, and which of them
  uint32_t read_ = 0;
  bool contributed_ = false;
  bool rows_stay_ = false;
};

}  // namespace parallax

#endif  // PARALLAX_COLLECTIVES_COLUMN_SUM_H_
