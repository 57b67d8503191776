// SPDX-License-Identifier: Apache-2.0
// Gradients on boards, of ranks in one thread, over inproc. The oracle is the naive sum in the
// order of ranks, bit for bit.
#include "collectives/board_exchange.h"

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/seeded_random.h"
#include "support/host_map_of.h"
#include "support/outbox_world.h"
#include "unit/collectives/exchange_world.h"

namespace parallax {
namespace {

constexpr uint64_t kBoardSizes[] = {1, 2, 13, 14, 15, 300, 1170};

struct BoardRank {
  BoardRank(const HostMap& hosts, uint32_t rank, Outbox& outbox, uint64_t elements, SumType sum)
      : columns(hosts, rank), entries(columns, outbox.boards()) {
    entries.find_boards();
    const Partition partition(elements, 1, false, SlotMap::of_ranks(columns.world(), 1), 0);
    const EntryPlace place = entries.reserve(0, elements * bytes_of_sum(sum));
    EXPECT_TRUE(place.exists());
    exchange = std::make_unique<BoardExchange>(columns, partition, entries, place,
                                               ExchangeOptions{.sum = sum, .held = true});
    EXPECT_TRUE(exchange->reserve().ok());
    exchange->open(1);
    exchange->open(2);
  }
  bool on_section(uint32_t from, const Section& section) {
    return exchange->on_section(from, section);
  }

  const Columns columns;
  Entries entries;
  std::unique_ptr<BoardExchange> exchange;
  std::vector<std::byte> slices[2];  // by step parity
  uint32_t pending = 0;
};

class BoardWorld {
 public:
  BoardWorld(uint32_t world, uint64_t elements, SumType sum)
      : elements_(elements),
        sum_(sum),
        map_(testkit::host_map(std::vector<uint32_t>(world, 0))),
        ranks_(world, [this](uint32_t rank, Outbox& outbox) {
          return std::make_unique<BoardRank>(map_, rank, outbox, elements_, sum_);
        }) {}

  BoardRank& operator[](uint32_t rank) { return ranks_.at(rank); }
  uint32_t size() const { return ranks_.size(); }

  // Of that dtype, in place if that is the sum's.
  void contribute(uint32_t rank, uint64_t step, uint32_t dtype, std::span<const double> numbers) {
    BoardRank& at = ranks_.at(rank);
    std::vector<std::byte>& slice = at.slices[step & 1];
    slice = exchange_conformance::bytes_of(dtype, numbers);
    Contribution contribution;
    contribution.elements = {slice.data(), dtype};
    contribution.lasting = true;
    contribution.result = {slice.data(), dtype};
    at.exchange->contribute(step, contribution, &at.pending);
    EXPECT_EQ(at.pending, 0u);
  }
  void look_all() {
    for (uint32_t rank = 0; rank < size(); ++rank) ranks_.at(rank).entries.look();
  }
  std::vector<std::byte> whole(uint32_t rank, uint64_t step) {
    const ReducedGradient all = ranks_.at(rank).exchange->whole(step);
    EXPECT_TRUE(all.has_values && all.contributed);
    EXPECT_EQ(all.count, elements_);
    return {all.values, all.values + elements_ * bytes_of_sum(sum_)};
  }

