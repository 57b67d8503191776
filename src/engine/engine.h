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
//   leaders of this host: a variable not pushed or reduced until then counts as absent.
// - vote. This rank says up the tree that it has ended t, that its share of every reduction is
//   complete and that t - 1 is applied; with its scalars, exact norms and row counts.
// - decision. Rank 0 answers down the tree: commit or discard, learning rate, scale, contributors,
//   and pieces of the plan that was chosen from measured rows.
// - apply. Once every replicated gradient of t is here too, the update rules run; then pulls of
//   t + 1 are answered, and the request of step_end is complete.
//
// A plan announced with the decision of t takes effect with step t + 2, at the boundary after
// t + 1.
//
// Its parts: requests (RequestPool), what slices may be (SliceChecks), pulls, pushes and reduces,
// calls of rows and what all ranks call together (PullCalls, ContributionCalls, RowCalls,
// CollectiveCalls), the variables at work (Group), how a step ends (StepPipeline, StepWindow),
// which plan they follow (PlanControl, Migration), how a job begins and ends (CommitProtocol,
// Goodbye), who is lost and how that ends it (LossWatch, FirstFailure), what passes between ranks
// (PeerTraffic), what is told of all that (Reports). None of them knows the engine: it takes the
// calls, hands each section to its part (kLayers), moves all parts on in every pass, and ends the
// job with the first failure.
//
// One owner at a time calls everything here. Calls return a status at once when the call itself is
// wrong; what happens later is the request's. Nothing blocks.
#ifndef PARALLAX_ENGINE_ENGINE_H_
#define PARALLAX_ENGINE_ENGINE_H_

#include <array>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/compute.h"
#include "base/machine_memory.h"
#include "base/status.h"
#include "collectives/broadcast.h"
#include "engine/collective_calls.h"
#include "engine/commit_protocol.h"
#include "engine/contribution_calls.h"
#include "engine/first_failure.h"
#include "engine/goodbye.h"
#include "engine/job_failure.h"
#include "engine/loss_watch.h"
#include "engine/peer_traffic.h"
#include "engine/pull_calls.h"
#include "engine/reports.h"
#include "engine/request.h"
#include "engine/request_pool.h"
#include "engine/row_calls.h"
#include "engine/slice_checks.h"
#include "group/group.h"
#include "group/migration.h"
#include "group/plan_control.h"
#include "group/step_pipeline.h"
#include "group/trees.h"
#include "membership/membership.h"
#include "message/outbox.h"
#include "planner/plan.h"
#include "transport/transport.h"
#include "variable/variable.h"
#include "world/patterns.h"

namespace parallax {

struct EngineOptions {
  uint32_t rank = 0;
  HostMap hosts;
  uint32_t epoch = 1;  // the same on all ranks of a job
  SlotMap slots = {};  // the same too; none: kSlotsPerOwner for each rank
  int64_t lease_ns = 5000 * kNanosecondsPerMillisecond;
  parallax_plan_mode_t plan_mode = PARALLAX_PLAN_AUTO;
  uint32_t plan_after_steps = 8;
  bool deterministic = false;
  uint64_t memory_max_bytes = 0;  // 0: no limit
  MemoryCheck memory_check = MemoryCheck::kOff;
  MachineMemory machine = {};  // that the check compares with
};

class Engine final : private Receiver {
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
  void kick();
  // When run() must be called again at the latest.
  int64_t next_deadline_ns() const;

  // Calls. On OK *request belongs to the caller until release().
  Status register_variable(const parallax_variable_t& description, uint32_t* id);
  Status commit(Request** request);
  Status step_begin(uint64_t* step);
  Status pull(uint64_t step, std::span<const parallax_slice_t> slices, Request** request);
  Status push(uint64_t step, std::span<const parallax_slice_t> slices, Request** request);
  Status reduce(uint64_t step, std::span<const parallax_slice_t> slices, Request** request);
  Status step_end(uint64_t step, const parallax_step_end_options_t& options, Request** request);
  Status rows(const parallax_rows_t& rows, bool write, Request** request);  // read, or write
  Status barrier(Request** request);
  Status broadcast(std::byte* buffer, uint64_t bytes, uint32_t root, Request** request);
  Status close(Request** request);
  void abort(const std::string& reason);
  void cancel(Request& request);
  Status release(Request* request) { return requests_.release(request); }  // STATE while pending

  // The job is over: what is still pending completes with ABORTED.
  void complete_all();

