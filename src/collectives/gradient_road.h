// SPDX-License-Identifier: Apache-2.0
// GradientRoad: one variable's gradient on its way, by one method: merged in the rank, summed over
// the ranks of a host at the column's handler, summed over the hosts at the reducer (the owner, or
// the handler where every host merges for itself), and, for replicated methods, back to every rank.
//
// Design notes. A road has two lanes, for the steps of odd and even number. A rank is at most one
// step ahead of another: step t + 1 cannot be decided before all have applied step t, so step t + 2
// finds its lane free everywhere. State is sized at lay-out; nothing allocates afterwards.
// on_section() returns false when the section is not what this rank may be sent; the
// engine then fails the job and names the sender. Owned by the engine's owner; the only part that
// runs elsewhere is the merge of a slice, as a job.
#ifndef PARALLAX_COLLECTIVES_GRADIENT_ROAD_H_
#define PARALLAX_COLLECTIVES_GRADIENT_ROAD_H_

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "aggregate/fold.h"
#include "aggregate/row_merge.h"
#include "base/arena.h"
#include "base/compute.h"
#include "base/exact_sum.h"
#include "collectives/algorithms.h"
#include "topology/patterns.h"
#include "transport/outbox.h"
#include "variable/partition.h"

namespace parallax {

struct GradientRoadOptions {
  uint32_t variable = 0;
  Method method = Method::kAllreduce;
  uint64_t rows_max = 0;        // rows in one slice; 0 for dense
  bool ordered = false;         // deterministic folds
  SumType sum = SumType::kF32;  // what the road carries; slices are converted where they enter
  // With ids: every row ends in one element more, which counts the ranks that gave the row. The
  // partition's row_elements has it.
  bool counted = false;
};

// The reduced gradient of a lane as this rank sees it, for applying or handing out.
struct ReducedGradient {
  bool given = false;        // some rank gave a slice, if only one without rows
  bool contributed = false;  // false: no rank gave values, and nothing is to be applied
  bool rows = false;
  bool counted = false;  // rows end in the count of ranks that gave them
  // rows: row_count positions and their values. dense: elements [first, first + count).
  uint32_t row_count = 0;
  const uint32_t* positions = nullptr;
  const std::byte* values = nullptr;  // of the sum type
  uint64_t first = 0;
  uint64_t count = 0;
};

// What the planner wants to know, of this rank's part, per step.
struct RoadCounts {
  uint64_t touched_rows = 0;  // merged rows this handler sent on
  uint64_t union_rows = 0;    // distinct rows of all hosts, counted once
};

class GradientRoad {
 public:
  // All references outlive the road.
  GradientRoad(const Columns& columns, const Partition& partition, Outbox& outbox, Compute& compute,
               const GradientRoadOptions& options);
  GradientRoad(const GradientRoad&) = delete;
  GradientRoad& operator=(const GradientRoad&) = delete;

  // Reserves the lanes' memory. LIMIT.
  Status reserve();
  const Arena& arena() const { return arena_; }
  size_t needed_bytes();  // what reserve() would reserve
  // Gives a lane to a step; its last step must be over everywhere.
  void open(uint64_t step);

  // This rank's slice. Buffers are borrowed until *pending is back where it was before the call.
  void contribute_dense(uint64_t step, const RowValues& values, uint32_t* pending);
  // `more`: rows beside a `first` that has every row (see RowMerge).
  void contribute_rows(uint64_t step, const RowSlice& first, const RowSlice& more,
                       uint32_t* pending);

  // Sections. `from` is any rank of the world; `section.header.step` belongs to an open lane.
  [[nodiscard]] bool on_section(uint32_t from, const Section& section);
  // A local rank ended the step: what it did not contribute is absent.
  void end_local(uint32_t from, uint64_t step);

  // A slice of this rank is still being merged by a job.
  bool merging(uint64_t step) const { return lane(step).merging; }
  // This rank's part of the reduction is complete (true where it has none).
  bool reduced(uint64_t step) const;
  // Everything this rank gets back is here.
  bool delivered(uint64_t step) const;
  // Hosts or ranks not yet heard of in a lane that is not complete, for the error of a timeout.
  std::vector<uint32_t> missing_ranks(uint64_t step) const;

  // Once reduced: adds the squared norm of this rank's part.
  void add_squared_norm(uint64_t step, ExactSum* sum) const;
  RoadCounts counts(uint64_t step) const;

  // Once reduced, at an owner of a sharded variable: what it owns.
  ReducedGradient owned(uint64_t step) const;
  // Once delivered: the whole.
  ReducedGradient whole(uint64_t step) const;

  const Algorithm& algorithm() const { return algorithm_; }

