// SPDX-License-Identifier: Apache-2.0
// Turns of copying, and what makes a copy good. See table_reader.h.
#include "server/table_reader.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "base/prefetch.h"
#include "base/row_copies.h"

namespace parallax {

namespace {

// Copied in a turn: some 50 us.
constexpr uint64_t kTurnBytes = 512 * 1024;

}  // namespace

TableReader::TableReader(const Columns& columns, Outbox& outbox, Use use, User& user)
    : columns_(columns),
      outbox_(outbox),
      used_(use != Use::kNone),
      reads_(use == Use::kReads),
      user_(user),
      current_(used_ ? columns.locals().size() : 0),
      shards_(current_.size()) {
  known_.tables.resize(shards_.size());
  if (!used_) return;
  readings_.reserve(PARALLAX_SLICES_MAX);
  current_[columns.local()] = 1;
}

TableReader::~TableReader() { outbox_.lending().forget(this); }

void TableReader::reserve(size_t slots) {
  if (used_ && slots <= kTurnBytes) slot_rows_.reserve(slots);
}

// ---- what is known of tables

bool TableReader::current(uint32_t owner, uint64_t step) {
  if (!used_ || step <= current_[columns_.local_of(owner)]) return false;
  current_[columns_.local_of(owner)] = step;
  begin();
  return true;
}

bool TableReader::on_place(uint32_t from, PulledVariable* variable, const Section& section) {
  BufferPlace place;
  if (!used_ || from == columns_.rank() || variable == nullptr || !variable->by_rows() ||
      !variable->owned_by(from) || section.header.encoding != Encoding::kBytes ||
      section.payload.size() != sizeof place) {
    return false;
  }
  std::memcpy(&place, section.payload.data(), sizeof place);
  if (place.buffer == 0 || place.offset % kArenaAlignmentBytes != 0) return false;
  // The last one counts: of a variable that was mirrored in between there was another.
  variable->tables.of[columns_.local_of(from)].place = place;
  return true;
}

// Null: it is nowhere to be read here.
const std::byte* TableReader::find(const PulledVariable& variable, uint32_t owner) const {
  if (owner == columns_.rank()) {
    const Table* const table = variable.table;
    return table == nullptr || table->store() != nullptr ? nullptr : table->array(0).data();
  }
  const PulledVariable::HostTables::OfRank& table = variable.tables.of[columns_.local_of(owner)];
  if (table.place.buffer == 0) return nullptr;
  const uint64_t row_bytes = variable.partition.row_elements() * bytes_of_dtype(variable.master);
  return outbox_.lending().find(owner, table.place,
                                kArenaAlignmentBytes + table.owned_rows * row_bytes);
}

RowsInTables TableReader::reads(const PulledVariable& variable) const {
  if (!reads_ || !variable.by_rows()) return RowsInTables::kNone;
  const std::vector<uint32_t>& ranks = columns_.locals();
  const bool found = std::all_of(ranks.begin(), ranks.end(), [&](uint32_t rank) {
    const bool none = variable.tables.of[columns_.local_of(rank)].owned_rows == 0;
    return none || find(variable, rank) != nullptr;
  });
  if (!found) return RowsInTables::kNone;
  return variable.tables.have_all ? RowsInTables::kAll : RowsInTables::kHosts;
}

bool TableReader::is_current(const PulledVariable& variable) const {
  const std::vector<uint32_t>& ranks = columns_.locals();
  return std::all_of(ranks.begin(), ranks.end(), [&](uint32_t rank) {
    return current_[columns_.local_of(rank)] >= step_ || !variable.owned_by(rank);
  });
}

// ---- a pull

void TableReader::start(uint64_t step) {
  step_ = step;
  readings_.clear();
  front_ = {};
  known_.variable = nullptr;
}

void TableReader::add(PulledVariable& variable, const PulledSlice& slice) {
  const uint32_t count = slice.slice.count;
  if (count > 0) readings_.push_back({.variable = &variable, .slice = &slice, .count = count});
}

void TableReader::add_hosts_rows(PulledVariable& variable, const PulledSlice* slices) {
  readings_.push_back({.variable = &variable,
                       .slice = &slices[variable.first_slice],
                       .all = slices,
                       .count = variable.coalescer.group_count(variable.tables_group())});
}

void TableReader::begin() {
  if (!finished() && is_current(*readings_[front_.at].variable)) outbox_.lending().wake(this);
}

void TableReader::add_missing(std::vector<uint32_t>* owners) const {
  if (finished()) return;
  for (const uint32_t rank : columns_.locals()) {
    if (current_[columns_.local_of(rank)] < step_ && readings_[front_.at].variable->owned_by(rank))
      owners->push_back(rank);
  }
}

bool TableReader::read_lent() {
  uint64_t left_bytes = kTurnBytes;
  while (!finished() && left_bytes > 0) {
    const PulledVariable& variable = *readings_[front_.at].variable;
    if (!is_current(variable)) return false;
    const Found found = find_shards(variable);
    if (found != Found::kAll) return found == Found::kBeingWritten;
    Front now = front_;
    const uint64_t read_bytes = copy_more(&now, &left_bytes);
    if (!meant()) return false;
    if (!unchanged()) return true;
    outbox_.lending().count_read(read_bytes);
    tell(std::exchange(front_, now), now);
  }
  return !finished();
}

// Of several slices of a variable, whose tables are looked at once.
uint64_t TableReader::copy_more(Front* front, uint64_t* left_bytes) {
  const PulledVariable& variable = *readings_[front->at].variable;
  uint64_t read_bytes = 0;
  bool found = false;
  do {
    const size_t at = front->at;
    if (at + 4 < readings_.size()) readings_[at + 4].variable->prefetch();
    if (at + 2 < readings_.size()) readings_[at + 2].variable->prefetch_lists();
    const Reading& reading = readings_[at];
    const bool goes_on = at + 1 < readings_.size() && readings_[at + 1].variable == &variable;
    if (!std::exchange(found, true)) {
      find_slots(variable, goes_on ? UINT64_MAX : reading.count - front->row);
    }
    const uint64_t row_bytes =
        variable.partition.row_elements() * bytes_of_dtype(reading.slice->slice.dtype);
    const auto count = static_cast<uint32_t>(std::min<uint64_t>(
        reading.count - front->row, std::max<uint64_t>(1, *left_bytes / row_bytes)));
    read_bytes += copy(reading, front->row, count);
    *left_bytes -= std::min(*left_bytes, count * row_bytes);
    front->row += count;
    if (front->row < reading.count) return read_bytes;
    *front = {.at = at + 1};
  } while (*left_bytes > 0 && front->at < readings_.size() &&
           readings_[front->at].variable == &variable);
  return read_bytes;
}

// What has come between the two.
void TableReader::tell(const Front& before, const Front& now) {
  uint32_t row = before.row;
  for (size_t at = before.at; at < readings_.size() && at <= now.at; ++at, row = 0) {
    const Reading& reading = readings_[at];
    const uint32_t count = (at < now.at ? reading.count : now.row) - row;
    if (count == 0) continue;
    if (reading.all != nullptr) {
      PARALLAX_CHECK(reading.variable->from_tables().take(row, count));
      user_.on_hosts_rows(*reading.variable);
    } else {
      tell_there(reading.slice->slice.leaving, row, count);
    }
  }
}

TableReader::Found TableReader::find_shards(const PulledVariable& variable) {
  for (const uint32_t rank : columns_.locals()) {
    Shard& shard = shards_[columns_.local_of(rank)];
    shard = {};
    if (variable.tables.of[columns_.local_of(rank)].owned_rows == 0) continue;
    const std::byte* const there = find(variable, rank);
    if (there == nullptr) return Found::kGone;
    shard.values = there;
    if (rank == columns_.rank()) continue;
    shard.mark = reinterpret_cast<const TableMark*>(there);
    shard.values += kArenaAlignmentBytes;
    shard.seen = shard.mark->load(std::memory_order_acquire);
    if (shard.seen % 2 != 0) return Found::kBeingWritten;
  }
  return Found::kAll;
}

// ThreadSanitizer knows no fences, and GCC warns of them there. What these order lies in memory of
// other processes, of which it knows nothing either.
#if defined(__SANITIZE_THREAD__) && defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wtsan"
#endif

// Behind the last byte that was read.
bool TableReader::unchanged() const {
  std::atomic_thread_fence(std::memory_order_acquire);
  return std::all_of(shards_.begin(), shards_.end(), [](const Shard& shard) {
    return shard.mark == nullptr || shard.mark->load(std::memory_order_relaxed) == shard.seen;
  });
}

bool TableReader::meant() const {
  for (const uint32_t rank : columns_.locals()) {
    const TableMark* const mark = shards_[columns_.local_of(rank)].mark;
    if (mark != nullptr && !outbox_.lending().was_meant(rank)) return false;
  }
  return true;
}

// ---- rows

TableReader::SlotRows TableReader::rows_of(const SlotMap::Slot& slot, uint64_t row_bytes) const {
  if (columns_.host_of(slot.owner) != columns_.host()) return {};
  const std::byte* const values = shards_[columns_.local_of(slot.owner)].values;
  // One that is of no row has no table either.
  return {.first = values == nullptr ? nullptr : values + slot.place * row_bytes,
          .stride_bytes = slot.owner_slots * row_bytes};
}

// Slots are few, unless a setting says otherwise. Of fewer rows they are looked up row by row.
void TableReader::find_slots(const PulledVariable& variable, uint64_t rows) {
  const uint64_t row_bytes = variable.partition.row_elements() * bytes_of_dtype(variable.master);
  const std::span<const SlotMap::Slot> slots = variable.partition.slots();
  slot_rows_.clear();
  if (slots.size() > std::min<uint64_t>(rows, slot_rows_.capacity())) return;
  for (const SlotMap::Slot& slot : slots) slot_rows_.push_back(rows_of(slot, row_bytes));
}

uint64_t TableReader::copy(const Reading& reading, uint32_t row, uint32_t count) {
  const PulledVariable& variable = *reading.variable;
  if (slot_rows_.empty()) {
    const uint64_t row_bytes = variable.partition.row_elements() * bytes_of_dtype(variable.master);
    const std::span<const SlotMap::Slot> slots = variable.partition.slots();
    return copy_wanted(reading, row, count,
                       [&](uint32_t slot) { return rows_of(slots[slot], row_bytes); });
  }
  return copy_wanted(
      reading, row, count,
      [all = slot_rows_.data()](uint32_t slot) -> const SlotRows& { return all[slot]; });
}

template <typename RowsOf>
uint64_t TableReader::copy_wanted(const Reading& reading, uint32_t row, uint32_t count,
                                  RowsOf rows_of_slot) {
  return reading.all == nullptr ? copy_slice(reading, row, count, rows_of_slot)
                                : copy_hosts_rows(reading, row, count, rows_of_slot);
}

// How rows of a reading are copied, and which of those that are found lie with other ranks.
class TableReader::Copying {
 public:
  Copying(const TableReader& reader, const Reading& reading)
      : partition_(reading.variable->partition),
        row_bytes_(partition_.row_elements() * bytes_of_dtype(reading.variable->master)),
        copies_(converter(reading.variable->master, reading.slice->slice.dtype),
                partition_.row_elements(), bytes_of_dtype(reading.slice->slice.dtype)),
        own_(reinterpret_cast<uintptr_t>(reader.shards_[reader.columns_.local()].values)),
        own_bytes_(reading.variable->tables.of[reader.columns_.local()].owned_rows * row_bytes_) {}

