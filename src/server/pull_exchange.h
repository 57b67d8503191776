// SPDX-License-Identifier: Apache-2.0
// PullExchange: the values of sharded variables on their way from their owners. The pulls of a
// host's ranks are coalesced per column by its leader, so that a row crosses the wire once per
// host:
//
//   rank -> leader: distinct row keys     leader -> owner: their union
//   owner -> leader: the rows' values     leader -> rank: those it asked for
//
// Rounds. A rank has one pull under way at a time, its n-th of a step; the leader answers round
// (step, n) when every rank of its host has sent its n-th or ended the step. Owners answer as of
// step - 1 applied, and hold back the answer to what is asked earlier.
//
// Memory is bounded by rows_max. A leader can see at most four rounds at once: (t, n), (t, n + 1)
// of ranks that differ by one, and the like of t + 1 for a rank that has ended t. An owner holds
// one list per host and variable, since a leader asks again only when it was answered. Sections
// that do not fit return false; the engine names their sender. Engine's owner only.
#ifndef PARALLAX_SERVER_PULL_EXCHANGE_H_
#define PARALLAX_SERVER_PULL_EXCHANGE_H_

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "aggregate/row_coalescer.h"
#include "base/arena.h"
#include "message/outbox.h"
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

// What the values of a pull travel as: the dtype asked for where it is the smaller one, else the
// master's.
inline uint32_t wire_dtype(uint32_t asked, SumType master) {
  return bytes_of_dtype(asked) < bytes_of_sum(master) ? asked : dtype_of(master);
}

// A round of pulls that waits for some ranks of the host: the n-th pulls, n counted from 1.
struct PullWait {
  uint32_t number = 0;  // 0: none waits
  std::vector<uint32_t> here = {}, missing = {};
};

class PullExchange {
 public:
  PullExchange(const Columns& columns, Outbox& outbox);
  ~PullExchange();
  PullExchange(const PullExchange&) = delete;
  PullExchange& operator=(const PullExchange&) = delete;

  // Makes a variable pullable; its table is set once values lie here. LIMIT.
  Status add_variable(uint32_t id, const Variable& variable, const Partition& partition);
  void remove_variable(uint32_t variable);
  static size_t needed_bytes(const Columns& columns, const Variable& variable,
                             const Partition& partition);
  const Arena* arena_of(uint32_t variable) const;  // null: not sharded
  // The shard that this rank holds; null while it holds none.
  void set_table(uint32_t variable, const Table* table);

  // Source. Starts this rank's n-th pull of `step`; at most one under way, of distinct variables.
  void start(uint64_t step, uint32_t round, std::span<const PullSlice> slices);
  // The pull under way has all its values, duplicates included, and every leader of the host is
  // done with its round, even if it had nothing to ask it: so that no rank runs ahead of another by
  // more than one round.
  bool finished() const { return active_ && slices_left_ == 0 && answers_left_ == 0; }
  void finish();  // makes room for the next
  bool active() const { return active_; }

  // A rank of this host ended a step: its rounds of that step are over. At a new step the buffer of
  // the step before the last is taken over.
  void end_local(uint32_t from, uint64_t step);
  void open(uint64_t step);
  // The owner has applied `step`: pulls of step + 1 may be answered.
  void applied(uint64_t step);

  // False: not what `from` may send now. The caller has checked that a tag which is a variable is
  // sharded in that step.
  [[nodiscard]] bool on_section(uint32_t from, const Section& section);

  // Distinct rows this leader asked owners for, in the step so far.
  uint64_t pulled_rows(uint32_t variable, uint64_t step) const;
  // The oldest round of a step that this leader cannot answer yet.
  PullWait waiting(uint64_t step) const;

 private:
  static constexpr uint32_t kRounds = 4;  // [step parity][round parity]

