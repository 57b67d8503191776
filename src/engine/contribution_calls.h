// SPDX-License-Identifier: Apache-2.0
// ContributionCalls: the pushes and reduces of steps: what this rank contributes of a variable, by
// one slice or by several (micro-batches), and what a reduce hands back of it. All that were called
// are under way at once. How a slice travels is the exchange's.
//
// A call of several is added to the variable's step sum when it is made; with the last one, or when
// the step ends without it, that sum is contributed. So are several slices of one variable in one
// call (tied use), but for a dense one and one of rows behind it, which the exchange sums for
// itself. Slices of fused tables go to their exchange as they come, as parts of one contribution,
// which is given once each table has come, or the step ends.
// Engine's owner only; nothing blocks.
#ifndef PARALLAX_ENGINE_CONTRIBUTION_CALLS_H_
#define PARALLAX_ENGINE_CONTRIBUTION_CALLS_H_

#include <cstdint>
#include <span>
#include <vector>

#include "engine/fused_calls.h"
#include "engine/held_pushes.h"
#include "engine/request_pool.h"
#include "engine/request_queue.h"
#include "engine/slice_checks.h"
#include "group/group.h"
#include "group/results.h"
#include "group/step_pipeline.h"

namespace parallax {

class ContributionCalls {
 public:
  // All outlive this.
  ContributionCalls(Group& group, StepPipeline& pipeline, Outbox& outbox, const SliceChecks& checks,
                    RequestPool& requests)
      : group_(group),
        pipeline_(pipeline),
        outbox_(outbox),
        checks_(checks),
        requests_(requests),
        results_(group.columns().world()),
        queue_(requests),
        held_(group, pipeline, outbox),
        fused_(group, pipeline, checks) {}

  // At its bounds, so that no call of a step grows anything.
  void reserve() {
    queue_.reserve();
    held_.reserve();
    fused_.reserve();
    ties_.reserve();
    tied_rows_.reserve(PARALLAX_SLICES_MAX);
  }
  // What there is of a call whose slices have come from devices; of each, by slice, where there is
  // any.
  struct Staged {
    Request* request = nullptr;
    // What is not here of a slice, the one dense slice of its variable.
    std::span<ArrivingElements* const> arriving = {};
    // Who copies results while they are written.
    std::span<LeavingElements* const> leaving = {};
    // The dtype of the rows that a reduce gives back; none: the slice's.
    std::span<const uint32_t> result_dtypes = {};
  };
  // kPush or kReduce of a step that takes calls. A call that is refused has contributed nothing.
  // INVALID, LIMIT.
  Status post(RequestKind kind, uint64_t step, std::span<const parallax_slice_t> slices,
              Request** request, const Staged& staged);
  Status post(RequestKind kind, uint64_t step, std::span<const parallax_slice_t> slices,
              Request** request) {
    return post(kind, step, slices, request, {});
  }
  // Of a call whose ids and numbers are not here yet: all that post() would find without them.
  Status check_before(RequestKind kind, uint64_t step,
                      std::span<const parallax_slice_t> slices) const;
  // Of fused tables: FusedCalls.
  const FusedCalls& fused() const { return fused_; }
  // Moves on what can be moved.
  void advance(int64_t now_ns);
  // When rows that are held for the end of their step are so no more; kNever: there are none.
  int64_t held_until_ns() const { return held_.until_ns(); }
  // The step ends: what came in several calls without a last one goes out as it is. Once
  // StepPipeline::may_say_ended; more often does no harm.
  void end(uint64_t step);
  bool empty() const { return queue_.empty(); }
  // The job is over: as RequestQueue has them.
  void finish_unborrowed(const Status& status) {
    held_.clear();
    queue_.finish_unborrowed(status);
  }
  void finish_all(const Status& status) { queue_.finish_all(status); }

 private:
  bool suits(const parallax_slice_t& slice, bool push) const {
    return group_.runtime(checks_.number_of(slice)).variable->managed() == push;
  }
  // Whether the variable takes such a call, and the step another slice of it.
  Status check_taken(const parallax_slice_t& slice, uint64_t step, bool push) const {
    const StepState& state = pipeline_.state(step);
    const uint32_t member = checks_.member_of(slice);
    const bool taken = member == Registry::kNotFused
                           ? state.contributed[checks_.number_of(slice)] == Contributed::kAll
                           : state.contributed_members[member] == Contributed::kAll;
    if (suits(slice, push) && !taken) return {};
    return refuse(slice, step, push);
  }
  Status refuse(const parallax_slice_t& slice, uint64_t step, bool push) const;
  Status check(std::span<const parallax_slice_t> slices, size_t slice, uint64_t step, bool push);
  bool is_pair(std::span<const parallax_slice_t> slices, size_t slice, uint64_t step) const;
  Status check_sum(std::span<const parallax_slice_t> slices, size_t slice, uint64_t step,
                   const char* call);
  Status reserve_results(std::span<const parallax_slice_t> slices, std::span<const uint32_t> dtypes,
                         Request* posted);
  SliceWay take(size_t slice, const PullSlice& taken, StepState& state);
  void start(Request& request, int64_t now_ns);
  bool is_over(const Request& request) const;
  // Of a slice: the run of the call that it is in, and bytes of rows of the call that may stay.
  struct Around {
    ByteRange run;
    uint64_t row_bytes = 0;
  };
  bool contribute(Request& request, const PullSlice& slice, const Around& around,
                  uint32_t* pending);
  void ask_for_next(const Request& request, size_t at) const;
  uint64_t bytes_of(const PullSlice& slice) const;
  ByteRange elements_of(const PullSlice& slice) const;
  ByteRange run_from(const Request& request, size_t first, size_t* end) const;
  void contribute_sum(uint32_t variable, uint64_t step, const Destination& result,
                      uint32_t* pending);
  void give(const VariableRuntime& runtime, uint64_t step, const ReducedGradient& whole,
            const PullSlice& slice, RowsResult* rows);
  void hand_back(Request& reduce);

  Group& group_;
  StepPipeline& pipeline_;
  Outbox& outbox_;
  const SliceChecks& checks_;
  RequestPool& requests_;
  Results results_;
  RequestQueue queue_;
  HeldPushes held_;
  FusedCalls fused_;
  SliceTies ties_;                   // of the call being made
  std::vector<RowSlice> tied_rows_;  // of one of its variables
};

}  // namespace parallax

#endif  // PARALLAX_ENGINE_CONTRIBUTION_CALLS_H_
