// SPDX-License-Identifier: Apache-2.0
// A host's sum on its way to the reducers. See row_exchange.h.
#include <algorithm>
#include <numeric>

#include "aggregate/group_items.h"
#include "aggregate/pulled_keys.h"
#include "aggregate/row_order.h"
#include "collectives/listed_rows.h"
#include "collectives/round_names.h"
#include "collectives/row_exchange.h"

namespace parallax {

void RowExchange::forward_if_complete(StepBuffer& buffer) {
  if (!host_rows_.leads() || buffer.forwarded) return;
  if (!host_rows_.sum(buffer.step).complete()) return;
  buffer.forwarded = true;
  buffer.contributed |= host_rows_.contributed(buffer.step);
  if (one_host_) {
    return_if_complete(buffer);
  } else {
    forward(buffer);
  }
}

// Rows that are as they will be, though not all are here. By a census nobody has a section that is
// empty, as the last one would be of an owner that has all its rows before: so all go at once.
void RowExchange::on_host_rows(uint64_t step) {
  StepBuffer& buffer = step_buffer(step);
  if (!by_census_ && host_rows_.sum(step).row_count() > buffer.rows_forwarded) forward(buffer);
}

// What of the host's sum was not sent yet; the last of it once it is complete.
void RowExchange::forward(StepBuffer& buffer) {
  if (algorithm_.up == ReduceTo::kEveryHost) {
    forward_to_hosts(buffer);
  } else {
    forward_to_owners(buffer);
  }
  buffer.rows_forwarded = host_rows_.sum(buffer.step).row_count();
}

SectionCoding RowExchange::coding_to(uint32_t rank) const {
  if (options_.codings == nullptr || columns_.host_of(rank) == columns_.host()) return {};
  return {.row_keys = options_.codings->pushed.row_keys && options_.scratch != nullptr,
          .numbers = options_.codings->pushed.numbers && has_number_code(intake_.dtype())};
}

void RowExchange::forward_to_hosts(StepBuffer& buffer) {
  const RowAccumulator& sum = host_rows_.sum(buffer.step);
  const uint32_t first = buffer.rows_forwarded;
  if (by_census_) join(buffer, sum.row_count() > 0 ? columns_.host() : Census::kNoMark);
  if (by_census_ && sum.row_count() == 0) return;
  const std::span<uint32_t> items = buffer.items.subspan(first, sum.row_count() - first);
  const std::span<uint32_t> row_keys = buffer.row_keys.subspan(first, items.size());
  std::iota(items.begin(), items.end(), first);
  std::copy_n(sum.row_keys() + first, items.size(), row_keys.begin());
  if (options_.codings != nullptr && options_.codings->pushed.row_keys &&
      options_.scratch != nullptr) {
    sort_by_row_key(row_keys, items, *options_.scratch);
  }
  for (uint32_t i = 0; i < columns_.host_count(); ++i) {
    // From the next host on, so that not all of them send to the same one first.
    const uint32_t host = (columns_.host() + 1 + i) % columns_.host_count();
    Send send = new_send(buffer);
    const uint32_t leader = columns_.leader(host, columns_.my_column());
    send.coding = coding_to(leader);
    send.rows.row_keys = row_keys.data();
    send.rows.order = items.data();
    send.count = sum.row_count() - first;
    outbox_.add(leader, send);
  }
}

void RowExchange::forward_to_owners(StepBuffer& buffer) {
  const RowAccumulator& sum = host_rows_.sum(buffer.step);
  const std::vector<uint32_t>& owners = columns_.owners(columns_.my_column());
  const uint32_t begin = buffer.rows_forwarded;
  const uint32_t count = sum.row_count() - begin;
  // Behind those of the sends before, which may still be read.
  const std::span<uint32_t> items = buffer.items.subspan(begin, count);
  const std::span<uint32_t> item_keys = buffer.row_keys.subspan(begin, count);
  const uint32_t* const row_keys = sum.row_keys() + begin;
  // Where their row keys will stand by owner, for a moment.
  const std::span<uint32_t> places = item_keys;
  partition_.look_up_owners(
      row_keys, count,
      [place_of = columns_.places_of_owners()](uint32_t owner) { return place_of[owner]; },
      places.data());
  group_items(places, static_cast<uint32_t>(owners.size()), buffer.offsets, items);
  for (uint32_t item = 0; item < count; ++item) {
    item_keys[item] = row_keys[items[item]];
    items[item] += begin;
  }
  // From this host's place on, so that not all hosts send to the same owner first.
  const auto start =
      static_cast<uint32_t>(uint64_t{columns_.host()} * owners.size() / columns_.host_count());
  for (uint32_t at = 0; at < owners.size(); ++at) {
    const uint32_t i = static_cast<uint32_t>((start + at) % owners.size());
    const uint32_t first = buffer.offsets[i];
    const uint32_t of_owner = buffer.offsets[i + 1] - first;
    const std::span<uint32_t> keys = item_keys.subspan(first, of_owner);
    const std::span<uint32_t> slots = items.subspan(first, of_owner);
    if (takes_own_ && owners[i] == columns_.rank()) {
      // The host's sum stays as it is until this one is applied.
      buffer.total.join_rows_of(columns_.host(), sum, keys, slots);
      if (buffer.forwarded) buffer.total.end(columns_.host());
      continue;
    }
    const bool said = by_census_ || !buffer.forwarded;  // otherwise that none come, or came
    if (!host_rows_.row_columns().active(owners[i]) || (said && of_owner == 0)) continue;
    if (by_census_) {
      buffer.unarrived[i] = 1;
      ++buffer.unarrived_count;
    }
    send_to_owner(owners[i], new_send(buffer), keys, slots);
  }
  if (by_census_ && buffer.unarrived_count == 0) join(buffer, Census::kNoMark);
  if (takes_own_) return_if_complete(buffer);
}

// Those of its rows that were pulled of it without their row keys, ahead of the others.
void RowExchange::send_to_owner(uint32_t owner, Send send, std::span<uint32_t> row_keys,
                                std::span<uint32_t> items) {
  send.coding = coding_to(owner);
  if (send.coding.row_keys) sort_by_row_key(row_keys, items, *options_.scratch);
  const PulledKeys* const pulled = options_.pulled == nullptr || by_census_
                                       ? nullptr
                                       : options_.pulled->asked(options_.variable);
  uint32_t listed = 0;
  if (pulled != nullptr) {
    listed = list_rows(pulled->known(send.header.step, columns_.place_in_column(owner)), row_keys,
                       items, send.coding.row_keys ? options_.scratch : nullptr);
  }
  const auto count = static_cast<uint32_t>(items.size());
  if (listed > 0) {
    Send first = send;
    first.header.encoding = Encoding::kListedRows;
    if (listed < count) first.header.flags = 0;
    first.rows.row_keys = row_keys.data();
    first.rows.order = items.data();
    first.count = listed;
    add_send(owner, first);
    if (listed == count) return;
  }
  send.rows.row_keys = row_keys.data() + listed;
  send.rows.order = items.data() + listed;
  send.count = count - listed;
  add_send(owner, send);
}

void RowExchange::add_send(uint32_t owner, Send send) {
  if (hands_on_) {
    send.pending = &(*options_.unsent)[send.header.step & 1];
    ++*send.pending;
  }
  outbox_.add(owner, send);
}

Send RowExchange::new_send(const StepBuffer& buffer) const {
  Send send;
  send.header = {.kind = SectionKind::kHostReduce,
                 .encoding = Encoding::kRows,
                 .tag = options_.variable,
                 .step = buffer.step};
  name_round(options_.rounds, &send.header);
  if (buffer.forwarded) send.header.flags |= kSectionLast;
  if (buffer.contributed) send.header.flags |= kSectionContributed;
  send.priority = options_.priority;
  send.format = {.element_bytes = bytes_of_dtype(intake_.dtype()),
                 .source_bytes = bytes_of_sum(options_.sum),
                 .convert = converter(dtype_of(options_.sum), intake_.dtype())};
  send.rows.row_elements = static_cast<uint32_t>(partition_.row_elements());
  send.rows.values = host_rows_.sum(buffer.step).values();
  send.rows.places = host_rows_.sum(buffer.step).places();
  return send;
}

}  // namespace parallax
