// SPDX-License-Identifier: Apache-2.0
// Every dense algorithm, run by DenseExchange, against the conformance suite of exchanges.
#include "collectives/dense_exchange.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <memory>
#include <string>

#include "base/check.h"
#include "collectives/algorithms.h"
#include "unit/collectives/exchange_conformance.h"
#include "unit/collectives/exchange_training.h"

namespace parallax::exchange_conformance {
namespace {

// An exchange by this row of the table, whether or not the library would choose it here.
Factory dense_exchange_by(const char* name, Method method = Method::kAllreduce) {
  const DenseAlgorithm* found =
      std::find_if(std::begin(kDenseAlgorithms), std::end(kDenseAlgorithms),
                   [name](const DenseAlgorithm& each) { return each.name == std::string(name); });
  PARALLAX_CHECK(found != std::end(kDenseAlgorithms));
  return [found, method](const Columns& columns, const Partition& partition, Outbox& outbox,
                         Compute&, ExchangeOptions options) {
    options.method = method;
    return std::make_unique<DenseExchange>(columns, partition, outbox, options, *found);
  };
}

bool unordered(const Shape&, uint32_t, bool ordered) { return !ordered; }

Candidate allreduce_direct() {
  return {.make = dense_exchange_by("direct"), .shapes = kElementShapes};
}

// Shapes of some messages too, which the library would send otherwise.
Candidate allreduce_oneshot() {
  return {.make = dense_exchange_by("oneshot"),
          .pieces = Pieces::kNone,
          .shapes = kElementShapes,
          .by_columns = false};
}

Candidate allreduce_tree() {
  return {.make = dense_exchange_by("tree"),
          .pieces = Pieces::kNone,
          .shapes = {{1000, 1}, {1024, 1}, {7, 3}},
          .applies = unordered};
}

Candidate allreduce_ring() {
  return {.make = dense_exchange_by("ring"),
          .shapes = kElementShapes,
          .applies = unordered,
          .by_columns = false};
}

Candidate allreduce_halving() {
  return {.make = dense_exchange_by("halving"),
          .pieces = Pieces::kNone,
          .shapes = kElementShapes,
          .applies = unordered,
          .by_columns = false};
}

Candidate allreduce_levels() {
  return {.make = dense_exchange_by("levels"),
          .shapes = kElementShapes,
          .applies = unordered,
          .by_columns = false,
          .by_domains = true};
}

Candidate push_pull_elements() {
  return {.make = dense_exchange_by("direct", Method::kPushPull),
          .delivers = false,
          .shapes = kElementShapes};
}

// Some ranks own nothing.
Candidate push_pull_elements_uneven() {
  Candidate candidate = push_pull_elements();
  candidate.uneven_owners = true;
  return candidate;
}

CONFORM_EXCHANGE(allreduce_direct, allreduce_direct)
CONFORM_EXCHANGE(allreduce_oneshot, allreduce_oneshot)
CONFORM_EXCHANGE(allreduce_tree, allreduce_tree)
CONFORM_EXCHANGE(allreduce_ring, allreduce_ring)
CONFORM_EXCHANGE(allreduce_halving, allreduce_halving)
CONFORM_EXCHANGE(allreduce_levels, allreduce_levels)
CONFORM_EXCHANGE(push_pull_elements, push_pull_elements)
CONFORM_EXCHANGE(push_pull_elements_uneven, push_pull_elements_uneven)

// Given buffers of the sum's type in which all of a dense variable is wanted, expect it there, and
// elsewhere where the buffers are of another type or there is none.
TEST(DenseExchange, puts_the_whole_where_it_is_wanted) {
  for (const std::vector<uint32_t>& hosts : layouts_of(4)) {
    const Setting setting = {.hosts = hosts, .shape = {1281, 3}};
    ExchangeWorld world(allreduce_direct(), setting);
    std::vector<std::vector<float>> buffers;
    std::vector<uint32_t> pending(world.size());
    for (uint32_t rank = 0; rank < world.size(); ++rank) {
      buffers.emplace_back(setting.shape.elements(), static_cast<float>(rank + 1));
    }
    for (uint32_t rank = 0; rank < world.size(); ++rank) {
      auto* values = reinterpret_cast<std::byte*>(buffers[rank].data());
      const uint32_t wanted = rank == 1 ? uint32_t{PARALLAX_F64} : uint32_t{PARALLAX_F32};
      world.exchange(rank).contribute(1,
                                      {.elements = {values, PARALLAX_F32},
                                       .lasting = true,
                                       .result = {rank == 2 ? nullptr : values, wanted}},
                                      &pending[rank]);
      world.end(rank, 1);
    }
    world.run();
    for (uint32_t rank = 0; rank < world.size(); ++rank) {
      ASSERT_TRUE(world.exchange(rank).state(1).delivered);
      const ReducedGradient whole = world.exchange(rank).whole(1);
      const auto* values = reinterpret_cast<const float*>(whole.values);
      EXPECT_EQ(values == buffers[rank].data(), rank == 0 || rank == 3) << setting.say();
      for (uint64_t i = 0; i < setting.shape.elements(); ++i) ASSERT_EQ(values[i], 10) << i;
      EXPECT_EQ(pending[rank], 0u);
    }
  }
}

// Given a reduce in place whose schedule sums what it also sends, and whose sends are still queued
// as the others' numbers come, expect what leaves to be its own numbers, and not the sum.
TEST(DenseExchange, a_result_in_place_waits_for_what_is_sent_from_there) {
  for (const std::vector<uint32_t>& hosts : layouts_of(3)) {
    Setting setting = {.hosts = hosts, .shape = {1281, 3}};
    setting.lends = false;
    ExchangeWorld world(allreduce_oneshot(), setting);
    std::vector<std::vector<float>> buffers, apart;
    std::vector<uint32_t> pending(world.size());
    for (uint32_t rank = 0; rank < world.size(); ++rank) {
      buffers.emplace_back(setting.shape.elements(), static_cast<float>(rank + 1));
      apart.emplace_back(setting.shape.elements());
    }
    // Of rank 0 nothing has left when all of the others' is there.
    world.hold([](const Parcel& parcel) { return parcel.from == 0; });
    for (uint32_t rank = 0; rank < world.size(); ++rank) {
      auto* values = reinterpret_cast<std::byte*>(buffers[rank].data());
      auto* result = rank == 1 ? reinterpret_cast<std::byte*>(apart[rank].data()) : values;
      world.exchange(rank).contribute(
          1,
          {.elements = {values, PARALLAX_F32}, .lasting = true, .result = {result, PARALLAX_F32}},
          &pending[rank]);
      world.end(rank, 1);
    }
    world.run();
    world.hold(nullptr);
    world.run();
    for (uint32_t rank = 0; rank < world.size(); ++rank) {
      ASSERT_TRUE(world.exchange(rank).state(1).delivered);
      const auto* values = reinterpret_cast<const float*>(world.exchange(rank).whole(1).values);
      EXPECT_EQ(values == apart[rank].data(), rank == 1) << "where it lies apart it is written";
      for (uint64_t i = 0; i < setting.shape.elements(); ++i) ASSERT_EQ(values[i], 6) << i;
      for (const float own : buffers[rank]) ASSERT_EQ(own, static_cast<float>(rank + 1));
    }
  }
}

// A world of reduces in place.
class Reduces {
 public:
  Reduces(const Candidate& candidate, const Setting& setting)
      : world(candidate, setting),
        pending(world.size()),
        values_(world.size(), std::vector<float>(setting.shape.elements(), 1.0f)) {}

