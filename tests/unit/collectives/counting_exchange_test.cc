// SPDX-License-Identifier: Apache-2.0
// An exchange that counts who gave: it carries gradients as the one inside it does; nothing is
// delivered before all ranks have given or ended, then every rank has the count; and what a peer
// should not have sent is refused and changes nothing.
#include "collectives/counting_exchange.h"

#include <gtest/gtest.h>

#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/seeded_random.h"
#include "exchange_conformance.h"
#include "support/outbox_world.h"

namespace parallax::exchange_conformance {
namespace {

std::unique_ptr<Exchange> counted(const Columns& columns, const Partition& partition,
                                  Outbox& outbox, Compute& compute, ExchangeOptions options,
                                  Method method) {
  options.method = method;
  options.counts_contributors = true;
  return make_exchange(columns, partition, outbox, compute, options);
}

template <Method method>
std::unique_ptr<Exchange> counted_by(const Columns& columns, const Partition& partition,
                                     Outbox& outbox, Compute& compute,
                                     const ExchangeOptions& options) {
  return counted(columns, partition, outbox, compute, options, method);
}

Candidate counted_elements() {
  return {.make = counted_by<Method::kAllreduce>,
          .pieces = Pieces::kNone,
          .shapes = kElementShapes,
          .by_columns = false};
}
Candidate counted_rows() {
  return {.make = counted_by<Method::kReduceRows>, .rows = true, .shapes = kRowShapes};
}

CONFORM_EXCHANGE(counted_elements, counted_elements)
CONFORM_EXCHANGE(counted_rows, counted_rows)

}  // namespace
}  // namespace parallax::exchange_conformance

namespace parallax {
namespace {

constexpr uint32_t kCountedVariable = 3;

// Carries nothing, at once.
class NoCarrier final : public Exchange {
 public:
  Status reserve() override { return {}; }
  size_t needed_bytes() override { return 0; }
  const Arena& arena() const override { return arena_; }
  void open(uint64_t) override {}
  void contribute(uint64_t, const Contribution&, uint32_t*) override {}
  void end(uint32_t, uint64_t) override {}
  bool on_section(uint32_t, const Section&) override { return false; }
  ExchangeState state(uint64_t) const override { return {true, true, true}; }
  MissingRanks missing(uint64_t) const override { return {}; }
  ReducedGradient owned(uint64_t) const override { return {}; }
  ReducedGradient whole(uint64_t) const override { return {}; }
  ExchangeCounts counts(uint64_t) const override { return {}; }

 private:
  Arena arena_;
};

class CountingWorld {
 public:
  explicit CountingWorld(const std::vector<std::string>& host_names)
      : hosts_(map_hosts(host_names)),
        ranks_(static_cast<uint32_t>(host_names.size()), [this](uint32_t rank, Outbox& outbox) {
          const Columns& columns = columns_.emplace_back(hosts_, rank);
          auto counting = std::make_unique<CountingExchange>(columns, outbox, kCountedVariable,
                                                             std::make_unique<NoCarrier>());
          counting->open(1);
          counting->open(2);
          return counting;
        }) {}

  uint32_t size() const { return ranks_.size(); }
  CountingExchange& at(uint32_t rank) { return ranks_.at(rank); }
  void settle() { ranks_.settle(); }
  uint64_t refused_count() const { return ranks_.refused_count(); }
  uint64_t sections(SectionKind kind) const { return ranks_.packed(kind).sections; }
  bool delivered_somewhere(uint64_t step) {
    for (uint32_t rank = 0; rank < size(); ++rank) {
      if (at(rank).state(step).delivered) return true;
    }
    return false;
  }

