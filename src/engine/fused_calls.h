// SPDX-License-Identifier: Apache-2.0
// FusedCalls: pushes and reduces of fused tables (fused_tables.h): which slices of a call are of
// the same set, whether they fit, and how they go out. To their exchange as they come, as parts of
// one contribution, which is given once each table has come, or the step ends. Where a set takes
// micro-batches, or slices are coalesced by jobs, that is so of a call that has all of them alone;
// else they are added to this rank's sum of the step, which goes out then. Part of
// ContributionCalls. Engine's owner only; a call allocates nothing, unless one of its tables has
// more rows than its rows_max.
#ifndef PARALLAX_ENGINE_FUSED_CALLS_H_
#define PARALLAX_ENGINE_FUSED_CALLS_H_

#include <cstdint>
#include <functional>
#include <span>

#include "collectives/exchange.h"
#include "engine/fused_slices.h"
#include "engine/request.h"
#include "engine/slice_checks.h"
#include "group/group.h"
#include "group/step_pipeline.h"

namespace parallax {

class FusedCalls {
 public:
  // All outlive this.
  FusedCalls(Group& group, StepPipeline& pipeline, const SliceChecks& checks)
      : group_(group), pipeline_(pipeline), checks_(checks) {}

  void reserve() { slices_.reserve(PARALLAX_VARIABLES_MAX / kFusedMin); }
  // A call begins, and has such a slice; its slices in their order.
  void begin() { slices_.clear(); }
  void add(const parallax_slice_t& slice, size_t at, bool tied) {
    slices_.add(checks_.number_of(slice), at, tied, slice.more != 0);
  }
  bool any() const { return slices_.any(); }
  // And those are all. LIMIT: a table has too many rows, or there is no memory for a sum.
  Status check(std::span<const parallax_slice_t> slices, const SliceTies& ties, uint64_t step,
               const char* call);
  // Somebody is about to wait for what comes of a reduce of a table of the set, in a step that
  // takes calls. STATE: another is still to be called; is_called(id): it is, and not taken yet.
  Status check_wait(uint32_t number, uint32_t member, uint64_t step,
                    const std::function<bool(uint32_t id)>& is_called) const;
  // Notes that one of them was contributed, and adds it to the sum if it goes by that.
  SliceWay take(size_t at, const PullSlice& slice, StepState& state);

  // What goes out with a slice whose way is so.
  static bool goes_in_parts(SliceWay way) {
    return way == SliceWay::kAllParts || way == SliceWay::kSomeParts || way == SliceWay::kLastParts;
  }
  Contribution parts_until(const PullSlice& last, Request& request) const;
  // The step ends, and some tables of a set were given: true if there is no sum of them.
  bool end_parts(const VariableRuntime& runtime, StepState& state) const;

 private:
  bool takes_several_calls(const VariableRuntime& runtime) const {
    return group_.compute().at_once() && !runtime.variable->accumulate;
  }
  Status check_set(FusedSlices::Set& set, uint64_t step, const char* call);
  Status check_rows(std::span<const parallax_slice_t> slices, size_t at, const SliceTies& ties,
                    uint64_t step, const char* call);
  StepSum& sum_of(const VariableRuntime& runtime, uint64_t step) const {
    return *runtime.sums[pipeline_.window().calls_slot(step)];
  }

  Group& group_;
  StepPipeline& pipeline_;
  const SliceChecks& checks_;
  FusedSlices slices_;  // of the call being made
};

}  // namespace parallax

#endif  // PARALLAX_ENGINE_FUSED_CALLS_H_
