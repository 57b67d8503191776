// SPDX-License-Identifier: Apache-2.0
// TableReader: rows of a pull that are copied out of their owners' tables where they lie, without
// a message: this rank's own table, and those of the ranks of its host that let it read theirs
// (TableMemory). For variables of which every owner of this host is such. Where there are no
// others, whole slices are copied, a token after the other; else each distinct row that the host
// owns, once, and the others are asked for. Which row a token is of the variable's coalescer knows
// already.
//
// Versions. An owner says with each step that it has applied that its tables are as the pulls of
// the next one read them (kTablesCurrent). They stay so until this rank has all that it pulls in
// that step: the next update needs its vote. Between steps an owner may be given rows (write);
// what was copied meanwhile is copied again (TableMark). Nothing is taken of a rank that is gone or
// that has given this one up: its loss ends the pull.
//
// To copy takes as long as the rows are many: it is done in turns, as Lending has it. Engine's
// owner only; nothing blocks, and a pull allocates nothing.
#ifndef PARALLAX_SERVER_TABLE_READER_H_
#define PARALLAX_SERVER_TABLE_READER_H_

#include <cstdint>
#include <vector>

#include "message/outbox.h"
#include "server/pulled_variable.h"
#include "world/patterns.h"

namespace parallax {

class TableReader final : public LentReader {
 public:
  class User {
   public:
    // More of the host's rows of a variable are where they go: AnswerProgress says how many.
    virtual void on_hosts_rows(PulledVariable& variable) = 0;

   protected:
    ~User() = default;
  };

  // What there is to do: nothing, and nobody says anything of tables; to keep what they say, since
  // others are read by it (HeldPushes); or to read, too.
  enum class Use : uint8_t { kNone, kListens, kReads };

  // All outlive this object.
  TableReader(const Columns& columns, Outbox& outbox, Use use, User& user);
  ~TableReader();
  TableReader(const TableReader&) = delete;
  TableReader& operator=(const TableReader&) = delete;

  // A variable with so many slots may be read. To be called before it is.
  void reserve(size_t slots);
  // An owner, who may be this rank, lets tables be read by pulls of `step`. False: it said so
  // before.
  [[nodiscard]] bool current(uint32_t owner, uint64_t step);
  // Where a table lies. False: not what `from` may say.
  [[nodiscard]] bool on_place(uint32_t from, PulledVariable* variable, const Section& section);

  // That one, who said so of the step before, has applied this one.
  bool has_applied(uint32_t owner, uint64_t step) const {
    return current_[columns_.local_of(owner)] > step;
  }

  // Of all tables of the variable that are of this host, now or later in this step.
  RowsInTables reads(const PulledVariable& variable) const;
  // A pull begins. Slices, which stay where they are until it is finished, of variables that are
  // read here, whose ids are coalesced; or, grouped, the rows that are this host's
  // (tables_group()), for all slices of a variable, which are among `slices`. And then all that
  // there are.
  void start(uint64_t step);
  void add(PulledVariable& variable, const PulledSlice& slice);
  void add_hosts_rows(PulledVariable& variable, const PulledSlice* slices);
  void begin();
  bool finished() const { return front_.at == readings_.size(); }
  // Those whose tables are not current yet.
  void add_missing(std::vector<uint32_t>* owners) const;

  bool read_lent() override;

 private:
  struct Reading {
    PulledVariable* variable = nullptr;
    const PulledSlice* slice = nullptr;  // the first
    const PulledSlice* all = nullptr;    // of the host's rows: where the next slices are found
    uint32_t count = 0;                  // rows
  };
  // An owner's table, for a turn.
  struct Shard {
    const std::byte* values = nullptr;
    const TableMark* mark = nullptr;  // null: this rank's own, or one that owns nothing
    uint32_t seen = 0;
  };
  // A slot's rows, for a turn: where the first lies, and how far the next one is from each.
  struct SlotRows {
    const std::byte* first = nullptr;
    uint64_t stride_bytes = 0;
  };
  // How many of the distinct rows of a variable were
  // looked for, and in tables that lie where.
  struct KnownRows {
    const PulledVariable* variable = nullptr;
    std::vector<const std::byte*> tables;  // by rank of the host
    uint32_t count = 0;
  };
  class Copying;

  bool is_current(const PulledVariable& variable) const;
  const std::byte* find(const PulledVariable& variable, uint32_t owner) const;
  enum class Found : uint8_t { kAll, kBeingWritten, kGone };
  Found find_shards(const PulledVariable& variable);
  bool unchanged() const;
  bool meant() const;
  // How far readings have come.
  struct Front {
    size_t at = 0;     // the reading under way
    uint32_t row = 0;  // its next row
  };
  // Copies more of one variable's, as much as the turn has left; how many bytes of other ranks'.
  uint64_t copy_more(Front* front, uint64_t* left_bytes);
  void tell(const Front& before, const Front& now);
  void find_slots(const PulledVariable& variable, uint64_t rows);
  // Of rows from `row` on.
  uint64_t copy(const Reading& reading, uint32_t row, uint32_t count);
  SlotRows rows_of(const SlotMap::Slot& slot, uint64_t row_bytes) const;
  template <typename RowsOf>
  uint64_t copy_wanted(const Reading& reading, uint32_t row, uint32_t count, RowsOf rows_of_slot);
  template <typename RowsOf>
  uint64_t copy_slice(const Reading& reading, uint32_t row, uint32_t count, RowsOf rows_of_slot);
  template <typename RowsOf>
  uint64_t copy_hosts_rows(const Reading& reading, uint32_t row, uint32_t count,
                           RowsOf rows_of_slot) const;
  void begin_known(const PulledVariable& variable);

  const Columns& columns_;
  Outbox& outbox_;
  const bool used_, reads_;
  User& user_;
  std::vector<uint64_t> current_;  // by rank of the host: the step that may read its tables
  uint64_t step_ = 0;
  std::vector<Reading> readings_;
  Front front_;
  std::vector<Shard> shards_;        // by rank of the host
  std::vector<SlotRows> slot_rows_;  // of the variable under way, where they are few; else none
  KnownRows known_;                  // and of that
};

}  // namespace parallax

#endif  // PARALLAX_SERVER_TABLE_READER_H_
