// SPDX-License-Identifier: Apache-2.0
// RowAsks: what other ranks ask this one for, between steps, of the rows that it owns; and the
// answers: row keys, values and states, and then an end. Each ask is served by itself, a bounded
// portion of rows at a time: an asker that reads nothing holds up no other. Answers read the table
// as they are packed, and an ask that was served stays until the last of them is. Part of
// RowAccess; engine's owner only.
#ifndef PARALLAX_SERVER_ROW_ASKS_H_
#define PARALLAX_SERVER_ROW_ASKS_H_

#include <array>
#include <cstdint>
#include <list>
#include <unordered_map>
#include <vector>

#include "message/outbox.h"
#include "server/table.h"
#include "variable/partition.h"
#include "world/patterns.h"

namespace parallax {

// The tables of a rank. Implemented by the engine.
class HeldTables {
 public:
  // Null: no managed variable of that number.
  virtual Table* table_of(uint32_t variable) = 0;
  // The last step applied here, and whether a later one was begun.
  virtual uint64_t step_finished() const = 0;
  virtual bool in_step() const = 0;

 protected:
  ~HeldTables() = default;
};

// What kRowsAsk carries: a range of rows, or a list of row keys behind it.
struct RowsAskPayload {
  uint64_t step, first_row, row_count;
  uint32_t arrays;  // bit i: array i
  uint32_t listed;  // row keys that follow, instead of the range
};
inline constexpr uint64_t kListedRowsMax = 512;
static_assert(sizeof(RowsAskPayload) + kListedRowsMax * sizeof(uint32_t) <=
              Outbox::kControlBytesMax);

// So many rows at a time, that one call holds up neither other calls nor other sends.
inline constexpr uint64_t kPortionRows = 1024;

// `number` of the asker's or writer's calls.
inline Send rows_send(SectionKind kind, uint32_t variable, uint64_t number, uint32_t array) {
  Send send;
  send.header.kind = kind;
  send.header.tag = variable;
  send.header.step = number;
  send.header.part = static_cast<uint8_t>(array);
  return send;
}

// Dense. What of the rows first_row, ..., in elements of an array, a rank holds.
Range held_elements(const Table& table, uint32_t rank, uint64_t first_row, uint64_t row_count,
                    uint32_t array = 0);

class RowAsks {
 public:
  // All outlive this object.
  RowAsks(const Columns& columns, Outbox& outbox, HeldTables& tables)
      : columns_(columns), outbox_(outbox), tables_(tables) {}

  // A kRowsAsk. False: not what `from` may ask now.
  bool at_rest() const { return asks_.empty(); }
  [[nodiscard]] bool on_ask(uint32_t from, const Section& section);
  // Sends what may be sent now.
  void advance();

 private:
  struct Ask {
    uint32_t from = 0;
    uint32_t variable = 0;
    uint64_t number = 0;  // of the asker's calls
    uint64_t step = 0;    // as of its commit
    uint64_t first_row = 0;
    uint64_t row_count = 0;
    uint32_t arrays = 0;             // bit i: array i
    std::vector<uint32_t> row_keys;  // pull
    // How far it was served, and the portion under way.
    uint64_t served_rows = 0;
    bool served = false;    // all of it is queued
    uint32_t borrowed = 0;  // sends that read the table, and the lists below
    std::vector<uint32_t> serve_row_keys = {}, serve_order = {};
    // Of a table on a device: what of the portion has not come of it yet, by array.
    uint32_t reads_left = 0;
    bool reading = false;
    std::array<std::vector<std::byte>, 1 + kStatesMax> staged = {};
    std::array<Range, 1 + kStatesMax> staged_ranges = {};  // of elements
  };

  void serve(Ask& ask);
  void serve_rows(Ask& ask, const Table& table);
  void send_served(Ask& ask, const Table& table);
  void serve_elements(Ask& ask, const Table& table);
  void serve_end(Ask& ask, const Table& table);
  void read_portion(Ask& ask, const Table& table);
  void read_array(Ask& ask, DeviceStore& store, const StoreUnits& units, uint64_t width);
  void send_portion(Ask& ask, const Table& table);
  void forget_served();

  const Columns& columns_;
  Outbox& outbox_;
  HeldTables& tables_;
  std::unordered_map<uint32_t, uint64_t> last_;  // by asker: the number of its last ask
  std::list<Ask> asks_;                          // one of an asker; sends read them where they lie
};

}  // namespace parallax

#endif  // PARALLAX_SERVER_ROW_ASKS_H_
