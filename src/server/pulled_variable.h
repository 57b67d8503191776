// SPDX-License-Identifier: Apache-2.0
// PulledVariable: one sharded variable as pulls see it, and the memory that they need for it at
// this rank, in each part that a rank can have in them:
//
// - source: the rank's own pull, which rows it wants and what each leader still owes it of them.
// - leader: what the ranks of its host want, and what the owners owe of it (LedVariable).
// - owner: one list per host of what is asked for and not answered.
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

#include "aggregate/coalesced_ids.h"
#include "aggregate/pulled_keys.h"
#include "base/arena.h"
#include "base/leaving_elements.h"
#include "base/prefetch.h"
#include "message/place_offer.h"
#include "server/answer_progress.h"
#include "server/led_variable.h"
#include "server/table.h"
#include "transport/peer_memory.h"
#include "variable/partition.h"
#include "world/patterns.h"

namespace parallax {

struct ArrivingElements;

// How a slice of a push or a reduce goes out.
enum class SliceWay : uint8_t {
  kItself,
  kInSum,      // in this rank's sum of the step, which goes out for it
  kInTiedSum,  // the same, for several slices of the call: the first of them
  kWithRows,   // every row, and with it those of the next slice of the variable
  // Of fused tables, with the other slices of the call that are of the same ones:
  kAllParts,    // which are all that the step has of them
  kSomeParts,   // behind which others come
  kLastParts,   // which are the last
  kInSumYet,    // in this rank's sum of the step, which does not go out yet
  kWithAnother  // with an earlier slice of the call
};

// One variable of a call. Of a pull: the rows `ids` are written to `values`, or, without ids, the
// whole dense variable. Of a push or a reduce: they are read from there.
struct PullSlice {
  uint32_t variable = 0;
  uint32_t member = UINT32_MAX;  // of fused tables, as Registry has it; else none
  RowIds ids;
  uint32_t count = 0;
  std::byte* values = nullptr;
  std::byte* into = nullptr;      // reduce, dense: where the aggregate goes; may be `values`
  uint32_t dtype = PARALLAX_F32;  // of both
  bool every_row = false;         // a dense slice of a variable with ids
  bool more = false;   // push, reduce: another call for the variable follows in this step
  bool again = false;  // of fused tables: an earlier slice of the call, or pull, is of the same one
  SliceWay way = SliceWay::kItself;
  // Pull: `values` is memory of the device that this rank's table of the variable lies on, which
  // writes it. Without row ids that is all of the variable.
  bool on_device = false;
  // Reduce, of a variable whose slices stay on their devices: the point of the stream (DeviceMark)
  // that they follow.
  uint32_t after = 0;
  // Push, reduce: its values are still on their way to where they lie; null: they are there.
  ArrivingElements* arriving = nullptr;
  // Reduce, dense: where its values were copied to, and where their aggregate comes instead of
  // `into`; null: nowhere.
  std::byte* staged = nullptr;
  // Pull, and reduce without row ids: told which rows, or elements, of the result are there, where
  // they leave before all are; null: nobody asks.
  const LeavingElements* leaving = nullptr;

  RowSlice rows() const { return {ids, count, {values, dtype}}; }
};

// Numbers what a leader asks an owner for in a step: rows, or of a dense variable asks. By it an
// ask that comes twice is told, and an answer says what it answers.
struct AskPosition {
  uint64_t step = 0;
  uint64_t items = 0;
  uint64_t in(uint64_t now) const { return step == now ? items : 0; }
  void advance(uint64_t now, uint64_t count) {
    items = in(now) + count;
    step = now;
  }
};

// Of a variable's rows, those that a pull copies out of tables where they lie (TableReader).
enum class RowsInTables : uint8_t {
  kNone,   // all are asked for by messages
  kHosts,  // those that ranks of this host own
  kAll
};

// One of a pull, among those of its variable.
struct PulledSlice {
  PullSlice slice;           // what is asked for
  uint32_t before = 0;       // rows of the earlier ones
  uint32_t next = 0;         // the next one's place in the pull; 0: it is the last
  PullSlice on_device = {};  // of one that a table writes: the caller's
  bool apart = false;        // the first of several, of which none has a row of another
};

// Of rows that ascend, counted over all slices of a variable, and are asked for one after the
// other: the slice of `all` that has the next one, from that of the one before on.
inline const PulledSlice* next_slice(uint32_t row, const PulledSlice* from,
                                     const PulledSlice* all) {
  while (row - from->before >= from->slice.count) from = &all[from->next];
  return from;
}

// Of slices on a device that this rank's table lies on: what others own of them, one slice's behind
// the other's. It comes to host memory.
struct OthersRows {
  std::span<int64_t> ids;
  std::span<uint32_t> places;  // each one's row in its slice
  std::span<std::byte> values;
};

struct PulledVariable {
  // Where one host wants what it asks this owner for: `rows` of them from the `first` of the step.
  struct PullPlace {
    uint64_t step = 0, first = 0, rows = 0;
    PlaceOffer offer = {};
  };
  using PullPlaces = std::array<PullPlace, kPullPlacesMax>;

