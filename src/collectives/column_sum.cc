// SPDX-License-Identifier: Apache-2.0
// Taking rows in, and reading them where they lie. See column_sum.h.
#include "collectives/column_sum.h"

#include <algorithm>
#include <array>

#include "base/check.h"

namespace parallax {

void ColumnSum::lay_out(Arena& arena, const Variable& variable, const Shape& shape) {
  variable_ = &variable;
  column_ = shape.column;
  givers_ = shape.givers;
  rows_stay_ = shape.rows_stay;
  const ExchangeOptions& options = variable.options;
  const uint64_t column_rows = variable.row_columns.rows_of(column_);
  uint64_t ranks = variable.columns.locals().size();
  sources_ = arena.take<Source>(givers_ == nullptr ? ranks : givers_->ranks.size());
  std::vector<uint64_t> rows_max_of;
  if (givers_ != nullptr) {
    ranks = 0;
    for (const uint32_t rows_of : givers_->rows_of) {
      rows_max_of.push_back(std::min(column_rows, options.rows_max * rows_of));
      ranks += rows_of;
    }
  }
  rows_.lay_out(arena, {.sources = static_cast<uint32_t>(sources_.size()),
                        .rows_max = std::min(column_rows, options.rows_max * ranks),
                        .source_rows_max = std::min(column_rows, options.rows_max),
                        .rows_max_of = std::move(rows_max_of),
                        .row_elements = static_cast<uint32_t>(variable.partition.row_elements()),
                        .ordered = options.ordered,
                        .rows_stay = shape.rows_stay,
                        .scratch = options.scratch,
                        .sum = options.sum});
}

void ColumnSum::open(uint64_t step) {
  step_ = step;
  rows_.clear();
  given_rows_ = 0;
  contributed_ = false;
  std::fill(sources_.begin(), sources_.end(), Source{});
  missing_ = static_cast<uint32_t>(sources_.size());
  reading_ = read_ = 0;
}

uint32_t ColumnSum::find_giver(uint32_t rank) const {
  const auto found = std::lower_bound(givers_->ranks.begin(), givers_->ranks.end(), rank);
  if (found == givers_->ranks.end() || *found != rank) return kNoSource;
  return static_cast<uint32_t>(found - givers_->ranks.begin());
}

// ---- what ranks give

// False: more rows than the rank may give.
bool ColumnSum::take_note(uint32_t source, const StagedNote& note) {
  if (!rows_.spend(source, note.count)) return false;
  given_rows_ += note.count;
  sources_[source].note = note;
  came(source, Came::kNote);
  return true;
}

void ColumnSum::give(const StagedNote& note, const StagedRows& there) {
  const uint32_t source = source_of(variable_->columns.rank());
  PARALLAX_CHECK(sources_[source].came == Came::kNothing && take_note(source, note));
  own_ = there;
  contributed_ = true;
}

void ColumnSum::promise(uint32_t rows) {
  PARALLAX_CHECK(rows_.spend(source_of(variable_->columns.rank()), rows));
  given_rows_ = rows;
}

void ColumnSum::end_promised() {
  contributed_ = true;
  const uint32_t source = source_of(variable_->columns.rank());
  came(source, Came::kAll);
  rows_.end(source);
}

bool ColumnSum::on_section(uint32_t from, const Section& section) {
  if (!awaits(from)) return false;
  return section.header.encoding == Encoding::kBytes ? on_note(from, section)
                                                     : on_rows(from, section);
}

bool ColumnSum::on_note(uint32_t from, const Section& section) {
  StagedNote note;
  const uint32_t source = source_of(from);
  if (section.payload.size() != sizeof note || section.header.count != sizeof note ||
      (section.header.flags & kSectionLast) == 0 || !gives_own(source)) {
    return false;
  }
  std::memcpy(&note, section.payload.data(), sizeof note);
  if (!variable_->notes.fits(from, note) || !take_note(source, note)) return false;
  contributed_ |= (section.header.flags & kSectionContributed) != 0;
  return true;
}

bool ColumnSum::on_rows(uint32_t from, const Section& section) {
  const SectionHeader& header = section.header;
  if (header.encoding != Encoding::kRows) return false;
  if (!row_keys_fit(variable_->partition, section, variable_->row_columns, column_)) return false;
  const uint32_t source = source_of(from);
  if (!rows_.add(source, header.count, section.payload)) return false;
  // Who gives several ranks' rows has counted each of theirs.
  if (gives_own(source)) given_rows_ += header.count;
  if ((header.flags & kSectionLast) == 0) return true;
  contributed_ |= (header.flags & kSectionContributed) != 0;
  came(source, Came::kAll);
  rows_.end(source);
  return true;
}

// Of who gives several ranks' rows that is not said by its own end.
void ColumnSum::end(uint32_t rank) {
  const uint32_t source = source_of(rank);
  if (!awaits(rank) || !gives_own(source)) return;
  came(source, Came::kAll);
  rows_.end(source);
}

void ColumnSum::add_missing(MissingRanks* missing) const {
  for (uint32_t source = 0; source < sources_.size(); ++source) {
    if (sources_[source].came != Came::kNothing) continue;
    (gives_own(source) ? missing->to_give : missing->to_return).push_back(rank_of(source));
  }
}

// ---- rows that are read where they lie

bool ColumnSum::read_if_all_came() {
  if (missing_ > 0 || rows_.complete()) return true;
  uint64_t rows = 0;
  for (const Source& source : sources_) {
    if (source.came == Came::kNote) rows += source.note.count;
  }
  uint64_t left_bytes = kAtOnceBytes;
  return rows * variable_->item_bytes <= left_bytes && read(&left_bytes) != Turn::kMore;
}

ColumnSum::Turn ColumnSum::read(uint64_t* left_bytes) {
  // Rows of turns before this one lie where they lay, and are added to: all of them must be there
  // still. Nothing is unmapped within a turn.
  const HostStaging* const staging = variable_->options.staging;
  if (rows_stay_ && staging != nullptr && !staging->readable(step_)) return Turn::kGone;
  for (; reading_ < sources_.size(); ++reading_, read_ = 0) {
    if (sources_[reading_].came != Came::kNote) continue;
    const Turn turn = read_source(left_bytes);
    if (turn != Turn::kDone) return turn;
    rows_.end(reading_);
  }
  return Turn::kDone;
}

ColumnSum::Turn ColumnSum::read_source(uint64_t* left_bytes) {
  const StagedNote& note = sources_[reading_].note;
  if (note.count == 0) return Turn::kDone;
  const uint32_t rank = rank_of(reading_);
  const bool own = rank == variable_->columns.rank();
  Lending& lending = variable_->lending;
  StagedRows there = own_;
  // Its loss is about to be told.
  if (!own && !variable_->notes.find(rank, note, step_, &there)) return Turn::kGone;
  const uint64_t item_bytes = variable_->item_bytes;
  while (read_ < note.count) {
    if (*left_bytes == 0) return Turn::kMore;
    const auto fit =
        static_cast<uint32_t>(std::min<uint64_t>(*left_bytes / item_bytes, kRowsTogether));
    const uint32_t count = std::min(note.count - read_, std::max(fit, 1u));
    if (!read_items(there, count)) {
      lending.misfit(rank);
      return Turn::kGone;
    }
    read_ += count;
    if (!own) lending.count_read(count * item_bytes);
    *left_bytes -= std::min(*left_bytes, count * item_bytes);
  }
  return Turn::kDone;
}

// A block of this rank's own is looked at, too: before Linux 5.1 others that have mapped it may
// write there.
bool ColumnSum::read_items(const StagedRows& there, uint32_t count) {
  const auto belong = [this](const uint32_t* some, uint32_t of_them) {
    std::array<uint32_t, kRowsTogether> columns;
    variable_->row_columns.find(some, of_them, columns.data());
    return std::all_of(columns.begin(), columns.begin() + of_them,
                       [mine = column_](uint32_t column) { return column == mine; });
  };
  std::array<uint32_t, kRowsTogether> row_keys;
  std::array<const std::byte*, kRowsTogether> rows;
  return variable_->notes.read(sources_[reading_].note, there, read_, count, belong,
                               row_keys.data(), rows.data()) &&
         rows_.join(std::span(row_keys).first(count), rows.data());
}

}  // namespace parallax
