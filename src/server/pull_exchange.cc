// SPDX-License-Identifier: Apache-2.0
// The pull's four legs. See pull_exchange.h. Layout is in pull_exchange_layout.cc.
#include "server/pull_exchange.h"

#include <algorithm>

#include "base/check.h"

namespace parallax {

namespace {

constexpr uint32_t kNoVariable = UINT32_MAX;  // the section that ends a rank's pull

uint8_t dtype_flags(uint32_t dtype) { return static_cast<uint8_t>(dtype << kSectionDtypeShift); }
uint32_t dtype_of(const SectionHeader& header) { return header.flags >> kSectionDtypeShift; }

Send pull_send(SectionKind kind, Encoding encoding, uint32_t variable, uint64_t step,
               uint32_t number) {
  Send send;
  send.header.kind = kind;
  send.header.encoding = encoding;
  send.header.tag = variable;
  send.header.step = step;
  send.header.part = static_cast<uint8_t>(number);
  return send;
}

}  // namespace

// ---- leg 1: what this rank wants, to the leaders of its host

void PullExchange::start(uint64_t step, uint32_t number, std::span<const PullSlice> slices) {
  PARALLAX_CHECK(!active_);
  active_ = true;
  active_step_ = step;
  active_round_ = number;
  slices_left_ = 0;
  answers_left_ = columns_.count();
  active_variables_.clear();
  for (const PullSlice& slice : slices) {
    Entry& entry = *entry_of(slice.variable);
    entry.slice = slice;
    entry.slice_dtype = wire_dtype(slice.dtype, entry.master);
    active_variables_.push_back(slice.variable);
    if (entry.partition->ids_declared()) {
      entry.coalescer.coalesce(
          *entry.partition, {slice.ids, slice.count, {}}, {},
          [&](uint32_t row_key) { return columns_.column_of(entry.partition->owner_of(row_key)); });
      entry.left = entry.coalescer.item_count();
    } else {
      entry.left = entry.partition->elements();
    }
    if (entry.left > 0) ++slices_left_;
    send_local(step, number, entry);
  }
  // To every leader, asked for something or not: its round waits for each rank of the host.
  for (uint32_t column = 0; column < columns_.count(); ++column) {
    Send end = pull_send(SectionKind::kPullLocal, Encoding::kBytes, kNoVariable, step, number);
    end.header.flags = kSectionLast;
    outbox_.add(columns_.leader(columns_.host(), column), end);
  }
}

void PullExchange::send_local(uint64_t step, uint32_t number, Entry& entry) {
  for (uint32_t column = 0; column < columns_.count(); ++column) {
    const bool rows = entry.partition->ids_declared();
    Send send = pull_send(SectionKind::kPullLocal, rows ? Encoding::kIds : Encoding::kBytes,
                          entry.variable, step, number);
    send.header.flags = dtype_flags(entry.slice_dtype);
    if (rows) {
      send.count = entry.coalescer.group_count(column);
      send.rows.row_keys = entry.coalescer.row_keys() + entry.coalescer.group_first(column);
      if (send.count == 0) continue;
    } else {
      const std::vector<uint32_t>& owners = columns_.owners(column);
      if (std::none_of(owners.begin(), owners.end(),
                       [&](uint32_t owner) { return active_owner(*entry.partition, owner); })) {
        continue;
      }
    }
    outbox_.add(columns_.leader(columns_.host(), column), send);
  }
}

bool PullExchange::on_pull_local(uint32_t from, const Section& section) {
  const SectionHeader& header = section.header;
  if (!columns_.is_leader() || columns_.host_of(from) != columns_.host()) return false;
  Round* round = open_round(header.step, header.part);
  if (round == nullptr || round->asked) return false;
  const uint32_t source = columns_.local_of(from);
  if (round->here[source] != 0) return false;
  if (header.tag == kNoVariable) {
    round->here[source] = 1;
    ask_if_complete(*round);
    return true;
  }
  Entry* entry = entry_of(header.tag);
  return entry != nullptr && entry->handled && want(*entry, *round, source, section);
}

// Ranks of a host may want one variable in different dtypes: it is then fetched in the master's
// type, and converted for each.
bool PullExchange::want_dtype(const Entry& entry, Wanted& wanted, uint32_t source, uint32_t dtype,
                              bool first) {
  const uint32_t master = parallax::dtype_of(entry.master);
  if (dtype > PARALLAX_I64 || !convertible(master, dtype) ||
      bytes_of_dtype(dtype) > bytes_of_dtype(master)) {
    return false;
  }
  wanted.dtypes[source] = static_cast<uint8_t>(dtype);
  wanted.dtype = first || dtype == wanted.dtype ? dtype : master;
  return true;
}

bool PullExchange::want(Entry& entry, Round& round, uint32_t source, const Section& section) {
  Wanted& wanted = entry.wanted[slot_of(round.step, round.number)];
  const bool first_use = std::find(round.variables.begin(), round.variables.end(),
                                   entry.variable) == round.variables.end();
  if (first_use) {
    round.variables.push_back(entry.variable);
    wanted.index.clear();
    std::fill(wanted.list_counts.begin(), wanted.list_counts.end(), 0u);
    std::fill(wanted.dense.begin(), wanted.dense.end(), uint8_t{0});
  }
  if (!want_dtype(entry, wanted, source, dtype_of(section.header), first_use)) return false;
  if (!entry.partition->ids_declared()) {
    wanted.dense[source] = 1;
    return section.header.encoding == Encoding::kBytes;
  }
  const uint32_t count = section.header.count;
  if (section.header.encoding != Encoding::kIds || section.payload.size() != size_t{4} * count ||
      count > wanted.lists[source].size() - wanted.list_counts[source]) {
    return false;
  }
  for (uint32_t i = 0; i < count; ++i) {
    uint32_t row_key;
    std::memcpy(&row_key, section.payload.data() + i * sizeof row_key, sizeof row_key);
    if (row_key >= entry.partition->rows() ||
        columns_.column_of(entry.partition->owner_of(row_key)) != columns_.my_column()) {
      return false;
    }
    bool inserted;
    const uint32_t slot = wanted.index.find_or_insert(row_key, &inserted);
    if (slot == kNoSlot) return false;
    // A row that several ranks of the host want is asked for once.
    if (inserted) wanted.row_keys[slot] = row_key;
    wanted.lists[source][wanted.list_counts[source]++] = slot;
  }
  return true;
}

void PullExchange::end_local(uint32_t from, uint64_t step) {
  if (!columns_.is_leader()) return;
  ended_[step & 1][columns_.local_of(from)] = 1;
  for (uint32_t parity = 0; parity < 2; ++parity) {
    Round& round = rounds_[slot_of(step, parity)];
    if (round.active && round.step == step) ask_if_complete(round);
  }
}

// ---- leg 2: what the host wants, to the owners of the column

void PullExchange::ask_if_complete(Round& round) {
  if (round.asked) return;
  for (size_t local = 0; local < round.here.size(); ++local) {
    if (round.here[local] == 0 && ended_[round.step & 1][local] == 0) return;
  }
  round.asked = true;
  for (const uint32_t variable : round.variables) {
    Entry& entry = *entry_of(variable);
    if (entry.partition->ids_declared()) {
      ask_rows(round, entry);
    } else {
      ask_dense(round, entry);
    }
  }
  // Nothing to fetch: the ranks' rounds end at once.
  if (round.left == 0) answer_locals(round);
}

void PullExchange::ask_rows(Round& round, Entry& entry) {
  Wanted& wanted = entry.wanted[slot_of(round.step, round.number)];
  const std::vector<uint32_t>& owners = columns_.owners(columns_.my_column());
  const uint32_t count = wanted.index.size();
  // By owner, so that what one owner answers lies together.
  group_items(
      count, static_cast<uint32_t>(owners.size()),
      [&](uint32_t slot) {
        return columns_.slot_in_column(entry.partition->owner_of(wanted.row_keys[slot]));
      },
      wanted.offsets, wanted.items);
  for (uint32_t item = 0; item < count; ++item) {
    wanted.item_of_slot[wanted.items[item]] = item;
    wanted.grouped[item] = wanted.row_keys[wanted.items[item]];
  }
  for (size_t local = 0; local < wanted.lists.size(); ++local) {
    for (uint32_t i = 0; i < wanted.list_counts[local]; ++i) {
      wanted.lists[local][i] = wanted.item_of_slot[wanted.lists[local][i]];
    }
  }
  for (size_t i = 0; i < owners.size(); ++i) {
    const uint32_t first = wanted.offsets[i];
    Send send =
        pull_send(SectionKind::kPullHost, Encoding::kIds, entry.variable, round.step, round.number);
    send.count = wanted.offsets[i + 1] - first;
    if (send.count == 0) continue;
    send.header.flags = dtype_flags(wanted.dtype);
    send.rows.row_keys = &wanted.grouped[first];
    outbox_.add(owners[i], send);
  }
  round.left += count;
  entry.pulled[round.step & 1] += count;
}

void PullExchange::ask_dense(Round& round, Entry& entry) {
  for (const uint32_t owner : entry.owners) {
    Send send = pull_send(SectionKind::kPullHost, Encoding::kBytes, entry.variable, round.step,
                          round.number);
    send.header.flags = dtype_flags(entry.wanted[slot_of(round.step, round.number)].dtype);
    outbox_.add(owner, send);
    round.left += entry.partition->range_of(owner).count;
  }
}

bool PullExchange::on_pull_host(uint32_t from, const Section& section) {
  const SectionHeader& header = section.header;
  Entry* entry = entry_of(header.tag);
  const uint32_t host = columns_.host_of(from);
  if (entry == nullptr || entry->asked.empty() ||
      from != columns_.leader(host, columns_.column_of(columns_.rank()))) {
    return false;
  }
  Asked& asked = entry->asked[host];
  // A list begins with its item 0. Its number alone does not tell: of it 8 bits travel, which come
  // again after 256 pulls of a step.
  if (header.first == 0 || asked.step != header.step || asked.number != header.part) {
    // A leader asks again only once it was answered.
    if (asked.waiting || asked.answered != asked.count) return false;
    asked = {.rows = asked.rows, .step = header.step, .number = header.part};
    asked.dtype = dtype_of(header);
    if (asked.dtype > PARALLAX_I64 ||
        !convertible(parallax::dtype_of(entry->master), asked.dtype) ||
        bytes_of_dtype(asked.dtype) > bytes_of_sum(entry->master)) {
      return false;
    }
  }
  if (entry->partition->ids_declared()) {
    if (header.encoding != Encoding::kIds || section.payload.size() != size_t{4} * header.count ||
        header.first != asked.count || header.count > asked.rows.size() - asked.count) {
      return false;
    }
    for (uint32_t i = 0; i < header.count; ++i) {
      uint32_t row_key;
      std::memcpy(&row_key, section.payload.data() + i * sizeof row_key, sizeof row_key);
      if (row_key >= entry->partition->rows() ||
          entry->partition->owner_of(row_key) != columns_.rank()) {
        return false;
      }
      asked.rows[asked.count + i] = static_cast<uint32_t>(entry->partition->local_row(row_key));
    }
    asked.count += header.count;
  } else {
    asked.dense = true;
  }
  // Else rows would be older than the pull's step, or the shard has not moved here yet.
  if (applied_ + 1 >= header.step && entry->table != nullptr) {
    answer(*entry, host);
  } else if (!asked.waiting) {
    asked.waiting = true;
    waiting_.emplace_back(entry->variable, host);
  }
  return true;
}

// ---- leg 3: the values, to the leader

void PullExchange::answer(Entry& entry, uint32_t host) {
  Asked& asked = entry.asked[host];
  const uint32_t leader = columns_.leader(host, columns_.column_of(columns_.rank()));
  Send send = pull_send(SectionKind::kValuesHost, Encoding::kValues, entry.variable, asked.step,
                        asked.number);
  send.header.flags = dtype_flags(asked.dtype);
  send.format = {.element_bytes = bytes_of_dtype(asked.dtype),
                 .source_bytes = bytes_of_sum(entry.master),
                 .convert = converter(parallax::dtype_of(entry.master), asked.dtype)};
  send.rows.row_elements = static_cast<uint32_t>(entry.partition->row_elements());
  if (asked.dense) {
    const Range range = entry.partition->range_of(columns_.rank());
    send.header.encoding = Encoding::kDense;
    send.header.first = range.first;
    send.dense = entry.table->element(range.first);
    send.count = range.count;
    asked.dense = false;
  } else {
    send.header.first = asked.answered;
    send.rows.order = &asked.rows[asked.answered];
    send.rows.values = entry.table->array(0).data();
    send.count = asked.count - asked.answered;
    asked.answered = asked.count;
  }
  outbox_.add(leader, send);
}

void PullExchange::applied(uint64_t step) {
  applied_ = step;
  size_t kept = 0;
  for (size_t i = 0; i < waiting_.size(); ++i) {
    const auto [variable, host] = waiting_[i];
    Entry* entry = entry_of(variable);
    if (entry == nullptr) continue;
    if (entry->asked[host].step <= step + 1 && entry->table != nullptr) {
      entry->asked[host].waiting = false;
      answer(*entry, host);
    } else {
      waiting_[kept++] = waiting_[i];
    }
  }
  waiting_.resize(kept);
}

bool PullExchange::on_values_host(uint32_t from, const Section& section) {
  const SectionHeader& header = section.header;
  Entry* entry = entry_of(header.tag);
  Round& round = rounds_[slot_of(header.step, header.part)];
  // No empty section: once nothing is left, it would answer the ranks a second time.
  if (entry == nullptr || !entry->handled || !round.active || !round.asked ||
      round.step != header.step || static_cast<uint8_t>(round.number) != header.part ||
      columns_.column_of(from) != columns_.my_column() || header.count == 0 ||
      header.count > round.left) {
    return false;
  }
  Wanted& wanted = entry->wanted[slot_of(round.step, round.number)];
  const bool rows = entry->partition->ids_declared();
  if (header.encoding != (rows ? Encoding::kValues : Encoding::kDense) ||
      dtype_of(header) != wanted.dtype) {
    return false;
  }
  const uint64_t width = entry->partition->row_elements();
  uint64_t at = 0, elements = header.count;
  if (rows) {
    const uint32_t owner = columns_.slot_in_column(from);
    const uint32_t first = wanted.offsets[owner];
    const uint32_t count = wanted.offsets[owner + 1] - first;
    if (header.first > count || header.count > count - header.first) return false;
    at = (first + header.first) * width;
    elements = header.count * width;
  } else {
    const Range range = entry->partition->range_of(from);
    const uint64_t into = header.first - range.first;  // wraps to a huge number if it lies before
    if (into > range.count || header.count > range.count - into) return false;
    for (const uint32_t owner : entry->owners) {
      if (owner == from) break;
      at += entry->partition->range_of(owner).count;
    }
    at += into;
  }
  const size_t element_bytes = bytes_of_dtype(wanted.dtype);
  const uint64_t elements_max = wanted.values.size() / element_bytes;
  if (section.payload.size() != elements * element_bytes || elements > elements_max ||
      at > elements_max - elements) {
    return false;
  }
  std::memcpy(&wanted.values[at * element_bytes], section.payload.data(), section.payload.size());
  round.left -= header.count;
  if (round.left == 0) answer_locals(round);
  return true;
}

// ---- leg 4: to each rank of the host what it wanted

void PullExchange::answer_locals(Round& round) {
  for (const uint32_t variable : round.variables) {
    Entry& entry = *entry_of(variable);
    Wanted& wanted = entry.wanted[slot_of(round.step, round.number)];
    for (const uint32_t local : columns_.locals()) {
      const uint32_t source = columns_.local_of(local);
      if (!entry.partition->ids_declared()) {
        if (wanted.dense[source] != 0) answer_local_dense(round, entry, local);
        continue;
      }
      if (wanted.list_counts[source] == 0) continue;
      Send send = pull_send(SectionKind::kValuesLocal, Encoding::kValues, variable, round.step,
                            round.number);
      send.header.flags = dtype_flags(wanted.dtypes[source]);
      send.format = {.element_bytes = bytes_of_dtype(wanted.dtypes[source]),
                     .source_bytes = bytes_of_dtype(wanted.dtype),
                     .convert = converter(wanted.dtype, wanted.dtypes[source])};
      send.rows.row_elements = static_cast<uint32_t>(entry.partition->row_elements());
      send.rows.values = wanted.values.data();
      send.rows.order = wanted.lists[source].data();
      send.count = wanted.list_counts[source];
      outbox_.add(local, send);
    }
  }
  for (const uint32_t local : columns_.locals()) {
    if (round.here[columns_.local_of(local)] == 0) continue;  // it ended the step without a pull
    Send end = pull_send(SectionKind::kValuesLocal, Encoding::kBytes, kNoVariable, round.step,
                         round.number);
    end.header.flags = kSectionLast;
    outbox_.add(local, end);
  }
}

void PullExchange::answer_local_dense(Round& round, Entry& entry, uint32_t local) {
  const Wanted& wanted = entry.wanted[slot_of(round.step, round.number)];
  const uint32_t dtype = wanted.dtypes[columns_.local_of(local)];
  const std::byte* values = wanted.values.data();
  for (const uint32_t owner : entry.owners) {
    const Range range = entry.partition->range_of(owner);
    Send send = pull_send(SectionKind::kValuesLocal, Encoding::kDense, entry.variable, round.step,
                          round.number);
    send.header.flags = dtype_flags(dtype);
    send.header.first = range.first;
    send.format = {.element_bytes = bytes_of_dtype(dtype),
                   .source_bytes = bytes_of_dtype(wanted.dtype),
                   .convert = converter(wanted.dtype, dtype)};
    send.dense = values;
    send.count = range.count;
    outbox_.add(local, send);
    values += range.count * send.format.source_bytes;
  }
}

bool PullExchange::on_values_local(uint32_t from, const Section& section) {
  const SectionHeader& header = section.header;
  if (!active_ || header.step != active_step_ ||
      header.part != static_cast<uint8_t>(active_round_) ||
      columns_.host_of(from) != columns_.host() || !columns_.is_leader(from)) {
    return false;
  }
  if (header.tag == kNoVariable) {
    if (answers_left_ == 0) return false;
    --answers_left_;
    return true;
  }
  Entry* entry = entry_of(header.tag);
  if (entry == nullptr || header.count > entry->left || header.count == 0) return false;
  const uint64_t width = entry->partition->row_elements();
  const PullSlice& slice = entry->slice;
  if (dtype_of(header) != entry->slice_dtype) return false;
  const size_t wire_bytes = bytes_of_dtype(entry->slice_dtype);
  const size_t out_bytes = bytes_of_dtype(slice.dtype);
  const Convert convert = converter(entry->slice_dtype, slice.dtype);
  if (header.encoding == Encoding::kDense) {
    if (entry->partition->ids_declared() || header.first > entry->partition->elements() ||
        header.count > entry->partition->elements() - header.first ||
        section.payload.size() != header.count * wire_bytes) {
      return false;
    }
    convert_or_copy(convert, section.payload.data(), slice.values + header.first * out_bytes,
                    header.count, out_bytes);
  } else {
    const uint32_t column = columns_.local_of(from);
    if (header.encoding != Encoding::kValues || !entry->partition->ids_declared() ||
        header.first > entry->coalescer.group_count(column) ||
        header.count > entry->coalescer.group_count(column) - header.first ||
        section.payload.size() != wire_bytes * width * header.count) {
      return false;
    }
    const uint32_t* rows =
        entry->coalescer.order() + entry->coalescer.group_first(column) + header.first;
    for (uint32_t i = 0; i < header.count; ++i) {
      convert_or_copy(convert, section.payload.data() + i * width * wire_bytes,
                      slice.values + rows[i] * width * out_bytes, width, out_bytes);
    }
  }
  entry->left -= header.count;
  if (entry->left == 0) --slices_left_;
  return true;
}

void PullExchange::finish() {
  PARALLAX_CHECK(finished());
  for (const uint32_t variable : active_variables_) {
    const Entry& entry = *entry_of(variable);
    const PullSlice& slice = entry.slice;
    // Duplicates and padding did not travel: copied from the id's first row, or zeroed.
    if (!entry.partition->ids_declared() || entry.coalescer.item_count() == slice.count) continue;
    const size_t row_bytes = entry.partition->row_elements() * bytes_of_dtype(slice.dtype);
    for (uint32_t i = 0; i < slice.count; ++i) {
      const int64_t id = slice.ids.at(i);
      std::byte* const row = slice.values + i * row_bytes;
      if (id == kPaddingId) {
        std::memset(row, 0, row_bytes);
        continue;
      }
      const uint32_t first = entry.coalescer.first_item_of(*entry.partition, id);
      if (first != i) std::memcpy(row, slice.values + first * row_bytes, row_bytes);
    }
  }
  active_ = false;
}

}  // namespace parallax
