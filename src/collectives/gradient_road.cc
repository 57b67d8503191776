// SPDX-License-Identifier: Apache-2.0
// The road up: memory, a rank's slice to its handlers, a host's sum to the reducers. The way back
// is in gradient_road_return.cc. See gradient_road.h.
#include "collectives/gradient_road.h"

#include <algorithm>

#include "base/check.h"

namespace parallax {

GradientRoad::GradientRoad(const Columns& columns, const Partition& partition, Outbox& outbox,
                           Compute& compute, const GradientRoadOptions& options)
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
  tree_root_ = columns.handler(columns.host_of(turn), columns.column_of(turn));
  active_owners_.resize(columns.count());
  uint32_t active_count = 0;
  for (uint32_t column = 0; column < columns.count(); ++column) {
    for (const uint32_t owner : columns.owners(column)) {
      if (active(owner)) active_owners_[column].push_back(owner);
    }
    if (!active_owners_[column].empty()) active_columns_.push_back(column);
    active_count += static_cast<uint32_t>(active_owners_[column].size());
  }
  handles_ = columns.is_handler() && !active_owners_[columns.my_column()].empty();
  reduces_ = algorithm_.up == UpTo::kOwner ? active(columns.rank()) : handles_;
  set_sources();
  switch (algorithm_.down) {
    case DownTo::kNobody:
      break;
    case DownTo::kEveryHost:
    case DownTo::kTree:
      pieces_expected_ = active_count;
      break;
    case DownTo::kOwnHost:
      pieces_expected_ = static_cast<uint32_t>(active_columns_.size());
      break;
  }
}

// Whose sums this rank sums, in the order of hosts: every host's handler of its column; in a tree
// its own and its children's.
void GradientRoad::set_sources() {
  if (!reduces_) return;
  const uint32_t column = columns_.column_of(columns_.rank());
  const uint32_t hosts = columns_.host_count();
  if (algorithm_.up != UpTo::kTree) {
    for (uint32_t host = 0; host < hosts; ++host) {
      sources_.push_back(columns_.handler(host, column));
    }
    return;
  }
  const uint32_t root_host = columns_.host_of(tree_root_);
  sources_.push_back(columns_.rank());
  for (const uint32_t host : host_tree_children(hosts, root_host, columns_.host())) {
    sources_.push_back(columns_.handler(host, column));
  }
  if (columns_.rank() != tree_root_) {
    tree_parent_ = columns_.handler(host_tree_parent(hosts, root_host, columns_.host()), column);
  }
}

Range GradientRoad::range_of(uint32_t owner) const {
  if (algorithm_.up != UpTo::kTree) return partition_.range_of(owner);
  return owner == tree_root_ ? Range{0, partition_.elements()} : Range{};
}

bool GradientRoad::active(uint32_t owner) const {
  return dense_wire_ ? range_of(owner).count > 0 : partition_.rows_owned(owner) > 0;
}

// ---- memory

size_t GradientRoad::needed_bytes() {
  Arena measure;
  lay_out(measure);
  return measure.used_bytes();
}

Status GradientRoad::reserve() {
  PARALLAX_RETURN_IF_ERROR(arena_.reserve(needed_bytes()));
  lay_out(arena_);
  return {};
}

void GradientRoad::lay_out(Arena& arena) {
  const uint64_t elements = partition_.elements();
  const uint64_t rows_in_world = std::min(partition_.rows(), options_.rows_max * columns_.world());
  // A slice of rows has a duplicate for each merged one; where a slice can have every row, more
  // rows can come beside it.
  const uint64_t rows_max = options_.rows_max;
  const uint64_t merged_max = rows_max >= partition_.rows() ? partition_.rows() : rows_max / 2;
  for (Lane& lane : lanes_) {
    lane.road = this;
    if (rows_form_) {
      lane.merge.lay_out(arena, {.rows_max = options_.rows_max,
                                 .row_elements = slice_elements(),
                                 .groups = columns_.count(),
                                 .merged_max = merged_max,
                                 .sum = sum_,
                                 .counted = options_.counted});
    }
    if (handles_) lay_out_handler(arena, lane);
    if (reduces_) lay_out_reducer(arena, lane);
    if (algorithm_.down == DownTo::kNobody) continue;
    if (dense_wire_) {
      lane.gathered = arena.take<std::byte>(elements * element_bytes_);
    } else {
      lane.gathered = arena.take<std::byte>(rows_in_world * row_bytes_);
      lane.gathered_positions = arena.take<uint32_t>(rows_in_world);
    }
  }
}