 private:
  const uint64_t elements_;
  const SumType sum_;
  const HostMap map_;
  testkit::OutboxWorld<BoardRank> ranks_;
};

template <typename T>
std::vector<std::byte> naive_board_sum(const std::vector<std::vector<double>>& given,
                                       uint64_t elements) {
  std::vector<T> sum(elements);
  for (const std::vector<double>& each : given) {
    for (uint64_t i = 0; i < each.size(); ++i) sum[i] = sum[i] + static_cast<T>(each[i]);
  }
  const auto bytes = std::as_bytes(std::span(sum));
  return {bytes.begin(), bytes.end()};
}

std::vector<std::byte> naive_board_sum(SumType sum, const std::vector<std::vector<double>>& given,
                                       uint64_t elements) {
  return with_sum_type(sum, [&](auto tag) {
    return naive_board_sum<typename decltype(tag)::type>(given, elements);
  });
}

// As a rank's slice has them: exact in every dtype of the type of sums, and not so in their sums.
std::vector<double> draw_slice(SeededRandom& random, SumType sum, uint64_t elements) {
  std::vector<double> numbers(elements);
  const bool floats = sum == SumType::kF32 || sum == SumType::kF64;
  for (double& each : numbers) {
    each = static_cast<double>(random.below(255)) - 127;
    if (floats) each = std::ldexp(each, static_cast<int>(random.below(13)) - 6);
  }
  // What a copy of the first would get wrong.
  numbers[0] = floats ? -0.0 : 0;
  return numbers;
}

std::vector<uint32_t> board_dtypes(SumType sum) {
  if (sum == SumType::kF32) return {PARALLAX_F32, PARALLAX_F16, PARALLAX_BF16};
  return {dtype_of(sum)};
}

// Every world, size, type of sums and dtype, over steps in which each rank is absent at times, in
// every order of ranks that the seed draws.
TEST(BoardExchange, SumsInTheOrderOfRanks) {
  SeededRandom random(1);
  for (uint32_t size = 2; size <= kEntryRanksMax; ++size) {
    for (const uint64_t elements : kBoardSizes) {
      for (const SumType sum : {SumType::kF32, SumType::kF64, SumType::kI32, SumType::kI64}) {
        BoardWorld world(size, elements, sum);
        const std::vector<uint32_t> dtypes = board_dtypes(sum);
        for (uint64_t step = 1; step <= 6; ++step) {
          std::vector<std::vector<double>> given(size);
          std::vector<uint32_t> order(size);
          for (uint32_t rank = 0; rank < size; ++rank) {
            order[rank] = rank;
            std::swap(order[rank], order[random.below(rank + 1)]);
            if (!random.chance(20)) given[rank] = draw_slice(random, sum, elements);
          }
          uint32_t addends = 0;
          for (const uint32_t rank : order) {
            BoardExchange& exchange = *world[rank].exchange;
            if (given[rank].empty()) {
              exchange.end(rank, step);
              EXPECT_TRUE(exchange.state(step).delivered);
            } else {
              ++addends;
              world.contribute(rank, step, dtypes[random.below(dtypes.size())], given[rank]);
              exchange.end(rank, step);
              EXPECT_EQ(exchange.state(step).delivered, rank == order.back());
            }
            EXPECT_TRUE(exchange.state(step).reduced);
          }
          world.look_all();
          const std::vector<std::byte> expected = naive_board_sum(sum, given, elements);
          for (uint32_t rank = 0; rank < size; ++rank) {
            ASSERT_TRUE(world[rank].exchange->state(step).delivered);
            ASSERT_TRUE(world[rank].exchange->missing(step).empty());
            if (!given[rank].empty()) {
              ASSERT_EQ(world.whole(rank, step), expected)
                  << size << " ranks, rank " << rank << ", " << elements << " elements";
              ASSERT_EQ(world[rank].exchange->whole(step).contributors, addends);
            }
            world[rank].exchange->open(step + 2);
          }
        }
      }
    }
  }
}

// Given a slice of the sum's type, expect the sum in its place; of another, in the exchange's own.
TEST(BoardExchange, TheSumIsMadeWhereTheCallerWantsIt) {
  BoardWorld world(2, 20, SumType::kF32);
  const std::vector<double> numbers(20, 3.0);
  world.contribute(0, 1, PARALLAX_F32, numbers);
  world.contribute(1, 1, PARALLAX_F16, numbers);
  world.look_all();
  EXPECT_EQ(world[0].exchange->whole(1).values, world[0].slices[1].data());
  EXPECT_NE(world[1].exchange->whole(1).values, world[1].slices[1].data());
  EXPECT_EQ(world.whole(0, 1), world.whole(1, 1));
}

// Given a rank that is one step ahead, expect neither step to take the other's numbers.
TEST(BoardExchange, TheNextStepMayComeEarly) {
  BoardWorld world(3, 40, SumType::kF32);
  const auto all = [](double number) { return std::vector<double>(40, number); };
  for (const uint32_t rank : {0u, 1u}) {
    world.contribute(rank, 1, PARALLAX_F32, all(1));
    world.contribute(rank, 2, PARALLAX_F32, all(10));
  }
  world.look_all();
  EXPECT_FALSE(world[0].exchange->state(1).delivered);
  world.contribute(2, 2, PARALLAX_F32, all(10));
  world.look_all();
  EXPECT_TRUE(world[0].exchange->state(2).delivered);
  EXPECT_FALSE(world[0].exchange->state(1).delivered);
  EXPECT_EQ(world[1].exchange->missing(1).to_give, std::vector<uint32_t>{2});
  world.contribute(2, 1, PARALLAX_F32, all(1));
  world.look_all();
  for (uint32_t rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(world.whole(rank, 1), exchange_conformance::bytes_of(PARALLAX_F32, all(3)));
    EXPECT_EQ(world.whole(rank, 2), exchange_conformance::bytes_of(PARALLAX_F32, all(30)));
  }
}

// Given ranks that have said nothing, expect them to be named, whatever their order, and nobody
// once this rank wants nothing.
TEST(BoardExchange, TheMissingAreNamed) {
  BoardWorld world(4, 8, SumType::kF32);
  const std::vector<double> numbers(8, 1.0);
  EXPECT_EQ(world[1].exchange->missing(1).to_give, (std::vector<uint32_t>{0, 2, 3}));
  world.contribute(1, 1, PARALLAX_F32, numbers);
  world.contribute(2, 1, PARALLAX_F32, numbers);
  EXPECT_EQ(world[1].exchange->missing(1).to_give, (std::vector<uint32_t>{0, 3}));
  world[0].exchange->end(0, 1);
  EXPECT_EQ(world[1].exchange->missing(1).to_give, std::vector<uint32_t>{3});
  EXPECT_TRUE(world[0].exchange->missing(1).empty());
  // Of others' ends it hears on their boards.
  world[1].exchange->end(3, 1);
  EXPECT_EQ(world[1].exchange->missing(1).to_give, std::vector<uint32_t>{3});
}

TEST(BoardExchange, NoSectionIsItsOwn) {
  BoardWorld world(2, 8, SumType::kF32);
  Section section;
  section.header.kind = SectionKind::kDenseReduce;
  section.header.step = 1;
  EXPECT_FALSE(world[0].exchange->on_section(1, section));
}

}  // namespace
}  // namespace parallax
