// SPDX-License-Identifier: Apache-2.0
// RowAccess: rows of a managed variable with their optimizer state, read and written at their
// owners between steps: ranges for checkpoints and exports, ids for evaluation. Only the caller and
// the owners take part.
//
// - read. The asker tells each owner which rows; the owner answers with their row keys, values and
//   states, and then with an end.
// - pull. The same by row ids, so many ids at a time.
// - write. The asker sends row keys, values and states to every rank that holds them, and then an
//   end; each holder answers whether it wrote all of them or was in a step.
//
// A mirror is read at once. A rank has one call under way, and so one ask at each owner (RowAsks).
// Of an answer a rank takes what it asked of that owner and is due next, once; of a write what it
// holds, all of a section or nothing. Engine's owner only.
#ifndef PARALLAX_SERVER_ROW_ACCESS_H_
#define PARALLAX_SERVER_ROW_ACCESS_H_

#include <array>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "aggregate/row_coalescer.h"
#include "base/status.h"
#include "message/outbox.h"
#include "server/answer_progress.h"
#include "server/row_asks.h"
#include "server/table.h"
#include "world/patterns.h"

namespace parallax {

// Which rows, and the caller's buffers, one for each array of the table; null: not asked. They are
// of the sum type, but the values of a read or a pull may be of another dtype. What travels is what
// the table keeps.
struct RowsCall {
  uint32_t variable = 0;
  uint64_t first_row = 0;
  uint64_t row_count = 0;
  std::array<std::byte*, 1 + kStatesMax> parts = {};
  uint32_t dtype = PARALLAX_F32;  // of parts[0]
  uint64_t* updates = nullptr;
  RowIds ids = {};     // pull: row_count of them, instead of first_row
  bool write = false;  // of read and write
};

class RowAccess {
 public:
  // All references outlive this object.
  RowAccess(const Columns& columns, Outbox& outbox, HeldTables& tables)
      : columns_(columns), outbox_(outbox), tables_(tables), asks_(columns, outbox, tables) {}

  // Checked before: the rows exist, and the buffers are for arrays that the table has. *pending
  // counts what borrows the caller's buffers. At most one call under way.
  void start_read(const RowsCall& call);
  void start_write(const RowsCall& call, uint32_t* pending);
  void start_pull(const RowsCall& call);
  // No call is under way, and no other rank's is served.
  bool at_rest() const { return !active_ && asks_.at_rest(); }
  bool finished() const { return active_ && !rows_left() && answers_left_ == 0; }
  // STATE names the ranks that were in a step.
  Status finish();

  // Sends what may be sent now; to be called whenever something happened.
  void advance();
  // False: not what `from` may send now.
  [[nodiscard]] bool on_section(uint32_t from, const Section& section);
  // Of the call under way.
  std::vector<uint32_t> missing_ranks() const { return waited_; }
  uint32_t variable() const { return call_.variable; }
  // Of a pull by ids, what these begin at.
  uint64_t first_row() const { return call_.first_row + call_.ids.first; }

 private:
  enum class Doing : uint8_t { kRead, kWrite, kPull };
  // The last write of a rank, as this rank saw it, if it holds such rows: a step that begins or
  // ends between two portions must not let one of them be left out unsaid.
  struct HeldWrite {
    uint64_t number = 0;
    bool refused = false;
    bool ended = false;  // its end has come, and was acknowledged
  };
  // Of each array of a table.
  using Answer = std::array<AnswerProgress, 1 + kStatesMax>;

  [[nodiscard]] bool on_answer(uint32_t from, const Section& section);
  [[nodiscard]] bool on_write(uint32_t from, const Section& section);
  [[nodiscard]] bool on_written(uint32_t from, const Section& section);
  void start(Doing doing, const RowsCall& call);
  // Of a write or a pull: rows that were not sent, or asked for, yet.
  bool rows_left() const { return doing_ != Doing::kRead && next_row_ < call_.row_count; }
  void group_row_keys(const Table& table);
  void ask_portion();
  void expect_answer(uint32_t from, uint64_t due);
  bool answered_all(uint32_t from, const Table& table) const;
  void write_portion();
  void write_elements();
  Send write_end() const;
  void send_to_holders(const Table& table, Send send, uint32_t owner);
  [[nodiscard]] bool take_rows(uint32_t from, const Table& table, const Section& section);
  [[nodiscard]] bool place_row(uint32_t from, const Table& table, uint32_t array, uint32_t row_key,
                               uint64_t* row);
  void place(const Table& table, uint32_t array, uint64_t at, std::span<const std::byte> numbers);
  [[nodiscard]] bool take_elements(uint32_t from, const Table& table, const Section& section);
  void answered(uint32_t from);

  const Columns& columns_;
  Outbox& outbox_;
  HeldTables& tables_;

  // asker
  bool active_ = false;
  Doing doing_ = Doing::kRead;
  RowsCall call_;
  uint64_t number_ = 0;
  uint64_t next_row_ = 0;
  uint32_t* pending_ = nullptr;
  uint32_t answers_left_ = 0;
  uint64_t numbers_left_ = 0;
  std::vector<uint32_t> waited_, refused_;
  std::vector<Answer> answers_;  // by owner: elements of its range, rows of the call or of its list
  // Of the portion under way: row keys, then by holder the rows of the call that they are, their
  // row keys, and where each holder's begin.
  std::vector<uint32_t> row_keys_, items_, grouped_, offsets_;
  std::vector<uint32_t> portion_rows_;  // pull: rows of the caller's buffer
  std::vector<std::byte> ask_bytes_;

  // owner
  std::unordered_map<uint32_t, HeldWrite> writes_;  // by writer
  RowAsks asks_;
};

}  // namespace parallax

#endif  // PARALLAX_SERVER_ROW_ACCESS_H_
