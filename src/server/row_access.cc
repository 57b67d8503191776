// SPDX-License-Identifier: Apache-2.0
// Reads, pulls and writes, message by message. See row_access.h.
#include "server/row_access.h"

#include <algorithm>

#include "aggregate/row_coalescer.h"
#include "base/check.h"

namespace parallax {

namespace {

// So many at a time, that one call holds up neither other askers nor other sends.
constexpr uint64_t kPortionRows = 1024;
constexpr uint64_t kPortionIds = 512;
constexpr uint64_t kNoUpdates = UINT64_MAX;

struct AskPayload {
  uint64_t step, first_row, row_count;
  uint32_t arrays;
  uint32_t listed;  // row keys that follow, instead of the range
};
static_assert(sizeof(AskPayload) + kPortionIds * sizeof(uint32_t) <= Outbox::kControlBytesMax);

// What of `owned` lies in the elements [first, end).
Range elements_within(const Range& owned, uint64_t first, uint64_t end) {
  const uint64_t from = std::max(owned.first, first);
  const uint64_t to = std::min(owned.end(), end);
  return {from, to > from ? to - from : 0};
}

}  // namespace

Send RowAccess::new_send(SectionKind kind, uint32_t variable, uint64_t number,
                         uint32_t array) const {
  Send send;
  send.header.kind = kind;
  send.header.tag = variable;
  send.header.step = number;
  send.header.part = static_cast<uint8_t>(array);
  return send;
}

void RowAccess::answered(uint32_t from) {
  --answers_left_;
  std::erase(waited_, from);
}

Status RowAccess::finish() {
  PARALLAX_CHECK(finished());
  active_ = false;
  if (refused_.empty()) return {};
  std::string ranks;
  for (const uint32_t rank : refused_) {
    ranks += (ranks.empty() ? "" : ", ") + std::to_string(rank);
  }
  return bad_state("write: rank " + ranks +
                   " was in a step while the rows came, and left out some or all of them; call "
                   "barrier on every rank before a write and after it, and write these again");
}

void RowAccess::start(Doing doing, const RowsCall& call) {
  PARALLAX_CHECK(!active_);
  active_ = true;
  doing_ = doing;
  call_ = call;
  next_row_ = 0;
  answers_left_ = 0;
  ++number_;
  refused_.clear();
  waited_.clear();
}

// Groups the row keys of a portion by holder; of a mirror, which all hold, as one.
void RowAccess::group_row_keys(const Table& table) {
  const auto count = static_cast<uint32_t>(row_keys_.size());
  const uint32_t groups = table.sharded() ? columns_.world() : 1;
  items_.resize(count);
  grouped_.resize(count);
  offsets_.resize(groups + 1);
  group_items(
      count, groups,
      [&](uint32_t i) { return table.sharded() ? table.partition().owner_of(row_keys_[i]) : 0; },
      offsets_, items_);
  for (uint32_t item = 0; item < count; ++item) grouped_[item] = row_keys_[items_[item]];
}

// ---- read, pull

void RowAccess::start_read(const RowsCall& call) {
  start(Doing::kRead, call);
  const Table& table = *tables_.table_of(call.variable);
  numbers_left_ = 0;
  AskPayload ask = {tables_.step_finished(), call.first_row, call.row_count, 0, 0};
  for (uint32_t array = 0; array < table.array_count(); ++array) {
    if (call.parts[array] == nullptr) continue;
    ask.arrays |= 1u << array;
    numbers_left_ += call.row_count * table.array_width(array);
  }
  for (uint32_t owner = 0; owner < columns_.world(); ++owner) {
    if (!table.sharded() ? owner == columns_.rank() : table.owned_elements(owner, 0) > 0) {
      waited_.push_back(owner);
    }
  }
  answers_left_ = static_cast<uint32_t>(waited_.size());
  const Send send = new_send(SectionKind::kRowsAsk, call.variable, number_, 0);
  for (const uint32_t owner : waited_) {
    outbox_.send_bytes(owner, send.header, std::as_bytes(std::span(&ask, 1)));
  }
}

void RowAccess::start_pull(const RowsCall& call) {
  PARALLAX_CHECK(tables_.table_of(call.variable)->sharded());
  start(Doing::kPull, call);
  advance();
}

// The next ids, from their owners; padding is filled in here.
void RowAccess::ask_portion() {
  const Table& table = *tables_.table_of(call_.variable);
  const uint64_t width = table.row_elements();
  const size_t row_bytes = width * bytes_of_dtype(call_.dtype);
  row_keys_.clear();
  portion_rows_.clear();
  for (; next_row_ < call_.row_count && row_keys_.size() < kPortionIds; ++next_row_) {
    const int64_t id = call_.ids.at(next_row_);
    if (id == kPaddingId) {
      std::memset(call_.parts[0] + next_row_ * row_bytes, 0, row_bytes);
      continue;
    }
    row_keys_.push_back(table.partition().row_key_of(static_cast<uint64_t>(id)));
    portion_rows_.push_back(static_cast<uint32_t>(next_row_));
  }
  group_row_keys(table);
  taken_.assign(offsets_.begin(), offsets_.end());
  numbers_left_ = row_keys_.size() * width;
  ++number_;
  const Send send = new_send(SectionKind::kRowsAsk, call_.variable, number_, 0);
  for (uint32_t owner = 0; owner < columns_.world(); ++owner) {
    const uint32_t listed = offsets_[owner + 1] - offsets_[owner];
    if (listed == 0) continue;
    const AskPayload ask = {tables_.step_finished(), 0, listed, 1, listed};
    ask_bytes_.resize(sizeof ask + listed * sizeof(uint32_t));
    std::memcpy(ask_bytes_.data(), &ask, sizeof ask);
    std::memcpy(&ask_bytes_[sizeof ask], &grouped_[offsets_[owner]], listed * sizeof(uint32_t));
    waited_.push_back(owner);
    ++answers_left_;
    outbox_.send_bytes(owner, send.header, ask_bytes_);
  }
}

bool RowAccess::on_section(uint32_t from, const Section& section) {
  switch (section.header.kind) {
    case SectionKind::kRowsAsk:
      return on_ask(from, section);
    case SectionKind::kRowsAnswer:
      return on_answer(from, section);
    case SectionKind::kRowsWrite:
      return on_write(from, section);
    case SectionKind::kRowsWritten:
      return on_written(from, section);
    default:
      return false;
  }
}

bool RowAccess::on_ask(uint32_t from, const Section& section) {
  AskPayload payload;
  const Table* table = tables_.table_of(section.header.tag);
  if (table == nullptr || section.payload.size() < sizeof payload) return false;
  std::memcpy(&payload, section.payload.data(), sizeof payload);
  const Partition& partition = table->partition();
  const uint64_t rows = partition.rows();
  // A list may name a row more than once, and so be longer than the variable.
  const bool by_list = payload.listed > 0;
  const bool fits =
      by_list ? partition.ids_declared() && payload.listed <= kPortionIds &&
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
  // A rank asks again only once it was answered: one ask of each bounds the memory.
  std::erase_if(asks_, [](const Ask& ask) { return ask.served && ask.borrowed == 0; });
  if (std::any_of(asks_.begin(), asks_.end(), [&](const Ask& ask) { return ask.from == from; })) {
    return false;
  }
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

// Each ask is served as of the step that its asker last finished. The asker ends no step meanwhile,
// so no later step can be applied here.
void RowAccess::advance() {
  for (Ask& ask : asks_) {
    while (!ask.served && ask.borrowed == 0 && ask.step <= tables_.step_finished()) serve(ask);
  }
  std::erase_if(asks_, [](const Ask& ask) { return ask.served && ask.borrowed == 0; });
  if (!active_) return;
  while (doing_ == Doing::kPull && rows_left() && answers_left_ == 0) ask_portion();
  while (doing_ == Doing::kWrite && rows_left() && *pending_ == 0) write_portion();
}

void RowAccess::serve(Ask& ask) {
  const Table& table = *tables_.table_of(ask.variable);
  if (table.partition().ids_declared()) {
    serve_rows(ask, table);
  } else {
    serve_elements(ask, table);
  }
  if (ask.served_rows < ask.row_count) return;
  Send end = new_send(SectionKind::kRowsAnswer, ask.variable, ask.number, 0);
  end.header.flags = kSectionLast;
  end.header.first = table.updates();
  outbox_.add(ask.from, end);
  ask.served = true;
}

void RowAccess::serve_rows(Ask& ask, const Table& table) {
  const Partition& partition = table.partition();
  ask.serve_row_keys.clear();
  ask.serve_order.clear();
  for (const uint32_t row_key : ask.row_keys) {
    ask.serve_row_keys.push_back(row_key);
    ask.serve_order.push_back(static_cast<uint32_t>(table.row_of(row_key)));
  }
  if (!ask.row_keys.empty()) ask.served_rows = ask.row_count;
  while (ask.served_rows < ask.row_count && ask.serve_row_keys.size() < kPortionRows) {
    const uint32_t row_key = partition.row_key_of(ask.first_row + ask.served_rows++);
    if (table.sharded() && partition.owner_of(row_key) != columns_.rank()) continue;
    ask.serve_row_keys.push_back(row_key);
    ask.serve_order.push_back(static_cast<uint32_t>(table.row_of(row_key)));
  }
  send_served(ask, table);
}

void RowAccess::send_served(Ask& ask, const Table& table) {
  for (uint32_t array = 0; array < table.array_count(); ++array) {
    if ((ask.arrays >> array & 1) == 0 || ask.serve_row_keys.empty()) continue;
    Send send = new_send(SectionKind::kRowsAnswer, ask.variable, ask.number, array);
    send.header.encoding = Encoding::kRows;
    send.format.element_bytes = send.format.source_bytes =
        static_cast<uint32_t>(table.element_bytes());
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

void RowAccess::serve_elements(Ask& ask, const Table& table) {
  const uint64_t width = table.row_elements();
  const Range owned = table.sharded() ? table.partition().range_of(columns_.rank())
                                      : Range{0, table.partition().elements()};
  const Range range =
      elements_within(owned, ask.first_row * width, (ask.first_row + ask.row_count) * width);
  ask.served_rows = ask.row_count;
  for (uint32_t array = 0; array < table.array_count(); ++array) {
    if ((ask.arrays >> array & 1) == 0 || range.count == 0) continue;
    Send send = new_send(SectionKind::kRowsAnswer, ask.variable, ask.number, array);
    send.header.encoding = Encoding::kDense;
    send.header.first = range.first;
    send.format.element_bytes = send.format.source_bytes =
        static_cast<uint32_t>(table.element_bytes());
    send.dense = table.element_at(array, range.first);
    send.count = range.count;
    send.pending = &ask.borrowed;
    ++ask.borrowed;
    outbox_.add(ask.from, send);
  }
}

bool RowAccess::on_answer(uint32_t from, const Section& section) {
  const SectionHeader& header = section.header;
  if (!active_ || doing_ == Doing::kWrite || header.tag != call_.variable ||
      header.step != number_ || std::find(waited_.begin(), waited_.end(), from) == waited_.end()) {
    return false;
  }
  const Table& table = *tables_.table_of(call_.variable);
  if ((header.flags & kSectionLast) != 0) {
    if (call_.updates != nullptr) *call_.updates = header.first;
    answered(from);
    return header.count == 0 && (answers_left_ > 0 || numbers_left_ == 0);
  }
  if (header.part >= table.array_count() || call_.parts[header.part] == nullptr) return false;
  return header.encoding == Encoding::kRows ? take_rows(from, table, section)
                                            : take_elements(table, section);
}

// Elements of an array that came, to element `at` of the caller's buffer.
void RowAccess::place(const Table& table, uint32_t array, uint64_t at,
                      std::span<const std::byte> numbers) {
  const size_t master_bytes = table.element_bytes();
  const uint32_t master = dtype_of(table.sum_type());
  const uint32_t dtype = array == 0 ? call_.dtype : master;
  const size_t bytes = bytes_of_dtype(dtype);
  convert_or_copy(converter(master, dtype), numbers.data(), call_.parts[array] + at * bytes,
                  numbers.size() / master_bytes, bytes);
}

// The row of the caller's buffer that `from` answers with this row key; false if it was not asked
// for. A list is answered in its order, so the next row key is known.
bool RowAccess::place_row(uint32_t from, const Table& table, uint32_t row_key, uint64_t* row) {
  const Partition& partition = table.partition();
  if (doing_ == Doing::kPull) {
    const uint32_t next = taken_[from]++;
    if (next >= offsets_[from + 1] || grouped_[next] != row_key) return false;
    *row = portion_rows_[items_[next]];
    return true;
  }
  if (row_key >= partition.rows() || (table.sharded() && partition.owner_of(row_key) != from)) {
    return false;
  }
  *row = partition.row_of(row_key) - call_.first_row;
  return *row < call_.row_count;
}

bool RowAccess::take_rows(uint32_t from, const Table& table, const Section& section) {
  const uint64_t width = table.array_width(section.header.part);
  const size_t row_bytes = width * table.element_bytes();
  const uint32_t count = section.header.count;
  if (!table.partition().ids_declared() || count * width > numbers_left_ ||
      section.payload.size() != count * (sizeof(uint32_t) + row_bytes)) {
    return false;
  }
  std::span<const std::byte> values = section.payload.subspan(count * sizeof(uint32_t));
  for (uint32_t i = 0; i < count; ++i, values = values.subspan(row_bytes)) {
    uint32_t row_key;
    uint64_t row;
    std::memcpy(&row_key, section.payload.data() + i * sizeof row_key, sizeof row_key);
    if (!place_row(from, table, row_key, &row)) return false;
    place(table, section.header.part, row * width, values.first(row_bytes));
  }
  numbers_left_ -= count * width;
  return true;
}

bool RowAccess::take_elements(const Table& table, const Section& section) {
  const SectionHeader& header = section.header;
  // Wraps to a huge number if it lies before the first row.
  const uint64_t at = header.first - call_.first_row * table.row_elements();
  const uint64_t all = call_.row_count * table.row_elements();
  if (table.partition().ids_declared() || header.encoding != Encoding::kDense || at > all ||
      header.count > all - at || header.count > numbers_left_ ||
      section.payload.size() != header.count * table.element_bytes()) {
    return false;
  }
  place(table, header.part, at, section.payload);
  numbers_left_ -= header.count;
  return true;
}

// ---- write

void RowAccess::start_write(const RowsCall& call, uint32_t* pending) {
  start(Doing::kWrite, call);
  const Table& table = *tables_.table_of(call.variable);
  pending_ = pending;
  for (uint32_t rank = 0; rank < columns_.world(); ++rank) {
    if (!table.sharded() || table.owned_elements(rank, 0) > 0) waited_.push_back(rank);
  }
  answers_left_ = static_cast<uint32_t>(waited_.size());
  if (!table.partition().ids_declared()) {
    write_elements();
    next_row_ = call.row_count;
  }
  advance();
}

// To the owner, or to everyone where the variable is mirrored.
void RowAccess::send_to_holders(const Table& table, Send send, uint32_t owner) {
  send.pending = pending_;
  for (const uint32_t holder : waited_) {
    if (table.sharded() && holder != owner) continue;
    ++*pending_;
    outbox_.add(holder, send);
  }
}

void RowAccess::write_portion() {
  const Table& table = *tables_.table_of(call_.variable);
  const auto count = std::min(kPortionRows, call_.row_count - next_row_);
  const uint32_t groups = table.sharded() ? columns_.world() : 1;
  row_keys_.resize(count);
  for (uint64_t i = 0; i < count; ++i) {
    row_keys_[i] = table.partition().row_key_of(call_.first_row + next_row_ + i);
  }
  group_row_keys(table);
  for (uint32_t array = 0; array < table.array_count(); ++array) {
    if (call_.parts[array] == nullptr) continue;
    const uint64_t width = table.array_width(array);
    for (uint32_t group = 0; group < groups; ++group) {
      Send send = new_send(SectionKind::kRowsWrite, call_.variable, number_, array);
      send.header.encoding = Encoding::kRows;
      send.format.element_bytes = send.format.source_bytes =
          static_cast<uint32_t>(table.element_bytes());
      send.rows = {.row_keys = &grouped_[offsets_[group]],
                   .values = call_.parts[array] + next_row_ * width * table.element_bytes(),
                   .order = &items_[offsets_[group]],
                   .row_elements = static_cast<uint32_t>(width)};
      send.count = offsets_[group + 1] - offsets_[group];
      if (send.count > 0) send_to_holders(table, send, group);
    }
  }
  next_row_ += count;
  if (next_row_ < call_.row_count) return;
  Send end = new_send(SectionKind::kRowsWrite, call_.variable, number_, 0);
  end.header.flags = kSectionLast;
  end.header.first = call_.updates == nullptr ? kNoUpdates : *call_.updates;
  for (const uint32_t holder : waited_) outbox_.add(holder, end);
}

void RowAccess::write_elements() {
  const Table& table = *tables_.table_of(call_.variable);
  const uint64_t first = call_.first_row * table.row_elements();
  const uint64_t end = first + call_.row_count * table.row_elements();
  for (const uint32_t holder : waited_) {
    const Range range = elements_within(
        table.sharded() ? table.partition().range_of(holder) : Range{first, end - first}, first,
        end);
    for (uint32_t array = 0; array < table.array_count(); ++array) {
      if (call_.parts[array] == nullptr || range.count == 0) continue;
      Send send = new_send(SectionKind::kRowsWrite, call_.variable, number_, array);
      send.header.encoding = Encoding::kDense;
      send.header.first = range.first;
      send.format.element_bytes = send.format.source_bytes =
          static_cast<uint32_t>(table.element_bytes());
      send.dense = call_.parts[array] + (range.first - first) * table.element_bytes();
      send.count = range.count;
      send.pending = pending_;
      ++*pending_;
      outbox_.add(holder, send);
    }
    Send last = new_send(SectionKind::kRowsWrite, call_.variable, number_, 0);
    last.header.flags = kSectionLast;
    last.header.first = call_.updates == nullptr ? kNoUpdates : *call_.updates;
    outbox_.add(holder, last);
  }
}

bool RowAccess::on_write(uint32_t from, const Section& section) {
  const SectionHeader& header = section.header;
  Table* table = tables_.table_of(header.tag);
  if (table == nullptr) return false;
  HeldWrite& write = writes_[from];
  // A new call of that rank: nothing of it was refused yet.
  if (write.number != header.step) write = {.number = header.step, .refused = false};
  // Refused once, refused to its end: see HeldWrite.
  write.refused |= tables_.in_step();
  const bool refused = write.refused;
  if ((header.flags & kSectionLast) != 0) {
    if (!refused && header.first != kNoUpdates) table->set_updates(header.first);
    SectionHeader taken = header;
    taken.kind = SectionKind::kRowsWritten;
    taken.first = refused ? 1 : 0;
    taken.flags = 0;
    outbox_.send_bytes(from, taken, {});
    return true;
  }
  if (header.part >= table->array_count()) return false;
  return refused || table->write_section(section);
}

bool RowAccess::on_written(uint32_t from, const Section& section) {
  if (!active_ || doing_ != Doing::kWrite || section.header.step != number_ ||
      std::find(waited_.begin(), waited_.end(), from) == waited_.end()) {
    return false;
  }
  if (section.header.first != 0) refused_.push_back(from);
  answered(from);
  return true;
}

}  // namespace parallax