  void reduce(uint32_t rank) {
    auto* values = reinterpret_cast<std::byte*>(values_[rank].data());
    world.exchange(rank).contribute(
        1, {.elements = {values, PARALLAX_F32}, .lasting = true, .result = {values, PARALLAX_F32}},
        &pending[rank]);
    world.end(rank, 1);
  }

  ExchangeWorld world;
  std::vector<uint32_t> pending;

 private:
  std::vector<std::vector<float>> values_;
};

// Given sums that come before this rank has given its share, or before that has left, expect each
// refused: it would be written over what is still to be read.
TEST(DenseExchange, takes_no_sum_before_it_has_given_its_share) {
  for (const Candidate& candidate :
       {allreduce_direct(), allreduce_tree(), allreduce_ring(), allreduce_halving()}) {
    for (const std::vector<uint32_t>& hosts : layouts_of(5)) {
      const Setting setting = {.hosts = hosts, .shape = {1281, 3}};
      std::vector<Parcel> sums;
      Reduces honest(candidate, setting);
      honest.world.tap([&sums](const Parcel& parcel) {
        if (parcel.header.kind == SectionKind::kDenseGather) sums.push_back(parcel);
      });
      for (uint32_t rank = 0; rank < 5; ++rank) honest.reduce(rank);
      honest.world.run();
      ASSERT_FALSE(sums.empty());
      Reduces early(candidate, setting);
      for (const Parcel& sum : sums) EXPECT_FALSE(early.world.inject(sum)) << setting.say();
      for (uint32_t rank = 0; rank < 5; ++rank) early.reduce(rank);
      for (const Parcel& sum : sums) EXPECT_FALSE(early.world.inject(sum)) << setting.say();
      early.world.run();
      for (uint32_t rank = 0; rank < 5; ++rank) {
        EXPECT_TRUE(early.world.exchange(rank).state(1).delivered);
      }
    }
  }
}

// Given a leader that passes on a sum out of the caller's buffer, expect the buffer to be borrowed
// until all of it has left.
TEST(DenseExchange, passes_on_out_of_the_callers_buffer) {
  // Rank 2 owns all there is, and rank 0 leads the host of ranks 0 and 1.
  const Setting setting = {.hosts = {0, 0, 1}, .shape = {100, 2}};
  Reduces reduces(allreduce_direct(), setting);
  ASSERT_EQ(reduces.world.partition().range_of(2).count, 200u);
  std::vector<Parcel> sums;
  reduces.world.hold([&sums](const Parcel& parcel) {
    const bool back = parcel.header.kind == SectionKind::kDenseGather && parcel.to == 0;
    if (back && sums.empty()) sums.push_back(parcel);
    return back;
  });
  for (uint32_t rank = 0; rank < 3; ++rank) reduces.reduce(rank);
  reduces.world.run();
  ASSERT_EQ(sums.size(), 1u);
  EXPECT_EQ(reduces.pending[0], 0u);
  ASSERT_TRUE(reduces.world.inject(sums[0]));
  EXPECT_TRUE(reduces.world.exchange(0).state(1).delivered);
  EXPECT_EQ(reduces.pending[0], 1u) << "rank 1 has not got it yet";
  reduces.world.run();
  EXPECT_EQ(reduces.pending[0], 0u);
  EXPECT_TRUE(reduces.world.exchange(1).state(1).delivered);
}

// Given shares of many messages, expect totals to leave before the last of the sender's own share,
// and nothing of either stage before what was ahead of it.
TEST(DenseExchangeOrder, totals_go_ahead_of_shares) {
  uint32_t overtakes = 0;
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    Setting setting = {.hosts = {0, 0}, .shape = {60001, 1}, .seed = seed, .lends = false};
    SCOPED_TRACE(setting.say());
    const Candidate candidate = allreduce_direct();
    ExchangeWorld world(candidate, setting);
    std::array<uint64_t, 2> ends = {};  // of rank 0's share and of its totals
    world.tap([&](const Parcel& parcel) {
      if (parcel.from != 0 || parcel.header.encoding != Encoding::kDense) return;
      const bool total = parcel.header.kind == SectionKind::kDenseGather;
      uint64_t& end = ends[total ? 1 : 0];
      if (end != 0) {
        EXPECT_EQ(parcel.header.first, end);
      }
      end = parcel.header.first + parcel.header.count;
      overtakes += total && ends[0] < setting.shape.rows ? 1 : 0;
    });
    SeededRandom random(seed);
    const Contributions gifts = draw_contributions(setting, {}, random);
    run_step(world, 1, gifts);
    check_step(world, candidate, 1, gifts);
  }
  EXPECT_GT(overtakes, 0u);
}

}  // namespace
}  // namespace parallax::exchange_conformance
