// SPDX-License-Identifier: Apache-2.0
// A gradient's way up: memory, a rank's slice to its leaders, a host's sum to the reducers. The way
// back is in gradient_exchange_return.cc. See gradient_exchange.h.
#include "collectives/gradient_exchange.h"

#include <algorithm>

#include "base/check.h"

namespace parallax {

GradientExchange::GradientExchange(const Columns& columns, const Partition& partition,
                                   Outbox& outbox, Compute& compute, const ExchangeOptions& options)
    : columns_(columns),
      partition_(partition),
      outbox_(outbox),
      compute_(compute),
      options_(options),
      algorithm_(algorithm_for(options.method, {.elements = partition.elements(),
                                                .hosts = columns.host_count(),
                                                .ordered = options.ordered})),
      rows_form_(partition.ids_declared()),
      dense_wire_(algorithm_.dense_wire || !rows_form_),
      sum_(options.sum),
      element_bytes_(bytes_of_sum(sum_)),
      row_bytes_(element_bytes_ * partition.row_elements()) {
  with_sum_type(sum_, [this](auto tag) {
    const typename decltype(tag)::type one{1};
    std::memcpy(one_.data(), &one, sizeof one);
  });
  const uint32_t turn = options.variable % columns.world();
  tree_root_ = columns.leader(columns.host_of(turn), columns.column_of(turn));
  active_owners_.resize(columns.count());
  uint32_t active_count = 0;
  for (uint32_t column = 0; column < columns.count(); ++column) {
    for (const uint32_t owner : columns.owners(column)) {
      if (active(owner)) active_owners_[column].push_back(owner);
    }
    if (!active_owners_[column].empty()) active_columns_.push_back(column);
    active_count += static_cast<uint32_t>(active_owners_[column].size());
  }
  leads_ = columns.is_leader() && !active_owners_[columns.my_column()].empty();
  reduces_ = algorithm_.up == ReduceTo::kOwner ? active(columns.rank()) : leads_;
  set_sources();
  switch (algorithm_.down) {
    case ReturnTo::kNobody:
      break;
    case ReturnTo::kEveryHost:
    case ReturnTo::kTree:
      pieces_expected_ = active_count;
      break;
    case ReturnTo::kOwnHost:
      pieces_expected_ = static_cast<uint32_t>(active_columns_.size());
      break;
  }
}

// The ranks whose sums this rank sums, in the order of hosts: every host's leader of its column; in
// a tree itself and its children.
void GradientExchange::set_sources() {
  if (!reduces_) return;
  const uint32_t column = columns_.column_of(columns_.rank());
  const uint32_t hosts = columns_.host_count();
  if (algorithm_.up != ReduceTo::kTree) {
    for (uint32_t host = 0; host < hosts; ++host) {
      sources_.push_back(columns_.leader(host, column));
    }
    return;
  }
  const uint32_t root_host = columns_.host_of(tree_root_);
  sources_.push_back(columns_.rank());
  for (const uint32_t host : host_tree_children(hosts, root_host, columns_.host())) {
    sources_.push_back(columns_.leader(host, column));
  }
  if (columns_.rank() != tree_root_) {
    tree_parent_ = columns_.leader(host_tree_parent(hosts, root_host, columns_.host()), column);
  }
}

Range GradientExchange::range_of(uint32_t owner) const {
  if (algorithm_.up != ReduceTo::kTree) return partition_.range_of(owner);
  return owner == tree_root_ ? Range{0, partition_.elements()} : Range{};
}

bool GradientExchange::active(uint32_t owner) const {
  return dense_wire_ ? range_of(owner).count > 0 : partition_.rows_owned(owner) > 0;
}

// ---- memory

size_t GradientExchange::needed_bytes() {
  Arena measure;
  lay_out(measure);
  return measure.used_bytes();
}

Status GradientExchange::reserve() {
  PARALLAX_RETURN_IF_ERROR(arena_.reserve(needed_bytes()));
  lay_out(arena_);
  return {};
}

void GradientExchange::lay_out(Arena& arena) {
  const uint64_t elements = partition_.elements();
  const uint64_t rows_in_world = std::min(partition_.rows(), options_.rows_max * columns_.world());
  // Each coalesced row is the sum of two rows or more, so half of rows_max is room enough; where a
  // slice can have every row, rows can come beside it for each.
  const uint64_t rows_max = options_.rows_max;
  const uint64_t coalesced_max = rows_max >= partition_.rows() ? partition_.rows() : rows_max / 2;
  for (StepBuffer& step_buffer : step_buffers_) {
    step_buffer.exchange = this;
    if (rows_form_) {
      step_buffer.coalescer.lay_out(arena, {.rows_max = options_.rows_max,
                                            .row_elements = slice_elements(),
                                            .groups = columns_.count(),
                                            .coalesced_max = coalesced_max,
                                            .sum = sum_,
                                            .counted = options_.counted});
    }
    if (leads_) lay_out_leader(arena, step_buffer);
    if (reduces_) lay_out_reducer(arena, step_buffer);
    if (algorithm_.down == ReturnTo::kNobody) continue;
    if (dense_wire_) {
      step_buffer.gathered = arena.take<std::byte>(elements * element_bytes_);
    } else {
      step_buffer.gathered = arena.take<std::byte>(rows_in_world * row_bytes_);
      step_buffer.gathered_row_keys = arena.take<uint32_t>(rows_in_world);
    }
  }
}

void GradientExchange::lay_out_leader(Arena& arena, StepBuffer& step_buffer) {
  const std::vector<uint32_t>& owners = active_owners_[columns_.my_column()];
  const uint32_t locals = static_cast<uint32_t>(columns_.locals().size());
  std::vector<Range> ranges;
  uint64_t column_rows = 0;
  uint64_t column_elements = 0;
  for (const uint32_t owner : owners) {
    if (dense_wire_) {
      ranges.push_back(range_of(owner));
      column_elements += ranges.back().count;
      column_rows += ranges.back().count / partition_.row_elements();
    } else {
      column_rows += partition_.rows_owned(owner);
    }
  }
  if (!rows_form_) {
    std::sort(ranges.begin(), ranges.end(),
              [](const Range& a, const Range& b) { return a.first < b.first; });
    step_buffer.local_dense.lay_out(arena, ranges,
                                    {.sources = locals, .ordered = options_.ordered, .sum = sum_});
    return;
  }
  const uint64_t rows_max = std::min(column_rows, options_.rows_max * locals);
  step_buffer.local_rows.lay_out(arena,
                                 {.sources = locals,
                                  .rows_max = rows_max,
                                  .source_rows_max = std::min(column_rows, options_.rows_max),
                                  .row_elements = static_cast<uint32_t>(partition_.row_elements()),
                                  .ordered = options_.ordered,
                                  .sum = sum_});
  step_buffer.items = arena.take<uint32_t>(rows_max);
  step_buffer.row_keys = arena.take<uint32_t>(rows_max);
  step_buffer.offsets = arena.take<uint32_t>(columns_.owners(columns_.my_column()).size() + 1);
  if (dense_wire_) step_buffer.scattered = arena.take<std::byte>(column_elements * element_bytes_);
}

void GradientExchange::lay_out_reducer(Arena& arena, StepBuffer& step_buffer) {
  const uint32_t sources = static_cast<uint32_t>(sources_.size());
  const uint32_t row_elements = static_cast<uint32_t>(partition_.row_elements());
  if (dense_wire_) {
    const bool tree = algorithm_.up == ReduceTo::kTree;
    const Range range = range_of(tree ? tree_root_ : columns_.rank());
    step_buffer.host_dense.lay_out(
        arena, {&range, 1},
        {.sources = sources, .ordered = options_.ordered, .made_dense = rows_form_, .sum = sum_});
    return;
  }
  uint64_t rows = 0;
  if (algorithm_.up == ReduceTo::kOwner) {
    rows = partition_.rows_owned(columns_.rank());
  } else {
    for (const uint32_t owner : active_owners_[columns_.my_column()]) {
      rows += partition_.rows_owned(owner);
    }
  }
  std::vector<uint64_t> rows_max_of;  // by the ranks of each host, which may differ
  for (const uint32_t source : sources_) {
    const size_t ranks = columns_.map().ranks_of[columns_.host_of(source)].size();
    rows_max_of.push_back(std::min(rows, options_.rows_max * ranks));
  }
  step_buffer.host_rows.lay_out(arena,
                                {.sources = sources,
                                 .rows_max = std::min(rows, options_.rows_max * columns_.world()),
                                 .rows_max_of = std::move(rows_max_of),
                                 .row_elements = row_elements,
                                 .ordered = options_.ordered,
                                 .sum = sum_});
}

void GradientExchange::open(uint64_t step) {
  StepBuffer& step_buffer = this->step_buffer(step);
  step_buffer.step = step;
  if (leads_ && rows_form_) step_buffer.local_rows.clear();
  if (leads_ && !rows_form_) step_buffer.local_dense.clear();
  if (reduces_ && dense_wire_) step_buffer.host_dense.clear();
  if (reduces_ && !dense_wire_) step_buffer.host_rows.clear();
  step_buffer.forwarded = step_buffer.returned = step_buffer.gathered_any =
      step_buffer.contributed = false;
  step_buffer.gathered_rows = step_buffer.pieces = 0;
}

Send GradientExchange::new_send(SectionKind kind, Encoding encoding,
                                const StepBuffer& step_buffer) const {
  Send send;
  send.header.kind = kind;
  send.header.encoding = encoding;
  send.header.tag = options_.variable;
  send.header.step = step_buffer.step;
  send.format.element_bytes = send.format.source_bytes = static_cast<uint32_t>(element_bytes_);
  send.rows.row_elements = static_cast<uint32_t>(partition_.row_elements());
  return send;
}

// ---- leg 1: this rank's slice to the leaders of its host

// How the elements of a slice are converted on their way into the exchange.
WireFormat GradientExchange::entry_format(uint32_t dtype) const {
  return {.element_bytes = bytes_of_sum(sum_),
          .source_bytes = bytes_of_dtype(dtype),
          .convert = converter(dtype, dtype_of(sum_))};
}

void GradientExchange::contribute(uint64_t step, const Contribution& slice, uint32_t* pending) {
  if (rows_form_) {
    contribute_rows(step_buffer(step), slice, pending);
  } else {
    contribute_elements(step_buffer(step), slice.elements, pending);
  }
}

void GradientExchange::contribute_elements(StepBuffer& step_buffer, const RowValues& values,
                                           uint32_t* pending) {
  const WireFormat format = entry_format(values.dtype);
  for (const uint32_t column : active_columns_) {
    const std::vector<uint32_t>& owners = active_owners_[column];
    for (size_t i = 0; i < owners.size(); ++i) {
      const Range range = range_of(owners[i]);
      Send send = new_send(SectionKind::kLocalReduce, Encoding::kDense, step_buffer);
      send.header.first = range.first;
      send.header.flags = i + 1 == owners.size() ? kSectionLast | kSectionContributed : 0;
      send.format = format;
      send.dense = values.rows + range.first * format.source_bytes;
      send.count = range.count;
      send.pending = pending;
      ++*pending;
      outbox_.add(columns_.leader(columns_.host(), column), send);
    }
  }
}

void GradientExchange::contribute_rows(StepBuffer& step_buffer, const Contribution& slice,
                                       uint32_t* pending) {
  step_buffer.first = slice.rows;
  step_buffer.more = slice.more;
  step_buffer.pending = pending;
  step_buffer.coalescing = true;
  ++*pending;  // of the compute job
  step_buffer.job.context = &step_buffer;
  step_buffer.job.cost_bytes = (slice.rows.count + slice.more.count) * row_bytes_;
  step_buffer.job.run = [](ComputeJob& job) {
    StepBuffer& coalescing = *static_cast<StepBuffer*>(job.context);
    const GradientExchange& exchange = *coalescing.exchange;
    coalescing.coalescer.coalesce(
        exchange.partition_, coalescing.first, coalescing.more,
        [&exchange](uint32_t row_key) { return exchange.column_of_row_key(row_key); });
  };
  step_buffer.job.done = [](ComputeJob& job) {
    StepBuffer& coalesced = *static_cast<StepBuffer*>(job.context);
    coalesced.exchange->send_rows(coalesced);
  };
  compute_.submit(step_buffer.job);
}

void GradientExchange::send_rows(StepBuffer& step_buffer) {
  for (const uint32_t column : active_columns_) {
    const uint32_t first = step_buffer.coalescer.group_first(column);
    Send send = new_send(SectionKind::kLocalReduce, Encoding::kRows, step_buffer);
    send.header.flags = kSectionLast | kSectionContributed;
    send.format = entry_format(step_buffer.first.values.dtype);
    send.rows.row_elements = slice_elements();
    if (options_.counted) send.rows.suffix = one_.data();
    send.rows.row_keys = step_buffer.coalescer.row_keys() + first;
    send.rows.order = step_buffer.coalescer.order() + first;
    send.rows.values = step_buffer.first.values.rows;
    send.rows.coalesced = step_buffer.coalescer.coalesced();
    send.count = step_buffer.coalescer.group_count(column);
    send.pending = step_buffer.pending;
    ++*step_buffer.pending;
    outbox_.add(columns_.leader(columns_.host(), column), send);
  }
  step_buffer.coalescing = false;
  --*step_buffer.pending;
}

bool GradientExchange::on_section(uint32_t from, const Section& section) {
  switch (section.header.kind) {
    case SectionKind::kLocalReduce:
      return on_local_reduce(from, section);
    case SectionKind::kHostReduce:
      return on_host_reduce(from, section);
    case SectionKind::kHostGather:
      return on_host_gather(from, section);
    case SectionKind::kLocalBroadcast:
      return on_local_broadcast(from, section);
    default:
      return false;
  }
}

bool GradientExchange::on_local_reduce(uint32_t from, const Section& section) {
  const SectionHeader& header = section.header;
  if (!leads_ || columns_.host_of(from) != columns_.host()) return false;
  if (header.encoding != (rows_form_ ? Encoding::kRows : Encoding::kDense)) return false;
  StepBuffer& step_buffer = this->step_buffer(header.step);
  const uint32_t source = columns_.local_of(from);
  if (rows_form_) {
    const auto mine = [this](uint32_t row_key) {
      return column_of_row_key(row_key) == columns_.my_column();
    };
    if (!check_row_keys(section, mine)) return false;
    if (!step_buffer.local_rows.add(source, header.count, section.payload)) return false;
  } else if (!step_buffer.local_dense.add(source, header.first, header.count, section.payload)) {
    return false;
  }
  if ((header.flags & kSectionLast) != 0) {
    step_buffer.contributed |= (header.flags & kSectionContributed) != 0;
    end(from, header.step);
  }
  return true;
}

void GradientExchange::end(uint32_t from, uint64_t step) {
  if (!leads_) return;
  StepBuffer& step_buffer = this->step_buffer(step);
  const uint32_t source = columns_.local_of(from);
  if (rows_form_) {
    step_buffer.local_rows.end(source);
  } else {
    step_buffer.local_dense.end(source);
  }
  forward_if_complete(step_buffer);
}

// ---- leg 2: the host's sum to the reducers

void GradientExchange::forward_if_complete(StepBuffer& step_buffer) {
  const bool complete =
      rows_form_ ? step_buffer.local_rows.complete() : step_buffer.local_dense.complete();
  if (!complete || step_buffer.forwarded) return;
  step_buffer.forwarded = true;
  if (algorithm_.up == ReduceTo::kEveryHost) {
    forward_rows_to_hosts(step_buffer);
  } else if (dense_wire_) {
    forward_elements(step_buffer);
  } else {
    forward_rows_to_owners(step_buffer);
  }
}

void GradientExchange::forward_rows_to_hosts(StepBuffer& step_buffer) {
  for (uint32_t host = 0; host < columns_.host_count(); ++host) {
    Send send = new_send(SectionKind::kHostReduce, Encoding::kRows, step_buffer);
    send.header.flags = last_flags(step_buffer);
    send.rows.row_keys = step_buffer.local_rows.row_keys();
    send.rows.values = step_buffer.local_rows.values();
    send.count = step_buffer.local_rows.row_count();
    outbox_.add(columns_.leader(host, columns_.my_column()), send);
  }
}

void GradientExchange::forward_rows_to_owners(StepBuffer& step_buffer) {
  const std::vector<uint32_t>& owners = columns_.owners(columns_.my_column());
  const uint32_t* row_keys = step_buffer.local_rows.row_keys();
  const uint32_t count = step_buffer.local_rows.row_count();
  group_items(
      count, static_cast<uint32_t>(owners.size()),
      [&](uint32_t slot) { return columns_.slot_in_column(partition_.owner_of(row_keys[slot])); },
      step_buffer.offsets, step_buffer.items);
  for (uint32_t item = 0; item < count; ++item)
    step_buffer.row_keys[item] = row_keys[step_buffer.items[item]];
  for (uint32_t i = 0; i < owners.size(); ++i) {
    if (!active(owners[i])) continue;
    const uint32_t first = step_buffer.offsets[i];
    Send send = new_send(SectionKind::kHostReduce, Encoding::kRows, step_buffer);
    send.header.flags = last_flags(step_buffer);
    send.rows.row_keys = &step_buffer.row_keys[first];
    send.rows.order = &step_buffer.items[first];
    send.rows.values = step_buffer.local_rows.values();
    send.count = step_buffer.offsets[i + 1] - first;
    outbox_.add(owners[i], send);
  }
}

// The host's rows as elements, range by range: rows that nobody contributed hold kNoRow.
void GradientExchange::scatter(StepBuffer& step_buffer) {
  fill_no_row(sum_, step_buffer.scattered.data(), step_buffer.scattered.size() / element_bytes_);
  const uint64_t row_elements = partition_.row_elements();
  const std::vector<uint32_t>& owners = active_owners_[columns_.my_column()];
  for (uint32_t slot = 0; slot < step_buffer.local_rows.row_count(); ++slot) {
    const uint32_t row_key = step_buffer.local_rows.row_keys()[slot];
    const uint32_t owner = partition_.range_owner_of(row_key);
    uint64_t offset = row_key * row_elements - range_of(owner).first;
    for (const uint32_t before : owners) {
      if (before == owner) break;
      offset += range_of(before).count;
    }
    std::memcpy(&step_buffer.scattered[offset * element_bytes_], step_buffer.local_rows.row(slot),
                row_bytes_);
  }
}

void GradientExchange::forward_elements(StepBuffer& step_buffer) {
  const bool contributed =
      rows_form_ ? step_buffer.local_rows.contributed() : step_buffer.local_dense.contributed();
  if (rows_form_ && contributed) scatter(step_buffer);
  const std::byte* scattered = step_buffer.scattered.data();
  for (const uint32_t owner : active_owners_[columns_.my_column()]) {
    const Range range = range_of(owner);
    Send send = new_send(SectionKind::kHostReduce, Encoding::kDense, step_buffer);
    send.header.flags = last_flags(step_buffer);
    send.header.first = range.first;
    if (contributed) {
      send.count = range.count;
      if (rows_form_) {
        send.dense = scattered;
        scattered += range.count * element_bytes_;
      } else {
        const auto ranges = step_buffer.local_dense.ranges();
        const auto found =
            std::lower_bound(ranges.begin(), ranges.end(), range.first,
                             [](const Range& each, uint64_t first) { return each.first < first; });
        send.dense = step_buffer.local_dense.range_values(found - ranges.begin());
      }
    }
    outbox_.add(algorithm_.up == ReduceTo::kTree ? columns_.rank() : owner, send);
  }
}

bool GradientExchange::on_host_reduce(uint32_t from, const Section& section) {
  const SectionHeader& header = section.header;
  const auto found = std::find(sources_.begin(), sources_.end(), from);
  if (found == sources_.end()) return false;
  const uint32_t source = static_cast<uint32_t>(found - sources_.begin());
  StepBuffer& step_buffer = this->step_buffer(header.step);
  if (dense_wire_) {
    if (header.encoding != Encoding::kDense ||
        !step_buffer.host_dense.add(source, header.first, header.count, section.payload)) {
      return false;
    }
  } else {
    const auto mine = [this](uint32_t row_key) {
      return algorithm_.up == ReduceTo::kOwner ? partition_.owner_of(row_key) == columns_.rank()
                                               : column_of_row_key(row_key) == columns_.my_column();
    };
    if (header.encoding != Encoding::kRows || !check_row_keys(section, mine) ||
        !step_buffer.host_rows.add(source, header.count, section.payload)) {
      return false;
    }
  }
  if ((header.flags & kSectionLast) == 0) return true;
  step_buffer.contributed |= (header.flags & kSectionContributed) != 0;
  dense_wire_ ? step_buffer.host_dense.end(source) : step_buffer.host_rows.end(source);
  return_if_complete(step_buffer);
  return true;
}

}  // namespace parallax
