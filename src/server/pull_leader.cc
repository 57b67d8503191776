// SPDX-License-Identifier: Apache-2.0
// What a host's ranks want, asked for and handed out. See pull_leader.h.
#include "server/pull_leader.h"

#include <algorithm>

#include "base/byte_range.h"
#include "base/check.h"
#include "message/place_offer.h"
#include "server/pull_sections.h"

namespace parallax {

PullLeader::PullLeader(const Columns& columns, Outbox& outbox, const PulledVariables& variables,
                       bool early, bool several_steps, PullSource& own)
    : columns_(columns),
      outbox_(outbox),
      variables_(variables),
      early_(early),
      several_steps_(several_steps),
      own_(own) {
  if (!columns.is_leader()) return;
  pulls_.resize(columns.locals().size());
  whole_.reserve(pulls_.size());
  for (Pull& each : pulls_) each.variables.reserve(PARALLAX_SLICES_MAX);
}

// A rank ends a step when its pulls are answered. One that comes for an ended step, in part or
// whole, would be asked for among those of the next. It may pull for a later one before its end is
// told, with staleness.
bool PullLeader::end_local(uint32_t from, uint64_t step) {
  if (pulls_.empty()) return true;
  Pull& pull = pulls_[columns_.local_of(from)];
  // So may this one, whose end may be told behind what is on its way to itself.
  const bool later = (several_steps_ || from == columns_.rank()) && pull.step > step;
  if (pull.phase != Pull::Phase::kNone && !later) return false;
  pull.ended = step;
  if (early_) ask_those_whole();
  return true;
}

void PullLeader::open(uint64_t step) {
  for (const auto& each : variables_.all()) {
    if (each != nullptr) each->pulled[step & 1] = 0;
  }
  opened_ = step;
  if (early_) ask_those_whole();
}

void PullLeader::decided(uint64_t step) {
  startable_ = step + 1;
  ask_those_whole();
}

// ---- rank -> leader: what each wants

void PullLeader::take_own(uint64_t step) {
  if (pulls_.empty()) return;
  const uint32_t local = columns_.local();
  Pull& pull = pulls_[local];
  for (const uint32_t each : own_.variables()) {
    PulledVariable& variable = *variables_.find(each);
    const uint64_t due = variable.answers[columns_.my_column()].due;
    if (due == 0) continue;
    PARALLAX_CHECK(pull.phase == Pull::Phase::kComing ||
                   (pull.phase == Pull::Phase::kNone && begin(pull, step)));
    const uint32_t* const row_keys =
        variable.by_rows()
            ? variable.coalescer.row_keys() + variable.coalescer.group_first(columns_.my_column())
            : nullptr;
    variable.led.add_own(pull.number, step, variable.slice_dtype,
                         {row_keys, row_keys == nullptr ? 0 : due});
    pull.variables.push_back(each);
  }
  if (pull.phase == Pull::Phase::kComing) end_taking(local);
}

void PullLeader::end_taking(uint32_t local) {
  Pull& pull = pulls_[local];
  pull.phase = Pull::Phase::kWhole;
  pull.left = static_cast<uint32_t>(pull.variables.size());
  whole_.push_back(local);
  ask_those_whole();
}

bool PullLeader::on_pull_local(uint32_t from, const Section& section) {
  const SectionHeader& header = section.header;
  if (pulls_.empty() || columns_.host_of(from) != columns_.host() || from == columns_.rank()) {
    return false;
  }
  const uint32_t local = columns_.local_of(from);
  Pull& pull = pulls_[local];
  // Nor is one of nothing.
  if (pull.phase == Pull::Phase::kNone &&
      (header.tag == kNoPulledVariable || !begin(pull, header.step))) {
    return false;
  }
  if (pull.phase != Pull::Phase::kComing || header.step != pull.step) return false;
  if (header.tag == kNoPulledVariable) {
    if (!is_bare(section)) return false;
    end_taking(local);
    return true;
  }
  PulledVariable* variable = variables_.find(header.tag);
  if (variable == nullptr || !variable->led.led()) return false;
  const bool first = variable->led.list(local).pull != pull.number;
  if (!variable->led.add(local, pull.number, section)) return false;
  if (first) pull.variables.push_back(variable->id);
  return true;
}

// What a rank sends arrives in its order: behind the end of its step no pull of it is due, and none
// is of a step that is decided, since the rank's vote came behind its values.
bool PullLeader::begin(Pull& pull, uint64_t step) const {
  if (step <= pull.ended || step < startable_) return false;
  pull.phase = Pull::Phase::kComing;
  ++pull.number;
  pull.step = step;
  pull.asked = 0;
  pull.variables.clear();
  return true;
}

// ---- leader -> owner: what is not here

// Early: the step before has ended at every rank of the host, so that none pulls for it any more,
// and what it pulled is forgotten.
bool PullLeader::may_ask(uint64_t step) const {
  if (step == startable_ || several_steps_) return true;
  return early_ && step == startable_ + 1 && step <= opened_ &&
         std::all_of(pulls_.begin(), pulls_.end(),
                     [&](const Pull& each) { return each.ended >= startable_; });
}

void PullLeader::ask_those_whole() {
  size_t kept = 0;
  bool held_up = false;
  for (const uint32_t local : whole_) {
    const uint64_t step = pulls_[local].step;
    // Of a rank that voted before it had its values: nobody may be asked for them any more.
    if (step < startable_) continue;
    if (!held_up && may_ask(step)) {
      if (ask(local)) continue;
      held_up = true;
    }
    whole_[kept++] = local;
  }
  whole_.resize(kept);
}

// False: not of all its variables yet.
bool PullLeader::ask(uint32_t local) {
  Pull& pull = pulls_[local];
  for (; pull.asked < pull.variables.size(); ++pull.asked) {
    PulledVariable& variable = *variables_.find(pull.variables[pull.asked]);
    LedVariable::HostList& list = variable.led.list(local);
    // Of another step: what is held goes, once nobody is given it any more.
    if (several_steps_ && variable.led.step() != pull.step && variable.led.gives()) return false;
    if (!variable.led.take(list, pull.step, remote_writes() != nullptr)) return false;
    ask_owners(variable, list);
    if (variable.led.complete(list)) --pull.left;
  }
  pull.phase = Pull::Phase::kAsked;
  if (pull.left == 0) answer(local);
  return true;
}

void PullLeader::ask_owners(PulledVariable& variable, LedVariable::HostList& list) {
  const bool rows = variable.by_rows();
  for (const uint32_t owner : variable.led.owners()) {
    const LedVariable::Ask ask = variable.led.ask(list, owner);
    if (ask.count == 0) continue;
    Send send = pull_send(SectionKind::kPullHost, rows ? Encoding::kIds : Encoding::kBytes,
                          variable.id, list.step);
    send.header.flags = pull_flags(variable.led.dtype_of_values(list));
    send.header.first = ask.before;
    // Ahead of pushes: what they are for is needed later.
    send.ahead = true;
    if (rows) {
      if (columns_.host_of(owner) != columns_.host()) send.coding = variable.led.coding();
      send.rows.row_keys = &list.asked[ask.first];
      send.count = ask.count;
      if (columns_.host_count() == 1 || columns_.host_of(owner) != columns_.host()) {
        variable.pulled[list.step & 1] += ask.count;
      }
      offer_place(variable, owner, ask, send);
    }
    outbox_.add(owner, send);
  }
  variable.led.end_asking(list);
}

void PullLeader::know_places(PulledVariable& variable) {
  RemoteWrites* const writes = remote_writes();
  if (writes == nullptr || !variable.led.led()) return;
  for (const LedVariable::Form form : {LedVariable::kFirst, LedVariable::kMaster}) {
    const ByteRange area = variable.led.row_area(form);
    variable.is_known[form] = area.bytes >= kPlacedBytesMin && writes->know(area);
  }
}

// What an owner still writes there, it writes to memory that is none: its device is told so.
void PullLeader::forget_places(PulledVariable& variable) {
  RemoteWrites* const writes = remote_writes();
  if (writes == nullptr || !variable.led.led()) return;
  for (const uint32_t owner : variable.led.owners()) {
    while (const uint32_t area = variable.led.take_over(owner, true)) writes->unshare(area);
  }
  for (const LedVariable::Form form : {LedVariable::kFirst, LedVariable::kMaster}) {
    if (variable.is_known[form]) writes->forget_area(variable.led.row_area(form));
    variable.is_known[form] = false;
  }
}

// Control, which goes ahead of data: the owner has it before it is asked.
void PullLeader::offer_place(PulledVariable& variable, uint32_t owner, const LedVariable::Ask& ask,
                             const Send& asking) {
  RemoteWrites* const writes = remote_writes();
  SharedPart shared;
  if (writes == nullptr || owner == columns_.rank() || ask.place.bytes < kPlacedBytesMin ||
      !variable.led.may_offer(owner) || writes->piece_bytes_max(owner) == 0 ||
      !writes->share(ask.place, &shared)) {
    return;
  }
  variable.led.offered(owner, ask, shared.area);
  SectionHeader header = asking.header;
  header.kind = SectionKind::kPullPlace;
  header.encoding = Encoding::kBytes;
  outbox_.send_bytes(owner, header, PlaceOffer(ask.place, shared).bytes());
}

// ---- owner -> leader: the values

bool PullLeader::on_early_rows(uint32_t from, const Section& section) {
  PulledVariable* variable = variables_.find(section.header.tag);
  return variable != nullptr && variable->led.led() &&
         columns_.column_of(from) == columns_.my_column() &&
         variable->led.on_early_rows(from, section);
}

bool PullLeader::on_values_host(uint32_t from, const Section& section) {
  PulledVariable* variable = variables_.find(section.header.tag);
  if (variable == nullptr || !variable->led.led() ||
      columns_.column_of(from) != columns_.my_column() || !variable->led.on_values(from, section)) {
    return false;
  }
  while (const uint32_t area = variable->led.take_over(from)) {
    if (remote_writes() != nullptr) remote_writes()->unshare(area);
  }
  // This rank's own last: it is copied at once, and the others wait for messages.
  for (uint32_t local = 0; local < pulls_.size(); ++local) {
    if (local != columns_.local()) answer_if_complete(local, *variable);
  }
  if (!whole_.empty()) ask_those_whole();
  answer_if_complete(columns_.local(), *variable);
  return true;
}

// ---- leader -> rank: to each what it wanted

// Once for each variable of the pull: a list that was complete is not looked at again.
void PullLeader::answer_if_complete(uint32_t local, PulledVariable& variable) {
  Pull& pull = pulls_[local];
  LedVariable::HostList& list = variable.led.list(local);
  if (list.complete || list.pull != pull.number || list.step != variable.led.step()) return;
  const bool complete = variable.led.complete(list);
  // While they are in the cache.
  if (local == columns_.local()) static_cast<void>(give_own(variable, list.here));
  if (complete && --pull.left == 0) answer(local);
}

void PullLeader::answer(uint32_t local) {
  Pull& pull = pulls_[local];
  pull.phase = Pull::Phase::kNone;
  for (const uint32_t each : pull.variables) {
    PulledVariable& variable = *variables_.find(each);
    variable.led.list(local).answered = true;
    if (variable.by_rows()) {
      answer_rows(variable, local);
    } else {
      answer_elements(variable, local);
    }
  }
}

// To this rank the first rows of its list, which are here. False: it takes them by a message.
bool PullLeader::give_own(PulledVariable& variable, uint32_t count) {
  const LedVariable::HostList& list = variable.led.list(columns_.local());
  return variable.by_rows() &&
         own_.take_held(variable, list.step, variable.led.dtype_of_values(list),
                        variable.led.values(list), list.rows.first(count));
}

void PullLeader::answer_rows(PulledVariable& variable, uint32_t local) {
  LedVariable::HostList& list = variable.led.list(local);
  const uint32_t held = variable.led.dtype_of_values(list);
  const uint32_t to = columns_.locals()[local];
  if (to == columns_.rank() && give_own(variable, list.count)) return;
  Send send = pull_send(SectionKind::kValuesLocal, Encoding::kValues, variable.id, list.step);
  send.header.flags = pull_flags(list.dtype);
  send.format = {.element_bytes = bytes_of_dtype(list.dtype),
                 .source_bytes = bytes_of_dtype(held),
                 .convert = converter(held, list.dtype)};
  send.rows.row_elements = static_cast<uint32_t>(variable.partition.row_elements());
  send.rows.values = variable.led.values(list);
  send.rows.order = list.rows.data();
  send.count = list.count;
  send.pending = &list.unpacked;
  ++list.unpacked;
  outbox_.add(to, send);
}

// In the order of the column's elements: see PulledVariable::elements_of_column.
void PullLeader::answer_elements(PulledVariable& variable, uint32_t local) {
  LedVariable::HostList& list = variable.led.list(local);
  const uint32_t held = variable.led.dtype_of_values(list);
  const std::byte* values = variable.led.values(list);
  for (const uint32_t owner : variable.led.owners()) {
    const Range range = variable.partition.range_of(owner);
    Send send = pull_send(SectionKind::kValuesLocal, Encoding::kDense, variable.id, list.step);
    send.header.flags = pull_flags(list.dtype);
    send.header.first = range.first;
    send.format = {.element_bytes = bytes_of_dtype(list.dtype),
                   .source_bytes = bytes_of_dtype(held),
                   .convert = converter(held, list.dtype)};
    send.dense = values;
    send.count = range.count;
    send.pending = &list.unpacked;
    ++list.unpacked;
    outbox_.add(columns_.locals()[local], send);
    values += range.count * send.format.source_bytes;
  }
}

void PullLeader::add_missing(std::vector<uint32_t>* owners) const {
  for (const auto& each : variables_.all()) {
    if (each == nullptr || !each->led.led()) continue;
    for (const uint32_t owner : each->led.owners()) {
      if (each->led.owes(owner)) owners->push_back(owner);
    }
  }
}

}  // namespace parallax
