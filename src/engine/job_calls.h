// SPDX-License-Identifier: Apache-2.0
// JobCalls: the calls that begin and end a job, where they come in: registration, commit, close and
// abort. It fills the registry, lays the variables out when commit is called, has initial values
// filled in, lets the ranks find out whether they agree (CommitProtocol), and says goodbye for all
// of them (Goodbye); with them JobPhase goes on. Engine's owner only; nothing blocks.
//
// A job may commit again, between steps, with what was registered since: no rank sends anything of
// the new variables before every rank has them, which the answer to a commit tells; what comes
// meanwhile is of the old ones, which stay as they are.
#ifndef PARALLAX_ENGINE_JOB_CALLS_H_
#define PARALLAX_ENGINE_JOB_CALLS_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/status.h"
#include "collectives/broadcast.h"
#include "device/device_share.h"
#include "engine/commit_protocol.h"
#include "engine/cost_probe.h"
#include "engine/device_agreement.h"
#include "engine/first_failure.h"
#include "engine/goodbye.h"
#include "engine/initial_stream.h"
#include "engine/job_failure.h"
#include "engine/job_phase.h"
#include "engine/peer_traffic.h"
#include "engine/request_pool.h"
#include "engine/split_calls.h"
#include "group/group.h"
#include "group/step_pipeline.h"
#include "group/trees.h"
#include "message/outbox.h"
#include "transport/transport.h"
#include "variable/pins.h"
#include "variable/registry.h"

namespace parallax {

class JobCalls {
 public:
  struct Parts {
    Registry& registry;
    const Transport& transport;
    PeerTraffic& traffic;
    Outbox& outbox;
    Group& group;
    StepPipeline& pipeline;
    Trees& trees;
    Broadcast& broadcast;
    Goodbye& goodbye;
    FirstFailure& failure;
    JobPhase& phase;
    RequestPool& requests;
    OpenDevices devices = {};  // none: no variable's slices lie on devices
    std::function<ByteRange(const void* address)> memory_around = {};
    DeviceLaunches& launches;
    AmongDevices nccl = AmongDevices::kWorld;  // by the setting
    int64_t nccl_timeout_ns = 0;               // likewise
    const Clock& clock;
    CostSetting costs = {};
    LaunchesOfJob job = {};                         // of a part
    BufferKeeper* buffers = nullptr;                // none: no variable has a place
    Pins pins = {};                                 // of variables to come
    FuseTables fuse_tables = FuseTables::kManaged;  // by the setting
  };

  // What this rank says at commit beside the registry. All parts outlive this.
  JobCalls(const CommitTerms& terms, const Parts& parts)
      : parts_(parts),
        commit_protocol_(terms, parts.registry, parts.group.columns().map(), parts.trees,
                         parts.broadcast, parts.costs),
        probe_({.columns = parts.group.columns(),
                .outbox = parts.outbox,
                .compute = parts.group.compute(),
                .clock = parts.clock}),
        device_agreement_({.registry = parts.registry,
                           .group = parts.group,
                           .launches = parts.launches,
                           .outbox = parts.outbox,
                           .devices = parts.devices,
                           .memory_around = parts.memory_around,
                           .among = parts.nccl,
                           .timeout_ns = parts.nccl_timeout_ns,
                           .deterministic = terms.deterministic != 0,
                           .job = parts.job}),
        initial_stream_(parts.registry, parts.group, parts.broadcast),
        splits_(parts.group.columns().map(), terms.rank, parts.outbox, parts.requests) {}

  // The calls, before the first commit and between steps. STATE, INVALID, LIMIT, or what failed the
  // job.
  Status register_variable(const parallax_variable_t& description, uint32_t* id);
  Status commit(Request** request);
  // The caller of commit returns without its outcome: where initial values in its buffers are still
  // to be read, the job fails, and they never are.
  void leave_commit();
  // Legal before and after commit. INVALID, LIMIT, STATE.
  Status split(std::span<const uint32_t> ranks, Request** request);
  SplitCalls& splits() { return splits_; }
  const SplitCalls& splits() const { return splits_; }
  // Of a job that has failed, and of one whose ranks have not all committed, at once.
  Status close(Request** request);
  void abort(const std::string& reason);
  DeviceLaunches& launches() { return parts_.launches; }
  // Memory that no request borrows is about to go. *over is false: not yet, ask again. IO: it has
  // to stay.
  Status forget_memory(const ByteRange& bytes, bool* over) {
    Communicator* const own = parts_.launches.communicator();
    *over = own == nullptr || !own->knows(bytes);
    // One that a part is made out of is to stay idle.
    return *over || parts_.launches.held() ? Status() : own->forget(bytes, over);
  }
  // The job is over, in good order or by force: nothing fails it any more.
  void end();

  // A run of the engine begins, in which one piece of the initial values is filled in.
  void start_run() {
    filling_ = measuring_ = false;
    probe_.start_run();
    heard_since_close_ = parts_.phase.closing();
  }
  // It was, and there are more, or one of measuring: the next run is due at once.
  bool filling() const { return filling_ || measuring_; }
  CostProbe& probe() { return probe_; }
  const CostProbe& probe() const { return probe_; }
  // The commit waits for a communicator that is made out of the job's.
  bool forms_communicator() const { return carried_ && device_agreement_.holds(); }
  // Of a job that runs: nobody closes, and no split is under way.
  bool at_rest() const { return !parts_.goodbye.somebody_closes() && splits_.at_rest(); }
  // Move on what can be moved. A job that others wait for in vain fails at once (check_leaving).
  void check_leaving();
  [[nodiscard]] Status advance_splits() { return splits_.advance(); }
  void advance_commit();
  void advance_close();
  // Of TreeKind::kCommit, kClose and kCloseConfirm. False: not a payload of it.
  [[nodiscard]] bool merge_report(TreeKind kind, std::span<const std::byte> payload);
  [[nodiscard]] bool on_answer(TreeKind kind, std::span<const std::byte> payload);

  // The job is over: completes its own requests.
  void finish_all(const Status& status);

 private:
  Status check_memory(const Variable& variable) const;
  Status add(Variable variable, uint32_t* id);
  Status lay_out();
  void say_terms();
  void take_commit(const JobFailure& failure);
  bool measure();
  bool use_costs();

  const Parts parts_;
  CommitProtocol commit_protocol_;
  CostProbe probe_;
  CostTerms cost_terms_;       // of this commit
  bool costs_agreed_ = false;  // once, for all later commits
  DeviceAgreement device_agreement_;
  DeviceTerms device_terms_;  // of this commit
  InitialStream initial_stream_;
  // Of this commit: all initial values went out, variables have their exchanges, and ranks are to
  // agree once more.
  bool initial_sent_ = false, carried_ = false, another_round_ = false;
  SplitCalls splits_;
  Request* commit_request_ = nullptr;
  Request* close_request_ = nullptr;
  bool filling_ = false, measuring_ = false;
  bool heard_since_close_ = false;  // what has come until then
};

}  // namespace parallax

#endif  // PARALLAX_ENGINE_JOB_CALLS_H_
