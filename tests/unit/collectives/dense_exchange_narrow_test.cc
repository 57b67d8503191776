// SPDX-License-Identifier: Apache-2.0
// DenseExchange of what a framework holds: 16-bit numbers that travel as they are, and totals that
// are multiplied once. What each rank has in the end is the naive sum of one process, in float,
// times the factor, rounded once.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "collectives/algorithms.h"
#include "collectives/dense_exchange.h"
#include "support/numbers.h"
#include "unit/collectives/exchange_training.h"

namespace parallax::exchange_conformance {
namespace {

using testkit::Numbers;

Candidate holding(const std::string& name, uint32_t dtype, double factor) {
  const DenseAlgorithm* found =
      std::find_if(std::begin(kDenseAlgorithms), std::end(kDenseAlgorithms),
                   [&name](const DenseAlgorithm& each) { return each.name == name; });
  return {.make = [found, dtype, factor](const Columns& columns, const Partition& partition,
                                         Outbox& outbox, Compute&,
                                         ExchangeOptions options) -> std::unique_ptr<Exchange> {
    options.held = true;
    options.dtype = dtype;
    options.factor = factor;
    return std::make_unique<DenseExchange>(columns, partition, outbox, options, *found);
  }};
}

// What the ranks gave, added in their order, times the factor.
std::vector<float> naive_total(const Contributions& gifts, uint64_t elements, double factor) {
  std::vector<float> total(elements);
  for (uint64_t i = 0; i < elements; ++i) {
    for (const Contribution& gift : gifts) {
      if (!gift.contributed) continue;
      Numbers number(gift.dtype, 1);
      number.set(0, gift.values[i]);
      total[i] += static_cast<float>(number[0]);
    }
    total[i] *= static_cast<float>(factor);
  }
  return total;
}

// Where the caller wants it, in the dtype of its slice; else in the sum's.
void expect_total(ExchangeWorld& world, uint32_t rank, const Contribution& gift,
                  const std::vector<float>& total, uint32_t* placed) {
  const ReducedGradient whole = world.exchange(rank).whole(1);
  ASSERT_TRUE(whole.has_values);
  const uint32_t dtype = whole.placed ? gift.dtype : uint32_t{PARALLAX_F32};
  const std::byte* const values = whole.placed ? world.slice_of(rank, 1).data() : whole.values;
  *placed += whole.placed && dtype != PARALLAX_F32 ? 1 : 0;
  Numbers expected(dtype, 1);
  for (uint64_t i = 0; i < total.size(); ++i) {
    expected.set(0, total[i]);
    const double got = Numbers::read(dtype, values, i);
    ASSERT_EQ(std::memcmp(&got, &static_cast<const double&>(expected[0]), sizeof got), 0)
        << "rank " << rank << ", element " << i << ": " << got << ", not " << expected[0];
  }
}

// Given ranks that give narrow slices, some wide ones and some nothing, in place and not, by every
// algorithm and on any hosts, expect the total; by the direct one most of it where it is wanted.
TEST(DenseExchangeNarrow, TotalsAreRoundedOnce) {
  uint32_t placed = 0;
  uint64_t lent = 0;
  for (const char* name : {"direct", "oneshot", "ring", "tree", "halving"}) {
    for (const std::vector<uint32_t>& hosts : {std::vector<uint32_t>{0, 0},
                                               {0, 0, 0, 0, 0},
                                               {0, 1},
                                               {0, 0, 1, 1},
                                               {0, 0, 0, 1},
                                               {0, 1, 2}}) {
      for (const uint32_t dtype : {PARALLAX_F16, PARALLAX_BF16}) {
        for (uint64_t seed = 1; seed <= 6; ++seed) {
          const double factor = seed % 2 == 0 ? 1.0 / static_cast<double>(hosts.size()) : 1.0;
          Setting setting = {.hosts = hosts, .shape = {1281, 3}, .seed = seed};
          setting.ordered = name == std::string("direct") && seed % 3 == 1;
          SCOPED_TRACE(setting.say() + name + dtype_name(dtype));
          ExchangeWorld world(holding(name, dtype, factor), setting);
          SeededRandom random(seed);
          Contributions gifts = draw_contributions(
              setting, {.absent_percent = seed == 6 ? 30u : 0u, .dtype = dtype}, random);
          if (seed >= 5) gifts.back() = draw_gift(setting, {.dtype = PARALLAX_F32}, random);
          run_step(world, 1, gifts);
          const std::vector<float> total = naive_total(gifts, world.partition().elements(), factor);
          for (uint32_t rank = 0; rank < world.size(); ++rank) {
            ASSERT_TRUE(world.exchange(rank).state(1).delivered);
            EXPECT_TRUE(world.given_back(rank, 1));
            if (gifts[rank].contributed) expect_total(world, rank, gifts[rank], total, &placed);
            lent += world.returned_bytes(rank);
            if (HasFatalFailure()) return;
          }
        }
      }
    }
  }
  EXPECT_GT(placed, 50u);
  EXPECT_GT(lent, 0u);
}

// Given numbers whose sum depends on the order, and an order, expect the bits of the naive sum,
// whether ranks read each other's slices where they lie or not.
TEST(DenseExchangeNarrow, OrderedTotalsHaveTheBitsOfTheNaiveSum) {
  for (const bool lends : {false, true}) {
    for (const std::vector<uint32_t>& hosts : {std::vector<uint32_t>{0, 0, 0}, {0, 0, 0, 0}}) {
      for (uint64_t seed = 1; seed <= 8; ++seed) {
        Setting setting = {.hosts = hosts, .shape = {4001, 1}, .ordered = true, .seed = seed};
        setting.lends = lends;
        const double factor = 1.0 / static_cast<double>(hosts.size());
        SCOPED_TRACE(setting.say());
        ExchangeWorld world(holding("direct", PARALLAX_BF16, factor), setting);
        SeededRandom random(seed);
        const Contributions gifts =
            draw_contributions(setting, {.arbitrary = true, .dtype = PARALLAX_BF16}, random);
        run_step(world, 1, gifts);
        const std::vector<float> total = naive_total(gifts, world.partition().elements(), factor);
        uint32_t placed = 0;
        for (uint32_t rank = 0; rank < world.size(); ++rank) {
          expect_total(world, rank, gifts[rank], total, &placed);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

// Given narrow slices of one host, expect half as many bytes of them on their way as of floats.
TEST(DenseExchangeNarrow, SlicesAndTotalsTravelAsTheyAre) {
  uint64_t bytes[2] = {};
  for (const uint32_t dtype : {PARALLAX_F32, PARALLAX_BF16}) {
    for (uint64_t seed : {2, 4, 6, 8, 10, 12}) {  // of which some have their result in place
      Setting setting = {.hosts = {0, 0}, .shape = {4001, 3}, .seed = seed};
      setting.lends = false;
      ExchangeWorld world(holding("direct", dtype, 1), setting);
      world.tap([&](const Parcel& parcel) {
        const bool elements = parcel.header.encoding == Encoding::kDense;
        if (elements) bytes[dtype == PARALLAX_BF16] += parcel.payload().size();
      });
      SeededRandom random(seed);
      const Contributions gifts = draw_contributions(setting, {.dtype = dtype}, random);
      run_step(world, 1, gifts);
    }
  }
  EXPECT_LT(bytes[1], bytes[0]);
  EXPECT_GE(2 * bytes[1], bytes[0]);
}

// Given sections of as many bytes as no element has, expect them to be refused.
TEST(DenseExchangeNarrow, OtherLengthsAreRefused) {
  const Setting setting = {.hosts = {0, 0}, .shape = {512, 1}, .seed = 2, .lends = false};
  Parcel slice;
  ExchangeWorld honest(holding("direct", PARALLAX_F16, 1), setting);
  honest.tap([&slice](const Parcel& parcel) {
    if (parcel.to == 0 && parcel.header.kind == SectionKind::kDenseReduce) slice = parcel;
  });
  SeededRandom random(1);
  run_step(honest, 1, draw_contributions(setting, {.dtype = PARALLAX_F16}, random));
  ASSERT_GT(slice.header.count, 0u);
  for (const uint32_t element_bytes : {2u, 4u, 1u, 3u, 8u}) {
    ExchangeWorld told(holding("direct", PARALLAX_F16, 1), setting);
    Parcel parcel = slice;
    parcel.bytes.resize(1 + size_t{parcel.header.count} * element_bytes);
    parcel.header.payload_bytes = parcel.header.count * element_bytes;
    EXPECT_EQ(told.inject(parcel), element_bytes == 2 || element_bytes == 4) << element_bytes;
  }
}

}  // namespace
}  // namespace parallax::exchange_conformance