 private:
  struct Lane {
    uint64_t step = 0;
    // source
    RowMerge merge;
    ComputeJob job;
    GradientRoad* road = nullptr;
    RowSlice first, more;
    uint32_t* pending = nullptr;
    bool merging = false;
    // handler
    RowFold local_rows;
    DenseFold local_dense;
    std::span<uint32_t> items, positions, offsets;  // rows of the local fold by owner
    std::span<std::byte> scattered;                 // made dense
    bool forwarded = false;
    // reducer
    RowFold host_rows;
    DenseFold host_dense;
    bool returned = false;
    // result
    std::span<std::byte> gathered;  // dense: all elements; rows: row_count rows
    std::span<uint32_t> gathered_positions;
    uint32_t gathered_rows = 0;
    uint32_t pieces = 0;
    bool gathered_any = false;
    bool given = false;  // as far as this rank was told
  };

  Lane& lane(uint64_t step) { return lanes_[step & 1]; }
  const Lane& lane(uint64_t step) const { return lanes_[step & 1]; }
  uint32_t wire_owner(uint32_t position) const {
    return algorithm_.dense_wire ? partition_.range_owner_of(position)
                                 : partition_.owner_of(position);
  }
  uint32_t column_of_position(uint32_t position) const {
    return columns_.column_of(wire_owner(position));
  }
  // Of the rows that the caller gives.
  uint32_t slice_elements() const {
    return static_cast<uint32_t>(partition_.row_elements()) - (options_.counted ? 1 : 0);
  }
  uint8_t last_flags(const Lane& lane) const {
    return static_cast<uint8_t>(kSectionLast | (lane.given ? kSectionGiven : 0));
  }
  Range range_of(uint32_t owner) const;
  bool active(uint32_t owner) const;
  bool counts_once() const;
  void set_sources();

  [[nodiscard]] bool on_up_local(uint32_t from, const Section& section);
  [[nodiscard]] bool on_up_host(uint32_t from, const Section& section);
  [[nodiscard]] bool on_down_host(uint32_t from, const Section& section);
  [[nodiscard]] bool on_down_local(uint32_t from, const Section& section);
  void lay_out(Arena& arena);
  void lay_out_handler(Arena& arena, Lane& lane);
  void lay_out_reducer(Arena& arena, Lane& lane);
  void send_rows(Lane& lane);
  void forward_if_complete(Lane& lane);
  void forward_elements(Lane& lane);
  void forward_rows_to_owners(Lane& lane);
  void forward_rows_to_hosts(Lane& lane);
  void scatter(Lane& lane);
  void return_if_complete(Lane& lane);
  [[nodiscard]] bool gather(const Section& section, bool forward);
  [[nodiscard]] bool gather_rows(Lane& lane, const Section& section);
  [[nodiscard]] bool gather_dense(Lane& lane, const Section& section);
  void forward_piece(Lane& lane, const SectionHeader& header, uint32_t first_row);
  template <typename Belongs>
  bool check_positions(const Section& section, Belongs belongs) const;
  Stream new_stream(SectionKind kind, Encoding encoding, const Lane& lane) const;
  WireFormat entry_format(uint32_t dtype) const;

  const Columns& columns_;
  const Partition& partition_;
  Outbox& outbox_;
  Compute& compute_;
  const GradientRoadOptions options_;
  const Algorithm& algorithm_;
  const bool rows_form_;   // slices carry ids
  const bool dense_wire_;  // elements cross the wire
  const SumType sum_;
  const size_t element_bytes_;  // of the sum type
  const size_t row_bytes_;
  alignas(8) std::array<std::byte, 8> one_ = {};  // a 1 of the sum type
  Arena arena_;
  std::vector<std::vector<uint32_t>> active_owners_;  // by column, ascending
  std::vector<uint32_t> active_columns_;
  bool handles_ = false;           // this rank is the handler of an active column
  bool reduces_ = false;           // this rank sums over hosts
  std::vector<uint32_t> sources_;  // of the sum over hosts, by their place in its order
  uint32_t tree_root_ = 0;
  uint32_t tree_parent_ = kNoRank;
  uint32_t pieces_expected_ = 0;
  std::array<Lane, 2> lanes_;
};

// True if a section holds `count` positions that all exist and belong here.
template <typename Belongs>
bool GradientRoad::check_positions(const Section& section, Belongs belongs) const {
  if (section.payload.size() < sizeof(uint32_t) * section.header.count) return false;
  for (uint32_t i = 0; i < section.header.count; ++i) {
    uint32_t position;
    std::memcpy(&position, section.payload.data() + i * sizeof position, sizeof position);
    if (position >= partition_.rows() || !belongs(position)) return false;
  }
  return true;
}

}  // namespace parallax

#endif  // PARALLAX_COLLECTIVES_GRADIENT_ROAD_H_
