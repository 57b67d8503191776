// SPDX-License-Identifier: Apache-2.0
// This rank's reads, pulls and writes, and what others write to it. See row_access.h.
#include "server/row_access.h"

#include <algorithm>

#include "aggregate/group_items.h"
#include "base/check.h"

namespace parallax {

namespace {

constexpr uint64_t kNoUpdates = UINT64_MAX;  // the count of updates stays as it is

// Of what a writer gives, which is rounded to what the table keeps on its way out.
WireFormat given_format(const Table& table, uint32_t array) {
  return {.element_bytes = bytes_of_dtype(table.dtype(array)),
          .source_bytes = bytes_of_sum(table.sum_type()),
          .convert = converter(dtype_of(table.sum_type()), table.dtype(array))};
}

}  // namespace

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
  std::fill(grouped_.begin(), grouped_.end(), 0);
  for (uint32_t i = 0; i < count && table.sharded(); ++i) {
    grouped_[i] = table.partition().owner_of(row_keys_[i]);
  }
  group_items(grouped_, groups, offsets_, items_);
  for (uint32_t item = 0; item < count; ++item) grouped_[item] = row_keys_[items_[item]];
}

// ---- read, pull

void RowAccess::start_read(const RowsCall& call) {
  start(Doing::kRead, call);
  const Table& table = *tables_.table_of(call.variable);
  numbers_left_ = 0;
  RowsAskPayload ask = {tables_.step_finished(), call.first_row, call.row_count, 0, 0};
  for (uint32_t array = 0; array < table.array_count(); ++array) {
    if (call.parts[array] == nullptr) continue;
    ask.arrays |= 1u << array;
    numbers_left_ += call.row_count * table.array_width(array);
  }
  // A mirror lies here whole; of a sharded variable the owners of nothing are not asked.
  for (uint32_t owner = 0; owner < columns_.world(); ++owner) {
    if (!table.sharded() ? owner == columns_.rank() : table.owned_elements(owner, 0) > 0) {
      waited_.push_back(owner);
    }
  }
  answers_left_ = static_cast<uint32_t>(waited_.size());
  for (const uint32_t owner : waited_) {
    // Which rows of a range an owner has would take a walk over all of them to know: its answer is
    // due in their order, and what all owners have is counted.
    expect_answer(owner, call.row_count);
    if (table.partition().ids_declared()) continue;
    for (uint32_t array = 0; array < table.array_count(); ++array) {
      answers_[owner][array].due =
          held_elements(table, owner, call.first_row, call.row_count, array).count;
    }
  }
  const Send send = rows_send(SectionKind::kRowsAsk, call.variable, number_, 0);
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
  for (; next_row_ < call_.row_count && row_keys_.size() < kListedRowsMax; ++next_row_) {
    const int64_t id = call_.ids.at(next_row_);
    if (id == kPaddingId) {
      std::memset(call_.parts[0] + next_row_ * row_bytes, 0, row_bytes);
      continue;
    }
    row_keys_.push_back(table.partition().row_key_of(static_cast<uint64_t>(id)));
    portion_rows_.push_back(static_cast<uint32_t>(next_row_));
  }
  group_row_keys(table);
  numbers_left_ = row_keys_.size() * width;
  // A number of its own for each portion: an answer to the one before is then told from this one's.
  ++number_;
  const Send send = rows_send(SectionKind::kRowsAsk, call_.variable, number_, 0);
  for (uint32_t owner = 0; owner < columns_.world(); ++owner) {
    const uint32_t listed = offsets_[owner + 1] - offsets_[owner];
    if (listed == 0) continue;
    const RowsAskPayload ask = {tables_.step_finished(), 0, listed, 1, listed};
    ask_bytes_.resize(sizeof ask + listed * sizeof(uint32_t));
    std::memcpy(ask_bytes_.data(), &ask, sizeof ask);
    std::memcpy(&ask_bytes_[sizeof ask], &grouped_[offsets_[owner]], listed * sizeof(uint32_t));
    waited_.push_back(owner);
    ++answers_left_;
    expect_answer(owner, listed);
    outbox_.send_bytes(owner, send.header, ask_bytes_);
  }
}

