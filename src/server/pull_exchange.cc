// SPDX-License-Identifier: Apache-2.0
// Which part of this rank a section is for. See pull_exchange.h.
#include "server/pull_exchange.h"

#include <algorithm>

namespace parallax {

namespace {

// With staleness the next update may come while a table is read.
TableReader::Use in_place_of(const PullOptions& options) {
  if (options.staleness > 0) return TableReader::Use::kNone;
  return options.in_place ? TableReader::Use::kReads : TableReader::Use::kListens;
}

}  // namespace

PullExchange::PullExchange(const Columns& columns, Outbox& outbox, const PullOptions& options)
    : columns_(columns),
      variables_(options.scratch),
      // Where owners place rows, these are not asked for early: a place follows the order of
      // asking.
      early_(options.early_bytes_min != kNeverEarly && columns.host_count() > 1 &&
             options.staleness == 0 && outbox.remote_writes() == nullptr),
      push_listed_(options.push_listed),
      source_(columns, outbox, variables_, in_place_of(options)),
      leader_(columns, outbox, variables_, early_, options.staleness > 0, source_),
      owner_(columns, outbox, variables_, early_ ? options.early_bytes_min : kNeverEarly,
             options.staleness) {}

PullExchange::~PullExchange() {
  for (uint32_t id = 0; id < variables_.all().size(); ++id) remove_variable(id);
}

Status PullExchange::add_variable(uint32_t id, const Variable& variable, const Partition& partition,
                                  const RowCodings* codings) {
  remove_variable(id);
  PARALLAX_RETURN_IF_ERROR(variables_.add(id, columns_, variable, partition, codings));
  source_.reader().reserve(partition.slots().size());
  leader_.know_places(*variables_.find(id));
  owner_.reserve(variables_.all().size(), *variables_.find(id));
  return {};
}

void PullExchange::remove_variable(uint32_t variable) {
  PulledVariable* const found = variables_.find(variable);
  if (found != nullptr) leader_.forget_places(*found);
  variables_.remove(variable);
}

const CoalescedIds* PullExchange::pulled_ids(uint32_t variable) const {
  const PulledVariable* const pulled = variables_.find(variable);
  return pulled != nullptr && pulled->by_rows() ? &pulled->coalescer : nullptr;
}

void PullExchange::prefetch(uint32_t variable) const {
  const PulledVariable* const pulled = variables_.find(variable);
  if (pulled != nullptr) prefetch_object(&pulled->coalescer);
}

void PullExchange::prefetch_ids(uint32_t variable) const {
  const PulledVariable* const pulled = variables_.find(variable);
  if (pulled != nullptr) pulled->coalescer.prefetch();
}

bool PullExchange::reads_tables(uint32_t variable) const {
  const PulledVariable* const found = variables_.find(variable);
  return found != nullptr && source_.reader().reads(*found) == RowsInTables::kAll;
}

const Arena* PullExchange::arena_of(uint32_t variable) const {
  const PulledVariable* found = variables_.find(variable);
  return found == nullptr ? nullptr : &found->arena;
}

void PullExchange::set_table(uint32_t variable, const Table* table) {
  PulledVariable& pulled = *variables_.find(variable);
  pulled.table = table;
  if (table != nullptr) owner_.has_table(pulled);
}

void PullExchange::applied(uint64_t step) {
  owner_.applied(step);
  [[maybe_unused]] const bool news = source_.reader().current(columns_.rank(), step + 1);
}

bool PullExchange::on_tables(uint32_t from, const Section& section, bool over) {
  const SectionHeader& header = section.header;
  if (columns_.host_of(from) != columns_.host() || from == columns_.rank()) return false;
  if (header.kind == SectionKind::kTablePlace) {
    PulledVariable* const variable = variables_.find(header.tag);
    // Mirrored since.
    return (variable == nullptr && over) || source_.reader().on_place(from, variable, section);
  }
  return header.tag == kNoPulledVariable && is_bare(section) &&
         source_.reader().current(from, header.step);
}

bool PullExchange::on_section(uint32_t from, const Section& section) {
  switch (section.header.kind) {
    case SectionKind::kPullLocal:
      return leader_.on_pull_local(from, section);
    case SectionKind::kPullPlace:
      return owner_.on_place(from, section);
    case SectionKind::kPullHost:
      return owner_.on_pull_host(from, section);
    case SectionKind::kValuesHost:
      return leader_.on_values_host(from, section);
    case SectionKind::kEarlyRows:
      return leader_.on_early_rows(from, section);
    case SectionKind::kValuesLocal:
      return source_.on_values_local(from, section);
    default:
      return false;
  }
}

std::vector<uint32_t> PullExchange::missing_ranks() const {
  std::vector<uint32_t> missing = source_.missing_leaders();
  const auto mine = std::find(missing.begin(), missing.end(), columns_.rank());
  if (mine != missing.end()) {
    missing.erase(mine);
    leader_.add_missing(&missing);
  }
  source_.reader().add_missing(&missing);
  std::sort(missing.begin(), missing.end());
  missing.erase(std::unique(missing.begin(), missing.end()), missing.end());
  return missing;
}

uint64_t PullExchange::pulled_rows(uint32_t variable, uint64_t step) const {
  const PulledVariable* found = variables_.find(variable);
  return found == nullptr ? 0 : found->pulled[step & 1];
}

}  // namespace parallax
