// SPDX-License-Identifier: Apache-2.0
// A gradient's way back: the sum to every host and rank, and what is known of it. See
// gradient_exchange.h.
#include <algorithm>

#include "base/check.h"
#include "collectives/gradient_exchange.h"

namespace parallax {

// ---- leg 3: the sum back to the leaders of every host (or, where every host sums, leg 4 at once)

void GradientExchange::return_if_complete(StepBuffer& step_buffer) {
  const bool complete =
      dense_wire_ ? step_buffer.host_dense.complete() : step_buffer.host_rows.complete();
  if (!complete || step_buffer.returned) return;
  step_buffer.returned = true;
  if (algorithm_.down == ReturnTo::kNobody) return;
  Send send = new_send(SectionKind::kHostGather, dense_wire_ ? Encoding::kDense : Encoding::kRows,
                       step_buffer);
  send.header.flags = last_flags(step_buffer);
  if (dense_wire_) {
    send.header.first = step_buffer.host_dense.ranges()[0].first;
    if (step_buffer.host_dense.contributed()) {
      send.count = step_buffer.host_dense.ranges()[0].count;
      send.dense = step_buffer.host_dense.range_values(0);
    }
  } else {
    send.rows.row_keys = step_buffer.host_rows.row_keys();
    send.rows.values = step_buffer.host_rows.values();
    send.count = step_buffer.host_rows.row_count();
  }
  const uint32_t column = columns_.column_of(columns_.rank());
  switch (algorithm_.down) {
    case ReturnTo::kNobody:
      return;
    case ReturnTo::kEveryHost:
      for (uint32_t host = 0; host < columns_.host_count(); ++host) {
        outbox_.add(columns_.leader(host, column), send);
      }
      return;
    case ReturnTo::kOwnHost:
      send.header.kind = SectionKind::kLocalBroadcast;
      for (const uint32_t local : columns_.locals()) outbox_.add(local, send);
      return;
    case ReturnTo::kTree:
      if (columns_.rank() == tree_root_) {
        outbox_.add(tree_root_, send);  // hands it down from there
      } else {
        send.header.kind = SectionKind::kHostReduce;
        outbox_.add(tree_parent_, send);
      }
      return;
  }
}

bool GradientExchange::on_host_gather(uint32_t from, const Section& section) {
  if (!columns_.is_leader()) return false;
  if (algorithm_.down == ReturnTo::kTree) {
    const bool root = columns_.rank() == tree_root_;
    return leads_ && from == (root ? tree_root_ : tree_parent_) && gather(section, true);
  }
  if (algorithm_.down != ReturnTo::kEveryHost) return false;
  if (columns_.column_of(from) != columns_.my_column() || !active(from)) return false;
  return gather(section, true);
}

// ---- leg 4: to every rank of the host

bool GradientExchange::on_local_broadcast(uint32_t from, const Section& section) {
  if (algorithm_.down == ReturnTo::kNobody || columns_.host_of(from) != columns_.host() ||
      !columns_.is_leader(from)) {
    return false;
  }
  return gather(section, false);
}

bool GradientExchange::gather(const Section& section, bool forward) {
  const SectionHeader& header = section.header;
  StepBuffer& step_buffer = this->step_buffer(header.step);
  const uint32_t first_row = step_buffer.gathered_rows;
  if (header.encoding != (dense_wire_ ? Encoding::kDense : Encoding::kRows)) return false;
  if (step_buffer.pieces == pieces_expected_) return false;
  if (!(dense_wire_ ? gather_dense(step_buffer, section) : gather_rows(step_buffer, section)))
    return false;
  if (forward) forward_piece(step_buffer, header, first_row);
  if ((header.flags & kSectionLast) != 0) {
    ++step_buffer.pieces;
    step_buffer.contributed |= (header.flags & kSectionContributed) != 0;
  }
  return true;
}

bool GradientExchange::gather_rows(StepBuffer& step_buffer, const Section& section) {
  const uint32_t count = section.header.count;
  const auto any = [](uint32_t) { return true; };
  if (section.payload.size() != count * (sizeof(uint32_t) + row_bytes_) ||
      count > step_buffer.gathered_row_keys.size() - step_buffer.gathered_rows ||
      !check_row_keys(section, any)) {
    return false;
  }
  if (count == 0) return true;
  const size_t ids_bytes = sizeof(uint32_t) * count;
  std::memcpy(&step_buffer.gathered_row_keys[step_buffer.gathered_rows], section.payload.data(),
              ids_bytes);
  std::memcpy(&step_buffer.gathered[step_buffer.gathered_rows * row_bytes_],
              section.payload.data() + ids_bytes, section.payload.size() - ids_bytes);
  step_buffer.gathered_rows += count;
  step_buffer.gathered_any = true;
  return true;
}

bool GradientExchange::gather_dense(StepBuffer& step_buffer, const Section& section) {
  const SectionHeader& header = section.header;
  const uint64_t elements = partition_.elements();
  if (section.payload.size() != header.count * element_bytes_ || header.first > elements ||
      header.count > elements - header.first) {
    return false;
  }
  if (header.count > 0) {
    std::memcpy(&step_buffer.gathered[header.first * element_bytes_], section.payload.data(),
                section.payload.size());
    step_buffer.gathered_any = true;
    return true;
  }
  // A dense slice contributes to every piece or to none. Of rows made dense a piece may have got
  // none while others did.
  if (!rows_form_) return true;
  for (uint32_t owner = 0; owner < columns_.world(); ++owner) {
    const Range range = range_of(owner);
    if (range.first == header.first && range.count > 0) {
      fill_no_row(sum_, &step_buffer.gathered[range.first * element_bytes_], range.count);
      return true;
    }
  }
  return false;
}

// Passes what was just gathered on to the other ranks of this host, and down the tree.
void GradientExchange::forward_piece(StepBuffer& step_buffer, const SectionHeader& header,
                                     uint32_t first_row) {
  Send send = new_send(SectionKind::kLocalBroadcast, header.encoding, step_buffer);
  send.header.flags = header.flags;
  send.header.first = header.first;
  send.count = header.count;
  if (header.count > 0 && dense_wire_) {
    send.dense = &step_buffer.gathered[header.first * element_bytes_];
  } else if (header.count > 0) {
    send.header.first = 0;
    send.rows.row_keys = &step_buffer.gathered_row_keys[first_row];
    send.rows.values = &step_buffer.gathered[first_row * row_bytes_];
  }
  for (const uint32_t local : columns_.locals()) {
    if (local != columns_.rank()) outbox_.add(local, send);
  }
  if (algorithm_.down != ReturnTo::kTree) return;
  send.header.kind = SectionKind::kHostGather;
  for (size_t child = 1; child < sources_.size(); ++child) outbox_.add(sources_[child], send);
}

// ---- results

bool GradientExchange::reduced(const StepBuffer& step_buffer) const {
  if (!reduces_) return true;
  return dense_wire_ ? step_buffer.host_dense.complete() : step_buffer.host_rows.complete();
}

ExchangeState GradientExchange::state(uint64_t step) const {
  const StepBuffer& step_buffer = this->step_buffer(step);
  return {.contributed = !step_buffer.coalescing,
          .reduced = reduced(step_buffer),
          .delivered = step_buffer.pieces == pieces_expected_};
}

std::vector<uint32_t> GradientExchange::missing(uint64_t step) const {
  const StepBuffer& step_buffer = this->step_buffer(step);
  std::vector<uint32_t> missing;
  if (leads_) {
    for (const uint32_t local : columns_.locals()) {
      const uint32_t source = columns_.local_of(local);
      if (!(rows_form_ ? step_buffer.local_rows.ended(source)
                       : step_buffer.local_dense.ended(source))) {
        missing.push_back(local);
      }
    }
  }
  for (uint32_t source = 0; source < sources_.size(); ++source) {
    if (!(dense_wire_ ? step_buffer.host_dense.ended(source)
                      : step_buffer.host_rows.ended(source))) {
      missing.push_back(sources_[source]);
    }
  }
  return missing;
}

// Among the ranks that hold one piece of the sum, the one that speaks for it.
bool GradientExchange::counts_once() const {
  if (!reduces_) return false;
  if (algorithm_.up == ReduceTo::kEveryHost) return columns_.host() == 0;
  return algorithm_.up == ReduceTo::kOwner || columns_.rank() == tree_root_;
}

ExchangeCounts GradientExchange::counts(uint64_t step) const {
  ExchangeCounts counts;
  if (!rows_form_) return counts;
  if (leads_) counts.touched_rows = step_buffer(step).local_rows.row_count();
  counts.union_rows = union_rows(owned(step));
  return counts;
}

// What every result of this exchange has in common.
ReducedGradient GradientExchange::result() const {
  ReducedGradient result;
  result.counted = options_.counted;
  result.rows = !dense_wire_;
  result.sum = sum_;
  result.by_rows = rows_form_;
  result.row_elements = partition_.row_elements();
  return result;
}

ReducedGradient GradientExchange::owned(uint64_t step) const {
  const StepBuffer& step_buffer = this->step_buffer(step);
  if (!reduces_) return {};
  ReducedGradient part = result();
  part.contributed = step_buffer.contributed;
  part.counts_once = counts_once();
  if (dense_wire_) {
    part.has_values = step_buffer.host_dense.contributed();
    part.first = step_buffer.host_dense.ranges()[0].first;
    part.count = step_buffer.host_dense.ranges()[0].count;
    part.values = step_buffer.host_dense.range_values(0);
    return part;
  }
  part.has_values = step_buffer.host_rows.contributed();
  part.row_count = step_buffer.host_rows.row_count();
  part.row_keys = step_buffer.host_rows.row_keys();
  part.values = step_buffer.host_rows.values();
  return part;
}

ReducedGradient GradientExchange::whole(uint64_t step) const {
  const StepBuffer& step_buffer = this->step_buffer(step);
  ReducedGradient all = result();
  all.contributed = step_buffer.contributed;
  all.has_values = step_buffer.gathered_any;
  all.values = step_buffer.gathered.data();
  if (dense_wire_) {
    all.count = partition_.elements();
  } else {
    all.row_count = step_buffer.gathered_rows;
    all.row_keys = step_buffer.gathered_row_keys.data();
  }
  return all;
}

}  // namespace parallax
