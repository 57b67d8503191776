// SPDX-License-Identifier: Apache-2.0
// Who measures which link, and what ends it. What comes out of known links is in tests/sim.
#include "engine/cost_probe.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <memory>

#include "support/host_map_of.h"
#include "support/outbox_world.h"

namespace parallax::testkit {
namespace {

// The one constant that nobody measures.
constexpr size_t kAcross = kConstantCount - 1;

// A microsecond later at each look.
class TickingClock final : public Clock {
 public:
  int64_t now_ns() const override { return now_ns_ += 1000; }
  void hold_up(int64_t ns) { now_ns_ += ns; }

 private:
  mutable int64_t now_ns_ = 0;
};

struct Prober {
  Prober(const HostMap& hosts, uint32_t rank, Outbox& outbox)
      : columns(hosts, rank), probe({columns, outbox, compute, clock}) {}
  bool on_section(uint32_t from, const Section& section) {
    if (section.header.kind == SectionKind::kProbeAnswer && ++answers == held_up_answer) {
      clock.hold_up(20 * kNanosecondsPerMillisecond);
    }
    constexpr uint32_t kRoundTrips = 13;
    if (section.header.kind == SectionKind::kProbeAnswer && held_up_often &&
        answers > kRoundTrips) {
      // All but each fifth, and none as long as the one before.
      constexpr std::array<int64_t, 5> kHeldUpNs = {1'000'000, 1'300'000, 1'700'000, 2'200'000, 0};
      clock.hold_up(kHeldUpNs[answers % kHeldUpNs.size()]);
    }
    return probe.on_section(from, section);
  }
  void advance() {
    probe.start_run();
    probe.advance();
    while (ComputeJob* job = compute.take_done()) job->done(*job);
  }
  uint64_t count(size_t row) const { return probe.terms().samples[row].count; }
  double value(size_t row) const { return std::exp(probe.terms().samples[row].log_sum); }

  Columns columns;
  InlineCompute compute;
  TickingClock clock;
  CostProbe probe;
  uint32_t answers = 0, held_up_answer = 0;
  bool held_up_often = false;
};

class Probes : public testing::Test {
 protected:
  void run(const std::vector<uint32_t>& members) {
    for (int i = 0; i < 2000; ++i) {
      for (const uint32_t rank : members) world_.at(rank).advance();
      for (uint32_t rank = 0; rank < world_.size(); ++rank) world_.pass(rank);
    }
  }

  // One rank alone, to the end.
  static bool measures(OutboxWorld<Prober>& world, Prober& prober) {
    prober.probe.begin();
    for (int i = 0; i < 4000 && !prober.probe.finished(); ++i) {
      prober.advance();
      for (uint32_t rank = 0; rank < world.size(); ++rank) world.pass(rank);
    }
    return prober.probe.finished();
  }

  // Five ranks of the first host, two of the second, one of the third.
  const HostMap hosts_ = host_map({0, 0, 0, 0, 0, 1, 1, 2});
  OutboxWorld<Prober> world_{8, [this](uint32_t rank, Outbox& outbox) {
                               return std::make_unique<Prober>(hosts_, rank, outbox);
                             }};
};

// Given all ranks of a job, expect neighbours to measure in pairs, the first two hosts as a pair,
// everyone its memory, and nobody anything twice.
TEST_F(Probes, PairsMeasureEachLinkOnce) {
  for (uint32_t rank = 0; rank < 8; ++rank) world_.at(rank).probe.begin();
  run({0, 1, 2, 3, 4, 5, 6, 7});
  for (uint32_t rank = 0; rank < 8; ++rank) {
    SCOPED_TRACE(rank);
    const Prober& each = world_.at(rank);
    ASSERT_TRUE(each.probe.finished());
    EXPECT_EQ(each.probe.waits_for(), kNoRank);
    for (size_t row = 0; row < 3; ++row) {
      EXPECT_EQ(each.count(row), rank == 0 || rank == 2 || rank == 5 ? 1u : 0u);
      EXPECT_EQ(each.count(3 + row), rank == 0 ? 1u : 0u);
    }
    for (size_t row = 6; row < kAcross; ++row) EXPECT_EQ(each.count(row), 1u);
    EXPECT_EQ(each.count(kAcross), 0u);
  }
  EXPECT_EQ(world_.refused_count(), 0u);
}

// Given any one answer that comes much later than the others, expect what it is without.
TEST_F(Probes, WhoIsHeldUpOnceIsNotSlow) {
  std::vector<double> values;
  uint32_t answers = 0;
  for (uint32_t held_up = 0; held_up == 0 || held_up <= answers; ++held_up) {
    OutboxWorld<Prober> world(8, [this](uint32_t rank, Outbox& outbox) {
      return std::make_unique<Prober>(hosts_, rank, outbox);
    });
    Prober& first = world.at(0);
    first.held_up_answer = held_up;
    ASSERT_TRUE(measures(world, first));
    if (held_up == 0) answers = first.answers;
    for (size_t row = 0; row < 6; ++row) {
      if (held_up == 0) values.push_back(first.value(row));
      EXPECT_LE(first.value(row), 2 * values[row] + 1) << row << ", answer " << held_up;
    }
  }
  EXPECT_GT(answers, 30u);
}

// Given answers of which four in five come later, expect what they are without.
TEST_F(Probes, WhoIsHeldUpAgainAndAgainIsNotSlow) {
  std::vector<double> values;
  for (const bool often : {false, true}) {
    OutboxWorld<Prober> world(8, [this](uint32_t rank, Outbox& outbox) {
      return std::make_unique<Prober>(hosts_, rank, outbox);
    });
    Prober& first = world.at(2);  // it has one link
    first.held_up_often = often;
    ASSERT_TRUE(measures(world, first));
    for (size_t row = 0; row < 3; ++row) {
      if (!often) values.push_back(first.value(row));
      EXPECT_LE(first.value(row), 2 * values[row] + 1) << row;
    }
  }
}

// Given a rank whose neighbour measures nothing, expect that to answer all the same.
TEST_F(Probes, WhoDoesNotMeasureAnswers) {
  world_.at(0).probe.begin();
  run({0});
  EXPECT_TRUE(world_.at(0).probe.finished());
  EXPECT_FALSE(world_.at(1).probe.begun());
}

// Given answers that nobody asked for, expect them refused.
TEST_F(Probes, StrangeAnswersAreRefused) {
  CostProbe& probe = world_.at(0).probe;
  Section section = {{.kind = SectionKind::kProbeAnswer, .tag = 1}, {}};
  EXPECT_FALSE(probe.on_section(1, section));
  probe.begin();
  probe.advance();
  ASSERT_EQ(probe.waits_for(), 1u);
  EXPECT_FALSE(probe.on_section(2, section)) << "of another rank";
  section.header.tag = 2;
  EXPECT_FALSE(probe.on_section(1, section)) << "of another number";
  section.header.tag = 1;
  EXPECT_TRUE(probe.on_section(1, section));
  EXPECT_FALSE(probe.on_section(1, section)) << "twice";
}

}  // namespace
}  // namespace parallax::testkit
