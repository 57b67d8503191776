// SPDX-License-Identifier: Apache-2.0
// The memory of a variable's pulls, and what is due from whom. See pulled_variable.h.
#include "server/pulled_variable.h"

#include <algorithm>

namespace parallax {

// None of a variable without row ids.
PulledVariable::HostTables::HostTables(const Columns& columns, const Partition& partition)
    : of(columns.locals().size()) {
  if (!partition.ids_declared()) return;
  uint64_t rows = 0;
  for (const uint32_t rank : columns.locals()) {
    rows += of[columns.local_of(rank)].owned_rows = partition.rows_owned(rank);
  }
  have_all = rows == partition.rows();
}

PulledVariable::PulledVariable(uint32_t number, const Columns& all, const Variable& variable,
                               const Partition& owned, RowScratch* shared_scratch,
                               const RowCodings* row_codings)
    : id(number),
      columns(all),
      partition(owned),
      rows_max(variable.rows_max),
      master(variable.stored_dtype()),
      on_device(variable.table_memory != PARALLAX_MEMORY_HOST),
      scratch(shared_scratch),
      tables(all, owned),
      led(all, owned, rows_max, master, shared_scratch, row_codings) {
  lists.codings = row_codings;
}

size_t PulledVariable::needed_bytes(const Columns& all, const Variable& variable,
                                    const Partition& owned) {
  // In an arena that only measures, so that one piece of code both sizes and lays out.
  Arena measure;
  PulledVariable measured(0, all, variable, owned, nullptr, nullptr);
  measured.lay_out(measure);
  return measure.used_bytes();
}

Status PulledVariable::reserve() {
  Arena measure;
  lay_out(measure);
  PARALLAX_RETURN_IF_ERROR(arena.reserve(measure.used_bytes()));
  lay_out(arena);
  return scratch == nullptr || !by_rows() ? Status() : scratch->reserve(rows_max);
}

void PulledVariable::lay_out(Arena& memory) {
  const uint32_t width = static_cast<uint32_t>(partition.row_elements());
  if (by_rows()) coalescer.lay_out(memory, rows_max, columns.count() + 1, scratch);
  if (tables.have_all) tables.rows = memory.take<const std::byte*>(rows_max);
  answers = memory.take<AnswerProgress>(columns.count() + 1);
  led.lay_out(memory);
  if (!owned_by(columns.rank())) return;
  if (on_device && by_rows() && partition.rows_owned(columns.rank()) < partition.rows()) {
    others.ids = memory.take<int64_t>(rows_max);
    others.places = memory.take<uint32_t>(rows_max);
    others.values = memory.take<std::byte>(rows_max * width * bytes_of_dtype(master));
  }
  asked = std::vector<Asked>(columns.host_count());
  if (!by_rows()) {
    const uint64_t elements = partition.range_of(columns.rank()).count;
    if (on_device) staged_range = memory.take<std::byte>(elements * bytes_of_dtype(master));
    return;
  }
  lists.few = memory.take<uint32_t>(kFewRows * columns.host_count());
  for (uint32_t host = 0; host < columns.host_count(); ++host) {
    const uint64_t rows = asked_rows_max(columns, partition, rows_max, columns.rank(), host);
    asked[host].many = memory.take<uint32_t>(rows);
    if (on_device) {
      asked[host].staged =
          memory.take<std::byte>(rows * partition.row_elements() * bytes_of_dtype(master));
    }
  }
  std::vector<uint64_t> kept_max;
  for (uint32_t host = 0; host < columns.host_count(); ++host) {
    kept_max.push_back(kept_keys_max(columns, partition, rows_max, columns.rank(), host));
  }
  lists.row_keys.lay_out(memory, kept_max);
}

Status PulledVariables::add(uint32_t id, const Columns& columns, const Variable& variable,
                            const Partition& partition, const RowCodings* codings) {
  if (id >= all_.size()) all_.resize(id + 1);
  auto added =
      std::make_unique<PulledVariable>(id, columns, variable, partition, scratch_, codings);
  PARALLAX_RETURN_IF_ERROR(added->reserve());
  all_[id] = std::move(added);
  return {};
}

// ---- source

void PulledVariable::expect_answers() {
  std::fill(answers.begin(), answers.end(), AnswerProgress());
  if (in_tables == RowsInTables::kAll || (table_writes && !by_rows())) return;
  if (by_rows()) {
    for (uint32_t group = 0; group < answers.size(); ++group) {
      answers[group].due = coalescer.group_count(group);
    }
    return;
  }
  for (uint32_t column = 0; column < columns.count(); ++column) {
    AnswerProgress& answer = answers[column];
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

}  // namespace parallax
