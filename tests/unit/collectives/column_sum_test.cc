// SPDX-License-Identifier: Apache-2.0
// Rows summed in each domain of memory before they go to the leaders of columns: what crosses
// between domains, who is waited for, and what is not believed. (That sums are right: the
// conformance suite of exchanges, in whose worlds ranks lie in domains by chance.)
#include "collectives/column_sum.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "collectives/row_exchange.h"
#include "unit/collectives/exchange_conformance.h"

namespace parallax::exchange_conformance {
namespace {

using Pair = std::pair<uint32_t, uint32_t>;

Candidate rows_by(Method method) {
  return {.make =
              [method](const Columns& columns, const Partition& partition, Outbox& outbox,
                       Compute& compute, ExchangeOptions options) {
                options.method = method;
                return std::make_unique<RowExchange>(columns, partition, outbox, compute, options,
                                                     row_algorithm_for(method));
              },
          .rows = true,
          .delivers = method != Method::kPushPull};
}

// Six ranks in two domains, by a seed by which three lie in each.
constexpr uint32_t kRanks = 6;
Setting in_domains(bool ordered, bool staged, const Shape& shape = {24, 3, 24}) {
  Setting setting = {.hosts = std::vector<uint32_t>(kRanks),
                     .shape = shape,
                     .ordered = ordered,
                     .variable = 3,
                     .message_bytes_max = 65536,
                     .seed = 38,
                     .lends = false,
                     .staged = staged,
                     .all_staged = staged,
                     .rows_stay = true,
                     .arrives = false,
                     .domains = 2};
  return setting;
}

// Of which there are so many, if the seed is right.
uint32_t ranks_of_first_domain(const ExchangeWorld& world) {
  const auto& domains = world.hosts().domain_of;
  return static_cast<uint32_t>(std::count(domains.begin(), domains.end(), 0u));
}

uint32_t domain_of(const ExchangeWorld& world, uint32_t rank) {
  return world.hosts().domain_of[rank];
}

void all_give(ExchangeWorld& world, const Contributions& gifts, uint32_t but = kNoRank) {
  for (uint32_t rank = 0; rank < world.size(); ++rank) {
    if (rank == but) continue;
    world.contribute(rank, 1, gifts[rank]);
    world.end(rank, 1);
  }
  world.run();
}

// Given more rows than are distinct, expect each leader to hear of another domain from one rank,
// fewer rows to cross than without, and nothing of that where sums have an order.
TEST(ColumnSum, ADomainsRowsCrossOnceSummed) {
  for (const bool staged : {false, true}) {
    std::vector<uint64_t> crossed;
    for (const bool ordered : {false, true}) {
      ExchangeWorld world(rows_by(Method::kPushPull), in_domains(ordered, staged));
      ASSERT_EQ(ranks_of_first_domain(world), kRanks / 2);
      const Contributions gifts = draw_contributions(world.setting(), {}, world.random());
      std::set<Pair> across;
      uint64_t& rows = crossed.emplace_back(0);
      world.tap([&](const Parcel& parcel) {
        if (parcel.header.kind != SectionKind::kLocalReduce ||
            domain_of(world, parcel.from) == domain_of(world, parcel.to)) {
          return;
        }
        across.insert({domain_of(world, parcel.from), parcel.to});
        EXPECT_TRUE(ordered || parcel.header.encoding == Encoding::kRows);
        if (parcel.header.encoding == Encoding::kRows) rows += parcel.header.count;
        StagedNote note;
        if (parcel.header.encoding != Encoding::kBytes) return;
        std::memcpy(&note, parcel.payload().data(), sizeof note);
        rows += note.count;
      });
      all_give(world, gifts);
      check_step(world, rows_by(Method::kPushPull), 1, gifts);
      EXPECT_EQ(across.size(), kRanks) << "each leader hears of one other domain";
    }
    EXPECT_LT(crossed[0], crossed[1] * 3 / 4);
  }
}

// Given a rank that is late, expect who sums its domain to wait for it to give, and leaders in
// other domains for the one who sums.
TEST(ColumnSum, OfAnotherDomainWhoSumsItIsWaitedFor) {
  ExchangeWorld world(rows_by(Method::kPushPull), in_domains(false, false));
  const Contributions gifts = draw_contributions(world.setting(), {}, world.random());
  constexpr uint32_t kLate = 1;
  all_give(world, gifts, kLate);
  for (uint32_t rank = 0; rank < kRanks; ++rank) {
    const MissingRanks missing = world.exchange(rank).missing(1);
    if (domain_of(world, rank) == domain_of(world, kLate)) {
      EXPECT_EQ(missing.to_give, std::vector<uint32_t>{kLate});
      continue;
    }
    EXPECT_TRUE(missing.to_give.empty());
    ASSERT_EQ(missing.to_return.size(), 1u);
    EXPECT_EQ(domain_of(world, missing.to_return[0]), domain_of(world, kLate));
    EXPECT_FALSE(world.exchange(rank).state(1).reduced);
  }
  world.contribute(kLate, 1, gifts[kLate]);
  world.end(kLate, 1);
  world.run();
  check_step(world, rows_by(Method::kPushPull), 1, gifts);
}

// Given so much that a domain's rows are read in turns, and in one turn of two steps, expect every
// sum; and what is counted of a step counted by the time that it is said to be summed.
TEST(ColumnSum, ADomainsRowsAreReadInTurns) {
  const Candidate candidate = rows_by(Method::kPushPull);
  ExchangeWorld world(candidate, in_domains(false, true, {64, 12000, 24}));
  std::vector<Contributions> gifts;
  for (const uint64_t step : {1u, 2u}) {
    gifts.push_back(draw_contributions(world.setting(), {}, world.random()));
    for (uint32_t rank = 0; rank < kRanks; ++rank) {
      world.contribute(rank, step, gifts.back()[rank]);
      world.end(rank, step);
    }
  }
  std::vector<uint64_t> counted(kRanks, UINT64_MAX);
  bool in_turns = false;
  for (int i = 0; i < 200000; ++i) {
    world.wander(1);
    for (uint32_t rank = 0; rank < kRanks; ++rank) {
      in_turns |= world.lending_of(rank).to_read();
      if (counted[rank] != UINT64_MAX || !world.exchange(rank).state(1).reduced) continue;
      counted[rank] = world.exchange(rank).counts(1).given_rows;
    }
  }
  world.run();
  EXPECT_TRUE(in_turns);
  for (uint32_t rank = 0; rank < kRanks; ++rank) {
    EXPECT_EQ(counted[rank], world.exchange(rank).counts(1).given_rows) << "rank " << rank;
  }
  check_step(world, candidate, 1, gifts[0]);
  check_step(world, candidate, 2, gifts[1]);
}

// Given a rank whose rows another sums for their domain, and whose memory is gone before they are
// read, or has a row key that is none, expect nothing summed where they belong, and blame for the
// latter alone.
TEST(ColumnSum, OfADomainWhoIsGoneIsNotRead) {
  constexpr uint32_t kSums = 0, kGives = 3, kLast = 4, kLeads = 1;
  const Candidate candidate = rows_by(Method::kPushPull);
  for (const bool gone : {true, false}) {
    ExchangeWorld world(candidate, in_domains(false, true));
    ASSERT_EQ(domain_of(world, kSums), domain_of(world, kGives));
    ASSERT_EQ(domain_of(world, kSums), domain_of(world, kLast));
    ASSERT_NE(domain_of(world, kSums), domain_of(world, kLeads));
    StagedNote note;
    world.tap([&](const Parcel& parcel) {
      if (parcel.from != kGives || parcel.to != kSums || parcel.header.first >> 32 != kLeads ||
          parcel.header.kind != SectionKind::kLocalReduce) {
        return;
      }
      std::memcpy(&note, parcel.payload().data(), sizeof note);
    });
    const Contributions gifts = draw_contributions(world.setting(), {}, world.random());
    all_give(world, gifts, kLast);
    ASSERT_GT(note.count, 0u);
    if (gone) {
      world.unmap(kSums, kGives);
    } else {
      const size_t at = note.rows * 3 * sizeof(float) + note.first * sizeof(uint32_t);
      std::memset(world.staged_of(kGives, 1).data() + at, 0xff, sizeof(uint32_t));
    }
    world.contribute(kLast, 1, gifts[kLast]);
    world.end(kLast, 1);
    world.run();
    EXPECT_FALSE(world.exchange(kSums).state(1).reduced);
    EXPECT_FALSE(world.exchange(kLeads).state(1).reduced);
    EXPECT_EQ(world.misfits(), gone ? std::vector<uint32_t>() : std::vector<uint32_t>{kGives});
  }
}

// Given a note in place of a domain's sum, rows of one of a domain whom another sums for, or of a
// column that is not summed here, expect none taken.
TEST(ColumnSum, WhatDoesNotFitADomainIsRefused) {
  ExchangeWorld world(rows_by(Method::kReduceRows), in_domains(false, true));
  world.expect_anything();
  const Contributions gifts = draw_contributions(world.setting(), {}, world.random());
  uint32_t tried = 0;
  world.tap([&](const Parcel& parcel) {
    if (parcel.header.kind != SectionKind::kLocalReduce) return;
    const bool crosses = domain_of(world, parcel.from) != domain_of(world, parcel.to);
    for (uint32_t rank = 0; rank < kRanks; ++rank) {
      Parcel other = parcel;
      other.from = rank;
      other.header.encoding = Encoding::kRows;
      other.header.count = 0;
      other.bytes.resize(1);
      if (rank == parcel.from) {
        // Which may be a column of its own that is summed there, but not this one.
        other.header.first = uint64_t{kRanks} << 32;
      } else if (!crosses || domain_of(world, rank) != domain_of(world, parcel.from)) {
        continue;
      }
      ++tried;
      EXPECT_FALSE(world.inject(other));
    }
    if (!crosses) return;
    Parcel note = parcel;
    note.header.encoding = Encoding::kBytes;
    note.header.count = sizeof(StagedNote);
    note.bytes.resize(1 + sizeof(StagedNote));
    ++tried;
    EXPECT_FALSE(world.inject(note));
  });
  all_give(world, gifts);
  check_step(world, rows_by(Method::kReduceRows), 1, gifts);
  EXPECT_GT(tried, 20u);
}

}  // namespace
}  // namespace parallax::exchange_conformance
