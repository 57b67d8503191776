// SPDX-License-Identifier: Apache-2.0
// DenseExchange where ranks write into each other's memory: what is returned is placed, and is the
// same as what is copied.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "collectives/algorithms.h"
#include "collectives/dense_exchange.h"
#include "unit/collectives/exchange_training.h"

namespace parallax::exchange_conformance {
namespace {

constexpr uint64_t kLong = kPlacedBytesMin;

Candidate placing_allreduce(const char* name) {
  const DenseAlgorithm* found =
      std::find_if(std::begin(kDenseAlgorithms), std::end(kDenseAlgorithms),
                   [name](const DenseAlgorithm& each) { return each.name == std::string(name); });
  return {.make = [found](const Columns& columns, const Partition& partition, Outbox& outbox,
                          Compute&, const ExchangeOptions& options) -> std::unique_ptr<Exchange> {
    return std::make_unique<DenseExchange>(columns, partition, outbox, options, *found);
  }};
}

// Of every owner's range as many bytes of the sum type.
Setting setting_of(const std::vector<uint32_t>& hosts, uint64_t range_bytes, SumType sum,
                   uint64_t seed) {
  const uint64_t elements = hosts.size() * range_bytes / bytes_of_sum(sum);
  return {
      .hosts = hosts, .shape = {elements, 1}, .sum = sum, .seed = seed, .piece_bytes_max = 30000};
}

// Given long ranges, expect every one that another rank returns to be placed, over steps that use
// the memory again, and every total right. Ranks of a host that read and write each other's buffers
// have no use for places.
TEST(DenseExchangePlaces, what_is_returned_is_written_where_it_belongs) {
  for (const char* name : {"direct", "ring"}) {
    const Candidate candidate = placing_allreduce(name);
    for (const SumType sum : {SumType::kF32, SumType::kF64, SumType::kI64}) {
      Setting setting = setting_of({0, 0, 1}, 2 * kLong, sum, 3 + static_cast<uint64_t>(sum));
      setting.lends = false;
      SCOPED_TRACE(setting.say() + name);
      ExchangeWorld world(candidate, setting);
      SeededRandom random(7);
      std::vector<Contributions> gifts;
      for (int step = 0; step < 4; ++step) {
        gifts.push_back(draw_contributions(setting, {}, random));
      }
      run_steps(world, candidate, gifts);
      for (uint32_t rank = 0; rank < world.size(); ++rank) {
        EXPECT_GT(world.written_bytes(rank), 0u);
        EXPECT_EQ(world.shared_parts(rank), 0u);
      }
    }
  }
}

// Given results in memory that the network does not know, expect all that comes back to be written
// to the exchange's own, step after step, and to be given right.
TEST(DenseExchangePlaces, the_exchanges_memory_takes_what_the_callers_cannot) {
  const Candidate candidate = placing_allreduce("direct");
  constexpr uint64_t kSteps = 5;
  for (const std::vector<uint32_t>& hosts : {std::vector<uint32_t>{0, 1}, {0, 1, 2}}) {
    Setting setting = setting_of(hosts, 2 * kLong, SumType::kF32, 5 + hosts.size());
    setting.unknown_memory = true;
    SCOPED_TRACE(setting.say());
    ExchangeWorld world(candidate, setting);
    SeededRandom random(setting.seed);
    std::vector<Contributions> gifts;
    while (gifts.size() < kSteps) gifts.push_back(draw_contributions(setting, {}, random));
    run_steps(world, candidate, gifts);
    for (uint32_t rank = 0; rank < world.size(); ++rank) {
      const uint64_t others = setting.shape.rows - world.partition().range_of(rank).count;
      EXPECT_EQ(world.written_bytes(rank), kSteps * others * sizeof(float)) << rank;
      EXPECT_EQ(world.shared_parts(rank), 0u);
    }
  }
}

// Ranks that give nothing offer nothing: what they get is copied, and right.
TEST(DenseExchangePlaces, who_gives_nothing_is_sent_messages) {
  const Candidate candidate = placing_allreduce("direct");
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    const Setting setting = setting_of({0, 1, 2}, 2 * kLong, SumType::kF32, seed);
    ExchangeWorld world(candidate, setting);
    SeededRandom random(seed);
    std::vector<Contributions> gifts;
    for (int step = 0; step < 3; ++step) {
      gifts.push_back(draw_contributions(setting, {.absent_percent = 40}, random));
    }
    run_steps(world, candidate, gifts);
    for (uint32_t rank = 0; rank < world.size(); ++rank) EXPECT_EQ(world.shared_parts(rank), 0u);
  }
}

TEST(DenseExchangePlaces, short_ranges_are_copied) {
  const Candidate candidate = placing_allreduce("direct");
  const Setting setting = setting_of({0, 1}, kLong / 4, SumType::kF32, 1);
  ExchangeWorld world(candidate, setting);
  SeededRandom random(1);
  run_steps(world, candidate, {draw_contributions(setting, {}, random)});
  EXPECT_EQ(world.written_bytes(0) + world.written_bytes(1), 0u);
}

// Given offers and placed sections that nobody may send, expect each refused.
TEST(DenseExchangePlaces, refuses_what_was_not_asked_for) {
  const Candidate candidate = placing_allreduce("direct");
  const Setting setting = setting_of({0, 1}, 2 * kLong, SumType::kF32, 2);
  ExchangeWorld world(candidate, setting);
  world.expect_anything();
  Parcel placed{.from = 1, .to = 0};
  const Range range = world.partition().range_of(1);
  placed.header = {.kind = SectionKind::kDenseGather,
                   .encoding = Encoding::kPlaced,
                   .step = 1,
                   .first = range.first,
                   .count = 256,
                   .payload_bytes = 1024};
  EXPECT_FALSE(world.inject(placed)) << "nothing was offered";
  PlaceOffer offer;
  offer.area = 2;
  offer.key_bytes = 1;
  offer.place_bytes = world.partition().range_of(0).count * sizeof(float);
  Parcel offered{.from = 1, .to = 0};
  offered.header = {.kind = SectionKind::kDensePlace, .step = 1, .first = 0};
  const auto with = [&](size_t bytes) {
    Parcel changed = offered;
    changed.bytes.insert(changed.bytes.end(), offer.bytes().begin(), offer.bytes().end());
    changed.bytes.resize(1 + bytes);
    changed.header.count = changed.header.payload_bytes = static_cast<uint32_t>(bytes);
    return changed;
  };
  EXPECT_FALSE(world.inject(with(3))) << "no offer is as short";
  EXPECT_FALSE(world.inject(with(40))) << "its length is another than it says";
  Parcel nowhere = with(offer.bytes().size());
  nowhere.header.first = 1;
  EXPECT_FALSE(world.inject(nowhere)) << "no send begins there";
  offer.place_bytes += sizeof(float);
  EXPECT_FALSE(world.inject(with(offer.bytes().size()))) << "of another length than the send";
  offer.place_bytes -= sizeof(float);
  EXPECT_TRUE(world.inject(with(offer.bytes().size())));
  EXPECT_FALSE(world.inject(with(offer.bytes().size()))) << "it is offered already";
}

}  // namespace
}  // namespace parallax::exchange_conformance
