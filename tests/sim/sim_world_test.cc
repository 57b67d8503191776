// SPDX-License-Identifier: Apache-2.0
// The simulator itself: repeatability, order, credits, the link model, and that each fault does
// what its name says.
#include "transport/sim/sim_world.h"

#include <gtest/gtest.h>

#include "sim/chatter.h"
#include "sim/scenario.h"
#include "unit/transport/conformance.h"

namespace parallax {
namespace {

using simtest::Chatter;

using simtest::kMicrosecond;
using simtest::kMillisecond;

// ---- a small crowd

struct CrowdOptions {
  uint32_t world = 4;
  uint32_t ranks_per_host = 2;
  uint64_t seed = 1;
  int64_t period_ns = 100 * kMicrosecond;
  uint64_t rounds = 100;
  int64_t jitter_ns = 0;
  size_t message_bytes = 64;
};

class Crowd {
 public:
  explicit Crowd(const CrowdOptions& options) : world(sim_options(options)) {
    for (uint32_t rank = 0; rank < options.world; ++rank) {
      chatters.push_back(
          std::make_unique<Chatter>(world, rank, options.world, options.period_ns, options.rounds));
      chatters.back()->message_bytes = options.message_bytes;
      world.faults().set_phase(rank, "chat");
    }
  }

  void start() {
    for (uint32_t rank = 0; rank < chatters.size(); ++rank) {
      world.attach(rank, chatters[rank].get());
    }
  }
  void run_for(int64_t ns) {
    world.run_until([] { return false; }, world.now_ns() + ns);
  }
  Chatter& at(uint32_t rank) { return *chatters[rank]; }

  SimWorld world;
  std::vector<std::unique_ptr<Chatter>> chatters;

