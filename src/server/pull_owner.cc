// SPDX-License-Identifier: Apache-2.0
// What hosts ask an owner for, and its answers. See pull_owner.h.
#include "server/pull_owner.h"

#include <algorithm>
#include <array>

#include "base/bits.h"
#include "server/pull_sections.h"

namespace parallax {

namespace {

using PullPlace = PulledVariable::PullPlace;

// The place that this row of the step's goes to, or the first one behind it; null: none.
const PullPlace* place_at_or_behind(const PulledVariable::Asked& asked, uint64_t row) {
  const PullPlace* found = nullptr;
  if (asked.places == nullptr) return found;
  for (const PullPlace& each : *asked.places) {
    if (each.step != asked.step || row >= each.first + each.rows) continue;
    if (found == nullptr || each.first < found->first) found = &each;
  }
  return found;
}

// Of what waits of a list so many rows may be told apart: a bit each fits a control section.
constexpr uint32_t kEarlyRowsMax = Outbox::kControlBytesMax * 8;

}  // namespace

void PullOwner::reserve(size_t variables, const PulledVariable& added) {
  // At most one list of a host and variable waits.
  waiting_.reserve(variables * columns_.host_count());
  if (staleness_ > 0) answering_.reserve(variables * columns_.host_count());
  if (columns_.host_count() == 1 || early_bytes_min_ == kNeverEarly) return;
  unsifted_.reserve(variables * columns_.host_count());
  for (const Asked& each : added.asked) {
    late_.reserve(std::min<size_t>(kEarlyRowsMax, each.many.size()));
  }
}

// The leader of this rank's column speaks for its host, and nobody else.
PulledVariable* PullOwner::asked_variable(uint32_t from, const Section& section) const {
  PulledVariable* const variable = variables_.find(section.header.tag);
  const bool speaks = from == leader_of(columns_.host_of(from));
  return variable == nullptr || variable->asked.empty() || !speaks ? nullptr : variable;
}

// Kept where there is room: of those whose rows have left one goes. A leader that gets messages
// instead is content.
bool PullOwner::on_place(uint32_t from, const Section& section) {
  const SectionHeader& header = section.header;
  PulledVariable* const variable = asked_variable(from, section);
  const uint32_t dtype = pull_dtype(header);
  PullPlace place = {.step = header.step, .first = header.first};
  if (variable == nullptr || !variable->by_rows() || from == columns_.rank() ||
      header.encoding != Encoding::kBytes || !may_travel_as(dtype, variable->master) ||
      !place.offer.read(section.payload)) {
    return false;
  }
  const uint64_t row_bytes = variable->partition.row_elements() * bytes_of_dtype(dtype);
  place.rows = place.offer.place_bytes / row_bytes;
  if (place.rows == 0 || place.rows > UINT32_MAX || place.offer.place_bytes % row_bytes != 0 ||
      header.first > UINT64_MAX - place.rows) {
    return false;
  }
  Asked& asked = variable->asked[columns_.host_of(from)];
  if (asked.places == nullptr) asked.places = std::make_unique<PulledVariable::PullPlaces>();
  const uint64_t answered = asked.position.in(asked.step) - (asked.count - asked.answered);
  const auto free =
      std::find_if(asked.places->begin(), asked.places->end(), [&](const PullPlace& each) {
        const bool over = each.step < asked.step ||
                          (each.step == asked.step && each.first + each.rows <= answered);
        return each.rows == 0 || (over && asked.unpacked == 0);
      });
  if (free != asked.places->end()) *free = place;
  return true;
}

bool PullOwner::on_pull_host(uint32_t from, const Section& section) {
  const SectionHeader& header = section.header;
  PulledVariable* const variable = asked_variable(from, section);
  if (variable == nullptr) return false;
  const uint32_t host = columns_.host_of(from);
  Asked& asked = variable->asked[host];
  if (!go_on(*variable, asked, header)) return false;
  if (variable->by_rows()) {
    if (!list_rows(*variable, host, section)) return false;
  } else {
    if (asked.dense || !is_bare(section)) return false;
    asked.dense = true;
  }
  asked.position.advance(header.step, variable->by_rows() ? header.count : 1);
  // Else rows would be older than the pull's step, or the shard has not moved here yet.
  if (may_answer(header.step) && variable->table != nullptr) {
    answer(*variable, host);
  } else if (!asked.waiting) {
    asked.waiting = true;
    waiting_.emplace_back(variable->id, host);
  }
  if (asked.waiting && !asked.unsifted && has_early(*variable, host)) {
    asked.unsifted = true;
    unsifted_.emplace_back(variable->id, host);
  }
  return true;
}

bool PullOwner::go_on(const PulledVariable& variable, Asked& asked, const SectionHeader& header) {
  const uint32_t dtype = pull_dtype(header);
  // Nothing is under way: what comes is a new list, of the same step or a later one. It may still
  // be among those that wait, if all of it was answered early.
  if (!asked.dense && asked.answered == asked.count && asked.unpacked == 0) {
    // Of one that is not over; of several that are open, with staleness, in any order.
    if (header.step < asked.step && staleness_ == 0) return false;
    if (!may_travel_as(dtype, variable.master)) return false;
    asked.step = header.step;
    asked.dtype = dtype;
    asked.count = asked.answered = asked.sifted = 0;
    asked.behind = false;
  }
  // What is held back is answered as one, and what was answered is packed from the list still.
  return header.step == asked.step && dtype == asked.dtype &&
         header.first == asked.position.in(header.step);
}

bool PullOwner::list_rows(PulledVariable& variable, uint32_t host, const Section& section) {
  Asked& asked = variable.asked[host];
  const uint32_t count = section.header.count;
  if (!is_row_keys(section) || count > asked.many.size() - asked.count) return false;
  const Partition& partition = variable.partition;
  uint32_t* const before = variable.list_of(host, asked.count);
  uint32_t* const list = variable.list_of(host, size_t{asked.count} + count);
  // What of the short list is being sent from there stays there.
  if (list != before) std::copy_n(before, asked.count, list);
  for (uint32_t i = 0; i < count; ++i) {
    const uint32_t row_key = row_key_at(section, i);
    if (row_key >= partition.rows() || partition.owner_of(row_key) != columns_.rank()) return false;
    list[asked.count + i] = static_cast<uint32_t>(partition.local_row(row_key));
  }
  variable.lists.row_keys.add(section.header.step, host, section.payload);
  asked.count += count;
  return true;
}

// Not of a table on a device, whose rows are read in the order of its stream; nor of this host, to
// which there is no link to fill.
bool PullOwner::has_early(const PulledVariable& variable, uint32_t host) const {
  return early_bytes_min_ != kNeverEarly && variable.by_rows() && !variable.on_device &&
         host != columns_.host();
}

// Nor where rows have places, which follow the order of asking, or too few wait to be worth it.
bool PullOwner::may_answer_early(const PulledVariable& variable, uint32_t host,
                                 uint64_t step) const {
  const Asked& asked = variable.asked[host];
  const uint64_t row_bytes = variable.partition.row_elements() * bytes_of_dtype(asked.dtype);
  return (asked.count - asked.answered) * row_bytes >= early_bytes_min_ && step == applied_ + 1 &&
         asked.step == step + 1 && variable.table != nullptr &&
         place_at_or_behind(asked, asked.position.in(asked.step) - asked.count) == nullptr;
}

void PullOwner::answer_early(PulledVariable& variable, uint32_t host, const RowIndex& changed) {
  Asked& asked = variable.asked[host];
  asked.unsifted = false;
  while (sift(variable, host, changed)) {
  }
}

// Of as many rows as there are bits for, those that were not sifted. False: there are none.
bool PullOwner::sift(PulledVariable& variable, uint32_t host, const RowIndex& changed) {
  Asked& asked = variable.asked[host];
  uint32_t* const list = variable.list_of(host, asked.count) + asked.answered;
  const uint32_t count = std::min(asked.count - asked.answered, kEarlyRowsMax);
  const uint32_t sifted = std::max(asked.sifted, asked.answered) - asked.answered;
  if (sifted >= count) return false;
  asked.sifted = asked.answered + count;
  std::array<std::byte, kEarlyRowsMax / 8> bits = {};
  uint32_t early = 0;
  std::array<uint32_t, kRowsTogether> row_keys = {};
  for (uint32_t first = sifted; first < count; first += kRowsTogether) {
    const uint32_t together = std::min(count - first, kRowsTogether);
    for (uint32_t i = 0; i < together; ++i) {
      row_keys[i] = variable.partition.row_key_at(columns_.rank(), list[first + i]);
      changed.prefetch(row_keys[i]);
    }
    for (uint32_t i = 0; i < together; ++i) {
      if (changed.find(row_keys[i]) != kNoSlot) continue;
      set_bit(bits, first + i);
      ++early;
    }
  }
  const uint64_t row_bytes = variable.partition.row_elements() * bytes_of_dtype(asked.dtype);
  if (early == 0 || early * row_bytes < early_bytes_min_) return true;
  late_.clear();
  uint32_t* next = list;
  for (uint32_t i = 0; i < count; ++i) {
    if (bit_at(bits, i)) {
      *next++ = list[i];
    } else {
      late_.push_back(list[i]);
    }
  }
  std::copy(late_.begin(), late_.end(), next);
  // Behind the pushes of the step, which its end waits for.
  asked.behind = true;
  early_rows_ += early;
  const Send send = new_answer(variable, host);
  SectionHeader header = send.header;
  header.kind = SectionKind::kEarlyRows;
  header.first = asked.position.in(asked.step) - (asked.count - asked.answered);
  outbox_.send_bytes(leader_of(host), header, std::span(bits).first((count + 7) / 8));
  answer_rows(variable, host, send, early);
  return true;
}

// Packed straight out of the table, as late as may be: the next update needs the vote of ranks that
// still wait for these values, or, with staleness, waits for them itself (hold), so they stay as
// they are until they are packed. Ahead of pushes: whoever waits for them has not pushed yet.
Send PullOwner::new_answer(const PulledVariable& variable, uint32_t host) const {
  const Asked& asked = variable.asked[host];
  Send send = pull_send(SectionKind::kValuesHost, Encoding::kValues, variable.id, asked.step);
  send.header.flags = pull_flags(asked.dtype);
  send.format = {.element_bytes = bytes_of_dtype(asked.dtype),
                 .source_bytes = bytes_of_dtype(variable.master),
                 .convert = converter(variable.master, asked.dtype)};
  send.rows.row_elements = static_cast<uint32_t>(variable.partition.row_elements());
  send.ahead = !asked.behind;
  const RowCodings* const codings = variable.lists.codings;
  if (codings != nullptr && host != columns_.host()) {
    send.coding.numbers = codings->answered.numbers && has_number_code(asked.dtype);
  }
  return send;
}

void PullOwner::answer(PulledVariable& variable, uint32_t host) {
  Asked& asked = variable.asked[host];
  // What was answered early waits no more for the end of a step, and the others of the list are
  // behind it.
  if (asked.behind && asked.unpacked > 0) outbox_.hasten(leader_of(host), &asked.unpacked);
  asked.behind = false;
  if (staleness_ > 0 && !asked.answering) {
    asked.answering = true;
    answering_.emplace_back(variable.id, host);
  }
  Send send = new_answer(variable, host);
  if (!asked.dense) return answer_rows(variable, host, send, asked.count - asked.answered);
  const Range range = variable.partition.range_of(columns_.rank());
  send.header.encoding = Encoding::kDense;
  send.header.first = range.first;
  DeviceStore* const store = variable.table->store();
  if (store == nullptr) send.dense = variable.table->element(range.first);
  send.count = range.count;
  asked.dense = false;
  send.pending = &asked.unpacked;
  ++asked.unpacked;
  if (store == nullptr) {
    outbox_.add(leader_of(host), send);
  } else {
    answer_from(*store, variable, host, send);
  }
}

// The next `count` of the list. A piece of it is answered when it comes, so that the first values
// leave soon. What the host has a place for goes there, and is a send of its own.
void PullOwner::answer_rows(PulledVariable& variable, uint32_t host, Send send, uint32_t count) {
  Asked& asked = variable.asked[host];
  uint64_t row = asked.position.in(asked.step) - (asked.count - asked.answered);
  const uint64_t end = row + count;
  const uint32_t* list = variable.list_of(host, asked.count) + asked.answered;
  asked.answered += count;
  send.rows.values = variable.table->array(0).data();
  send.pending = &asked.unpacked;
  // Of a device's memory they come by a copy of their own, and go out from where that put them.
  DeviceStore* const store = variable.table->store();
  while (row < end) {
    const PullPlace* const place = store == nullptr ? place_at_or_behind(asked, row) : nullptr;
    const bool placed = place != nullptr && place->first <= row;
    const uint64_t until = place == nullptr ? end
                           : placed         ? std::min(end, place->first + place->rows)
                                            : std::min(end, place->first);
    send.header.first = row;
    send.count = until - row;
    send.rows.order = list;
    send.place = placed ? &place->offer : nullptr;
    if (placed) send.place_offset = (row - place->first) * send.row_bytes();
    ++asked.unpacked;
    if (store == nullptr) {
      outbox_.add(leader_of(host), send);
    } else {
      answer_from(*store, variable, host, send);
    }
    list += send.count;
    row = until;
  }
}

// Out of a device's memory: by way of the list's place here, in which the values have come once
// they are sent. What is staged of a dense variable is the same for every host in a step.
void PullOwner::answer_from(DeviceStore& store, PulledVariable& variable, uint32_t host,
                            Send send) {
  const bool rows = variable.by_rows();
  const size_t item_bytes =
      (rows ? variable.partition.row_elements() : 1) * size_t{bytes_of_dtype(variable.master)};
  StoreUnits units = {.count = send.count};
  std::byte* to = variable.staged_range.data();
  if (rows) {
    units.list = send.rows.order;
    const uint64_t before = variable.asked[host].answered - send.count;
    to = variable.asked[host].staged.data() + before * item_bytes;
    send.rows.order = nullptr;
    send.rows.values = to;
  } else {
    send.dense = to;
  }
  store.read({.units = units,
              .to = to,
              .dtype = variable.master,
              .outbox = &outbox_,
              .peer = leader_of(host),
              .send = send});
}

bool PullOwner::hold() {
  if (staleness_ == 0) return true;
  held_ = true;
  std::erase_if(answering_, [this](const auto& each) {
    Asked& asked = variables_.find(each.first)->asked[each.second];
    asked.answering = asked.unpacked > 0;
    return !asked.answering;
  });
  return answering_.empty();
}

void PullOwner::applied(uint64_t step) {
  applied_ = step;
  held_ = false;
  size_t kept = 0;
  for (size_t i = 0; i < waiting_.size(); ++i) {
    const auto [number, host] = waiting_[i];
    PulledVariable* variable = variables_.find(number);
    // Mirrored since, or mirrored and sharded again: the list went with its memory.
    if (variable == nullptr || !variable->asked[host].waiting) continue;
    if (may_answer(variable->asked[host].step) && variable->table != nullptr) {
      variable->asked[host].waiting = false;
      answer(*variable, host);
    } else {
      waiting_[kept++] = waiting_[i];
    }
  }
  waiting_.resize(kept);
  tell_of_tables();
}

// ---- for neighbours to read

void PullOwner::tell_neighbours(const SectionHeader& header, std::span<const std::byte> payload) {
  for (const uint32_t rank : columns_.locals()) {
    if (rank != columns_.rank()) outbox_.send_bytes(rank, header, payload);
  }
}

// With a step that is applied, and not with the commit before: then every rank has the variables.
// One that has not mapped a table by the time it pulls asks for rows by messages.
void PullOwner::tell_of_tables() {
  if (staleness_ > 0 || columns_.locals().size() == 1) return untold_.clear();
  const uint64_t step = applied_ + 1;
  for (const uint32_t id : untold_) {
    const PulledVariable* const variable = variables_.find(id);
    if (variable == nullptr || !variable->by_rows() || variable->table == nullptr ||
        variable->table->array(0).empty()) {
      continue;
    }
    const ByteRange shared = shared_range(*variable->table);
    const BufferPlace place =
        outbox_.lending().place_of(reinterpret_cast<const void*>(shared.first), shared.bytes);
    if (place.buffer == 0) continue;
    lets_read_ = true;
    tell_neighbours({.kind = SectionKind::kTablePlace, .tag = id, .step = step},
                    std::as_bytes(std::span(&place, 1)));
  }
  untold_.clear();
  if (!lets_read_ || step <= told_) return;
  told_ = step;
  tell_neighbours({.kind = SectionKind::kTablesCurrent, .tag = kNoPulledVariable, .step = step},
                  {});
}

}  // namespace parallax
