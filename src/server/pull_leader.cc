// SPDX-License-Identifier: Apache-2.0
// What a host's ranks want, gathered, asked for and handed out. See pull_leader.h.
#include "server/pull_leader.h"

#include "server/pull_sections.h"

namespace parallax {

PullLeader::PullLeader(const Columns& columns, Outbox& outbox, const PulledVariables& variables)
    : columns_(columns), outbox_(outbox), variables_(variables), rounds_(columns) {}

// ---- rank -> leader: what each wants

bool PullLeader::on_pull_local(uint32_t from, const Section& section) {
  const SectionHeader& header = section.header;
  if (!columns_.is_leader() || columns_.host_of(from) != columns_.host()) return false;
  const uint32_t local = columns_.local_of(from);
  PullRound* round = rounds_.joinable(local, header.step, header.part);
  if (round == nullptr) return false;
  if (header.tag == kNoPulledVariable) {
    if (!is_bare(section)) return false;
    round->here[local] = 1;
    ask_if_complete(*round);
    return true;
  }
  PulledVariable* variable = variables_.find(header.tag);
  return variable != nullptr && variable->led() && want(*variable, *round, local, section);
}

bool PullLeader::want(PulledVariable& variable, PullRound& round, uint32_t local,
                      const Section& section) {
  Wanted& wanted = variable.wanted[round.place];
  const uint32_t dtype = pull_dtype(section.header);
  if (!may_travel_as(dtype, variable.master)) return false;
  const bool first = !wanted.is_of(round);
  if (first) {
    round.variables.push_back(variable.id);
    wanted.begin(round);
  }
  // The pieces of one list are of one dtype: they are answered as one.
  if (wanted.list_counts[local] > 0 && wanted.dtypes[local] != dtype) return false;
  wanted.dtypes[local] = static_cast<uint8_t>(dtype);
  // Ranks of a host may want one variable in different dtypes: it is then fetched in the master's
  // type, from which each can be made.
  wanted.dtype = first || dtype == wanted.dtype ? dtype : dtype_of(variable.master);
  if (variable.by_rows()) return want_rows(variable, wanted, local, section);
  // Once: it is answered once, and the rank counts on that.
  if (wanted.dense[local] != 0 || !is_bare(section)) return false;
  wanted.dense[local] = 1;
  return true;
}

bool PullLeader::want_rows(const PulledVariable& variable, Wanted& wanted, uint32_t local,
                           const Section& section) {
  const SectionHeader& header = section.header;
  // The list goes on where it ended: a piece that comes again would be answered again.
  if (!is_row_keys(section) || header.first != wanted.list_counts[local]) return false;
  const Partition& partition = variable.partition;
  for (uint32_t i = 0; i < header.count; ++i) {
    const uint32_t row_key = row_key_at(section, i);
    // Rows of another column are asked for by its leader, from owners that this one does not know.
    if (row_key >= partition.rows() ||
        columns_.column_of(partition.owner_of(row_key)) != columns_.my_column() ||
        !wanted.add(local, row_key)) {
      return false;
    }
  }
  return true;
}

void PullLeader::end_local(uint32_t from, uint64_t step) {
  if (!columns_.is_leader()) return;
  rounds_.end(columns_.local_of(from), step);
  // Rounds may have waited for that rank alone.
  for (PullRound& round : rounds_.of_parity(step)) {
    if (round.active && round.step == step) ask_if_complete(round);
  }
}

void PullLeader::open(uint64_t step) {
  rounds_.open_step(step);
  for (const auto& each : variables_.all()) {
    if (each != nullptr) each->pulled[step & 1] = 0;
  }
}

// ---- leader -> owner: what the host wants

void PullLeader::ask_if_complete(PullRound& round) {
  if (round.asked || !rounds_.complete(round)) return;
  round.asked = true;
  for (const uint32_t each : round.variables) {
    PulledVariable& variable = *variables_.find(each);
    if (variable.by_rows()) {
      ask_rows(round, variable);
    } else {
      ask_dense(round, variable);
    }
  }
  // Nothing to fetch: the ranks' rounds end at once.
  if (round.left == 0) answer_locals(round);
}

void PullLeader::ask_rows(PullRound& round, PulledVariable& variable) {
  Wanted& wanted = variable.wanted[round.place];
  const std::vector<uint32_t>& owners = columns_.owners(columns_.my_column());
  wanted.group(variable.partition, columns_);
  for (size_t i = 0; i < owners.size(); ++i) {
    const uint32_t first = wanted.offsets[i];
    Send send =
        pull_send(SectionKind::kPullHost, Encoding::kIds, variable.id, round.step, round.number);
    send.count = wanted.offsets[i + 1] - first;
    wanted.answers[i] = {.due = send.count};
    if (send.count == 0) continue;
    send.header.flags = pull_flags(wanted.dtype) | kSectionLast;
    send.header.first = variable.asks[i].in(round.step);
    send.rows.row_keys = &wanted.grouped[first];
    variable.asks[i].advance(round.step, send.count);
    outbox_.add(owners[i], send);
  }
  round.left += wanted.index.size();
  variable.pulled[round.step & 1] += wanted.index.size();
}

void PullLeader::ask_dense(PullRound& round, PulledVariable& variable) {
  Wanted& wanted = variable.wanted[round.place];
  for (const uint32_t owner : variable.owners) {
    const uint32_t i = columns_.place_in_column(owner);
    const uint64_t elements = variable.partition.range_of(owner).count;
    Send send =
        pull_send(SectionKind::kPullHost, Encoding::kBytes, variable.id, round.step, round.number);
    send.header.flags = pull_flags(wanted.dtype) | kSectionLast;
    send.header.first = variable.asks[i].in(round.step);
    variable.asks[i].advance(round.step, 1);
    wanted.answers[i] = {.due = elements};
    outbox_.add(owner, send);
    round.left += elements;
  }
}

// ---- owner -> leader: the values

bool PullLeader::on_values_host(uint32_t from, const Section& section) {
  const SectionHeader& header = section.header;
  PulledVariable* variable = variables_.find(header.tag);
  PullRound* round = rounds_.answerable(header.step, header.part);
  if (variable == nullptr || !variable->led() || round == nullptr ||
      columns_.column_of(from) != columns_.my_column()) {
    return false;
  }
  Wanted& wanted = variable->wanted[round->place];
  const bool rows = variable->by_rows();
  // The place may hold what an earlier round wanted of a variable that this one does not.
  if (!wanted.is_of(*round) || pull_dtype(header) != wanted.dtype ||
      header.encoding != (rows ? Encoding::kValues : Encoding::kDense)) {
    return false;
  }
  const uint64_t width = rows ? variable->partition.row_elements() : 1;
  const uint32_t owner = columns_.place_in_column(from);
  // Of this owner's share. An element before its range wraps to a huge number.
  const uint64_t share_first = rows ? 0 : variable->partition.range_of(from).first;
  const uint64_t into = header.first - share_first;
  const uint64_t share_at = rows ? wanted.offsets[owner] : variable->elements_before(from);
  const size_t item_bytes = width * bytes_of_dtype(wanted.dtype);
  if (section.payload.size() != header.count * item_bytes ||
      !wanted.answers[owner].take(into, header.count)) {
    return false;
  }
  // Kept by the host's items, so that each rank's answer is picked from them without a search.
  std::memcpy(&wanted.values[(share_at + into) * item_bytes], section.payload.data(),
              section.payload.size());
  round->left -= header.count;
  if (round->left == 0) answer_locals(*round);
  return true;
}

// ---- leader -> rank: to each what it wanted

void PullLeader::answer_locals(PullRound& round) {
  for (const uint32_t each : round.variables) {
    PulledVariable& variable = *variables_.find(each);
    Wanted& wanted = variable.wanted[round.place];
    for (const uint32_t rank : columns_.locals()) {
      const uint32_t local = columns_.local_of(rank);
      if (!variable.by_rows()) {
        if (wanted.dense[local] != 0) answer_local_dense(round, variable, rank);
        continue;
      }
      if (wanted.list_counts[local] == 0) continue;
      Send send = pull_send(SectionKind::kValuesLocal, Encoding::kValues, variable.id, round.step,
                            round.number);
      send.header.flags = pull_flags(wanted.dtypes[local]);
      send.format = {.element_bytes = bytes_of_dtype(wanted.dtypes[local]),
                     .source_bytes = bytes_of_dtype(wanted.dtype),
                     .convert = converter(wanted.dtype, wanted.dtypes[local])};
      send.rows.row_elements = static_cast<uint32_t>(variable.partition.row_elements());
      send.rows.values = wanted.values.data();
      send.rows.order = wanted.lists[local].data();
      send.count = wanted.list_counts[local];
      outbox_.add(rank, send);
    }
  }
  for (const uint32_t rank : columns_.locals()) {
    // One that ended the step without a pull has none under way, and would refuse its end.
    if (round.here[columns_.local_of(rank)] == 0) continue;
    Send end = pull_send(SectionKind::kValuesLocal, Encoding::kBytes, kNoPulledVariable, round.step,
                         round.number);
    end.header.flags = kSectionLast;
    outbox_.add(rank, end);
  }
}

// In the order of the column's elements: see PulledVariable::elements_of_column.
void PullLeader::answer_local_dense(const PullRound& round, PulledVariable& variable,
                                    uint32_t rank) {
  const Wanted& wanted = variable.wanted[round.place];
  const uint32_t dtype = wanted.dtypes[columns_.local_of(rank)];
  const std::byte* values = wanted.values.data();
  for (const uint32_t owner : variable.owners) {
    const Range range = variable.partition.range_of(owner);
    Send send = pull_send(SectionKind::kValuesLocal, Encoding::kDense, variable.id, round.step,
                          round.number);
    send.header.flags = pull_flags(dtype);
    send.header.first = range.first;
    send.format = {.element_bytes = bytes_of_dtype(dtype),
                   .source_bytes = bytes_of_dtype(wanted.dtype),
                   .convert = converter(wanted.dtype, dtype)};
    send.dense = values;
    send.count = range.count;
    outbox_.add(rank, send);
    values += range.count * send.format.source_bytes;
  }
}

}  // namespace parallax
