// SPDX-License-Identifier: Apache-2.0
// Turns of copying, and what makes a copy good. See table_reader.h.
#include "server/table_reader.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "aggregate/row_coalescer.h"
#include "base/prefetch.h"

namespace parallax {

namespace {

// Copied in a turn: some 50 us.
constexpr uint64_t kTurnBytes = 512 * 1024;

// How a row leaves its table, and how many bytes it has where it goes.
struct CopiedRow {
  Convert convert = nullptr;
  uint64_t width = 0, bytes = 0;
};
// Rows to one behind the other; zeros for padding, which is null.
using CopyRows = void (*)(const CopiedRow& row, const std::byte* const* rows, uint32_t count,
                          std::byte* out);

void copy_any(const CopiedRow& row, const std::byte* const* rows, uint32_t count, std::byte* out) {
  for (uint32_t i = 0; i < count; ++i, out += row.bytes) {
    if (rows[i] == nullptr) {
      std::memset(out, 0, row.bytes);
    } else {
      convert_or_copy(row.convert, rows[i], out, row.width, row.bytes / row.width);
    }
  }
}

// Of a length that the compiler knows: of narrow rows a call for each takes longer than the copy.
template <size_t kBytes>
void copy_narrow(const CopiedRow& /*row*/, const std::byte* const* rows, uint32_t count,
                 std::byte* out) {
  for (uint32_t i = 0; i < count; ++i, out += kBytes) {
    if (rows[i] == nullptr) {
      std::memset(out, 0, kBytes);
    } else {
      std::memcpy(out, rows[i], kBytes);
    }
  }
}

CopyRows copy_of(const CopiedRow& row) {
  if (row.convert != nullptr) return copy_any;
  switch (row.bytes) {
    case 32:
      return copy_narrow<32>;
    case 64:
      return copy_narrow<64>;
    case 128:
      return copy_narrow<128>;
    case 256:
      return copy_narrow<256>;
    default:
      return copy_any;
  }
}

}  // namespace

TableReader::TableReader(const Columns& columns, Outbox& outbox, bool used)
    : columns_(columns),
      outbox_(outbox),
      used_(used),
      current_(reads_host() ? columns.world() : 0),
      shards_(current_.size()) {
  if (!reads_host()) return;
  readings_.reserve(PARALLAX_SLICES_MAX);
  current_[columns.rank()] = 1;
}

TableReader::~TableReader() { outbox_.lending().forget(this); }

void TableReader::reserve(size_t slots) {
  if (reads_host() && slots <= kTurnBytes) slot_rows_.reserve(slots);
}

// ---- what is known of tables

bool TableReader::current(uint32_t owner, uint64_t step) {
  if (!reads_host() || step <= current_[owner]) return false;
  current_[owner] = step;
  begin();
  return true;
}

bool TableReader::on_place(uint32_t from, PulledVariable* variable, const Section& section) {
  BufferPlace place;
  if (!reads_host() || from == columns_.rank() || variable == nullptr || !variable->by_rows() ||
      !variable->owned_by(from) || section.header.encoding != Encoding::kBytes ||
      section.payload.size() != sizeof place) {
    return false;
  }
  std::memcpy(&place, section.payload.data(), sizeof place);
  if (place.buffer == 0 || place.offset % kArenaAlignmentBytes != 0) return false;
  // The last one counts: of a variable that was mirrored in between there was another.
  variable->places[from] = place;
  return true;
}

// Null: it is nowhere to be read here.
const std::byte* TableReader::find(const PulledVariable& variable, uint32_t owner) const {
  if (owner == columns_.rank()) {
    const Table* const table = variable.table;
    return table == nullptr || table->store() != nullptr ? nullptr : table->array(0).data();
  }
  const BufferPlace& place = variable.places[owner];
  if (place.buffer == 0) return nullptr;
  const uint64_t row_bytes = variable.partition.row_elements() * bytes_of_dtype(variable.master);
  const uint64_t bytes = kArenaAlignmentBytes + variable.partition.rows_owned(owner) * row_bytes;
  return outbox_.lending().find(owner, place, bytes);
}

bool TableReader::reads(const PulledVariable& variable) const {
  if (!reads_host() || !variable.by_rows()) return false;
  const std::vector<uint32_t>& ranks = columns_.locals();
  return std::all_of(ranks.begin(), ranks.end(), [&](uint32_t rank) {
    return !variable.owned_by(rank) || find(variable, rank) != nullptr;
  });
}

bool TableReader::is_current(const PulledVariable& variable) const {
  const std::vector<uint32_t>& ranks = columns_.locals();
  return std::all_of(ranks.begin(), ranks.end(), [&](uint32_t rank) {
    return current_[rank] >= step_ || !variable.owned_by(rank);
  });
}

// ---- a pull

void TableReader::start(uint64_t step) {
  step_ = step;
  readings_.clear();
  at_ = 0;
  row_ = 0;
}

void TableReader::add(const PulledVariable& variable, const PullSlice& slice, uint32_t before) {
  if (slice.count > 0) readings_.push_back({&variable, &slice, before});
}

void TableReader::begin() {
  if (!finished() && is_current(*readings_[at_].variable)) outbox_.lending().wake(this);
}

void TableReader::add_missing(std::vector<uint32_t>* owners) const {
  if (finished()) return;
  for (const uint32_t rank : columns_.locals()) {
    if (current_[rank] < step_ && readings_[at_].variable->owned_by(rank)) owners->push_back(rank);
  }
}

bool TableReader::read_lent() {
  uint64_t left_bytes = kTurnBytes;
  while (!finished() && left_bytes > 0) {
    const Reading& reading = readings_[at_];
    if (!is_current(*reading.variable)) return false;
    const Found found = find_shards(*reading.variable);
    if (found != Found::kAll) return found == Found::kBeingWritten;
    const uint64_t row_bytes =
        reading.variable->partition.row_elements() * bytes_of_dtype(reading.slice->dtype);
    const auto count = static_cast<uint32_t>(std::min<uint64_t>(
        reading.slice->count - row_, std::max<uint64_t>(1, left_bytes / row_bytes)));
    const uint64_t read_bytes = copy(reading, count);
    if (!meant()) return false;
    if (!unchanged()) return true;
    outbox_.lending().count_read(read_bytes);
    left_bytes -= std::min(left_bytes, count * row_bytes);
    tell_there(reading.slice->leaving, row_, count);
    row_ += count;
    if (row_ < reading.slice->count) continue;
    ++at_;
    row_ = 0;
  }
  return !finished();
}

TableReader::Found TableReader::find_shards(const PulledVariable& variable) {
  for (const uint32_t rank : columns_.locals()) {
    Shard& shard = shards_[rank];
    shard = {};
    if (!variable.owned_by(rank)) continue;
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
  for (uint32_t rank = 0; rank < shards_.size(); ++rank) {
    if (shards_[rank].mark != nullptr && !outbox_.lending().was_meant(rank)) return false;
  }
  return true;
}

// ---- rows

TableReader::SlotRows TableReader::rows_of(const SlotMap::Slot& slot, uint64_t row_bytes) const {
  const std::byte* const values = shards_[slot.owner].values;
  // One that is of no row has no table either.
  return {.first = values == nullptr ? nullptr : values + slot.place * row_bytes,
          .stride_bytes = slot.owner_slots * row_bytes,
          .from_others = slot.owner == columns_.rank() ? 0u : 1u};
}

uint64_t TableReader::copy(const Reading& reading, uint32_t count) {
  const PulledVariable& variable = *reading.variable;
  const uint64_t row_bytes = variable.partition.row_elements() * bytes_of_dtype(variable.master);
  const std::span<const SlotMap::Slot> slots = variable.partition.slots();
  // Slots are few, unless a setting says otherwise.
  if (slots.size() > std::min<size_t>(count, slot_rows_.capacity())) {
    return copy_rows(reading, count,
                     [&](uint32_t slot) { return rows_of(slots[slot], row_bytes); });
  }
  slot_rows_.resize(slots.size());
  for (size_t slot = 0; slot < slots.size(); ++slot) {
    slot_rows_[slot] = rows_of(slots[slot], row_bytes);
  }
  return copy_rows(reading, count, [all = slot_rows_.data()](uint32_t slot) -> const SlotRows& {
    return all[slot];
  });
}

template <typename RowsOf>
uint64_t TableReader::copy_rows(const Reading& reading, uint32_t count, RowsOf rows_of_slot) const {
  const PulledVariable& variable = *reading.variable;
  const Partition& partition = variable.partition;
  const uint64_t width = partition.row_elements();
  const uint64_t from_bytes = width * bytes_of_dtype(variable.master);
  const CopiedRow row = {.convert = converter(variable.master, reading.slice->dtype),
                         .width = width,
                         .bytes = width * bytes_of_dtype(reading.slice->dtype)};
  const CopyRows copy_some = copy_of(row);
  std::byte* out = reading.slice->values + row_ * row.bytes;
  const uint32_t* const uniques = variable.coalescer.uniques() + reading.before + row_;
  const uint32_t* const row_keys = variable.coalescer.unique_row_keys();
  uint64_t others_rows = 0;
  const auto find = [&](uint32_t first, std::array<const std::byte*, kRowsTogether>& rows) {
    const uint32_t together = std::min(count - first, kRowsTogether);
    for (uint32_t i = 0; i < together; ++i) {
      rows[i] = nullptr;
      const uint32_t unique = uniques[first + i];
      if (unique == kNoSlot) continue;
      const Partition::SlotTurn at = partition.turn_of(row_keys[unique]);
      const SlotRows& of_slot = rows_of_slot(at.slot);
      rows[i] = of_slot.first + at.turn * of_slot.stride_bytes;
      prefetch_row(rows[i], from_bytes);
      others_rows += of_slot.from_others;
    }
  };
  // The next ones are asked of the memory before these are copied.
  std::array<std::array<const std::byte*, kRowsTogether>, 2> rows = {};
  find(0, rows[0]);
  for (uint32_t done = 0; done < count; done += kRowsTogether) {
    const uint32_t turn = done / kRowsTogether;
    if (count - done > kRowsTogether) find(done + kRowsTogether, rows[(turn + 1) % 2]);
    const uint32_t together = std::min(count - done, kRowsTogether);
    copy_some(row, rows[turn % 2].data(), together, out);
    out += together * row.bytes;
  }
  return others_rows * from_bytes;
}

}  // namespace parallax
