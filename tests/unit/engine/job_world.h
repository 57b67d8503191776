// SPDX-License-Identifier: Apache-2.0
// JobWorld: the parts of the engines of a whole job over a SectionNetwork, without the engines.
// Each rank has registered one variable of each of two ways: `dense`, held by the framework, and
// `rows`, sharded, with row ids; their ids are their numbers too.
#ifndef PARALLAX_TESTS_UNIT_ENGINE_JOB_WORLD_H_
#define PARALLAX_TESTS_UNIT_ENGINE_JOB_WORLD_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/layer_handlers.h"
#include "engine/step_calls.h"
#include "unit/engine/loss_world.h"
#include "unit/group/group_world.h"

namespace parallax::testkit {

class JobWorld {
 public:
  static constexpr uint32_t kDense = 0;
  static constexpr uint32_t kRows = 1;
  static constexpr uint64_t kRowCount = 40;

  static constexpr int64_t kLeaseNs = 1000 * kNanosecondsPerMillisecond;

  struct Rank {
    Rank(const HostMap& hosts, uint32_t rank, Outbox& outbox, const Clock& clock,
         const std::vector<Variable>& variables)
        : membership(watch_neighbours(hosts, rank), kLeaseNs, 0),
          traffic({.rank = rank, .epoch = 1}, hosts, clock, membership),
          group(first_view(hosts), rank, {}, outbox, compute),
          migration(group, outbox),
          plan_control(group, migration, {}),
          broadcast(hosts, rank, outbox),
          trees(hosts, rank, outbox),
          pipeline({group, plan_control, migration, trees, outbox, compute, clock}),
          goodbye(rank, trees),
          failure(
              {group.columns(), clock, pipeline.window(), membership, transport, outbox, registry}),
          loss_watch(
              {group.columns().world(), clock, membership, goodbye, failure, transport, outbox}),
          phase(failure.status()),
          rows(group, registry, pipeline.window(), phase, outbox, requests),
          collectives(group.columns(), false, phase, trees, broadcast, outbox, requests),
          job({.rank = rank}, {registry,
                               transport,
                               traffic,
                               outbox,
                               group,
                               pipeline,
                               trees,
                               broadcast,
                               goodbye,
                               failure,
                               phase,
                               requests,
                               {},
                               {},  // no memory of devices
                               launches,
                               AmongDevices::kWorld,
                               0,
                               clock,
                               kStandardCosts}),
          steps({clock, registry, phase, group, pipeline, outbox, rows, requests}),
          handlers({phase, group, pipeline, migration, trees, broadcast, job, rows, collectives,
                    loss_watch, outbox}) {
      transport.bytes_max = kMessageBytesMin;
      add_all(registry, variables);
    }
    ForgettingTransport transport;
    InlineCompute compute;
    RequestPool requests{{}};
    Registry registry;
    Membership membership;
    PeerTraffic traffic;
    DeviceLaunches launches;
    Group group;
    Migration migration;
    PlanControl plan_control;
    Broadcast broadcast;
    Trees trees;
    StepPipeline pipeline;
    Goodbye goodbye;
    FirstFailure failure;
    LossWatch loss_watch;
    JobPhase phase;
    RowCalls rows;
    CollectiveCalls collectives;
    JobCalls job;
    StepCalls steps;
    LayerHandlers handlers;
  };

  // Nobody has called commit.
  explicit JobWorld(const std::vector<uint32_t>& hosts)
      : hosts_(host_map(hosts)), network_(static_cast<uint32_t>(hosts.size()), hosts.size()) {
    const std::vector<Variable> variables = {held("dense", 3),
                                             managed("rows", kRowCount, 5, PARALLAX_RULE_SGD)};
    for (uint32_t rank = 0; rank < hosts.size(); ++rank) {
      ranks_.push_back(
          std::make_unique<Rank>(hosts_, rank, network_.outbox(rank), clock_, variables));
    }
    network_.on_section([this](uint32_t to, uint32_t from, const Section& section) {
      const bool fits = ranks_[to]->handlers.take(from, section);
      advance(to);
      return fits;
    });
    network_.on_packed([this](uint32_t rank) { advance(rank); });
  }

  uint32_t size() const { return static_cast<uint32_t>(ranks_.size()); }
  Rank& operator[](uint32_t rank) { return *ranks_[rank]; }
  SectionNetwork& network() { return network_; }
  // Every rank commits.
  void commit() {
    for (const auto& rank : ranks_) {
      Request* request = nullptr;
      ASSERT_TRUE(rank->job.commit(&request).ok());
      rank->steps.reserve();
    }
    settle();
    for (const auto& rank : ranks_) {
      ASSERT_TRUE(rank->phase.running()) << rank->failure.status().message();
    }
  }
  void settle() {
    // Twice: what was packed last is known to be sent at the next look.
    for (int round = 0; round < 2; ++round) {
      for (uint32_t rank = 0; rank < size(); ++rank) advance(rank);
      network_.settle();
    }
    for (uint32_t rank = 0; rank < size(); ++rank) advance(rank);
    EXPECT_TRUE(network_.refusals().empty()) << told(network_.refusals());
  }

 private:
  // As an engine does. Twice: a job that ran may let go of what a call waits for.
  void advance(uint32_t number) {
    Rank& rank = *ranks_[number];
    rank.job.start_run();
    for (int round = 0; round < 2 && rank.failure.job_goes_on(); ++round) {
      rank.job.check_leaving();
      rank.job.advance_commit();
      if (rank.phase.open()) return;
      do {
        EXPECT_TRUE(rank.steps.advance().ok());
      } while (network_.outbox(number).lending().read());
      rank.rows.advance();
      EXPECT_TRUE(rank.collectives.advance().ok());
      rank.job.advance_close();
      while (ComputeJob* job = rank.compute.take_done()) job->done(*job);
    }
  }

  const HostMap hosts_;
  MovedClock clock_;
  SectionNetwork network_;
  std::vector<std::unique_ptr<Rank>> ranks_;
};

// A slice of `rows`; ids and values are borrowed.
inline parallax_slice_t slice_of_rows(const std::vector<int64_t>& ids, float* values) {
  parallax_slice_t slice = {};
  slice.size = sizeof slice;
  slice.variable = JobWorld::kRows;
  slice.form = PARALLAX_FORM_ROWS;
  slice.ids = ids.data();
  slice.row_count = ids.size();
  slice.values = values;
  return slice;
}

}  // namespace parallax::testkit

#endif  // PARALLAX_TESTS_UNIT_ENGINE_JOB_WORLD_H_