void GradientRoad::lay_out_handler(Arena& arena, Lane& lane) {
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
    lane.local_dense.lay_out(arena, ranges,
                             {.sources = locals, .ordered = options_.ordered, .sum = sum_});
    return;
  }
  const uint64_t rows_max = std::min(column_rows, options_.rows_max * locals);
  lane.local_rows.lay_out(arena, {.sources = locals,
                                  .rows_max = rows_max,
                                  .source_rows_max = std::min(column_rows, options_.rows_max),
                                  .row_elements = static_cast<uint32_t>(partition_.row_elements()),
                                  .ordered = options_.ordered,
                                  .sum = sum_});
  lane.items = arena.take<uint32_t>(rows_max);
  lane.positions = arena.take<uint32_t>(rows_max);
  lane.offsets = arena.take<uint32_t>(columns_.owners(columns_.my_column()).size() + 1);
  if (dense_wire_) lane.scattered = arena.take<std::byte>(column_elements * element_bytes_);
}

void GradientRoad::lay_out_reducer(Arena& arena, Lane& lane) {
  const uint32_t sources = static_cast<uint32_t>(sources_.size());
  const uint32_t row_elements = static_cast<uint32_t>(partition_.row_elements());
  if (dense_wire_) {
    const bool tree = algorithm_.up == UpTo::kTree;
    const Range range = range_of(tree ? tree_root_ : columns_.rank());
    lane.host_dense.lay_out(
        arena, {&range, 1},
        {.sources = sources, .ordered = options_.ordered, .made_dense = rows_form_, .sum = sum_});
    return;
  }
  uint64_t rows = 0;
  if (algorithm_.up == UpTo::kOwner) {
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
  lane.host_rows.lay_out(arena, {.sources = sources,
                                 .rows_max = std::min(rows, options_.rows_max * columns_.world()),
                                 .rows_max_of = std::move(rows_max_of),
                                 .row_elements = row_elements,
                                 .ordered = options_.ordered,
                                 .sum = sum_});
}

void GradientRoad::open(uint64_t step) {
  Lane& lane = this->lane(step);
  lane.step = step;
  if (handles_ && rows_form_) lane.local_rows.clear();
  if (handles_ && !rows_form_) lane.local_dense.clear();
  if (reduces_ && dense_wire_) lane.host_dense.clear();
  if (reduces_ && !dense_wire_) lane.host_rows.clear();
  lane.forwarded = lane.returned = lane.gathered_any = lane.given = false;
  lane.gathered_rows = lane.pieces = 0;
}

Stream GradientRoad::new_stream(SectionKind kind, Encoding encoding, const Lane& lane) const {
  Stream stream;
  stream.header.kind = kind;
  stream.header.encoding = encoding;
  stream.header.tag = options_.variable;
  stream.header.step = lane.step;
  stream.format.element_bytes = stream.format.source_bytes = static_cast<uint32_t>(element_bytes_);
  stream.rows.row_elements = static_cast<uint32_t>(partition_.row_elements());
  return stream;
}

// ---- hop 1: this rank's slice to the handlers of its host

// How the numbers of a slice of this rank enter the road.
WireFormat GradientRoad::entry_format(uint32_t dtype) const {
  return {.element_bytes = bytes_of_sum(sum_),
          .source_bytes = bytes_of_dtype(dtype),
          .convert = converter(dtype, dtype_of(sum_))};
}

void GradientRoad::contribute_dense(uint64_t step, const RowValues& values, uint32_t* pending) {
  Lane& lane = this->lane(step);
  const WireFormat format = entry_format(values.dtype);
  for (const uint32_t column : active_columns_) {
    const std::vector<uint32_t>& owners = active_owners_[column];
    for (size_t i = 0; i < owners.size(); ++i) {
      const Range range = range_of(owners[i]);
      Stream stream = new_stream(SectionKind::kUpLocal, Encoding::kDense, lane);
      stream.header.first = range.first;
      stream.header.flags = i + 1 == owners.size() ? kSectionLast | kSectionGiven : 0;
      stream.format = format;
      stream.dense = values.rows + range.first * format.source_bytes;
      stream.count = range.count;
      stream.pending = pending;
      ++*pending;
      outbox_.add(columns_.handler(columns_.host(), column), stream);
    }
  }
}

void GradientRoad::contribute_rows(uint64_t step, const RowSlice& first, const RowSlice& more,
                                   uint32_t* pending) {
  Lane& lane = this->lane(step);
  lane.first = first;
  lane.more = more;
  lane.pending = pending;
  lane.merging = true;
  ++*pending;  // the job's own
  lane.job.context = &lane;
  lane.job.cost_bytes = (first.count + more.count) * row_bytes_;
  lane.job.run = [](ComputeJob& job) {
    Lane& merging = *static_cast<Lane*>(job.context);
    const GradientRoad& road = *merging.road;
    merging.merge.merge(road.partition_, merging.first, merging.more,
                        [&road](uint32_t position) { return road.column_of_position(position); });
  };
  lane.job.done = [](ComputeJob& job) {
    Lane& merged = *static_cast<Lane*>(job.context);
    merged.road->send_rows(merged);
  };
  compute_.submit(lane.job);
}

void GradientRoad::send_rows(Lane& lane) {
  for (const uint32_t column : active_columns_) {
    const uint32_t first = lane.merge.group_first(column);
    Stream stream = new_stream(SectionKind::kUpLocal, Encoding::kRows, lane);
    stream.header.flags = kSectionLast | kSectionGiven;
    stream.format = entry_format(lane.first.values.dtype);
    stream.rows.row_elements = slice_elements();
    if (options_.counted) stream.rows.suffix = one_.data();
    stream.rows.positions = lane.merge.positions() + first;
    stream.rows.order = lane.merge.order() + first;
    stream.rows.values = lane.first.values.rows;
    stream.rows.merged = lane.merge.merged();
    stream.count = lane.merge.group_count(column);
    stream.pending = lane.pending;
    ++*lane.pending;
    outbox_.add(columns_.handler(columns_.host(), column), stream);
  }
  lane.merging = false;
  --*lane.pending;
}

bool GradientRoad::on_section(uint32_t from, const Section& section) {
  switch (section.header.kind) {
    case SectionKind::kUpLocal:
      return on_up_local(from, section);
    case SectionKind::kUpHost:
      return on_up_host(from, section);
    case SectionKind::kDownHost:
      return on_down_host(from, section);
    case SectionKind::kDownLocal:
      return on_down_local(from, section);
    default:
      return false;
  }
}

bool GradientRoad::on_up_local(uint32_t from, const Section& section) {
  const SectionHeader& header = section.header;
  if (!handles_ || columns_.host_of(from) != columns_.host()) return false;
  if (header.encoding != (rows_form_ ? Encoding::kRows : Encoding::kDense)) return false;
  Lane& lane = this->lane(header.step);
  const uint32_t source = columns_.local_of(from);
  if (rows_form_) {
    const auto mine = [this](uint32_t position) {
      return column_of_position(position) == columns_.my_column();
    };
    if (!check_positions(section, mine)) return false;
    if (!lane.local_rows.add(source, header.count, section.payload)) return false;
  } else if (!lane.local_dense.add(source, header.first, header.count, section.payload)) {
    return false;
  }
  if ((header.flags & kSectionLast) != 0) {
    lane.given |= (header.flags & kSectionGiven) != 0;
    end_local(from, header.step);
  }
  return true;
}

void GradientRoad::end_local(uint32_t from, uint64_t step) {
  if (!handles_) return;
  Lane& lane = this->lane(step);
  const uint32_t source = columns_.local_of(from);
  if (rows_form_) {
    lane.local_rows.end(source);
  } else {
    lane.local_dense.end(source);
  }
  forward_if_complete(lane);
}

// ---- hop 2: the host's sum to the reducers

void GradientRoad::forward_if_complete(Lane& lane) {
  const bool complete = rows_form_ ? lane.local_rows.complete() : lane.local_dense.complete();
  if (!complete || lane.forwarded) return;
  lane.forwarded = true;
  if (algorithm_.up == UpTo::kEveryHost) {
    forward_rows_to_hosts(lane);
  } else if (dense_wire_) {
    forward_elements(lane);
  } else {
    forward_rows_to_owners(lane);
  }
}

void GradientRoad::forward_rows_to_hosts(Lane& lane) {
  for (uint32_t host = 0; host < columns_.host_count(); ++host) {
    Stream stream = new_stream(SectionKind::kUpHost, Encoding::kRows, lane);
    stream.header.flags = last_flags(lane);
    stream.rows.positions = lane.local_rows.positions();
    stream.rows.values = lane.local_rows.values();
    stream.count = lane.local_rows.row_count();
    outbox_.add(columns_.handler(host, columns_.my_column()), stream);
  }
}

void GradientRoad::forward_rows_to_owners(Lane& lane) {
  const std::vector<uint32_t>& owners = columns_.owners(columns_.my_column());
  const uint32_t* positions = lane.local_rows.positions();
  const uint32_t count = lane.local_rows.row_count();
  group_items(
      count, static_cast<uint32_t>(owners.size()),
      [&](uint32_t slot) { return columns_.slot_in_column(partition_.owner_of(positions[slot])); },
      lane.offsets, lane.items);
  for (uint32_t item = 0; item < count; ++item) lane.positions[item] = positions[lane.items[item]];
  for (uint32_t i = 0; i < owners.size(); ++i) {
    if (!active(owners[i])) continue;
    const uint32_t first = lane.offsets[i];
    Stream stream = new_stream(SectionKind::kUpHost, Encoding::kRows, lane);
    stream.header.flags = last_flags(lane);
    stream.rows.positions = &lane.positions[first];
    stream.rows.order = &lane.items[first];
    stream.rows.values = lane.local_rows.values();
    stream.count = lane.offsets[i + 1] - first;
    outbox_.add(owners[i], stream);
  }
}

// The rows of the host's sum written among rows that are none, range by range.
void GradientRoad::scatter(Lane& lane) {
  fill_no_row(sum_, lane.scattered.data(), lane.scattered.size() / element_bytes_);
  const uint64_t row_elements = partition_.row_elements();
  const std::vector<uint32_t>& owners = active_owners_[columns_.my_column()];
  for (uint32_t slot = 0; slot < lane.local_rows.row_count(); ++slot) {
    const uint32_t position = lane.local_rows.positions()[slot];
    const uint32_t owner = partition_.range_owner_of(position);
    uint64_t offset = position * row_elements - range_of(owner).first;
    for (const uint32_t before : owners) {
      if (before == owner) break;
      offset += range_of(before).count;
    }
    std::memcpy(&lane.scattered[offset * element_bytes_], lane.local_rows.row(slot), row_bytes_);
  }
}

void GradientRoad::forward_elements(Lane& lane) {
  const bool contributed =
      rows_form_ ? lane.local_rows.contributed() : lane.local_dense.contributed();
  if (rows_form_ && contributed) scatter(lane);
  const std::byte* scattered = lane.scattered.data();
  for (const uint32_t owner : active_owners_[columns_.my_column()]) {
    const Range range = range_of(owner);
    Stream stream = new_stream(SectionKind::kUpHost, Encoding::kDense, lane);
    stream.header.flags = last_flags(lane);
    stream.header.first = range.first;
    if (contributed) {
      stream.count = range.count;
      if (rows_form_) {
        stream.dense = scattered;
        scattered += range.count * element_bytes_;
      } else {
        const auto ranges = lane.local_dense.ranges();
        const auto found =
            std::lower_bound(ranges.begin(), ranges.end(), range.first,
                             [](const Range& each, uint64_t first) { return each.first < first; });
        stream.dense = lane.local_dense.range_values(found - ranges.begin());
      }
    }
    outbox_.add(algorithm_.up == UpTo::kTree ? columns_.rank() : owner, stream);
  }
}

bool GradientRoad::on_up_host(uint32_t from, const Section& section) {
  const SectionHeader& header = section.header;
  const auto found = std::find(sources_.begin(), sources_.end(), from);
  if (found == sources_.end()) return false;
  const uint32_t source = static_cast<uint32_t>(found - sources_.begin());
  Lane& lane = this->lane(header.step);
  if (dense_wire_) {
    if (header.encoding != Encoding::kDense ||
        !lane.host_dense.add(source, header.first, header.count, section.payload)) {
      return false;
    }
  } else {
    const auto mine = [this](uint32_t position) {
      return algorithm_.up == UpTo::kOwner ? partition_.owner_of(position) == columns_.rank()
                                           : column_of_position(position) == columns_.my_column();
    };
    if (header.encoding != Encoding::kRows || !check_positions(section, mine) ||
        !lane.host_rows.add(source, header.count, section.payload)) {
      return false;
    }
  }
  if ((header.flags & kSectionLast) == 0) return true;
  lane.given |= (header.flags & kSectionGiven) != 0;
  dense_wire_ ? lane.host_dense.end(source) : lane.host_rows.end(source);
  return_if_complete(lane);
  return true;
}

}  // namespace parallax
