// SPDX-License-Identifier: Apache-2.0
// What a host wants of a variable, and what is held of it. See led_variable.h.
#include "server/led_variable.h"

#include <algorithm>
#include <bit>

#include "aggregate/group_items.h"
#include "aggregate/row_coalescer.h"
#include "aggregate/row_order.h"
#include "base/check.h"
#include "base/prefetch.h"
#include "server/pull_sections.h"

namespace parallax {

uint64_t kept_keys_max(const Columns& columns, const Partition& partition, uint64_t rows_max,
                       uint32_t owner, uint32_t host) {
  constexpr uint32_t kHostsMax = 64;
  if (columns.host_count() > kHostsMax || columns.host_of(owner) == host) return 0;
  return asked_rows_max(columns, partition, rows_max, owner, host);
}

LedVariable::LedVariable(const Columns& columns, const Partition& partition, uint64_t rows_max,
                         uint32_t master, RowScratch* scratch, const RowCodings* codings)
    : columns_(columns),
      partition_(partition),
      rows_max_(rows_max),
      master_(master),
      scratch_(scratch),
      codings_(codings) {}

bool LedVariable::owned_by(uint32_t rank) const {
  return by_rows() ? partition_.rows_owned(rank) > 0 : partition_.range_of(rank).count > 0;
}

void LedVariable::lay_out(Arena& memory) {
  owners_.clear();
  if (!columns_.is_leader()) return;
  uint64_t column_rows = 0;
  uint64_t column_elements = 0;
  const std::vector<uint32_t>& in_column = columns_.owners(columns_.my_column());
  for (const uint32_t owner : in_column) {
    // A small variable has fewer owners than there are ranks; the others are neither asked nor
    // waited for.
    if (!owned_by(owner)) continue;
    owners_.push_back(owner);
    if (by_rows()) {
      column_rows += partition_.rows_owned(owner);
    } else {
      column_elements += partition_.range_of(owner).count;
    }
  }
  if (!led()) return;
  const size_t locals = columns_.locals().size();
  lists_.assign(locals, {});
  asked_ = memory.take<Asked>(in_column.size());
  if (!by_rows()) {
    for (HeldElements& each : elements_) {
      each.values = memory.take<std::byte>(column_elements * bytes_of_dtype(master_));
    }
    return;
  }
  // Of a column no more can be wanted at once than it has, or than the host's ranks may ask for.
  const uint64_t held_max = std::min(column_rows, rows_max_ * locals);
  const uint64_t list_max = std::min(column_rows, rows_max_);
  for (HeldRows& each : rows_) {
    each.lay_out(memory, held_max, partition_.row_elements() * bytes_of_dtype(master_));
  }
  for (HostList& each : lists_) {
    each.rows = memory.take<uint32_t>(list_max);
    each.asked = memory.take<uint32_t>(list_max);
  }
  fresh_ = memory.take<uint32_t>(list_max);
  grouped_ = memory.take<uint32_t>(list_max);
  offsets_ = memory.take<uint32_t>(in_column.size() + 1);
  std::vector<uint64_t> kept_max;
  for (const uint32_t owner : in_column) {
    kept_max.push_back(kept_keys_max(columns_, partition_, rows_max_, owner, columns_.host()));
  }
  asked_keys_.lay_out(memory, kept_max);
}

// ---- what each rank wants

bool LedVariable::add(uint32_t local, uint64_t pull, const Section& section) {
  HostList& list = lists_[local];
  const uint32_t dtype = pull_dtype(section.header);
  if (!may_travel_as(dtype, master_)) return false;
  if (list.pull != pull && !begin_list(list, pull, section.header.step, dtype)) return false;
  // The pieces of one list are of one dtype: they are answered as one.
  if (list.dtype != dtype) return false;
  if (by_rows()) return add_rows(list, section);
  // Once: it is answered once, and the rank counts on that.
  if (list.dense || !is_bare(section)) return false;
  list.dense = true;
  return true;
}

void LedVariable::add_own(uint64_t pull, uint64_t step, uint32_t dtype,
                          std::span<const uint32_t> row_keys) {
  HostList& list = lists_[columns_.local()];
  PARALLAX_CHECK(begin_list(list, pull, step, dtype));
  std::copy(row_keys.begin(), row_keys.end(), list.rows.begin());
  list.count = static_cast<uint32_t>(row_keys.size());
  list.dense = !by_rows();
}

// A rank pulls again only once it has what it asked for before.
bool LedVariable::begin_list(HostList& list, uint64_t pull, uint64_t step, uint32_t dtype) {
  if (!list.answered || list.unpacked > 0) return false;
  list = {.rows = list.rows, .asked = list.asked, .pull = pull, .step = step, .dtype = dtype};
  list.answered = false;
  return true;
}

bool LedVariable::add_rows(HostList& list, const Section& section) {
  const SectionHeader& header = section.header;
  // The list goes on where it ended: a piece that comes again would be answered again.
  if (!is_row_keys(section) || header.first != list.count ||
      header.count > list.rows.size() - list.count) {
    return false;
  }
  for (uint32_t i = 0; i < header.count; ++i) {
    const uint32_t row_key = row_key_at(section, i);
    // Rows of another column are asked for by its leader, from owners that this one does not know.
    if (row_key >= partition_.rows() ||
        columns_.column_of(partition_.owner_of(row_key)) != columns_.my_column()) {
      return false;
    }
    list.rows[list.count++] = row_key;
  }
  return true;
}

// ---- what the owners are asked for

void LedVariable::begin(uint64_t step, uint32_t dtype) {
  step_ = step;
  // Asked for once in the master's type, values serve everybody.
  dtypes_ = {several_dtypes_ ? master_ : dtype, master_};
  dtype_wanted_ = dtype;
  several_dtypes_ = false;
  for (HeldElements& each : elements_) each.asked = false;
  if (!by_rows()) return;
  for (HeldRows& each : rows_) each.clear();
}

bool LedVariable::gives() const {
  return std::any_of(lists_.begin(), lists_.end(), [this](const HostList& each) {
    const bool taken = each.step == step_ && (each.taken > 0 || each.asked_for);
    return taken && (!each.answered || each.unpacked > 0);
  });
}

bool LedVariable::take(HostList& list, uint64_t step, bool together) {
  if (step_ != step) {
    if (due_ > 0) return false;
    begin(step, list.dtype);
  }
  const bool first_serves = list.dtype == dtypes_[kFirst] || dtypes_[kFirst] == dtypes_[kMaster];
  list.form = first_serves ? kFirst : kMaster;
  several_dtypes_ = several_dtypes_ || list.dtype != dtype_wanted_;
  if (by_rows()) {
    if (list.taken < list.count) take_rows(list, together);
    if (fresh_count_ == 0) return true;
  } else if (elements_[list.form].asked) {
    return true;
  }
  // Of one type at a time, so that an owner can answer what it holds back as one.
  if (due_ > 0 && (form_under_way_ != list.form || !by_rows() || !has_room())) return false;
  form_under_way_ = list.form;
  return true;
}

void LedVariable::take_rows(HostList& list, bool together) {
  HeldRows& held = rows_[list.form];
  const uint32_t taken_before = list.taken;
  find_fresh(list);
  // By owner, so that what one owner is asked for lies together.
  for (uint32_t i = 0; i < fresh_count_; ++i) list.asked[i] = held.row_key(fresh_[i]);
  const std::span<uint32_t> places = list.asked.first(fresh_count_);
  partition_.look_up_owners(
      places.data(), places.size(),
      [place_of = columns_.places_of_owners()](uint32_t owner) { return place_of[owner]; },
      places.data());
  group_items(places, static_cast<uint32_t>(asked_.size()), offsets_, grouped_);
  for (uint32_t i = 0; i < fresh_count_; ++i) list.asked[i] = held.row_key(fresh_[grouped_[i]]);
  if (coding().row_keys && scratch_ != nullptr) sort_asked(list);
  const auto fresh = fresh_.first(fresh_count_);
  fresh_together_ =
      together && std::adjacent_find(fresh.begin(), fresh.end(), [](uint32_t slot, uint32_t next) {
                    return next != slot + 1;
                  }) == fresh.end();
  if (fresh_together_ && fresh_count_ > 0) gather_slots(list, taken_before);
}

// What is not held goes to slots, and makes the list of slots complete.
void LedVariable::find_fresh(HostList& list) {
  HeldRows& held = rows_[list.form];
  fresh_count_ = 0;
  // Of the only rank of a host the rows of its first pull are distinct, and need no look-up.
  if (columns_.locals().size() == 1 && held.empty()) {
    held.take_all(list.rows.first(list.count));
    for (; fresh_count_ < list.count; ++fresh_count_) {
      list.rows[fresh_count_] = fresh_[fresh_count_] = fresh_count_;
    }
    list.taken = list.count;
    return;
  }
  for (; list.taken < list.count; ++list.taken) {
    if (list.taken + kRowsAhead < list.count) held.prefetch(list.rows[list.taken + kRowsAhead]);
    uint32_t& row = list.rows[list.taken];
    bool fresh;
    uint32_t slot = held.find_or_take(row, &fresh);
    if (slot == kNoSlot) {
      forget_unneeded(list.form);
      slot = held.find_or_take(row, &fresh);
      PARALLAX_CHECK(slot != kNoSlot);
    }
    row = slot;
    if (fresh) fresh_[fresh_count_++] = slot;
  }
}

void LedVariable::sort_asked(HostList& list) {
  for (size_t owner = 0; owner + 1 < offsets_.size(); ++owner) {
    const uint32_t first = offsets_[owner], count = offsets_[owner + 1] - first;
    sort_by_row_key(list.asked.subspan(first, count), grouped_.subspan(first, count), *scratch_);
  }
}

// The slots follow each other as they were taken: the rows among them change places, into the order
// of asking.
void LedVariable::gather_slots(HostList& list, uint32_t taken_before) {
  HeldRows& held = rows_[list.form];
  const uint32_t first = fresh_[0];
  for (uint32_t i = 0; i < fresh_count_; ++i) {
    held.move(list.asked[i], first + i);
    fresh_[grouped_[i]] = first + i;  // by what was its slot, for a moment: where its row is now
  }
  for (uint32_t i = taken_before; i < list.count; ++i) {
    uint32_t& slot = list.rows[i];
    if (slot - first < fresh_count_) slot = fresh_[slot - first];
  }
  for (uint32_t i = 0; i < fresh_count_; ++i) {
    fresh_[i] = first + i;
    grouped_[i] = i;
  }
}

// What is wanted by lists that are not answered yet, or whose answers are not packed, stays.
void LedVariable::forget_unneeded(Form form) {
  HeldRows& held = rows_[form];
  held.begin_forgetting();
  for (const HostList& each : lists_) {
    const bool needed = !each.answered || each.unpacked > 0;
    if (!needed || each.step != step_ || each.form != form) continue;
    for (uint32_t i = 0; i < each.taken; ++i) held.keep(each.rows[i]);
  }
  held.end_forgetting();
}

// An owner keeps a list of what it was asked for and has not answered, and begins it anew when it
// has: so this end knows what fits there.
bool LedVariable::has_room() const {
  return std::all_of(owners_.begin(), owners_.end(), [&](uint32_t owner) {
    const uint32_t place = columns_.place_in_column(owner);
    const uint64_t listed = asked_[place].answer.complete() ? 0 : asked_[place].listed;
    return listed + offsets_[place + 1] - offsets_[place] <=
           asked_rows_max(columns_, partition_, rows_max_, owner, columns_.host());
  });
}

LedVariable::Ask LedVariable::ask(const HostList& list, uint32_t owner) {
  const uint32_t place = columns_.place_in_column(owner);
  Asked& asked = asked_[place];
  if (!by_rows()) {
    if (elements_[list.form].asked) return {};
    asked.answer = {.due = partition_.range_of(owner).count};
    due_ += asked.answer.due;
    // Each form is asked for once.
    return {.count = 1, .before = elements_[1 - list.form].asked ? 1u : 0u};
  }
  if (fresh_count_ == 0) return {};
  const uint32_t count = offsets_[place + 1] - offsets_[place];
  // It counts what it is asked for in a step until it is asked for another, as a leader may come
  // back to a step in which others were asked meanwhile.
  if (count > 0 && asked.step != step_) {
    asked = {};
    asked.step = step_;
  }
  Ask ask = {.first = offsets_[place], .count = count, .before = asked.answer.due};
  if (fresh_together_ && ask.count > 0) {
    const size_t row_bytes = partition_.row_elements() * bytes_of_dtype(dtypes_[list.form]);
    ask.place = ByteRange::at(rows_[list.form].values() + fresh_[ask.first] * row_bytes,
                              ask.count * row_bytes);
  }
  if (asked.answer.complete()) asked.listed = 0;
  asked.listed += ask.count;
  asked.answer.due += ask.count;
  due_ += ask.count;
  asked_keys_.add(step_, place, std::as_bytes(list.asked.subspan(ask.first, ask.count)));
  for (uint32_t i = ask.first; i < ask.first + ask.count; ++i) {
    rows_[list.form].push(asked.queue, fresh_[grouped_[i]]);
  }
  return ask;
}

bool LedVariable::may_offer(uint32_t owner) const {
  return asked_of(owner).place_count < kPullPlacesMax;
}

void LedVariable::offered(uint32_t owner, const Ask& ask, uint32_t area) {
  Asked& asked = asked_of(owner);
  asked.places[asked.place_count++] = {ask.before, ask.before + ask.count, area};
}

uint32_t LedVariable::take_over(uint32_t owner, bool all) {
  Asked& asked = asked_of(owner);
  if (asked.place_count == 0 || (!all && asked.places[0].end > asked.answer.came)) return 0;
  const uint32_t area = asked.places[0].area;
  std::copy(asked.places.begin() + 1, asked.places.end(), asked.places.begin());
  --asked.place_count;
  return area;
}

void LedVariable::end_asking(HostList& list) {
  fresh_count_ = 0;
  elements_[list.form].asked = true;
  list.asked_for = true;
}

// ---- what they answer

// Values that are not in the message: only where they were asked for, which is memory of rows
// alone.
bool LedVariable::may_be_placed(const Asked& asked, const Section& section) {
  const uint64_t first = section.header.first;
  const auto* const end = asked.places.begin() + asked.place_count;
  return section.payload.empty() && std::any_of(asked.places.begin(), end, [&](const Place& place) {
           return first >= place.first && first < place.end &&
                  section.header.count <= place.end - first;
         });
}

bool LedVariable::on_values(uint32_t from, const Section& section) {
  const SectionHeader& header = section.header;
  const bool rows = by_rows();
  const bool placed = header.encoding == Encoding::kPlaced;
  const uint32_t dtype = dtypes_[form_under_way_];
  if (header.step != step_ || due_ == 0 || pull_dtype(header) != dtype ||
      (!placed && header.encoding != (rows ? Encoding::kValues : Encoding::kDense))) {
    return false;
  }
  const size_t item_bytes = (rows ? partition_.row_elements() : 1) * size_t{bytes_of_dtype(dtype)};
  // Rows are counted through the step. An element before its owner's range wraps to a huge number.
  const uint64_t first = header.first - (rows ? 0 : partition_.range_of(from).first);
  Asked& asked = asked_of(from);
  if (placed && !may_be_placed(asked, section)) return false;
  const size_t value_bytes = placed ? header.payload_bytes : section.payload.size();
  if (value_bytes != header.count * item_bytes || !asked.answer.take(first, header.count)) {
    return false;
  }
  due_ -= header.count;
  const std::byte* payload = section.payload.data();
  if (!rows) {
    std::memcpy(&elements_[form_under_way_].values[(elements_before(from) + first) * item_bytes],
                payload, section.payload.size());
    return true;
  }
  asked_keys_.answered(step_, columns_.place_in_column(from), header.count);
  HeldRows& held = rows_[form_under_way_];
  for (uint32_t i = 0, run = 0; i < header.count; i += run) {
    const uint32_t slot = held.pop_run(asked.queue, header.count - i, &run);
    if (placed) {
      held.put_there(slot, run);
    } else {
      held.put(slot, payload + i * item_bytes, item_bytes, run);
    }
  }
  return true;
}

// Rows with a place come in the order of that. An owner that has not kept a place knows of no order
// to keep, and sends messages.
bool LedVariable::on_early_rows(uint32_t from, const Section& section) {
  const SectionHeader& header = section.header;
  if (!by_rows() || header.step != step_ || header.encoding != Encoding::kBytes) return false;
  Asked& asked = asked_of(from);
  const AnswerProgress& answer = asked.answer;
  if (header.first < answer.came || header.first < asked.early_end || header.first >= answer.due) {
    return false;
  }
  std::span<const std::byte> bits = section.payload;
  while (!bits.empty() && bits.back() == std::byte{0}) bits = bits.first(bits.size() - 1);
  const uint64_t rows =
      bits.empty() ? 0 : 8 * bits.size() - std::countl_zero(static_cast<uint8_t>(bits.back()));
  if (rows == 0 || rows > answer.due - header.first) return false;
  for (Place& place : std::span(asked.places).first(asked.place_count)) {
    if (place.first < header.first + rows && place.end > header.first) place.first = place.end;
  }
  asked.early_end = header.first;
  for (const std::byte each : bits) {
    asked.early_end += static_cast<uint64_t>(std::popcount(static_cast<uint8_t>(each)));
  }
  rows_[form_under_way_].bring_forward(asked.queue, header.first - answer.came, bits);
  return true;
}

bool LedVariable::complete(HostList& list) {
  if (!list.asked_for) return false;
  if (by_rows()) {
    // One look at a row after the other, however often this is called.
    while (list.here < list.count && rows_[list.form].here(list.rows[list.here])) ++list.here;
    list.complete = list.here == list.count;
  } else {
    list.complete = due_ == 0 || form_under_way_ != list.form;
  }
  return list.complete;
}

const std::byte* LedVariable::values(const HostList& list) const {
  return by_rows() ? rows_[list.form].values() : elements_[list.form].values.data();
}

uint64_t LedVariable::elements_before(uint32_t owner) const {
  uint64_t elements = 0;
  for (const uint32_t each : owners_) {
    if (each == owner) break;
    elements += partition_.range_of(each).count;
  }
  return elements;
}

}  // namespace parallax