bool RowAccess::on_section(uint32_t from, const Section& section) {
  switch (section.header.kind) {
    case SectionKind::kRowsAsk:
      return asks_.on_ask(from, section);
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

void RowAccess::advance() {
  asks_.advance();
  if (!active_) return;
  // The next portion of ids only when the last one is answered, and of rows to write when it is out
  // of the caller's buffer: the lists of one portion are all the memory that a call takes.
  while (doing_ == Doing::kPull && rows_left() && answers_left_ == 0) ask_portion();
  while (doing_ == Doing::kWrite && rows_left() && *pending_ == 0) write_portion();
}

bool RowAccess::on_answer(uint32_t from, const Section& section) {
  const SectionHeader& header = section.header;
  // Who has ended its answer is waited for no more: nothing further of it is due.
  if (!active_ || doing_ == Doing::kWrite || header.tag != call_.variable ||
      header.step != number_ || std::find(waited_.begin(), waited_.end(), from) == waited_.end()) {
    return false;
  }
  const Table& table = *tables_.table_of(call_.variable);
  if ((header.flags & kSectionLast) != 0) {
    if (header.count != 0 || !section.payload.empty() || !answered_all(from, table)) return false;
    if (call_.updates != nullptr) *call_.updates = header.first;
    answered(from);
    return answers_left_ > 0 || numbers_left_ == 0;
  }
  if (header.part >= table.array_count() || call_.parts[header.part] == nullptr) return false;
  return table.partition().ids_declared() ? take_rows(from, table, section)
                                          : take_elements(from, table, section);
}

// Sets what `from` owes of each array.
void RowAccess::expect_answer(uint32_t from, uint64_t due) {
  answers_.resize(columns_.world());
  answers_[from].fill({.due = due});
}

// Whether its answer lacks nothing, as far as that is known of an owner alone: a range of rows is
// known to be whole with the last of them.
bool RowAccess::answered_all(uint32_t from, const Table& table) const {
  if (doing_ == Doing::kRead && table.partition().ids_declared()) return true;
  for (uint32_t array = 0; array < table.array_count(); ++array) {
    if (call_.parts[array] != nullptr && !answers_[from][array].complete()) return false;
  }
  return true;
}

// Elements of an array that came, to element `at` of the caller's buffer.
void RowAccess::place(const Table& table, uint32_t array, uint64_t at,
                      std::span<const std::byte> numbers) {
  const uint32_t kept = table.dtype(array);
  const uint32_t dtype = array == 0 ? call_.dtype : kept;
  const size_t bytes = bytes_of_dtype(dtype);
  convert_or_copy(converter(kept, dtype), numbers.data(), call_.parts[array] + at * bytes,
                  numbers.size() / bytes_of_dtype(kept), bytes);
}

// The row of the caller's buffer that `from` answers with this row key; false if it was not asked
// for it, or has answered it. A list is answered in its order, so the next row key is known; a
// range in the order of its rows, of which others have some.
bool RowAccess::place_row(uint32_t from, const Table& table, uint32_t array, uint32_t row_key,
                          uint64_t* row) {
  const Partition& partition = table.partition();
  AnswerProgress& answer = answers_[from][array];
  if (doing_ == Doing::kPull) {
    const uint64_t next = offsets_[from] + answer.came;
    if (!answer.take(answer.came, 1) || grouped_[next] != row_key) return false;
    *row = portion_rows_[items_[next]];
    return true;
  }
  if (row_key >= partition.rows() || (table.sharded() && partition.owner_of(row_key) != from)) {
    return false;
  }
  // Wraps to a huge number if it lies before the first row.
  *row = partition.row_of(row_key) - call_.first_row;
  return answer.skip_and_take(*row);
}

bool RowAccess::take_rows(uint32_t from, const Table& table, const Section& section) {
  const uint32_t array = section.header.part;
  const uint64_t width = table.array_width(array);
  const size_t row_bytes = width * bytes_of_dtype(table.dtype(array));
  const uint32_t count = section.header.count;
  if (section.header.encoding != Encoding::kRows || count == 0 || count * width > numbers_left_ ||
      section.payload.size() != count * (sizeof(uint32_t) + row_bytes)) {
    return false;
  }
  std::span<const std::byte> values = section.payload.subspan(count * sizeof(uint32_t));
  for (uint32_t i = 0; i < count; ++i, values = values.subspan(row_bytes)) {
    uint32_t row_key;
    uint64_t row;
    std::memcpy(&row_key, section.payload.data() + i * sizeof row_key, sizeof row_key);
    if (!place_row(from, table, array, row_key, &row)) return false;
    place(table, array, row * width, values.first(row_bytes));
  }
  numbers_left_ -= count * width;
  return true;
}

bool RowAccess::take_elements(uint32_t from, const Table& table, const Section& section) {
  const SectionHeader& header = section.header;
  const Range held = held_elements(table, from, call_.first_row, call_.row_count, header.part);
  // Of what `from` holds; wraps to a huge number if it lies before.
  const uint64_t into = header.first - held.first;
  if (header.encoding != Encoding::kDense ||
      section.payload.size() != header.count * bytes_of_dtype(table.dtype(header.part)) ||
      !answers_[from][header.part].take(into, header.count)) {
    return false;
  }
  place(table, header.part, header.first - call_.first_row * table.array_width(header.part),
        section.payload);
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

// With the count of updates of the table that the first row is of.
Send RowAccess::write_end() const {
  Send end = rows_send(SectionKind::kRowsWrite, call_.variable, number_, 0);
  end.header.flags = kSectionLast;
  end.header.first = call_.updates == nullptr ? kNoUpdates : *call_.updates;
  // Borrowed: the call is not written anew before every holder has answered this.
  end.bytes = reinterpret_cast<const std::byte*>(&call_.first_row);
  end.count = sizeof call_.first_row;
  end.whole = true;
  return end;
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
      Send send = rows_send(SectionKind::kRowsWrite, call_.variable, number_, array);
      send.header.encoding = Encoding::kRows;
      send.format = given_format(table, array);
      send.rows = {.row_keys = &grouped_[offsets_[group]],
                   .values = call_.parts[array] + next_row_ * width * send.format.source_bytes,
                   .order = &items_[offsets_[group]],
                   .row_elements = static_cast<uint32_t>(width)};
      send.count = offsets_[group + 1] - offsets_[group];
      if (send.count > 0) send_to_holders(table, send, group);
    }
  }
  next_row_ += count;
  if (next_row_ < call_.row_count) return;
  for (const uint32_t holder : waited_) outbox_.add(holder, write_end());
}

void RowAccess::write_elements() {
  const Table& table = *tables_.table_of(call_.variable);
  for (const uint32_t holder : waited_) {
    for (uint32_t array = 0; array < table.array_count(); ++array) {
      const uint64_t first = call_.first_row * table.array_width(array);
      const Range range = held_elements(table, holder, call_.first_row, call_.row_count, array);
      if (call_.parts[array] == nullptr || range.count == 0) continue;
      Send send = rows_send(SectionKind::kRowsWrite, call_.variable, number_, array);
      send.header.encoding = Encoding::kDense;
      send.header.first = range.first;
      send.format = given_format(table, array);
      send.dense = call_.parts[array] + (range.first - first) * send.format.source_bytes;
      send.count = range.count;
      send.pending = pending_;
      ++*pending_;
      outbox_.add(holder, send);
    }
    outbox_.add(holder, write_end());
  }
}

bool RowAccess::on_write(uint32_t from, const Section& section) {
  const SectionHeader& header = section.header;
  Table* table = tables_.table_of(header.tag);
  if (table == nullptr) return false;
  HeldWrite& write = writes_[from];
  // Calls of a rank have ascending numbers. Behind the end of one nothing of it is due: it would be
  // acknowledged once more, and the writer take this rank for the one that broke the rules.
  if (header.step < write.number || (header.step == write.number && write.ended)) return false;
  // A new call of that rank: nothing of it was refused yet.
  if (write.number != header.step) write = {.number = header.step};
  // Refused once, refused to its end: see HeldWrite.
  write.refused |= tables_.in_step();
  if ((header.flags & kSectionLast) != 0) {
    uint64_t first_row = 0;
    if (section.payload.size() != sizeof first_row) return false;
    std::memcpy(&first_row, section.payload.data(), sizeof first_row);
    if (first_row >= table->partition().rows()) return false;
    write.ended = true;
    if (!write.refused && header.first != kNoUpdates) table->updates().set(first_row, header.first);
    SectionHeader written = header;
    written.kind = SectionKind::kRowsWritten;
    written.first = write.refused ? 1 : 0;
    written.flags = 0;
    outbox_.send_bytes(from, written, {});
    return true;
  }
  if (header.part >= table->array_count() || header.count == 0) return false;
  return write.refused || table->write_section(section);
}

bool RowAccess::on_written(uint32_t from, const Section& section) {
  const SectionHeader& header = section.header;
  if (!active_ || doing_ != Doing::kWrite || rows_left() || header.tag != call_.variable ||
      header.step != number_ || !section.payload.empty() ||
      std::find(waited_.begin(), waited_.end(), from) == waited_.end()) {
    return false;
  }
  if (header.first != 0) refused_.push_back(from);
  answered(from);
  return true;
}

}  // namespace parallax
