// SPDX-License-Identifier: Apache-2.0
// Asks checked, kept and served. See row_asks.h.
#include "server/row_asks.h"

#include <algorithm>

namespace parallax {

namespace {

// What of a device's memory is staged of an ask is bounded by its bytes, too.
uint64_t portion_rows(const Table& table) {
  if (table.store() == nullptr) return kPortionRows;
  const uint64_t row_bytes = table.row_elements() * bytes_of_dtype(table.dtype(0));
  return std::clamp<uint64_t>(DeviceStore::kPieceBytes / row_bytes, 1, kPortionRows);
}

}  // namespace

Range held_elements(const Table& table, uint32_t rank, uint64_t first_row, uint64_t row_count,
                    uint32_t array) {
  const Partition& partition = table.partition();
  const uint64_t width = table.row_elements();
  // A mirror is whole wherever it lies.
  const Range held = table.sharded() ? partition.range_of(rank) : Range{0, partition.elements()};
  const uint64_t first = std::max(held.first, first_row * width);
  const uint64_t end = std::min(held.end(), (first_row + row_count) * width);
  return table.place_in(array, Range{first, end > first ? end - first : 0});
}

bool RowAsks::on_ask(uint32_t from, const Section& section) {
  RowsAskPayload payload;
  const Table* table = tables_.table_of(section.header.tag);
  if (table == nullptr || section.header.encoding != Encoding::kBytes ||
      section.payload.size() < sizeof payload) {
    return false;
  }
  std::memcpy(&payload, section.payload.data(), sizeof payload);
  const Partition& partition = table->partition();
  const uint64_t rows = partition.rows();
  // A list may name a row more than once, and so be longer than the variable.
  const bool by_list = payload.listed > 0;
  const bool fits =
      by_list ? partition.ids_declared() && payload.listed <= kListedRowsMax &&
                    payload.row_count == payload.listed && payload.first_row == 0
              : payload.first_row <= rows && payload.row_count <= rows - payload.first_row;
  // The counts are a peer's: they bound the reads and the reservation below.
  if (!fits || payload.arrays >> table->array_count() != 0 ||
      section.payload.size() != sizeof payload + payload.listed * sizeof(uint32_t)) {
    return false;
  }
  std::vector<uint32_t> row_keys(payload.listed);
  if (by_list) {
    std::memcpy(row_keys.data(), &section.payload[sizeof payload],
                row_keys.size() * sizeof(uint32_t));
  }
  for (const uint32_t row_key : row_keys) {
    if (row_key >= rows || partition.owner_of(row_key) != columns_.rank()) return false;
  }
  // Each call of a rank has a later number: one that came before would be answered a second time,
  // and this rank blamed for it.
  if (section.header.step <= last_[from]) return false;
  // A rank asks again only once it was answered: one ask of each bounds the memory.
  forget_served();
  if (std::any_of(asks_.begin(), asks_.end(), [&](const Ask& ask) { return ask.from == from; })) {
    return false;
  }
  last_[from] = section.header.step;
  asks_.push_back({.from = from,
                   .variable = section.header.tag,
                   .number = section.header.step,
                   .step = payload.step,
                   .first_row = payload.first_row,
                   .row_count = payload.row_count,
                   .arrays = payload.arrays,
                   .row_keys = std::move(row_keys)});
  advance();
  return true;
}

void RowAsks::forget_served() {
  std::erase_if(asks_, [](const Ask& ask) { return ask.served && ask.borrowed == 0; });
}

// Each ask is served as of the step that its asker last finished. The asker ends no step meanwhile,
// so no later step can be applied here.
void RowAsks::advance() {
  for (Ask& ask : asks_) {
    // The next portion only once the last one is packed: its lists are read until then.
    while (!ask.served && ask.borrowed == 0 && ask.step <= tables_.step_finished()) {
      if (ask.reads_left > 0) break;
      serve(ask);
    }
  }
  forget_served();
}

void RowAsks::serve(Ask& ask) {
  const Table& table = *tables_.table_of(ask.variable);
  if (table.store() != nullptr) {
    // Read first, and then sent.
    if (ask.reading) return send_portion(ask, table);
    return read_portion(ask, table);
  }
  if (table.partition().ids_declared()) {
    serve_rows(ask, table);
    send_served(ask, table);
  } else {
    serve_elements(ask, table);
  }
  serve_end(ask, table);
}

void RowAsks::serve_end(Ask& ask, const Table& table) {
  if (ask.served_rows < ask.row_count) return;
  Send end = rows_send(SectionKind::kRowsAnswer, ask.variable, ask.number, 0);
  end.header.flags = kSectionLast;
  // Of a list nobody asks for it.
  end.header.first = ask.row_keys.empty() ? table.updates().of_row(ask.first_row).count : 0;
  outbox_.add(ask.from, end);
  ask.served = true;
}

void RowAsks::serve_rows(Ask& ask, const Table& table) {
  const Partition& partition = table.partition();
  ask.serve_row_keys.clear();
  ask.serve_order.clear();
  for (const uint32_t row_key : ask.row_keys) {
    ask.serve_row_keys.push_back(row_key);
    ask.serve_order.push_back(static_cast<uint32_t>(table.row_of(row_key)));
  }
  // A list is no longer than a portion.
  if (!ask.row_keys.empty()) ask.served_rows = ask.row_count;
  // In the order of the rows: the asker knows a row that comes twice by it. Every owner goes
  // through the whole range, since which of it is its own is known row by row.
  const uint64_t most = portion_rows(table);
  while (ask.served_rows < ask.row_count && ask.serve_row_keys.size() < most) {
    const uint32_t row_key = partition.row_key_of(ask.first_row + ask.served_rows++);
    if (table.sharded() && partition.owner_of(row_key) != columns_.rank()) continue;
    ask.serve_row_keys.push_back(row_key);
    ask.serve_order.push_back(static_cast<uint32_t>(table.row_of(row_key)));
  }
}

void RowAsks::send_served(Ask& ask, const Table& table) {
  for (uint32_t array = 0; array < table.array_count(); ++array) {
    if ((ask.arrays >> array & 1) == 0 || ask.serve_row_keys.empty()) continue;
    Send send = rows_send(SectionKind::kRowsAnswer, ask.variable, ask.number, array);
    send.header.encoding = Encoding::kRows;
    send.format.element_bytes = send.format.source_bytes = bytes_of_dtype(table.dtype(array));
    send.rows = {.row_keys = ask.serve_row_keys.data(),
                 .values = table.array(array).data(),
                 .order = ask.serve_order.data(),
                 .row_elements = static_cast<uint32_t>(table.array_width(array))};
    send.count = ask.serve_row_keys.size();
    send.pending = &ask.borrowed;
    ++ask.borrowed;
    outbox_.add(ask.from, send);
  }
}

void RowAsks::serve_elements(Ask& ask, const Table& table) {
  // At once: they lie together, so that one send for each array borrows all of them, and keeps
  // nothing but a place in the table.
  ask.served_rows = ask.row_count;
  for (uint32_t array = 0; array < table.array_count(); ++array) {
    const Range range = held_elements(table, columns_.rank(), ask.first_row, ask.row_count, array);
    if ((ask.arrays >> array & 1) == 0 || range.count == 0) continue;
    Send send = rows_send(SectionKind::kRowsAnswer, ask.variable, ask.number, array);
    send.header.encoding = Encoding::kDense;
    send.header.first = range.first;
    send.format.element_bytes = send.format.source_bytes = bytes_of_dtype(table.dtype(array));
    send.dense = table.element_at(array, range.first);
    send.count = range.count;
    send.pending = &ask.borrowed;
    ++ask.borrowed;
    outbox_.add(ask.from, send);
  }
}

// ---- out of a device's memory

void RowAsks::read_array(Ask& ask, DeviceStore& store, const StoreUnits& units, uint64_t width) {
  std::vector<std::byte>& staged = ask.staged[units.array];
  staged.resize(units.count * width * sizeof(float));
  ++ask.reads_left;
  store.read({.units = units, .to = staged.data(), .left = &ask.reads_left});
}

// The next portion of what is asked for, to memory of the ask's.
void RowAsks::read_portion(Ask& ask, const Table& table) {
  DeviceStore& store = *table.store();
  ask.reading = true;
  ask.staged_ranges = {};
  const bool ids = table.partition().ids_declared();
  const uint64_t first_row = ask.first_row + ask.served_rows;
  uint64_t rows = 0;
  if (ids) {
    serve_rows(ask, table);
  } else {
    rows = std::min(ask.row_count - ask.served_rows, portion_rows(table));
    ask.served_rows += rows;
  }
  for (uint32_t array = 0; array < table.array_count(); ++array) {
    if ((ask.arrays >> array & 1) == 0) continue;
    if (!ids) {
      const Range range = held_elements(table, columns_.rank(), first_row, rows, array);
      ask.staged_ranges[array] = range;
      if (range.count == 0) continue;
      read_array(ask, store, table.device()->elements_from(array, range.first, range.count), 1);
    } else if (!ask.serve_order.empty()) {
      read_array(ask, store,
                 {.array = array, .count = ask.serve_order.size(), .list = ask.serve_order.data()},
                 table.array_width(array));
    }
  }
}

void RowAsks::send_portion(Ask& ask, const Table& table) {
  ask.reading = false;
  const bool ids = table.partition().ids_declared();
  for (uint32_t array = 0; array < table.array_count(); ++array) {
    const uint64_t count = ids ? ask.serve_row_keys.size() : ask.staged_ranges[array].count;
    if ((ask.arrays >> array & 1) == 0 || count == 0) continue;
    Send send = rows_send(SectionKind::kRowsAnswer, ask.variable, ask.number, array);
    send.format.element_bytes = send.format.source_bytes = bytes_of_dtype(table.dtype(array));
    send.count = count;
    if (ids) {
      send.header.encoding = Encoding::kRows;
      send.rows = {.row_keys = ask.serve_row_keys.data(),
                   .values = ask.staged[array].data(),
                   .row_elements = static_cast<uint32_t>(table.array_width(array))};
    } else {
      send.header.encoding = Encoding::kDense;
      send.header.first = ask.staged_ranges[array].first;
      send.dense = ask.staged[array].data();
    }
    send.pending = &ask.borrowed;
    ++ask.borrowed;
    outbox_.add(ask.from, send);
  }
  serve_end(ask, table);
}

}  // namespace parallax
