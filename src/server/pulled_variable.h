// SPDX-License-Identifier: Apache-2.0
// PulledVariable: one sharded variable as pulls see it, and the memory that they need for it at
// this rank, in each part that a rank can have in them:
//
// - source: the rank's own pull, which rows it wants and what each leader still owes it of them.
// - leader: what its host wants, for each round that can be open, and what the owners owe of it.
// - owner: one list per host, since a leader asks again only once it was answered.
//
// All of it is sized at commit from rows_max and the partition and lies in one arena, so that a
// pull allocates nothing; what a peer sends beyond it does not fit, and is refused. It knows who
// owes what to whom, but sends nothing: the parts do, which share it. Engine's owner only.
#ifndef PARALLAX_SERVER_PULLED_VARIABLE_H_
#define PARALLAX_SERVER_PULLED_VARIABLE_H_

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "aggregate/row_coalescer.h"
#include "base/arena.h"
#include "server/answer_progress.h"
#include "server/pull_rounds.h"
#include "server/table.h"
#include "variable/partition.h"
#include "world/patterns.h"

namespace parallax {

// One variable of a call. Of a pull: the rows `ids` are written to `values`, or, without ids, the
// whole dense variable. Of a push or a reduce: they are read from there.
struct PullSlice {
  uint32_t variable = 0;
  RowIds ids;
  uint32_t count = 0;
  std::byte* values = nullptr;
  uint32_t dtype = PARALLAX_F32;  // of `values`
  bool every_row = false;         // a dense slice of a variable with ids
  bool summed = false;            // push, reduce: added to this rank's sum of the step already
  bool more = false;  // push, reduce: another slice of the variable follows in this step
};

// Numbers what a leader asks an owner for in a step, through all rounds of it, at both ends: rows,
// or of a dense variable asks. A list that comes twice is told by it where its round does not tell,
// of which 8 bits travel.
struct AskPosition {
  uint64_t step = 0;
  uint64_t items = 0;
  uint64_t in(uint64_t now) const { return step == now ? items : 0; }
  void advance(uint64_t now, uint64_t count) {
    items = in(now) + count;
    step = now;
  }
};

struct PulledVariable {
  // What a leader's host wants in one round.
  struct Wanted {
    uint64_t opening = 0;  // of the round that this is of (PullRound)
    RowIndex index;
    std::span<uint32_t> row_keys;  // entry of the index -> row key
    std::span<uint32_t> items;     // item (grouped by owner) -> entry
    std::span<uint32_t> item_of_entry;
    std::span<uint32_t> grouped;             // item -> row key
    std::span<uint32_t> offsets;             // of each owner of the column, in items
    std::span<AnswerProgress> answers;       // of each owner of the column, once it is asked
    std::vector<std::span<uint32_t>> lists;  // per local rank: entries, then items
    std::vector<uint32_t> list_counts;
    std::vector<uint8_t> dense;   // per local rank: wants the dense variable
    std::vector<uint8_t> dtypes;  // per local rank: what it wants the values as
    uint32_t dtype = 0;           // what the owners are asked for: the ranks' own, or the master's
    std::span<std::byte> values;  // by item; dense: the column's elements

    // Forgets what an earlier round of its place wanted.
    void begin(const PullRound& round);
    bool is_of(const PullRound& round) const { return opening == round.opening; }
    // Adds a row of a local rank's list; false if more rows are wanted than can be.
    [[nodiscard]] bool add(uint32_t local, uint32_t row_key);
    // The list is complete: from entries to items, which lie together by owner.
    void group(const Partition& partition, const Columns& columns);
  };

  // What one host asks this owner for.
  struct Asked {
    std::span<uint32_t> many;  // local rows of the list under way, once they are more than a few
    AskPosition position;
    uint64_t step = 0;
    uint8_t number = 0;
    uint32_t dtype = 0;
    uint32_t count = 0;
    uint32_t answered = 0;
    bool dense = false;    // the whole range is asked for, not rows
    bool open = false;     // more of the list is to come
    bool waiting = false;  // for the step before to be applied here
  };

  // Makes no memory yet. The references outlive this object.
  PulledVariable(uint32_t number, const Columns& all, const Variable& variable,
                 const Partition& owned);
  PulledVariable(const PulledVariable&) = delete;
  PulledVariable& operator=(const PulledVariable&) = delete;

  static size_t needed_bytes(const Columns& all, const Variable& variable, const Partition& owned);
  // Takes it. LIMIT.
  Status reserve();

  bool by_rows() const { return partition.ids_declared(); }
  // This rank leads a column that has an owner of it.
  bool led() const { return !owners.empty(); }
  bool owned_by(uint32_t rank) const {
    return by_rows() ? partition.rows_owned(rank) > 0 : partition.range_of(rank).count > 0;
  }
  bool has_owner_in(uint32_t column) const;

  // Owner: the local rows of a host's list, which has so many.
  static constexpr size_t kFewRows = 8;
  uint32_t* list_of(uint32_t host, size_t count) const {
    return count <= kFewRows ? &few[host * kFewRows] : asked[host].many.data();
  }

  // Source: sets what each leader owes of the pull that begins; the slice's rows are coalesced.
  void expect_answers();
  // Dense. A column's elements are its owners' ranges one after the other: where the `at`-th of
  // them lies in the variable, and how many follow it there. No elements beyond the last.
  Range elements_of_column(uint32_t column, uint64_t at) const;
  // Of my column's elements, those of owners before this one.
  uint64_t elements_before(uint32_t owner) const;

  const uint32_t id;
  const Columns& columns;
  const Partition& partition;
  const uint64_t rows_max;
  const SumType master;
  const Table* table = nullptr;  // the shard that this rank holds; null while it holds none
  Arena arena;
  // source
  RowCoalescer coalescer;
  PullSlice slice;
  uint32_t slice_dtype = 0;           // what its values travel as
  std::span<AnswerProgress> answers;  // by column: of its leader
  // leader
  std::array<Wanted, kPullRoundsOpenMax> wanted;
  std::array<uint64_t, 2> pulled = {};  // by step parity: rows asked for
  std::vector<uint32_t> owners;         // active ones of my column
  std::span<AskPosition> asks;          // to each owner of the column
  // owner
  std::vector<Asked> asked;  // by host
  // The short lists of all hosts, one after the other: of many hosts most ask for little, and a
  // page for each would be most of what this rank holds.
  std::span<uint32_t> few;

 private:
  void lay_out(Arena& memory);
  void lay_out_leader(Arena& memory);
};

// Those that can be pulled here. Pointers to them hold until they are removed.
class PulledVariables {
 public:
  // LIMIT. What was added under that number before is removed.
  Status add(uint32_t id, const Columns& columns, const Variable& variable,
             const Partition& partition);
  void remove(uint32_t id) {
    if (id < all_.size()) all_[id].reset();
  }
  // A peer's number too. Null: not sharded.
  PulledVariable* find(uint32_t id) const { return id < all_.size() ? all_[id].get() : nullptr; }
  // By number, with nulls.
  std::span<const std::unique_ptr<PulledVariable>> all() const { return all_; }

 private:
  std::vector<std::unique_ptr<PulledVariable>> all_;
};

}  // namespace parallax

#endif  // PARALLAX_SERVER_PULLED_VARIABLE_H_
