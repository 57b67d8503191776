// SPDX-License-Identifier: Apache-2.0
// Which variables can be pulled, the memory for it, and the rounds. See pull_exchange.h.
#include <algorithm>

#include "base/check.h"
#include "server/pull_exchange.h"

namespace parallax {

PullExchange::PullExchange(const Columns& columns, Outbox& outbox)
    : columns_(columns), outbox_(outbox) {
  for (Round& round : rounds_) {
    round.here.resize(columns.locals().size());
    round.variables.reserve(PARALLAX_SLICES_MAX);
  }
  for (auto& ended : ended_) ended.resize(columns.locals().size());
  active_variables_.reserve(PARALLAX_SLICES_MAX);
}

PullExchange::~PullExchange() = default;

bool PullExchange::active_owner(const Partition& partition, uint32_t owner) {
  return partition.ids_declared() ? partition.rows_owned(owner) > 0
                                  : partition.range_of(owner).count > 0;
}

PullExchange::Entry* PullExchange::entry_of(uint32_t variable) {
  return variable < entries_.size() ? entries_[variable].get() : nullptr;
}

const PullExchange::Entry* PullExchange::entry_of(uint32_t variable) const {
  return variable < entries_.size() ? entries_[variable].get() : nullptr;
}

void PullExchange::lay_out(Arena& arena, const Columns& columns, const Variable& variable,
                           const Partition& partition, Entry& entry) {
  const uint64_t rows_max = variable.rows_max;
  entry.master = variable.sum_type();
  const bool rows = partition.ids_declared();
  const uint32_t width = static_cast<uint32_t>(partition.row_elements());
  if (rows) {
    entry.coalescer.lay_out(
        arena, {.rows_max = rows_max, .row_elements = width, .groups = columns.count()});
  }
  entry.owners.clear();
  uint64_t column_rows = 0;
  uint64_t column_elements = 0;
  if (columns.is_leader()) {
    for (const uint32_t owner : columns.owners(columns.my_column())) {
      if (!active_owner(partition, owner)) continue;
      entry.owners.push_back(owner);
      if (rows) {
        column_rows += partition.rows_owned(owner);
      } else {
        column_elements += partition.range_of(owner).count;
      }
    }
  }
  entry.handled = !entry.owners.empty();
  const size_t locals = columns.locals().size();
  // Distinct rows of the column, or fewer if the host's ranks cannot ask for as many.
  const uint64_t wanted_max = std::min(column_rows, rows_max * locals);
  // One for each round that can be open at a time: see the header.
  for (Wanted& wanted : entry.wanted) {
    wanted.dense.assign(locals, 0);
    wanted.dtypes.assign(locals, 0);
    wanted.list_counts.assign(locals, 0);
    wanted.lists.assign(locals, {});
    if (!entry.handled) continue;
    wanted.values = arena.take<std::byte>((rows ? wanted_max * width : column_elements) *
                                          bytes_of_sum(entry.master));
    if (!rows) continue;
    wanted.index.lay_out(arena, wanted_max);
    wanted.row_keys = arena.take<uint32_t>(wanted_max);
    wanted.items = arena.take<uint32_t>(wanted_max);
    wanted.item_of_slot = arena.take<uint32_t>(wanted_max);
    wanted.grouped = arena.take<uint32_t>(wanted_max);
    wanted.offsets = arena.take<uint32_t>(columns.owners(columns.my_column()).size() + 1);
    for (auto& list : wanted.lists) list = arena.take<uint32_t>(std::min(column_rows, rows_max));
  }
  if (!active_owner(partition, columns.rank())) return;
  entry.asked.assign(columns.host_count(), {});
  if (!rows) return;
  const uint64_t owned = partition.rows_owned(columns.rank());
  for (uint32_t host = 0; host < columns.host_count(); ++host) {
    // A host asks for each row once, whoever of its ranks wants it.
    const uint64_t asked_max = rows_max * columns.map().ranks_of[host].size();
    entry.asked[host].rows = arena.take<uint32_t>(std::min(owned, asked_max));
  }
}

size_t PullExchange::needed_bytes(const Columns& columns, const Variable& variable,
                                  const Partition& partition) {
  // In an arena that only measures.
  Arena measure;
  Entry entry;
  lay_out(measure, columns, variable, partition, entry);
  return measure.used_bytes();
}

Status PullExchange::add_variable(uint32_t id, const Variable& variable,
                                  const Partition& partition) {
  if (id >= entries_.size()) entries_.resize(id + 1);
  auto entry = std::make_unique<Entry>();
  entry->variable = id;
  entry->partition = &partition;
  PARALLAX_RETURN_IF_ERROR(entry->arena.reserve(needed_bytes(columns_, variable, partition)));
  lay_out(entry->arena, columns_, variable, partition, *entry);
  entries_[id] = std::move(entry);
  // At most one ask of a host and variable waits.
  waiting_.reserve(entries_.size() * columns_.host_count());
  return {};
}

void PullExchange::remove_variable(uint32_t variable) {
  if (variable < entries_.size()) entries_[variable].reset();
}

const Arena* PullExchange::arena_of(uint32_t variable) const {
  const Entry* entry = entry_of(variable);
  return entry == nullptr ? nullptr : &entry->arena;
}

void PullExchange::set_table(uint32_t variable, const Table* table) {
  entry_of(variable)->table = table;
}

PullExchange::Round* PullExchange::open_round(uint64_t step, uint32_t number) {
  Round& round = rounds_[slot_of(step, number)];
  // The slot has the parity of step and number alone: the numbers in full tell whose it is.
  if (round.active && round.step == step && round.number == number) return &round;
  // A round still open in this slot: a peer ran further ahead than rounds can be told apart.
  if (round.active && (!round.asked || round.left > 0)) return nullptr;
  round.active = true;
  round.asked = false;
  round.step = step;
  round.number = number;
  round.left = 0;
  std::fill(round.here.begin(), round.here.end(), uint8_t{0});
  round.variables.clear();
  return &round;
}

bool PullExchange::on_section(uint32_t from, const Section& section) {
  switch (section.header.kind) {
    case SectionKind::kPullLocal:
      return on_pull_local(from, section);
    case SectionKind::kPullHost:
      return on_pull_host(from, section);
    case SectionKind::kValuesHost:
      return on_values_host(from, section);
    case SectionKind::kValuesLocal:
      return on_values_local(from, section);
    default:
      return false;
  }
}

void PullExchange::open(uint64_t step) {
  std::fill(ended_[step & 1].begin(), ended_[step & 1].end(), uint8_t{0});
  // A round of step - 2 that is still open was begun by a rank that ended the step before.
  for (uint32_t number = 0; number < 2; ++number) rounds_[slot_of(step, number)].active = false;
  for (const auto& entry : entries_) {
    if (entry != nullptr) entry->pulled[step & 1] = 0;
  }
}

uint64_t PullExchange::pulled_rows(uint32_t variable, uint64_t step) const {
  const Entry* entry = entry_of(variable);
  return entry == nullptr ? 0 : entry->pulled[step & 1];
}

PullWait PullExchange::waiting(uint64_t step) const {
  PullWait oldest;
  for (const Round& round : rounds_) {
    if (!round.active || round.asked || round.step != step) continue;
    // The oldest: later rounds wait for the same ranks, or for those that wait in it.
    if (oldest.number != 0 && oldest.number <= round.number + 1) continue;
    oldest = {.number = round.number + 1, .here = {}, .missing = {}};
    for (const uint32_t local : columns_.locals()) {
      const uint32_t source = columns_.local_of(local);
      if (round.here[source] != 0) {
        oldest.here.push_back(local);
      } else if (ended_[step & 1][source] == 0) {
        oldest.missing.push_back(local);
      }
    }
  }
  return oldest;
}

}  // namespace parallax