 private:
  static SimOptions sim_options(const CrowdOptions& crowd) {
    SimOptions options;
    options.world = crowd.world;
    options.seed = crowd.seed;
    for (uint32_t rank = 0; rank < crowd.world; ++rank) {
      options.host_of.push_back(rank / crowd.ranks_per_host);
    }
    options.intra_host.jitter_ns = crowd.jitter_ns;
    options.inter_host.jitter_ns = crowd.jitter_ns;
    return options;
  }
};

uint64_t heard_hash(Crowd& crowd) {
  uint64_t hash = 0;
  for (const auto& chatter : crowd.chatters) {
    for (const simtest::Heard& heard : chatter->heard) {
      hash = SeededRandom(hash ^ heard.from ^ heard.number << 20).next() ^
             static_cast<uint64_t>(heard.at_ns);
    }
  }
  return hash;
}

// Given one seed twice, expect the same trace and the same receptions; another seed differs.
TEST(SimWorld, one_seed_is_one_run) {
  std::vector<uint64_t> traces, receptions;
  for (const uint64_t seed : {uint64_t{5}, uint64_t{5}, uint64_t{6}}) {
    Crowd crowd({.world = 6, .seed = seed, .jitter_ns = 50 * kMicrosecond});
    FaultPlanOptions faults;
    faults.seed = 17;
    faults.host_of = crowd.world.options().host_of;
    faults.lease_ns = 10 * kMillisecond;
    faults.horizon_ns = 10 * kMillisecond;
    faults.operations = 100;
    faults.phases = {"chat"};
    crowd.world.faults().set_plan(FaultPlan::generate(faults));
    crowd.start();
    crowd.run_for(50 * kMillisecond);
    traces.push_back(crowd.world.trace_hash());
    receptions.push_back(heard_hash(crowd));
  }
  EXPECT_EQ(traces[0], traces[1]);
  EXPECT_EQ(receptions[0], receptions[1]);
  EXPECT_NE(traces[0], traces[2]);
  EXPECT_NE(receptions[0], receptions[2]);
}

// Given jitter many times the period, expect each pair in order (Chatter checks), everything heard,
// and ranks heard in varying order.
TEST(SimWorld, order_holds_per_pair_and_not_across) {
  Crowd crowd({.world = 4, .jitter_ns = kMillisecond});
  crowd.start();
  crowd.run_for(100 * kMillisecond);
  bool overtaken = false;
  uint64_t accepted = 0;
  uint64_t heard_count = 0;
  for (uint32_t rank = 0; rank < 4; ++rank) {
    accepted += crowd.at(rank).accepted;
    heard_count += crowd.at(rank).heard.size();
    EXPECT_EQ(crowd.at(rank).completed, crowd.at(rank).accepted);
    const auto& heard = crowd.at(rank).heard;
    for (size_t i = 1; i < heard.size(); ++i) overtaken |= heard[i].number < heard[i - 1].number;
  }
  EXPECT_TRUE(overtaken);
  EXPECT_GT(accepted, 600u);
  EXPECT_EQ(heard_count, accepted);
  EXPECT_EQ(crowd.world.network().borrow_violations(), 0u);
}

// Given a receiver that does not run, expect kSendsInFlightMax sends to be accepted and no more;
// and all complete once it runs.
TEST(SimWorld, credits_bound_what_is_in_flight) {
  Crowd crowd({.world = 2, .rounds = 50});
  crowd.world.attach(0, &crowd.at(0));
  crowd.run_for(20 * kMillisecond);
  EXPECT_EQ(crowd.at(0).accepted, kSendsInFlightMax);
  EXPECT_EQ(crowd.at(0).refused, 50 - kSendsInFlightMax);
  EXPECT_EQ(crowd.at(0).completed, 0u);
  crowd.world.attach(1, &crowd.at(1));
  crowd.run_for(20 * kMillisecond);
  EXPECT_EQ(crowd.at(0).completed, kSendsInFlightMax);
  EXPECT_EQ(crowd.at(1).heard_from(0), kSendsInFlightMax);
}

// Given a segment changed before its completion, expect it to be noticed.
TEST(SimWorld, borrowed_segments_are_watched) {
  SimWorld sim(SimOptions{.world = 2});
  conformance::Recorder recorder;
  recorder.check_pattern = false;
  uint64_t word = 7;
  const Segment segment{&word, sizeof word};
  ASSERT_TRUE(sim.transport(0).send(1, {&segment, 1}, 1).ok());
  word = 8;
  sim.run_until([] { return false; }, kMillisecond);
  sim.transport(1).poll(recorder);
  EXPECT_EQ(recorder.received[0], 1u);
  EXPECT_EQ(sim.network().borrow_violations(), 1u);
}

// Given the link model, expect one message to take latency and size / bandwidth, and an incast of
// four to take the port four times as long.
TEST(SimWorld, wires_take_their_time) {
  SimOptions options;
  options.world = 5;
  options.host_of = {0, 1, 2, 3, 4};
  options.inter_host = {2000, 100, 0, 1e9, 0};  // a byte a nanosecond
  SimWorld sim(options);
  std::vector<std::byte> bytes(50'000);
  const Segment segment{bytes.data(), bytes.size()};
  conformance::Recorder recorder;
  recorder.check_pattern = false;
  ASSERT_TRUE(sim.transport(1).send(0, {&segment, 1}, 1).ok());
  sim.run_until([] { return false; }, 52'099);
  EXPECT_FALSE(sim.network().deliverable(0));
  sim.run_until([] { return false; }, 52'100);
  EXPECT_TRUE(sim.network().deliverable(0));
  sim.transport(0).poll(recorder);
  sim.run_until([] { return false; }, kMillisecond);
  for (uint32_t from = 1; from < 5; ++from) {
    ASSERT_TRUE(sim.transport(from).send(0, {&segment, 1}, 2).ok());
  }
  sim.run_until([] { return false; }, kMillisecond + 202'099);
  while (sim.transport(0).poll(recorder)) {
  }
  EXPECT_EQ(recorder.received_bytes[1] + recorder.received_bytes[2] + recorder.received_bytes[3] +
                recorder.received_bytes[4],
            4 * 50'000u);
  sim.run_until([] { return false; }, kMillisecond + 202'100);
  EXPECT_TRUE(sim.network().deliverable(0));
}

// Given a rank that leaves behind messages which the receiver's port takes long to take in, expect
// them before the end of the connection.
TEST(SimWorld, the_end_of_a_connection_overtakes_nothing) {
  SimOptions options;
  options.world = 2;
  options.host_of = {0, 1};
  options.inter_host = {2000, 100, 0, 1e9, 0};
  SimWorld sim(options);
  std::vector<std::byte> bytes(50'000);
  const Segment segment{bytes.data(), bytes.size()};
  ASSERT_TRUE(sim.transport(0).send(1, {&segment, 1}, 1).ok());
  sim.leave(0);
  sim.run_until([] { return false; }, kMillisecond);
  conformance::Recorder recorder;
  recorder.check_pattern = false;
  while (sim.transport(1).poll(recorder)) {
  }
  EXPECT_EQ(recorder.received[0], 1u);
  EXPECT_TRUE(recorder.losses.contains(0));
}

// Given a rank charged with work, expect it to run again only after that.
TEST(SimWorld, a_busy_rank_runs_later) {
  Crowd crowd({.world = 2});
  crowd.start();
  crowd.run_for(kMillisecond);
  const size_t runs = crowd.at(0).runs_ns.size();
  crowd.world.charge(0, 50'000'000);  // 5 ms at 0.1 ns a byte
  crowd.run_for(20 * kMillisecond);
  ASSERT_GT(crowd.at(0).runs_ns.size(), runs);
  EXPECT_GE(crowd.at(0).runs_ns[runs], 6 * kMillisecond);
}

// ---- faults

int64_t longest_gap_ns(const Chatter& chatter, uint32_t from) {
  int64_t longest = 0;
  int64_t last = 0;
  for (const simtest::Heard& heard : chatter.heard) {
    if (heard.from != from) continue;
    longest = std::max(longest, heard.at_ns - last);
    last = heard.at_ns;
  }
  return longest;
}

struct Strike {
  FaultKind kind = FaultKind::kDelay;
  int64_t duration_ns = kNever;
  int64_t amount_ns = 0;
};

// Four ranks on two hosts chat for 10 ms; at 2 ms rank 1 is struck (towards rank 2).
std::unique_ptr<Crowd> strike(const Strike& what, int64_t run_ns = 40 * kMillisecond) {
  auto crowd = std::make_unique<Crowd>(CrowdOptions{});
  Fault fault;
  fault.kind = what.kind;
  fault.rank = 1;
  fault.peer = 2;
  fault.at = 2 * kMillisecond;
  fault.duration_ns = what.duration_ns;
  fault.amount_ns = what.amount_ns;
  fault.seed = 9;
  if (what.kind == FaultKind::kPartition || what.kind == FaultKind::kSplit) {
    fault.side_of_host = {false, true};
  }
  FaultPlan plan;
  plan.faults.push_back(fault);
  crowd->world.faults().set_plan(plan);
  crowd->start();
  crowd->run_for(run_ns);
  EXPECT_EQ(crowd->world.faults().counts().of(what.kind, "chat"), 1u);
  EXPECT_NE(crowd->world.faults().first_felt_ns(is_fatal(what.kind)), kNever);
  return crowd;
}

TEST(SimFaults, delay_makes_messages_late_and_loses_none) {
  const auto crowd = strike({FaultKind::kDelay, 5 * kMillisecond, kMillisecond});
  EXPECT_GT(longest_gap_ns(crowd->at(2), 1), 300 * kMicrosecond);
  EXPECT_LT(longest_gap_ns(crowd->at(2), 0), 200 * kMicrosecond);
  EXPECT_EQ(crowd->at(2).heard_from(1), 100u);
}

TEST(SimFaults, silence_one_way_holds_one_direction_then_all_arrives) {
  const auto crowd = strike({FaultKind::kSilenceOneWay, 3 * kMillisecond});
  EXPECT_GT(longest_gap_ns(crowd->at(2), 1), 2900 * kMicrosecond);
  EXPECT_LT(longest_gap_ns(crowd->at(1), 2), 1900 * kMicrosecond);  // until credits ran out
  EXPECT_EQ(crowd->at(1).completed, crowd->at(1).accepted);
  EXPECT_TRUE(crowd->at(1).lost.empty());
}

TEST(SimFaults, silence_both_ways_holds_both) {
  const auto crowd = strike({FaultKind::kSilenceBothWays, 3 * kMillisecond});
  EXPECT_GT(longest_gap_ns(crowd->at(2), 1), 2900 * kMicrosecond);
  EXPECT_GT(longest_gap_ns(crowd->at(1), 2), 2900 * kMicrosecond);
  EXPECT_LT(longest_gap_ns(crowd->at(3), 1), 200 * kMicrosecond);
}

TEST(SimFaults, a_cut_is_silent_for_ever_and_nobody_is_told) {
  const auto crowd = strike({FaultKind::kCutBothWays});
  EXPECT_LT(crowd->at(2).heard_from(1), 25u);
  EXPECT_LT(crowd->at(1).heard_from(2), 25u);
  EXPECT_EQ(crowd->at(3).heard_from(1), 100u);
  EXPECT_LT(crowd->at(1).completed, crowd->at(1).accepted);
  EXPECT_TRUE(crowd->at(1).lost.empty());
  const auto one_way = strike({FaultKind::kCutOneWay});
  EXPECT_LT(one_way->at(2).heard_from(1), 25u);
  EXPECT_GT(one_way->at(1).heard_from(2), 30u);  // all that credits allow: no answer comes back
}

TEST(SimFaults, a_partition_silences_hosts_and_heals) {
  const auto crowd = strike({FaultKind::kPartition, 3 * kMillisecond});
  EXPECT_GT(longest_gap_ns(crowd->at(3), 0), 2900 * kMicrosecond);
  EXPECT_LT(longest_gap_ns(crowd->at(1), 0), 200 * kMicrosecond);
  EXPECT_TRUE(crowd->at(3).lost.empty());
  const auto split = strike({FaultKind::kSplit});
  EXPECT_LT(split->at(3).heard_from(0), 25u);
  EXPECT_EQ(split->at(1).heard_from(0), 100u);
  EXPECT_TRUE(split->at(3).lost.empty());
}

TEST(SimFaults, close_tells_both_sides_and_only_them) {
  const auto crowd = strike({FaultKind::kClose});
  EXPECT_EQ(crowd->at(1).lost.count(2), 1u);
  EXPECT_EQ(crowd->at(2).lost.count(1), 1u);
  EXPECT_TRUE(crowd->at(0).lost.empty());
  EXPECT_EQ(crowd->at(1).completed, crowd->at(1).accepted);
  EXPECT_EQ(crowd->at(2).completed, crowd->at(2).accepted);
}

TEST(SimFaults, a_kill_is_seen_by_all_peers_after_a_while) {
  const auto crowd = strike({FaultKind::kKill, kNever, kMillisecond});
  EXPECT_TRUE(crowd->world.gone(1));
  for (const uint32_t rank : {0u, 2u, 3u}) {
    ASSERT_EQ(crowd->at(rank).lost.count(1), 1u);
    EXPECT_GE(crowd->at(rank).lost[1].first, 2 * kMillisecond);
    EXPECT_LE(crowd->at(rank).lost[1].first, 4 * kMillisecond);
    EXPECT_EQ(crowd->at(rank).completed, crowd->at(rank).accepted);
  }
  EXPECT_LE(crowd->at(1).runs_ns.back(), 2 * kMillisecond);
}

TEST(SimFaults, a_power_off_is_seen_by_nobody) {
  const auto crowd = strike({FaultKind::kPowerOff});
  EXPECT_TRUE(crowd->world.gone(1));
  EXPECT_TRUE(crowd->at(0).lost.empty());
  EXPECT_LT(crowd->at(0).completed, crowd->at(0).accepted);
  EXPECT_LT(crowd->at(0).heard_from(1), 25u);
}

TEST(SimFaults, a_stopped_rank_catches_up_in_a_burst) {
  const auto crowd = strike({FaultKind::kStop, 3 * kMillisecond});
  EXPECT_GE(longest_gap_ns(crowd->at(1), 0), 3 * kMillisecond);
  EXPECT_EQ(crowd->at(0).completed, crowd->at(0).accepted);
  EXPECT_GT(crowd->at(0).refused, 0u);  // for want of credits to rank 1
  EXPECT_EQ(crowd->at(2).heard_from(0), 100u);
  const auto frozen = strike({FaultKind::kFreeze});
  EXPECT_TRUE(frozen->world.stopped(1));
  EXPECT_LE(frozen->at(1).runs_ns.back(), 2 * kMillisecond);
  EXPECT_TRUE(frozen->at(0).lost.empty());
}

TEST(SimFaults, a_slow_rank_runs_late) {
  const auto crowd = strike({FaultKind::kSlow, 5 * kMillisecond, kMillisecond});
  EXPECT_GE(longest_gap_ns(crowd->at(2), 1), 900 * kMicrosecond);
  EXPECT_LT(longest_gap_ns(crowd->at(2), 0), 200 * kMicrosecond);
}

TEST(SimFaults, a_stray_message_arrives_as_from_whom_it_claims) {
  const auto crowd = strike({FaultKind::kStray});
  ASSERT_EQ(crowd->at(1).strays.size(), 1u);
  EXPECT_EQ(crowd->at(1).strays[0].first, 2u);
}

TEST(SimFaults, a_replay_is_the_last_message_once_more) {
  Crowd crowd({});
  conformance::Recorder near, far;
  far.check_pattern = false;
  Fault fault;
  fault.kind = FaultKind::kReplay;
  fault.rank = 1;
  fault.at = kMillisecond;
  FaultPlan plan;
  plan.faults.push_back(fault);
  crowd.world.faults().set_plan(plan);
  const uint64_t word = 7;
  const Segment segment{&word, sizeof word};
  ASSERT_TRUE(crowd.world.transport(0).send(1, {&segment, 1}, 1).ok());
  crowd.run_for(kMillisecond / 2);
  crowd.world.transport(1).poll(far);
  EXPECT_EQ(far.received[0], 1u);
  crowd.run_for(kMillisecond);
  crowd.world.transport(1).poll(far);
  EXPECT_EQ(far.received[0], 2u);
  EXPECT_EQ(far.last_bytes[0], sizeof word);
  crowd.world.transport(0).poll(near);
  EXPECT_EQ(near.sent_count, 1u);
}

// Given triggers by operation and by phase, expect the fault at that point.
TEST(SimFaults, strikes_at_an_operation_or_a_phase) {
  for (const FaultTrigger trigger : {FaultTrigger::kAtOperation, FaultTrigger::kAtPhase}) {
    Crowd crowd({});
    Fault fault;
    fault.kind = FaultKind::kPowerOff;
    fault.rank = 1;
    fault.trigger = trigger;
    fault.at = trigger == FaultTrigger::kAtPhase ? 2 : 30;
    fault.phase = "push";
    FaultPlan plan;
    plan.faults.push_back(fault);
    crowd.world.faults().set_plan(plan);
    crowd.start();
    for (int i = 0; i < 2; ++i) {
      crowd.run_for(kMillisecond);
      crowd.world.faults().set_phase(1, "push");
      crowd.run_for(kMillisecond);
      crowd.world.faults().set_phase(1, "pull");
    }
    EXPECT_TRUE(crowd.world.gone(1));
    if (trigger == FaultTrigger::kAtOperation) {
      EXPECT_EQ(crowd.at(1).accepted, 30u);
    } else {
      EXPECT_EQ(crowd.world.faults().counts().of(FaultKind::kPowerOff, "pull"), 0u);
      EXPECT_EQ(crowd.world.faults().counts().of(FaultKind::kPowerOff, "push"), 1u);
    }
  }
}

// Given a thousand seeds, expect plans of 0 to 3 faults with every kind among them.
TEST(SimFaults, plans_are_drawn_from_every_kind) {
  FaultPlanOptions options;
  options.host_of = {0, 0, 1, 1, 2};
  options.lease_ns = 100 * kMillisecond;
  options.horizon_ns = kMillisecond;
  options.operations = 100;
  options.phases = {"pull", "push"};
  std::array<int, kFaultKinds> drawn{};
  for (options.seed = 0; options.seed < 1000; ++options.seed) {
    const FaultPlan plan = FaultPlan::generate(options);
    EXPECT_LE(plan.faults.size(), 3u);
    EXPECT_EQ(plan.describe(), FaultPlan::generate(options).describe());
    EXPECT_EQ(plan.describe().find('\n'), std::string::npos);
    for (const Fault& fault : plan.faults) ++drawn[static_cast<size_t>(fault.kind)];
  }
  for (size_t kind = 0; kind < kFaultKinds; ++kind) {
    EXPECT_GT(drawn[kind], 20) << fault_name(static_cast<FaultKind>(kind));
  }
}

}  // namespace
}  // namespace parallax