  // Where rows lie, of `count` row keys, kRowsTogether at most; asked of the memory.
  template <typename RowsOf>
  void find(const uint32_t* row_keys, uint32_t count, RowsOf rows_of_slot,
            const std::byte** rows) const {
    std::array<uint32_t, kRowsTogether> turns;
    partition_.turns_of(row_keys, count, turns.data());
    const auto slots = static_cast<uint32_t>(partition_.slots().size());
    for (uint32_t i = 0; i < count; ++i) {
      const auto& of_slot = rows_of_slot(row_keys[i] - turns[i] * slots);
      rows[i] = of_slot.first + turns[i] * of_slot.stride_bytes;
      prefetch_row(rows[i], row_bytes_);
    }
  }
  // Those that `numbers`, so many, name of `rows`, one behind the other.
  void copy_numbered(const std::byte* const* rows, const uint32_t* numbers, uint32_t count,
                     std::byte* to) {
    uint64_t others = 0;
    for (uint32_t i = 0; i < count; ++i) {
      if (numbers[i] != kNoSlot) others += is_others(rows[numbers[i]]) ? 1 : 0;
    }
    others_rows_ += others;
    copies_.copy_numbered({.rows = rows, .numbers = numbers, .count = count, .to = to});
  }
  void copy(const RowCopies::Some& some) {
    for (uint32_t i = 0; i < some.count; ++i) {
      others_rows_ += some.rows[i] != nullptr && is_others(some.rows[i]) ? 1 : 0;
    }
    copies_.copy(some);
  }
  // Of each where it goes.
  uint64_t bytes() const { return copies_.bytes(); }
  uint64_t others_bytes() const { return others_rows_ * row_bytes_; }

