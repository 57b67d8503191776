// SPDX-License-Identifier: Apache-2.0
// Engine: one rank of a job. READ FIRST: everything above the transport meets here. It is a state
// machine without I/O, threads or a clock of its own: fed with messages, finished jobs, timers and
// calls, it moves what can be moved and returns. Four drivers run this same code: threads or
// objects over inproc, processes over shm and UCX, and the simulator.
//
// The life of step t at one rank:
//
// - pull, push, reduce. They start once step t - 1 is decided: by then every rank has applied
//   t - 2, whose buffers step t takes over.
// - step_end. When all pulls of t are answered and all slices coalesced, kStepEnded goes to the
//   leaders of this host: a variable not pushed or reduced until then counts as absent. Not where
//   all were, and none has row ids or a rule.
// - vote. This rank says up the tree that it has ended t, that its share of every reduction is
//   complete, or between hosts that its pushes are on their way, and that t - 1 is applied; with
//   its scalars, exact norms and row counts.
// - decision. Rank 0 answers down the tree: commit or discard, learning rate, scale, contributors,
//   and pieces of the plan that was chosen from measured rows.
// - apply. Once every gradient of t that this rank needs is here too, the update rules run; then
// pulls of
//   t + 1 are answered, and the request of step_end is complete.
//
// A plan announced with the decision of t takes effect with step t + 2, at the boundary after
// t + 1.
//
// Its rooms. A call comes in at one of four classes, by what it is about:
//
// - JobCalls: registration, commit, close and abort; behind it CommitProtocol and Goodbye.
// - StepCalls: step_begin to step_end; behind it SliceChecks, PullCalls and ContributionCalls.
// - RowCalls: reads and writes of rows, and evaluations.
// - CollectiveCalls: barriers, broadcasts and collectives on any buffers; behind it
//   CollectiveRounds.
//
// Whether it is taken now is asked of JobPhase, how far the job has come; its request is the
// RequestPool's. A message comes in at Intake: PeerTraffic says whether it counts, LayerHandlers
// have each of its sections taken by the part that it is for. Both work on the Group,
// which holds the variables; how a step ends is StepPipeline's, which plan they follow
// PlanControl's and Migration's. Who is lost is LossWatch's, how that ends the job FirstFailure's,
// what is told of it all Reports'.
//
// None of them knows the engine, which is what remains: the pass, which moves all of them on, and
// the end of all requests.
//
// One owner at a time calls everything here. Calls return a status at once when the call itself is
// wrong; what happens later is the request's. Nothing blocks.
#ifndef PARALLAX_ENGINE_ENGINE_H_
#define PARALLAX_ENGINE_ENGINE_H_

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/byte_range.h"
#include "base/clock.h"
#include "base/compute.h"
#include "base/machine_memory.h"
#include "base/status.h"
#include "collectives/broadcast.h"
#include "device/device_share.h"
#include "engine/collective_calls.h"
#include "engine/first_failure.h"
#include "engine/goodbye.h"
#include "engine/intake.h"
#include "engine/job_calls.h"
#include "engine/job_phase.h"
#include "engine/layer_handlers.h"
#include "engine/loss_watch.h"
#include "engine/pass_state.h"
#include "engine/peer_traffic.h"
#include "engine/reports.h"
#include "engine/request.h"
#include "engine/request_pool.h"
#include "engine/row_calls.h"
#include "engine/seldom_calls.h"
#include "engine/step_calls.h"
#include "group/group.h"
#include "group/migration.h"
#include "group/plan_control.h"
#include "group/step_pipeline.h"
#include "group/trees.h"
#include "membership/membership.h"
#include "message/outbox.h"
#include "planner/plan.h"
#include "transport/transport.h"
#include "variable/pins.h"
#include "variable/registry.h"
#include "world/patterns.h"
#include "world/view.h"

namespace parallax {

struct EngineOptions {
  uint32_t rank = 0;
  View view;  // the same on all ranks of a job
  int64_t lease_ns = 5000 * kNanosecondsPerMillisecond;
  parallax_plan_mode_t plan_mode = PARALLAX_PLAN_AUTO;
  uint32_t plan_after_steps = 8;
  Pins pins = {};                                 // of variables to come
  FuseTables fuse_tables = FuseTables::kManaged;  // the same on all ranks
  bool deterministic = false;
  uint64_t memory_max_bytes = 0;  // 0: no limit
  MemoryCheck memory_check = MemoryCheck::kOff;
  MachineMemory machine = {};                                     // that the check compares with
  std::function<std::vector<Footprint>()> other_footprints = {};  // as GroupOptions has it
  // It is a part of a job, with this number: who is alive is the whole job's to know, and a failure
  // the whole job's to tell, whose first failure and launches these are.
  uint32_t part = 0;
  FirstFailure* whole = nullptr;
  LaunchesOfJob launches_of_job = {};
  // As ExchangeOptions has it, the same on all ranks: tests let few hosts hold a census.
  uint32_t marker_hosts_max = kMarkerHostsMax;
  bool boards = true;  // where the transport has any; the same on all ranks
  RowWays row_ways = {};
  uint32_t staleness = 0;    // as StepWindow has it; the same on all ranks
  OpenDevices devices = {};  // of the whole job; none: slices and tables on devices are refused
  // What the job knows of memory of devices (CommunicatorOptions).
  std::function<ByteRange(const void* address)> memory_around = {};
  BufferKeeper* buffers = nullptr;           // of variables that have a place; outlives this
  AmongDevices nccl = AmongDevices::kWorld;  // who sums what lies on devices
  int64_t nccl_timeout_ns = 0;               // DeviceLaunches::begin()
  // What of the machine's constants is measured at commit; standard: nothing.
  CostSetting costs = kStandardCosts;
};

class Engine final {
 public:
  // All references outlive the engine. `completed` is called, on the owner, after a request is
  // done.
  Engine(EngineOptions options, Transport& transport, const Clock& clock, Compute& compute,
         std::function<void()> completed = {});
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  Status start();  // reserves memory; before anything else