 private:
  const HostMap hosts_;
  std::deque<Columns> columns_;
  testkit::OutboxWorld<CountingExchange> ranks_;
};

// Given ranks that give or end in any order, expect nothing delivered before the last has, and then
// the number of those who gave at every rank, by one word up and one down; two steps at a time, and
// again in buffers of an earlier one.
TEST(CountingExchange, EveryRankHasTheCountOnceAllGaveOrEnded) {
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    SeededRandom random(seed);
    CountingWorld world(testkit::draw_hosts(random, 40));
    std::vector<uint32_t> gave(4);
    std::vector<std::pair<uint64_t, uint32_t>> order;  // step, rank
    const auto play = [&] {
      for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random.below(i)]);
      std::vector<uint32_t> left(4, world.size());
      uint32_t pending = 0;
      for (const auto& [step, rank] : order) {
        if (left[step]-- == 1) {
          world.settle();
          EXPECT_FALSE(world.delivered_somewhere(step));
          if (rank != 0) {
            EXPECT_FALSE(world.at(0).missing(step).empty());
          }
        }
        if (random.chance(50)) {
          world.at(rank).contribute(step, {}, &pending);
          ++gave[step];
        }
        world.at(rank).end(rank, step);
      }
      world.settle();
    };
    const auto check = [&](uint64_t step) {
      for (uint32_t rank = 0; rank < world.size(); ++rank) {
        ASSERT_TRUE(world.at(rank).state(step).delivered) << "rank " << rank;
        EXPECT_EQ(world.at(rank).whole(step).contributors, gave[step]);
        EXPECT_TRUE(world.at(rank).missing(step).empty());
      }
    };
    for (uint32_t rank = 0; rank < world.size(); ++rank) {
      order.emplace_back(1, rank);
      order.emplace_back(2, rank);
    }
    play();
    check(1);
    check(2);
    order.clear();
    for (uint32_t rank = 0; rank < world.size(); ++rank) {
      world.at(rank).open(3);
      order.emplace_back(3, rank);
    }
    play();
    check(3);
    EXPECT_EQ(world.refused_count(), 0u);
    EXPECT_EQ(world.sections(SectionKind::kContributorsUp), 3 * (world.size() - 1));
    EXPECT_EQ(world.sections(SectionKind::kContributorsDown), 3 * (world.size() - 1));
  }
}

Section word(SectionKind kind, uint64_t count) {
  return {{.kind = kind, .tag = kCountedVariable, .step = 1, .first = count}, {}};
}

// Given ranks of a host each, of which the first is the root, expect words that may not come to be
// refused, and the count to be right all the same.
TEST(CountingExchange, GarbageIsRefused) {
  CountingWorld world({"a", "b", "c"});
  const auto up = SectionKind::kContributorsUp, down = SectionKind::kContributorsDown;
  EXPECT_FALSE(world.at(0).on_section(1, word(up, 4))) << "more than there are ranks";
  EXPECT_FALSE(world.at(0).on_section(0, word(up, 1))) << "of itself";
  EXPECT_FALSE(world.at(0).on_section(1, word(down, 1))) << "an answer to who answers";
  EXPECT_FALSE(world.at(1).on_section(2, word(up, 1))) << "of no child";
  EXPECT_FALSE(world.at(1).on_section(0, word(down, 1))) << "an answer before the report";
  const std::byte more[1] = {};
  Section long_word = word(up, 1);
  long_word.payload = more;
  EXPECT_FALSE(world.at(0).on_section(1, long_word));
  uint32_t pending = 0;
  for (uint32_t rank = 0; rank < 2; ++rank) world.at(rank).contribute(1, {}, &pending);
  world.settle();
  EXPECT_FALSE(world.at(0).on_section(1, word(up, 1))) << "again";
  EXPECT_FALSE(world.at(1).on_section(0, word(down, 0))) << "fewer than gave below it";
  EXPECT_FALSE(world.at(1).on_section(2, word(down, 1))) << "of no parent";
  world.at(2).end(2, 1);
  world.settle();
  EXPECT_FALSE(world.at(1).on_section(0, word(down, 2))) << "again";
  EXPECT_EQ(world.refused_count(), 0u);
  for (uint32_t rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(world.at(rank).whole(1).contributors, 2u) << "rank " << rank;
  }
}

// Given another rank's end, expect it to say nothing of this one.
TEST(CountingExchange, AnEndIsItsOwnRanks) {
  CountingWorld world({"a", "a"});
  world.at(0).end(1, 1);
  world.at(1).end(1, 1);
  world.settle();
  EXPECT_FALSE(world.delivered_somewhere(1));
  EXPECT_EQ(world.at(1).missing(1).to_tell, std::vector<uint32_t>{0});
}

}  // namespace
}  // namespace parallax