 private:
  static_assert(RowCopies::kTogether <= kRowsTogether);
  static_assert(RowCopies::kNone == kNoSlot);

  bool is_others(const std::byte* row) const {
    return reinterpret_cast<uintptr_t>(row) - own_ >= own_bytes_;
  }

  const Partition& partition_;
  const uint64_t row_bytes_;
  const RowCopies copies_;
  const uintptr_t own_;
  const uint64_t own_bytes_;
  uint64_t others_rows_ = 0;
};

// What was known of the variable's rows is so still, unless its tables lie elsewhere now.
void TableReader::begin_known(const PulledVariable& variable) {
  bool moved = known_.variable != &variable;
  for (size_t rank = 0; rank < shards_.size(); ++rank) {
    moved |= known_.tables[rank] != shards_[rank].values;
    known_.tables[rank] = shards_[rank].values;
  }
  known_.variable = &variable;
  if (moved) known_.count = 0;
}

// Each distinct row is looked for, and asked of the memory, once, some before it comes: they are
// numbered in the order in which they first come.
template <typename RowsOf>
uint64_t TableReader::copy_slice(const Reading& reading, uint32_t row, uint32_t count,
                                 RowsOf rows_of_slot) {
  const PulledVariable& variable = *reading.variable;
  const CoalescedIds& coalesced = variable.coalescer;
  Copying copying(*this, reading);
  begin_known(variable);
  const uint32_t* uniques = coalesced.uniques() + reading.slice->before + row;
  std::byte* to = reading.slice->slice.values + row * copying.bytes();
  const std::span<const std::byte*> rows = variable.tables.rows;
  uint32_t used = 0;  // the numbers below
  uint32_t together = 0;
  for (uint32_t done = 0; done < count; done += together, uniques += together) {
    // Where rows come often, all are known long before the end.
    together = count - done;
    if (known_.count < coalesced.item_count()) {
      together = std::min(together, kRowsTogether);
      for (uint32_t i = 0; i < together; ++i) {
        used = std::max(used, uniques[i] + 1);  // of padding 0
      }
      const uint32_t wanted = std::min(coalesced.item_count(), used + kRowsTogether);
      while (known_.count < wanted) {
        const uint32_t found = std::min(coalesced.item_count() - known_.count, kRowsTogether);
        copying.find(coalesced.unique_row_keys() + known_.count, found, rows_of_slot,
                     &rows[known_.count]);
        known_.count += found;
      }
    }
    copying.copy_numbered(rows.data(), uniques, together, to);
    to += together * copying.bytes();
  }
  return copying.others_bytes();
}

template <typename RowsOf>
uint64_t TableReader::copy_hosts_rows(const Reading& reading, uint32_t row, uint32_t count,
                                      RowsOf rows_of_slot) const {
  const CoalescedIds& coalesced = reading.variable->coalescer;
  Copying copying(*this, reading);
  const uint32_t first_item = coalesced.group_first(reading.variable->tables_group()) + row;
  const PulledSlice* into = reading.slice;
  const auto find = [&](uint32_t first, RowCopies::Some& found) {
    found.count = std::min(count - first, RowCopies::kTogether);
    copying.find(coalesced.row_keys() + first_item + first, found.count, rows_of_slot,
                 found.rows.data());
    const uint32_t* const order = coalesced.order() + first_item + first;
    for (uint32_t i = 0; i < found.count; ++i) {
      into = next_slice(order[i], into, reading.all);
      found.to[i] = into->slice.values + (order[i] - into->before) * copying.bytes();
    }
  };
  // The next ones are asked of the memory before these are copied.
  std::array<RowCopies::Some, 2> rows;
  find(0, rows[0]);
  for (uint32_t done = 0, turn = 0; done < count; done += RowCopies::kTogether, turn ^= 1) {
    if (count - done > RowCopies::kTogether) find(done + RowCopies::kTogether, rows[turn ^ 1]);
    copying.copy(rows[turn]);
  }
  return copying.others_bytes();
}

}  // namespace parallax