  // One pass: reads what is there, moves what can be moved, sends what credits allow. True if it
  // did anything. Throws nothing: a failed check of our own fails the job with INTERNAL.
  bool run();
  // The same without reading messages: starts what a call posted. The transport stays armed.
  // kHolds: what is to be sent waits for the next of either. kLooks: behind a look at boards.
  enum class Kick : uint8_t { kSends, kHolds, kLooks };
  void kick(Kick how = Kick::kSends);
  // The same for what ranks of this host have said on their boards alone, for as long as a run has
  // been lately. True: that was something.
  bool glance();
  // What others post on boards may move something here: there is somebody who waits for it, or a
  // close, which it may forbid.
  bool awaits_posts() const {
    return !phase_.closed() && (group_.entries().awaits() || !seldom_calls_.at_rest());
  }
  // When the last of either began.
  int64_t passed_ns() const { return pass_.began_ns(); }
  // When run() must be called again at the latest.
  int64_t next_deadline_ns() const;

  // Calls, by what they are about. On OK *request belongs to the caller until release().
  JobCalls& job_calls() { return pass_.unsettled_by(job_calls_); }
  const StepCalls& step_calls() const { return step_calls_; }
  StepCalls& step_calls() { return pass_.given_to_steps(step_calls_); }
  RowCalls& row_calls() { return pass_.unsettled_by(row_calls_); }
  CollectiveCalls& collective_calls() { return pass_.unsettled_by(collective_calls_); }
  void cancel(Request& request);
  // Of a part: what has failed the whole job fails it too.
  void follow_failure();
  // Of the whole job: a part has a message for this rank, or one from it.
  void note_traffic(uint32_t rank, bool sent) {
    sent ? membership_.sent(rank, pass_.began_ns()) : membership_.heard(rank, pass_.began_ns());
  }
  Status release(Request* request) { return requests_.release(request); }  // STATE while pending

  // The job is over: what is still pending completes with ABORTED.
  void complete_all();

  // Queries.
  const Status& failure() const { return failure_.status(); }
  FirstFailure& first_failure() { return failure_; }
  const StepWindow& window() const { return pipeline_.window(); }
  bool committed() const { return phase_.committed() && !phase_.closed(); }
  uint32_t variable_count() const { return registry_.size(); }
  const Columns& columns() const { return group_.columns(); }
  const EngineOptions& options() const { return options_; }
  const LateRank& late() const { return pipeline_.late(); }  // as of the last decision
  Reports reports() const;                                   // a view, which this outlives
  uint32_t outstanding_requests() const { return requests_.outstanding(); }
  Group& group() { return group_; }  // for what its job's groups have in common
  // The pending request that borrows some of these bytes of the caller, in words; "": none does.
  std::string borrower(const ByteRange& bytes) const;
  // Nothing is left to send; asked before the transport is torn down.
  bool flushed() const { return outbox_.idle(); }
  // The next pass has something to do even if no message comes: to send what is queued, or the next
  // piece of something long, which is done so that leases are kept.
  bool needs_pass() const;
  // The job has failed, and the notice of it is still on its way to the others: requests stay
  // pending until it has left, for at most FirstFailure::kLastWordsNs.
  bool speaking() const { return failure_.speaking(); }
  // Nothing is left to do but to release requests.
  bool closed() const { return phase_.closed(); }

  // The longest that this rank was held up lately.
  int64_t held_up_ns() const { return membership_.strain_ns(); }

 private:
  void pass();
  void finish_unborrowed(const Status& status);
  bool advance(bool* moved);

  const EngineOptions options_;
  Transport& transport_;
  PassState pass_;
  Registry registry_;
  Membership membership_;
  PeerTraffic traffic_;
  RequestPool requests_;
  Outbox outbox_;
  SeldomCalls seldom_calls_;
  Group group_;
  Migration migration_;
  PlanControl plan_control_;
  Broadcast broadcast_;
  Trees trees_;
  StepPipeline pipeline_;
  Goodbye goodbye_;
  FirstFailure failure_;
  LossWatch loss_watch_;
  JobPhase phase_;
  RowCalls row_calls_;
  CollectiveCalls collective_calls_;
  JobCalls job_calls_;
  StepCalls step_calls_;
  const LayerHandlers layer_handlers_;
  Intake intake_;
};

}  // namespace parallax

#endif  // PARALLAX_ENGINE_ENGINE_H_