  // What a leader's host wants of one variable in one round.
  struct Wanted {
    RowIndex index;
    std::span<uint32_t> row_keys;  // slot -> row key; then item -> row key
    std::span<uint32_t> items;     // item (grouped by owner) -> slot
    std::span<uint32_t> item_of_slot;
    std::span<uint32_t> grouped;             // item -> row key
    std::span<uint32_t> offsets;             // of each owner of the column, in items
    std::vector<std::span<uint32_t>> lists;  // per local rank: slots, then items
    std::vector<uint32_t> list_counts;
    std::vector<uint8_t> dense;   // per local rank: wants the dense variable
    std::vector<uint8_t> dtypes;  // per local rank: what it wants the values as
    uint32_t dtype = 0;           // what the owners are asked for: the ranks' own, or the master's
    std::span<std::byte> values;  // by item; dense: the column's elements
  };
  struct Round {
    uint64_t step = 0;
    uint32_t number = 0;
    bool active = false;
    bool asked = false;
    std::vector<uint8_t> here;  // per local rank: its pull has arrived whole
    uint64_t left = 0;          // items and elements still to come
    std::vector<uint32_t> variables;
  };
  // What one host asks an owner for, of one variable.
  struct Asked {
    std::span<uint32_t> rows;
    uint64_t step = 0;
    uint32_t number = 0;
    uint32_t count = 0;
    uint32_t answered = 0;
    uint32_t dtype = 0;
    bool dense = false;
    bool waiting = false;
  };
  struct Entry {
    uint32_t variable = 0;
    const Partition* partition = nullptr;
    const Table* table = nullptr;
    SumType master = SumType::kF32;
    Arena arena;
    bool handled = false;  // this rank leads a column that has an owner of it
    // source
    RowCoalescer coalescer;
    PullSlice slice;
    uint32_t slice_dtype = 0;  // what its values travel as
    uint64_t left = 0;
    // leader
    std::array<Wanted, kRounds> wanted;
    std::array<uint64_t, 2> pulled = {};
    std::vector<uint32_t> owners;  // active ones of my column
    // owner
    std::vector<Asked> asked;  // by host
  };

  static void lay_out(Arena& arena, const Columns& columns, const Variable& variable,
                      const Partition& partition, Entry& entry);
  static bool active_owner(const Partition& partition, uint32_t owner);
  Entry* entry_of(uint32_t variable);
  const Entry* entry_of(uint32_t variable) const;
  static uint32_t slot_of(uint64_t step, uint32_t number) {
    return static_cast<uint32_t>((step & 1) * 2 + (number & 1));
  }
  [[nodiscard]] bool on_pull_local(uint32_t from, const Section& section);
  [[nodiscard]] bool on_pull_host(uint32_t from, const Section& section);
  [[nodiscard]] bool on_values_host(uint32_t from, const Section& section);
  [[nodiscard]] bool on_values_local(uint32_t from, const Section& section);
  void send_local(uint64_t step, uint32_t number, Entry& entry);
  Round* open_round(uint64_t step, uint32_t number);
  [[nodiscard]] bool want(Entry& entry, Round& round, uint32_t source, const Section& section);
  [[nodiscard]] static bool want_dtype(const Entry& entry, Wanted& wanted, uint32_t source,
                                       uint32_t dtype, bool first);
  void ask_if_complete(Round& round);
  void ask_rows(Round& round, Entry& entry);
  void ask_dense(Round& round, Entry& entry);
  void answer_locals(Round& round);
  void answer_local_dense(Round& round, Entry& entry, uint32_t local);
  void answer(Entry& entry, uint32_t host);

  const Columns& columns_;
  Outbox& outbox_;
  std::vector<std::unique_ptr<Entry>> entries_;  // by variable; null: not sharded
  std::array<Round, kRounds> rounds_;
  std::array<std::vector<uint8_t>, 2> ended_;  // [step parity][local rank]
  uint64_t applied_ = 0;
  // source
  bool active_ = false;
  uint64_t active_step_ = 0;
  uint32_t active_round_ = 0;
  uint64_t slices_left_ = 0;
  uint32_t answers_left_ = 0;  // leaders that have not said that the round is over
  std::vector<uint32_t> active_variables_;
  std::vector<std::pair<uint32_t, uint32_t>> waiting_;  // (variable, host) held back
};

}  // namespace parallax

#endif  // PARALLAX_SERVER_PULL_EXCHANGE_H_
