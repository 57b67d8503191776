// SPDX-License-Identifier: Apache-2.0
// The road back: the sum to every host and rank, and what came of it. See gradient_road.h.
#include <algorithm>

#include "base/check.h"
#include "collectives/gradient_road.h"

namespace parallax {

// ---- hop 3: the sum back to the handlers of every host (or, where every host sums, hop 4 at once)

void GradientRoad::return_if_complete(Lane& lane) {
  const bool complete = dense_wire_ ? lane.host_dense.complete() : lane.host_rows.complete();
  if (!complete || lane.returned) return;
  lane.returned = true;
  if (algorithm_.down == DownTo::kNobody) return;
  Stream stream =
      new_stream(SectionKind::kDownHost, dense_wire_ ? Encoding::kDense : Encoding::kRows, lane);
  stream.header.flags = last_flags(lane);
  if (dense_wire_) {
    stream.header.first = lane.host_dense.ranges()[0].first;
    if (lane.host_dense.contributed()) {
      stream.count = lane.host_dense.ranges()[0].count;
      stream.dense = lane.host_dense.range_values(0);
    }
  } else {
    stream.rows.positions = lane.host_rows.positions();
    stream.rows.values = lane.host_rows.values();
    stream.count = lane.host_rows.row_count();
  }
  const uint32_t column = columns_.column_of(columns_.rank());
  switch (algorithm_.down) {
    case DownTo::kNobody:
      return;
    case DownTo::kEveryHost:
      for (uint32_t host = 0; host < columns_.host_count(); ++host) {
        outbox_.add(columns_.handler(host, column), stream);
      }
      return;
    case DownTo::kOwnHost:
      stream.header.kind = SectionKind::kDownLocal;
      for (const uint32_t local : columns_.locals()) outbox_.add(local, stream);
      return;
    case DownTo::kTree:
      if (columns_.rank() == tree_root_) {
        outbox_.add(tree_root_, stream);  // hands it down from there
      } else {
        stream.header.kind = SectionKind::kUpHost;
        outbox_.add(tree_parent_, stream);
      }
      return;
  }
}

bool GradientRoad::on_down_host(uint32_t from, const Section& section) {
  if (!columns_.is_handler()) return false;
  if (algorithm_.down == DownTo::kTree) {
    const bool root = columns_.rank() == tree_root_;
    return handles_ && from == (root ? tree_root_ : tree_parent_) && gather(section, true);
  }
  if (algorithm_.down != DownTo::kEveryHost) return false;
  if (columns_.column_of(from) != columns_.my_column() || !active(from)) return false;
  return gather(section, true);
}

// ---- hop 4: to every rank of the host

bool GradientRoad::on_down_local(uint32_t from, const Section& section) {
  if (algorithm_.down == DownTo::kNobody || columns_.host_of(from) != columns_.host() ||
      !columns_.is_handler(from)) {
    return false;
  }
  return gather(section, false);
}

bool GradientRoad::gather(const Section& section, bool forward) {
  const SectionHeader& header = section.header;
  Lane& lane = this->lane(header.step);
  const uint32_t first_row = lane.gathered_rows;
  if (header.encoding != (dense_wire_ ? Encoding::kDense : Encoding::kRows)) return false;
  if (lane.pieces == pieces_expected_) return false;
  if (!(dense_wire_ ? gather_dense(lane, section) : gather_rows(lane, section))) return false;
  if (forward) forward_piece(lane, header, first_row);
  if ((header.flags & kSectionLast) != 0) {
    ++lane.pieces;
    lane.given |= (header.flags & kSectionGiven) != 0;
  }
  return true;
}

bool GradientRoad::gather_rows(Lane& lane, const Section& section) {
  const uint32_t count = section.header.count;
  const auto any = [](uint32_t) { return true; };
  if (section.payload.size() != count * (sizeof(uint32_t) + row_bytes_) ||
      count > lane.gathered_positions.size() - lane.gathered_rows ||
      !check_positions(section, any)) {
    return false;
  }
  if (count == 0) return true;
  const size_t ids_bytes = sizeof(uint32_t) * count;
  std::memcpy(&lane.gathered_positions[lane.gathered_rows], section.payload.data(), ids_bytes);
  std::memcpy(&lane.gathered[lane.gathered_rows * row_bytes_], section.payload.data() + ids_bytes,
              section.payload.size() - ids_bytes);
  lane.gathered_rows += count;
  lane.gathered_any = true;
  return true;
}

bool GradientRoad::gather_dense(Lane& lane, const Section& section) {
  const SectionHeader& header = section.header;
  const uint64_t elements = partition_.elements();
  if (section.payload.size() != header.count * element_bytes_ || header.first > elements ||
      header.count > elements - header.first) {
    return false;
  }
  if (header.count > 0) {
    std::memcpy(&lane.gathered[header.first * element_bytes_], section.payload.data(),
                section.payload.size());
    lane.gathered_any = true;
    return true;
  }
  // A dense slice contributes to every piece or to none. Of rows made dense a piece may have got
  // none while others did.
  if (!rows_form_) return true;
  for (uint32_t owner = 0; owner < columns_.world(); ++owner) {
    const Range range = range_of(owner);
    if (range.first == header.first && range.count > 0) {
      fill_no_row(sum_, &lane.gathered[range.first * element_bytes_], range.count);
      return true;
    }
  }
  return false;
}

// Passes what was just gathered on to the other ranks of this host, and down the tree.
void GradientRoad::forward_piece(Lane& lane, const SectionHeader& header, uint32_t first_row) {
  Stream stream = new_stream(SectionKind::kDownLocal, header.encoding, lane);
  stream.header.flags = header.flags;
  stream.header.first = header.first;
  stream.count = header.count;
  if (header.count > 0 && dense_wire_) {
    stream.dense = &lane.gathered[header.first * element_bytes_];
  } else if (header.count > 0) {
    stream.header.first = 0;
    stream.rows.positions = &lane.gathered_positions[first_row];
    stream.rows.values = &lane.gathered[first_row * row_bytes_];
  }
  for (const uint32_t local : columns_.locals()) {
    if (local != columns_.rank()) outbox_.add(local, stream);
  }
  if (algorithm_.down != DownTo::kTree) return;
  stream.header.kind = SectionKind::kDownHost;
  for (size_t child = 1; child < sources_.size(); ++child) outbox_.add(sources_[child], stream);
}

// ---- what came of it

bool GradientRoad::reduced(uint64_t step) const {
  if (!reduces_) return true;
  const Lane& lane = this->lane(step);
  return dense_wire_ ? lane.host_dense.complete() : lane.host_rows.complete();
}

bool GradientRoad::delivered(uint64_t step) const { return lane(step).pieces == pieces_expected_; }

std::vector<uint32_t> GradientRoad::missing_ranks(uint64_t step) const {
  const Lane& lane = this->lane(step);
  std::vector<uint32_t> missing;
  if (handles_) {
    for (const uint32_t local : columns_.locals()) {
      const uint32_t source = columns_.local_of(local);
      if (!(rows_form_ ? lane.local_rows.ended(source) : lane.local_dense.ended(source))) {
        missing.push_back(local);
      }
    }
  }
  for (uint32_t source = 0; source < sources_.size(); ++source) {
    if (!(dense_wire_ ? lane.host_dense.ended(source) : lane.host_rows.ended(source))) {
      missing.push_back(sources_[source]);
    }
  }
  return missing;
}

// Among the ranks that hold one piece of the sum, the one that speaks for it.
bool GradientRoad::counts_once() const {
  if (!reduces_) return false;
  if (algorithm_.up == UpTo::kEveryHost) return columns_.host() == 0;
  return algorithm_.up == UpTo::kOwner || columns_.rank() == tree_root_;
}

// The runs of the norm: of a variable with ids the rows, of any other the flattened elements, each
// cut at kBlockElements; so they are the same under every method.
void GradientRoad::add_squared_norm(uint64_t step, ExactSum* sum) const {
  if (!counts_once()) return;  // integers have no norm
  const ReducedGradient part = owned(step);
  if (!part.contributed) return;
  with_sum_type(sum_, [&](auto tag) {
    using T = typename decltype(tag)::type;
    if constexpr (std::is_floating_point_v<T>) {
      const T* values = reinterpret_cast<const T*>(part.values);
      const uint64_t row_elements = partition_.row_elements();
      const uint64_t stride = rows_form_ ? row_elements : part.count;
      const uint64_t total = part.rows ? part.row_count * row_elements : part.count;
      for (uint64_t row = 0; row < total; row += stride) {
        if (rows_form_ && !part.rows && is_no_row(values + row)) continue;
        const uint64_t run_elements = rows_form_ ? slice_elements() : stride;
        const double ranks = options_.counted ? static_cast<double>(values[row + run_elements]) : 1;
        for (uint64_t at = 0; at < run_elements; at += kBlockElements) {
          add_squares(values + row + at, std::min(kBlockElements, run_elements - at), ranks, sum);
        }
      }
    }
  });
}

RoadCounts GradientRoad::counts(uint64_t step) const {
  const Lane& lane = this->lane(step);
  RoadCounts counts;
  if (!rows_form_) return counts;
  if (handles_) counts.touched_rows = lane.local_rows.row_count();
  if (!counts_once()) return counts;
  if (!dense_wire_) {
    counts.union_rows = lane.host_rows.row_count();
  } else if (lane.host_dense.contributed()) {
    const ReducedGradient part = owned(step);
    with_sum_type(sum_, [&](auto tag) {
      const auto* values = reinterpret_cast<const typename decltype(tag)::type*>(part.values);
      for (uint64_t at = 0; at < part.count; at += partition_.row_elements()) {
        counts.union_rows += is_no_row(values + at) ? 0 : 1;
      }
    });
  }
  return counts;
}

ReducedGradient GradientRoad::owned(uint64_t step) const {
  const Lane& lane = this->lane(step);
  ReducedGradient part;
  if (!reduces_) return part;
  part.given = lane.given;
  part.counted = options_.counted;
  if (dense_wire_) {
    part.contributed = lane.host_dense.contributed();
    part.first = lane.host_dense.ranges()[0].first;
    part.count = lane.host_dense.ranges()[0].count;
    part.values = lane.host_dense.range_values(0);
    return part;
  }
  part.rows = true;
  part.contributed = lane.host_rows.contributed();
  part.row_count = lane.host_rows.row_count();
  part.positions = lane.host_rows.positions();
  part.values = lane.host_rows.values();
  return part;
}

ReducedGradient GradientRoad::whole(uint64_t step) const {
  const Lane& lane = this->lane(step);
  ReducedGradient all;
  all.given = lane.given;
  all.counted = options_.counted;
  all.contributed = lane.gathered_any;
  all.values = lane.gathered.data();
  if (dense_wire_) {
    all.count = partition_.elements();
  } else {
    all.rows = true;
    all.row_count = lane.gathered_rows;
    all.positions = lane.gathered_positions.data();
  }
  return all;
}

}  // namespace parallax