  // Queries.
  const Status& failure() const { return failure_.status(); }
  uint64_t step() const { return pipeline_.window().begun(); }
  uint64_t step_committed() const { return pipeline_.window().finished(); }
  bool committed() const { return phase_ == Phase::kRunning || phase_ == Phase::kClosing; }
  uint32_t variable_count() const { return static_cast<uint32_t>(variables_.size()); }
  const Columns& columns() const { return group_.columns(); }
  const EngineOptions& options() const { return options_; }
  const LateRank& late() const { return pipeline_.late(); }  // as of the last decision
  Plan plan() const { return group_.plan(); }
  bool plan_settled() const { return plan_control_.settled(); }
  Reports reports() const;  // a view, which this outlives
  uint32_t outstanding_requests() const { return requests_.outstanding(); }
  // Nothing is left to send; asked before the transport is torn down.
  bool flushed() const { return outbox_.idle(); }
  // The job has failed, and the notice of it is still on its way to the others: requests stay
  // pending until it has left, for at most FirstFailure::kLastWordsNs.
  bool speaking() const { return failure_.speaking(); }

  // The longest that this rank was held up lately.
  int64_t held_up_ns() const { return membership_.strain_ns(); }

 private:
  enum class Phase : uint8_t { kOpen, kCommitting, kRunning, kClosing, kClosed };

  // engine.cc: the pass, messages, the end of the job
  void on_message(uint32_t from, std::span<const std::byte> message) override;
  void on_sent(uint64_t cookie) override { outbox_.on_sent(cookie); }
  void on_lost(uint32_t rank, Loss loss, std::string_view why) override {
    loss_watch_.on_lost(rank, loss, why);
  }
  void dispatch(uint32_t from, const Section& section);
  struct LayerRow;
  static const LayerRow kLayers[];
  [[nodiscard]] bool on_membership(uint32_t from, const Section& section);
  [[nodiscard]] bool on_broadcast(uint32_t from, const Section& section);
  [[nodiscard]] bool on_step_ended(uint32_t from, const Section& section);
  [[nodiscard]] bool on_exchange(uint32_t from, const Section& section);
  [[nodiscard]] bool on_pull(uint32_t from, const Section& section);
  [[nodiscard]] bool on_migrate(uint32_t from, const Section& section);
  [[nodiscard]] bool on_rows(uint32_t from, const Section& section);
  bool is_open(uint64_t step) const;
  void pass();
  template <typename Body>
  bool guarded(Body body);
  void end();
  void finish_unborrowed(const Status& status);
  void advance();

  // engine_commit.cc: registration, commit, goodbye
  void advance_commit();
  Status build_group();
  void take_commit(const JobFailure& failure);
  [[nodiscard]] bool on_tree(uint32_t from, const Section& section);
  [[nodiscard]] bool merge_report(TreeKind kind, std::span<const std::byte> payload);
  [[nodiscard]] bool on_answer(TreeKind kind, std::span<const std::byte> payload);
  void advance_close();
  void check_leaving();

  // engine_step.cc: calls of a step
  Status check_running(const char* call) const;
  Status check_step(uint64_t step, const char* call) const;
  Status evaluate(std::span<const parallax_slice_t> slices, Request** request);
  Status contribute(RequestKind kind, uint64_t step, std::span<const parallax_slice_t> slices,
                    Request** request);

  // engine_decision.cc: end of a step
  void advance_step_end();
  void finish_step_end(const StepPipeline::Finished& finished);

  const EngineOptions options_;
  Transport& transport_;
  const Clock& clock_;
  Compute& compute_;
  std::vector<Variable> variables_;  // fixed from commit on
  const SliceChecks slice_checks_{variables_};
  Membership membership_;
  PeerTraffic traffic_;
  RequestPool requests_;
  Outbox outbox_;
  Group group_;
  Migration migration_;
  PlanControl plan_control_;
  Broadcast broadcast_;
  Trees trees_;
  StepPipeline pipeline_;
  PullCalls pull_calls_;
  ContributionCalls contribution_calls_;
  RowCalls row_calls_;
  CollectiveCalls collective_calls_;
  CommitProtocol commit_protocol_;
  Goodbye goodbye_;
  FirstFailure failure_;
  LossWatch loss_watch_;

  Phase phase_ = Phase::kOpen;
  Request* commit_request_ = nullptr;
  Request* close_request_ = nullptr;
  bool busy_ = false;  // this run has filled in its share of initial values

  std::array<Request*, StepWindow::kDepth> step_ends_ = {};  // by slot of the step
};

}  // namespace parallax

#endif  // PARALLAX_ENGINE_ENGINE_H_
