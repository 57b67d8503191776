// SPDX-License-Identifier: Apache-2.0
// PullCalls: the pulls of steps, one at a time and in the order of the calls: so one list of each
// rank bounds what a leader keeps. Several slices of a variable in one call are one list too, as
// far as they are of one dtype, all or none of them for the table's device to write, and have
// rows_max rows together; with more the call is pulled in rounds. So are fused tables. What is
// sharded goes by
// PullExchange; mirrors are read here. Engine's owner only; nothing blocks.
#ifndef PARALLAX_ENGINE_PULL_CALLS_H_
#define PARALLAX_ENGINE_PULL_CALLS_H_

#include <vector>

#include "engine/request_queue.h"
#include "group/group.h"
#include "group/step_pipeline.h"

namespace parallax {

class PullCalls {
 public:
  // All outlive this.
  PullCalls(Group& group, StepPipeline& pipeline, RequestPool& requests)
      : group_(group), pipeline_(pipeline), queue_(requests) {}

  // At its bounds, so that no call of a step grows anything.
  void reserve();
  // A pull of a step that takes calls, with its slices.
  void post(Request* request);
  // Moves on what can be moved.
  void advance();
  RequestQueue& queue() { return queue_; }  // for the end of the job

 private:
  // What a variable has in a round.
  struct InRound {
    uint64_t round = 0;
    uint64_t rows = 0;
    uint32_t dtype = 0;
    bool on_device = false;
  };

  bool may_start(const Request& pull) const;
  void start(Request& pull);
  void start_round(Request& pull);
  void read_mirrors(const Request& pull);
  bool joins_round(const PullSlice& slice);
  bool came_again(const PullSlice& slice);

  Group& group_;
  StepPipeline& pipeline_;
  RequestQueue queue_;
  std::vector<PullSlice> sharded_slices_;  // of the round
  uint64_t round_ = 0;
  // Of the first pull: its mirrors are being read, and what devices have not written yet.
  bool reads_mirrors_ = false;
  uint32_t left_ = 0;
  std::vector<InRound> in_round_;        // by variable: in the last that it was pulled in
  std::vector<uint64_t> member_rounds_;  // likewise, by member of fused tables
};

}  // namespace parallax

#endif  // PARALLAX_ENGINE_PULL_CALLS_H_
