// SPDX-License-Identifier: Apache-2.0
// The memory of a variable's pulls, and what is due from whom. See pulled_variable.h.
#include "server/pulled_variable.h"

#include <algorithm>

namespace parallax {

PulledVariable::PulledVariable(uint32_t number, const Columns& all, const Variable& variable,
                               const Partition& owned)
    : id(number),
      columns(all),
      partition(owned),
      rows_max(variable.rows_max),
      master(variable.sum_type()) {}

size_t PulledVariable::needed_bytes(const Columns& all, const Variable& variable,
                                    const Partition& owned) {
  // In an arena that only measures, so that one piece of code both sizes and lays out.
  Arena measure;
  PulledVariable measured(0, all, variable, owned);
  measured.lay_out(measure);
  return measure.used_bytes();
}

Status PulledVariable::reserve() {
  Arena measure;
  lay_out(measure);
  PARALLAX_RETURN_IF_ERROR(arena.reserve(measure.used_bytes()));
  lay_out(arena);
  return {};
}

void PulledVariable::lay_out(Arena& memory) {
  const uint32_t width = static_cast<uint32_t>(partition.row_elements());
  if (by_rows()) {
    coalescer.lay_out(memory,
                      {.rows_max = rows_max, .row_elements = width, .groups = columns.count()});
  }
  answers = memory.take<AnswerProgress>(columns.count());
  lay_out_leader(memory);
  if (!owned_by(columns.rank())) return;
  asked.assign(columns.host_count(), {});
  if (!by_rows()) return;
  const uint64_t owned = partition.rows_owned(columns.rank());
  few = memory.take<uint32_t>(kFewRows * columns.host_count());
  for (uint32_t host = 0; host < columns.host_count(); ++host) {
    // A host asks for each row once, whoever of its ranks wants it.
    const uint64_t asked_max = rows_max * columns.map().ranks_of[host].size();
    asked[host].many = memory.take<uint32_t>(std::min(owned, asked_max));
  }
}

void PulledVariable::lay_out_leader(Arena& memory) {
  owners.clear();
  uint64_t column_rows = 0;
  uint64_t column_elements = 0;
  const size_t in_column =
      columns.is_leader() ? columns.owners(columns.my_column()).size() : size_t{0};
  for (size_t i = 0; i < in_column; ++i) {
    const uint32_t owner = columns.owners(columns.my_column())[i];
    // A small variable has fewer owners than there are ranks; the others are neither asked nor
    // waited for.
    if (!owned_by(owner)) continue;
    owners.push_back(owner);
    if (by_rows()) {
      column_rows += partition.rows_owned(owner);
    } else {
      column_elements += partition.range_of(owner).count;
    }
  }
  const size_t locals = columns.locals().size();
  // Distinct rows of the column, or fewer if the host's ranks cannot ask for as many.
  const uint64_t wanted_max = std::min(column_rows, rows_max * locals);
  const uint64_t elements_max = by_rows() ? wanted_max * partition.row_elements() : column_elements;
  if (led()) asks = memory.take<AskPosition>(in_column);
  for (Wanted& each : wanted) {
    each.dense.assign(locals, 0);
    each.dtypes.assign(locals, 0);
    each.list_counts.assign(locals, 0);
    each.lists.assign(locals, {});
    if (!led()) continue;
    each.answers = memory.take<AnswerProgress>(in_column);
    each.values = memory.take<std::byte>(elements_max * bytes_of_sum(master));
    if (!by_rows()) continue;
    each.index.lay_out(memory, wanted_max);
    each.row_keys = memory.take<uint32_t>(wanted_max);
    each.items = memory.take<uint32_t>(wanted_max);
    each.item_of_entry = memory.take<uint32_t>(wanted_max);
    each.grouped = memory.take<uint32_t>(wanted_max);
    each.offsets = memory.take<uint32_t>(in_column + 1);
    for (auto& list : each.lists) list = memory.take<uint32_t>(std::min(column_rows, rows_max));
  }
}

bool PulledVariable::has_owner_in(uint32_t column) const {
  const std::vector<uint32_t>& all = columns.owners(column);
  return std::any_of(all.begin(), all.end(), [&](uint32_t owner) { return owned_by(owner); });
}

Status PulledVariables::add(uint32_t id, const Columns& columns, const Variable& variable,
                            const Partition& partition) {
  if (id >= all_.size()) all_.resize(id + 1);
  auto added = std::make_unique<PulledVariable>(id, columns, variable, partition);
  PARALLAX_RETURN_IF_ERROR(added->reserve());
  all_[id] = std::move(added);
  return {};
}

// ---- source

void PulledVariable::expect_answers() {
  for (uint32_t column = 0; column < columns.count(); ++column) {
    AnswerProgress& answer = answers[column];
    answer = {};
    if (by_rows()) {
      answer.due = coalescer.group_count(column);
      continue;
    }
    for (const uint32_t owner : columns.owners(column)) {
      answer.due += partition.range_of(owner).count;
    }
  }
}

Range PulledVariable::elements_of_column(uint32_t column, uint64_t at) const {
  for (const uint32_t owner : columns.owners(column)) {
    const Range range = partition.range_of(owner);
    if (at < range.count) return {range.first + at, range.count - at};
    at -= range.count;
  }
  return {};
}

// ---- leader

uint64_t PulledVariable::elements_before(uint32_t owner) const {
  uint64_t elements = 0;
  for (const uint32_t each : owners) {
    if (each == owner) break;
    elements += partition.range_of(each).count;
  }
  return elements;
}

void PulledVariable::Wanted::begin(const PullRound& round) {
  opening = round.opening;
  index.clear();
  std::fill(list_counts.begin(), list_counts.end(), 0u);
  std::fill(dense.begin(), dense.end(), uint8_t{0});
}

bool PulledVariable::Wanted::add(uint32_t local, uint32_t row_key) {
  if (list_counts[local] == lists[local].size()) return false;
  bool inserted;
  const uint32_t entry = index.find_or_insert(row_key, &inserted);
  if (entry == kNoSlot) return false;
  // A row that several ranks of the host want is asked for once.
  if (inserted) row_keys[entry] = row_key;
  lists[local][list_counts[local]++] = entry;
  return true;
}

void PulledVariable::Wanted::group(const Partition& partition, const Columns& columns) {
  const uint32_t count = index.size();
  // By owner, so that what one owner answers lies together.
  group_items(
      count, static_cast<uint32_t>(answers.size()),
      [&](uint32_t entry) { return columns.place_in_column(partition.owner_of(row_keys[entry])); },
      offsets, items);
  for (uint32_t item = 0; item < count; ++item) {
    item_of_entry[items[item]] = item;
    grouped[item] = row_keys[items[item]];
  }
  for (size_t local = 0; local < lists.size(); ++local) {
    for (uint32_t i = 0; i < list_counts[local]; ++i) {
      lists[local][i] = item_of_entry[lists[local][i]];
    }
  }
}

}  // namespace parallax
