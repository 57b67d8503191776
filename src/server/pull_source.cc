// SPDX-License-Identifier: Apache-2.0
// A rank's own pull: what it wants, and what it is given. See pull_source.h.
#include "server/pull_source.h"

#include <algorithm>
#include <iterator>

#include "base/check.h"
#include "base/prefetch.h"
#include "base/row_copies.h"
#include "server/pull_sections.h"

namespace parallax {

PullSource::PullSource(const Columns& columns, Outbox& outbox, const PulledVariables& variables,
                       TableReader::Use tables)
    : columns_(columns),
      outbox_(outbox),
      variables_(variables),
      reader_(columns, outbox, tables, *this),
      asked_(columns.count()) {
  slices_.reserve(PARALLAX_SLICES_MAX);
  active_variables_.reserve(PARALLAX_SLICES_MAX);
  tied_.reserve(PARALLAX_SLICES_MAX);
}

void PullSource::start(uint64_t step, std::span<const PullSlice> slices) {
  PARALLAX_CHECK(!active_);
  active_ = true;
  active_step_ = step;
  left_ = 0;
  std::fill(asked_.begin(), asked_.end(), uint8_t{0});
  slices_.clear();
  active_variables_.clear();
  for (size_t i = 0; i < slices.size(); ++i) {
    if (i + 3 < slices.size()) variables_.find(slices[i + 3].variable)->prefetch();
    add(slices[i]);
  }
  reader_.start(step);
  for (size_t i = 0; i < active_variables_.size(); ++i) {
    const auto at = [&](size_t each) { return variables_.find(active_variables_[each]); };
    if (i + 4 < active_variables_.size()) at(i + 4)->prefetch();
    if (i + 2 < active_variables_.size()) at(i + 2)->prefetch_lists();
    PulledVariable& variable = *at(i);
    variable.in_tables = reader_.reads(variable);
    if (variable.by_rows()) coalesce(variable);
    if (variable.in_tables == RowsInTables::kAll) {
      read_all(variable);
    } else if (variable.by_rows()) {
      group(variable);
    }
    variable.expect_answers();
    if (variable.from_tables().due > 0) reader_.add_hosts_rows(variable, slices_.data());
    send_local(variable);
  }
  reader_.begin();
  for (uint32_t column = 0; column < columns_.count(); ++column) {
    if (asked_[column] == 0) continue;
    Send end = pull_send(SectionKind::kPullLocal, Encoding::kBytes, kNoPulledVariable, step);
    end.header.flags = kSectionLast;
    outbox_.add(columns_.leader(columns_.host(), column), end);
  }
}

void PullSource::add(const PullSlice& slice) {
  PulledVariable& variable = *variables_.find(slice.variable);
  const auto place = static_cast<uint32_t>(slices_.size());
  uint32_t before = 0;
  // A place that an earlier pull left is told by the slice there.
  if (variable.first_slice < place &&
      slices_[variable.first_slice].slice.variable == slice.variable) {
    PulledSlice& last = slices_[variable.last_slice];
    const PullSlice& given = last.slice.on_device ? last.on_device : last.slice;
    PARALLAX_CHECK(given.dtype == slice.dtype && given.on_device == slice.on_device);
    last.next = place;
    PulledSlice& first = slices_[variable.first_slice];
    first.apart = first.apart && !slice.again;
    before = last.before + last.slice.count;
  } else {
    variable.first_slice = place;
    variable.filled = 0;
    variable.slice_dtype = wire_dtype(slice.dtype, variable.master);
    variable.table_writes = slice.on_device;
    active_variables_.push_back(slice.variable);
  }
  if (variable.by_rows()) PARALLAX_CHECK(before + uint64_t{slice.count} <= variable.rows_max);
  variable.last_slice = place;
  slices_.push_back({.slice = slice, .before = before, .apart = slice.member != UINT32_MAX});
  if (!slice.on_device) return;
  slices_.back().on_device = slice;
  if (variable.by_rows()) slices_.back().slice = others_of(variable, slice, before);
}

// Behind those of the variable's earlier slices.
PullSlice PullSource::others_of(PulledVariable& variable, const PullSlice& slice, uint32_t before) {
  const Partition& partition = variable.partition;
  OthersRows& others = variable.others;
  PullSlice asked = slice;
  asked.count = 0;
  asked.dtype = wire_dtype(slice.dtype, variable.master);
  if (others.ids.empty()) return asked;
  const uint64_t row_bytes = partition.row_elements() * bytes_of_dtype(asked.dtype);
  asked.ids = {others.ids.data() + before, nullptr};
  asked.values = others.values.data() + before * row_bytes;
  for (uint32_t i = 0; i < slice.count; ++i) {
    const int64_t id = slice.ids.at(i);
    if (id == kPaddingId) continue;
    const uint32_t row_key = partition.row_key_of(static_cast<uint64_t>(id));
    if (partition.owner_of(row_key) == variable.columns.rank()) continue;
    others.ids[before + asked.count] = id;
    others.places[before + asked.count] = i;
    ++asked.count;
  }
  return asked;
}

void PullSource::read_all(PulledVariable& variable) {
  for (uint32_t place = variable.first_slice;; place = slices_[place].next) {
    reader_.add(variable, slices_[place]);
    if (slices_[place].next == 0) return;
  }
}

void PullSource::coalesce(PulledVariable& variable) {
  CoalescedIds& coalescer = variable.coalescer;
  const PulledSlice& last = slices_[variable.last_slice];
  // What is read in place is copied by distinct rows alone.
  coalescer.begin(last.before + last.slice.count, variable.in_tables != RowsInTables::kAll,
                  slices_[variable.first_slice].apart);
  for (uint32_t place = variable.first_slice;; place = slices_[place].next) {
    const PulledSlice& each = slices_[place];
    coalescer.add_ids(variable.partition, each.slice.ids, each.slice.count, each.before);
    if (each.next == 0) break;
  }
  coalescer.end_ids(variable.partition);
}

void PullSource::group(PulledVariable& variable) {
  const uint32_t read_host =
      variable.in_tables == RowsInTables::kHosts ? columns_.host() : columns_.host_count();
  const auto group_of = [read_host, tables = variable.tables_group(),
                         host_of = columns_.hosts_of_owners(),
                         column_of = columns_.columns_of_owners()](uint32_t owner) {
    // Whether it is read nobody foresees: nothing branches on it.
    const uint32_t column = column_of[owner];
    const uint32_t is_read = host_of[owner] == read_host ? UINT32_MAX : 0;
    return column ^ ((column ^ tables) & is_read);
  };
  variable.coalescer.group(GroupByOwner<decltype(group_of)>{variable.partition, group_of});
}

void PullSource::send_local(PulledVariable& variable) {
  const bool rows = variable.by_rows();
  for (uint32_t column = 0; column < columns_.count(); ++column) {
    // Of a variable that no owner of the column has, its leader has no buffer either.
    const uint64_t due = variable.answers[column].due;
    if (due == 0) continue;
    left_ += due;
    // The leader here takes it by itself (PullLeader::take_own).
    if (columns_.leader(columns_.host(), column) == columns_.rank()) continue;
    Send send = pull_send(SectionKind::kPullLocal, rows ? Encoding::kIds : Encoding::kBytes,
                          variable.id, active_step_);
    send.header.flags = pull_flags(variable.slice_dtype);
    if (rows) {
      send.count = due;
      send.rows.row_keys = variable.coalescer.row_keys() + variable.coalescer.group_first(column);
    }
    outbox_.add(columns_.leader(columns_.host(), column), send);
    asked_[column] = 1;
  }
}

std::vector<uint32_t> PullSource::missing_leaders() const {
  std::vector<uint32_t> leaders;
  for (uint32_t column = 0; active_ && column < columns_.count(); ++column) {
    const bool owes = std::any_of(
        active_variables_.begin(), active_variables_.end(),
        [&](uint32_t variable) { return !variables_.find(variable)->answers[column].complete(); });
    if (owes) leaders.push_back(columns_.leader(columns_.host(), column));
  }
  return leaders;
}

bool PullSource::on_values_local(uint32_t from, const Section& section) {
  const SectionHeader& header = section.header;
  if (!active_ || header.step != active_step_ || columns_.host_of(from) != columns_.host() ||
      !columns_.is_leader(from)) {
    return false;
  }
  const uint32_t column = columns_.local_of(from);
  // Of a variable that is not of this pull no answer is due, but what an earlier one was given.
  PulledVariable* variable = variables_.find(header.tag);
  if (variable == nullptr || pull_dtype(header) != variable->slice_dtype ||
      !(variable->by_rows() ? take_rows(*variable, column, section)
                            : take_elements(*variable, column, section))) {
    return false;
  }
  left_ -= header.count;
  return true;
}

bool PullSource::take_rows(PulledVariable& variable, uint32_t column, const Section& section) {
  const SectionHeader& header = section.header;
  const size_t wire_bytes =
      variable.partition.row_elements() * bytes_of_dtype(variable.slice_dtype);
  if (header.encoding != Encoding::kValues || section.payload.size() != wire_bytes * header.count ||
      !variable.answers[column].take(header.first, header.count)) {
    return false;
  }
  put_rows(variable, column, {header.first, header.count},
           [&](uint64_t i) { return section.payload.data() + i * wire_bytes; });
  return true;
}

bool PullSource::take_held(PulledVariable& variable, uint64_t step, uint32_t dtype,
                           const std::byte* values, std::span<const uint32_t> slots) {
  const uint32_t column = columns_.my_column();
  AnswerProgress& answer = variable.answers[column];
  if (!active_ || step != active_step_ || dtype != variable.slice_dtype ||
      slots.size() < answer.came || slots.size() > answer.due) {
    return false;
  }
  const size_t row_bytes = variable.partition.row_elements() * bytes_of_dtype(variable.slice_dtype);
  // Some at once: whoever is told of rows as they come begins with these.
  constexpr size_t kBytesAtOnce = size_t{4} << 10;
  const size_t together = std::max<size_t>(kRowsAhead, kBytesAtOnce / row_bytes);
  while (answer.came < slots.size()) {
    const Range rows = {answer.came, std::min<uint64_t>(together, slots.size() - answer.came)};
    PARALLAX_CHECK(answer.take(rows.first, rows.count));
    put_rows(variable, column, rows, [&](uint64_t i) {
      const uint64_t at = rows.first + i;
      if (at + kRowsAhead < slots.size()) {
        prefetch_row(values + slots[at + kRowsAhead] * row_bytes, row_bytes);
      }
      return values + slots[at] * row_bytes;
    });
    left_ -= rows.count;
  }
  return true;
}

// Of what a column was asked for: `rows` of its list, each from row_at(i).
template <typename RowAt>
void PullSource::put_rows(PulledVariable& variable, uint32_t column, const Range& rows,
                          RowAt row_at) {
  // It is of this pull, since something was due.
  const PulledSlice* into = &slices_[variable.first_slice];
  const RowCopies copies(converter(variable.slice_dtype, into->slice.dtype),
                         variable.partition.row_elements(), bytes_of_dtype(into->slice.dtype));
  // The list was sent in this order; its row keys need not come back.
  const uint32_t* const places =
      variable.coalescer.order() + variable.coalescer.group_first(column) + rows.first;
  RowCopies::Some some;
  for (uint64_t first = 0; first < rows.count; first += some.count) {
    some.count =
        static_cast<uint32_t>(std::min<uint64_t>(rows.count - first, RowCopies::kTogether));
    for (uint32_t i = 0; i < some.count; ++i) {
      const uint32_t place = places[first + i];
      into = next_slice(place, into, slices_.data());
      some.rows[i] = row_at(first + i);
      some.to[i] = into->slice.values + (place - into->before) * copies.bytes();
    }
    copies.copy(some);
  }
  advance_front(variable);
}

// Of a variable's only slice, where somebody asks: the rows before any that is still to come are
// filled in, and told of. Each leader's rows come in the order of the slice.
void PullSource::advance_front(PulledVariable& variable) {
  const PulledSlice& only = slices_[variable.first_slice];
  if (only.slice.leaving == nullptr || only.next != 0) return;
  uint32_t front = only.slice.count;
  for (uint32_t group = 0; group < variable.answers.size(); ++group) {
    const AnswerProgress& answer = variable.answers[group];
    if (answer.complete()) continue;
    const uint32_t next =
        variable.coalescer.group_first(group) + static_cast<uint32_t>(answer.came);
    front = std::min(front, variable.coalescer.order()[next]);
  }
  if (front <= variable.filled) return;
  tied_.assign(1, &only);
  fill_rows(variable, only, variable.filled, front);
  tell_there(only.slice.leaving, variable.filled, front - variable.filled);
  variable.filled = front;
}

bool PullSource::take_elements(PulledVariable& variable, uint32_t column, const Section& section) {
  const SectionHeader& header = section.header;
  AnswerProgress& answer = variable.answers[column];
  const Range next = variable.elements_of_column(column, answer.came);
  if (header.encoding != Encoding::kDense || header.first != next.first ||
      header.count > next.count ||
      section.payload.size() != header.count * size_t{bytes_of_dtype(variable.slice_dtype)} ||
      !answer.take(answer.came, header.count)) {
    return false;
  }
  const PullSlice& slice = slices_[variable.first_slice].slice;
  const size_t out_bytes = bytes_of_dtype(slice.dtype);
  convert_or_copy(converter(variable.slice_dtype, slice.dtype), section.payload.data(),
                  slice.values + header.first * out_bytes, header.count, out_bytes);
  tell_there(slice.leaving, header.first, header.count);
  return true;
}

void PullSource::finish() {
  PARALLAX_CHECK(finished());
  for (const uint32_t each : active_variables_) {
    const PulledVariable& variable = *variables_.find(each);
    if (variable.in_tables == RowsInTables::kAll) continue;
    if (variable.by_rows()) {
      fill_in(variable);
    } else if (!variable.table_writes) {
      copy_elements(variable);
    }
  }
  active_ = false;
}

// Of the pull that was finished: *left is raised for each part that a device writes, and lessened
// once it is there. Until then the slices are borrowed, and no other pull begins.
void PullSource::give_to_tables(uint32_t* left) const {
  for (const uint32_t each : active_variables_) {
    const PulledVariable& variable = *variables_.find(each);
    if (!variable.table_writes) continue;
    for (uint32_t place = variable.first_slice;; place = slices_[place].next) {
      give_to_table(variable, slices_[place], left);
      if (slices_[place].next == 0) break;
    }
  }
}

// Of one that is asked for by other ways than these, between pulls.
PullSlice PullSource::start_alone(const PullSlice& slice) {
  PARALLAX_CHECK(!active_ && slice.on_device);
  PulledVariable& variable = *variables_.find(slice.variable);
  alone_ = {.slice = slice, .on_device = slice};
  if (variable.by_rows()) {
    alone_.slice = others_of(variable, slice, 0);
  } else {
    alone_.slice.count = 0;
  }
  return alone_.slice;
}

void PullSource::give_alone(uint32_t* left) const {
  give_to_table(*variables_.find(alone_.on_device.variable), alone_, left);
}

// The whole slice, with zeros for what others own; then theirs, between.
void PullSource::give_to_table(const PulledVariable& variable, const PulledSlice& of,
                               uint32_t* left) {
  const PullSlice& to = of.on_device;
  const DeviceTable& table = *variable.table->device();
  if (variable.by_rows() && to.count == 0) return;
  ++*left;
  table.store()->read({.units = variable.by_rows()
                                    ? table.rows_by_ids(to.ids, to.count)
                                    : StoreUnits{.count = variable.partition.elements()},
                       .to = to.values,
                       .dtype = to.dtype,
                       .on_device = true,
                       .left = left});
  if (!variable.by_rows() || of.slice.count == 0) return;
  ++*left;
  table.store()->put({.from = of.slice.values,
                      .from_dtype = of.slice.dtype,
                      .count = of.slice.count,
                      .places = variable.others.places.data() + of.before,
                      .to = to.values,
                      .dtype = to.dtype,
                      .rows = to.count,
                      .left = left});
}

// Duplicates and padding did not travel: copied from the id's first row, or zeroed.
void PullSource::fill_in(const PulledVariable& variable) {
  const PulledSlice& last = slices_[variable.last_slice];
  if (variable.coalescer.item_count() == last.before + last.slice.count) return;
  tied_.clear();
  for (uint32_t place = variable.first_slice;; place = slices_[place].next) {
    const PulledSlice& of = slices_[place];
    tied_.push_back(&of);
    const uint32_t filled = place == variable.first_slice ? variable.filled : 0;
    fill_rows(variable, of, filled, of.slice.count);
    if (of.next == 0) return;
  }
}

// Of a slice of tied_; those that they are copied from are there.
void PullSource::fill_rows(const PulledVariable& variable, const PulledSlice& of, uint32_t first,
                           uint32_t end) const {
  const PullSlice& slice = of.slice;
  const RowCopies copies(nullptr, variable.partition.row_elements(), bytes_of_dtype(slice.dtype));
  const CoalescedIds& coalescer = variable.coalescer;
  std::byte* const values = slice.values;
  const uint32_t before = of.before;
  for (uint32_t row = before + first; row < before + end;) {
    // Whether a row is one cannot be foreseen: each is noted, and the next one over it if it is
    // not.
    RowCopies::Some some;
    some.count = 0;
    const uint32_t behind = std::min(before + end, row + RowCopies::kTogether);
    for (; row < behind; ++row) {
      const uint32_t first_row = coalescer.first_row_of(row);
      some.to[some.count] = values + (row - before) * copies.bytes();
      // As a number: of padding, or of an earlier slice, it is nowhere, and another is put there.
      some.rows[some.count] = reinterpret_cast<const std::byte*>(
          reinterpret_cast<uintptr_t>(values) + (first_row - before) * copies.bytes());
      if (first_row < before || first_row == kNoSlot) {
        some.rows[some.count] = row_at(first_row, copies);
      }
      some.count += first_row != row ? 1 : 0;
    }
    copies.copy(some);
  }
}

// Of tied_, which ascend, counted over all of them. Null: padding.
const std::byte* PullSource::row_at(uint32_t row, const RowCopies& copies) const {
  if (row == kNoSlot) return nullptr;
  const auto behind = std::upper_bound(
      tied_.begin(), tied_.end(), row,
      [](uint32_t each, const PulledSlice* slice) { return each < slice->before; });
  const PulledSlice& in = **std::prev(behind);
  return in.slice.values + (row - in.before) * copies.bytes();
}

// All came for the first slice.
void PullSource::copy_elements(const PulledVariable& variable) {
  const PullSlice& first = slices_[variable.first_slice].slice;
  const size_t bytes = variable.partition.elements() * bytes_of_dtype(first.dtype);
  for (uint32_t next = slices_[variable.first_slice].next; next != 0; next = slices_[next].next) {
    std::byte* const values = slices_[next].slice.values;
    if (values != first.values) std::memcpy(values, first.values, bytes);
  }
}

}  // namespace parallax