  // What one host asks this owner for.
  struct Asked {
    std::span<uint32_t> many;     // local rows of the list, once they are more than a few
    std::span<std::byte> staged;  // of a table on a device: the values of the list, as sent
    AskPosition position;
    uint64_t step = 0;
    uint32_t dtype = 0;
    uint32_t count = 0;                  // since all that was asked for had been answered
    uint32_t answered = 0;               // of those
    uint32_t unpacked = 0;               // sends that read the list
    uint32_t sifted = 0;                 // rows of the list that early ones were looked for among
    bool unsifted = false;               // they are to be, or to be looked for among more
    bool behind = false;                 // sends of the list lie behind other data
    bool dense = false;                  // the whole range is asked for, not rows
    bool waiting = false;                // for the step before to be applied here
    bool answering = false;              // among PullOwner's, with staleness
    std::unique_ptr<PullPlaces> places;  // once one was offered
  };

  // Makes no memory yet. All that is given outlives this object.
  PulledVariable(uint32_t number, const Columns& all, const Variable& variable,
                 const Partition& owned, RowScratch* shared_scratch, const RowCodings* row_codings);
  PulledVariable(const PulledVariable&) = delete;
  PulledVariable& operator=(const PulledVariable&) = delete;

  static size_t needed_bytes(const Columns& all, const Variable& variable, const Partition& owned);
  // Takes it. LIMIT.
  Status reserve();

  // A pull of it is about to begin, or to be read in place: what that takes is asked of the memory,
  // and where this is there what that names.
  void prefetch() const {
    prefetch_bytes(
        this, reinterpret_cast<const std::byte*>(&led) - reinterpret_cast<const std::byte*>(this));
  }
  void prefetch_lists() const {
    prefetch_object(tables.of.data());
    prefetch_bytes(table, sizeof(Table));
    prefetch_object(answers.data());
    coalescer.prefetch();
  }

  bool by_rows() const { return partition.ids_declared(); }
  bool owned_by(uint32_t rank) const {
    return by_rows() ? partition.rows_owned(rank) > 0 : partition.range_of(rank).count > 0;
  }

  // Owner: the local rows of a host's list, which has so many.
  static constexpr size_t kFewRows = 8;
  uint32_t* list_of(uint32_t host, size_t count) const {
    return count <= kFewRows ? &lists.few[host * kFewRows] : asked[host].many.data();
  }

  // Source: sets what each leader owes of the pull that begins; its rows are grouped, or all are
  // read in place.
  void expect_answers();
  // The group of the coalescer whose rows are those of the host's tables.
  uint32_t tables_group() const { return columns.count(); }
  AnswerProgress& from_tables() { return answers[tables_group()]; }
  // Dense. A column's elements are its owners' ranges one after the other: where the `at`-th of
  // them lies in the variable, and how many follow it there. No elements beyond the last.
  Range elements_of_column(uint32_t column, uint64_t at) const;

  const uint32_t id;
  const Columns& columns;
  const Partition& partition;
  const uint64_t rows_max;
  const uint32_t master;         // the dtype that its tables keep
  const bool on_device;          // its table
  RowScratch* const scratch;     // by which the ids of a pull are coalesced; null: by its own index
  const Table* table = nullptr;  // the shard that this rank holds; null while it holds none
  Arena arena;
  // source
  CoalescedIds coalescer;
  uint32_t first_slice = 0, last_slice = 0;      // of the pull: PullSource's places
  uint32_t slice_dtype = 0;                      // what their values travel as
  uint32_t filled = 0;                           // of the pull's only slice: rows that are there
  RowsInTables in_tables = RowsInTables::kNone;  // of the pull
  bool table_writes = false;                     // in the pull: its slices are on_device
  OthersRows others;                             // none: this rank owns no row, or all
  // Of ranks of this host.
  struct HostTables {
    struct OfRank {
      BufferPlace place;  // where it lies, for who reads it
      uint64_t owned_rows = 0;
    };
    HostTables(const Columns& columns, const Partition& partition);
    std::vector<OfRank> of;
    bool have_all = false;  // all rows are in one of these
    // Of a pull, where they are: where each distinct one lies.
    std::span<const std::byte*> rows;
  } tables;
  std::span<AnswerProgress> answers;  // by column: of its leader; and behind: of the host's tables
  // leader
  LedVariable led;
  std::array<bool, 2> is_known = {};    // by form: the transport knows its rows' memory
  std::array<uint64_t, 2> pulled = {};  // by step parity: rows asked for (pulled_rows)
  // owner
  std::vector<Asked> asked;  // by host
  struct Lists {
    // The short ones of all hosts, one after the other: of many hosts most ask for little, and a
    // page for each would be most of what this rank holds.
    std::span<uint32_t> few;
    PulledKeys row_keys;                  // of a step, by host
    const RowCodings* codings = nullptr;  // of answers; null: none
  } lists;
  std::span<std::byte> staged_range;  // of a dense table on a device: what lies here

 private:
  void lay_out(Arena& memory);
};

// Those that can be pulled here. Pointers to them hold until they are removed.
class PulledVariables {
 public:
  // Null: each has an index of its own. It outlives this object.
  explicit PulledVariables(RowScratch* scratch) : scratch_(scratch) {}
  // LIMIT. What was added under that number before is removed.
  Status add(uint32_t id, const Columns& columns, const Variable& variable,
             const Partition& partition, const RowCodings* codings = nullptr);
  void remove(uint32_t id) {
    if (id < all_.size()) all_[id].reset();
  }
  // A peer's number too. Null: not sharded.
  PulledVariable* find(uint32_t id) const { return id < all_.size() ? all_[id].get() : nullptr; }
  // By number, with nulls.
  std::span<const std::unique_ptr<PulledVariable>> all() const { return all_; }

 private:
  RowScratch* const scratch_;
  std::vector<std::unique_ptr<PulledVariable>> all_;
};

}  // namespace parallax

#endif  // PARALLAX_SERVER_PULLED_VARIABLE_H_
