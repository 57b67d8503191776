// SPDX-License-Identifier: Apache-2.0
// The way back of rows: what travels when most owners have none. That it is right is asked by the
// conformance suite (row_exchange_test.cc).
#include "collectives/returned_rows.h"

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "collectives/row_exchange.h"
#include "collectives/schedule.h"
#include "unit/collectives/exchange_conformance.h"

namespace parallax::exchange_conformance {
namespace {

constexpr uint32_t kHosts = 12;
constexpr uint32_t kGivers = 2;

Candidate reduce_rows(uint32_t marker_hosts_max) {
  return {.make =
              [=](const Columns& columns, const Partition& partition, Outbox& outbox,
                  Compute& compute, ExchangeOptions options) {
                options.method = Method::kReduceRows;
                options.marker_hosts_max = marker_hosts_max;
                return std::make_unique<RowExchange>(columns, partition, outbox, compute, options,
                                                     row_algorithm_for(options.method));
              },
          .rows = true,
          .shapes = {{64, 3, 3}}};
}

Setting setting_of(const Candidate& candidate) {
  Setting setting = {.shape = candidate.shapes[0]};
  setting.hosts.clear();
  for (uint32_t rank = 0; rank < 2 * kHosts; ++rank) setting.hosts.push_back(rank / 2);
  return setting;
}

// Few ranks of twelve hosts give a few rows.
Contributions few_rows(ExchangeWorld& world) {
  Contributions contributions = draw_contributions(world.setting(), {}, world.random());
  for (uint32_t rank = kGivers; rank < world.size(); ++rank) contributions[rank] = {};
  return contributions;
}

// The sections of such a step.
std::vector<Parcel> sparse_step(uint32_t marker_hosts_max) {
  const Candidate candidate = reduce_rows(marker_hosts_max);
  ExchangeWorld world(candidate, setting_of(candidate));
  const Contributions contributions = few_rows(world);
  std::vector<Parcel> arrivals;
  world.tap([&](const Parcel& parcel) { arrivals.push_back(parcel); });
  run_step(world, 1, contributions);
  check_step(world, candidate, 1, contributions);
  return arrivals;
}

// Given few hosts, expect those who have no rows to say so: a section of every owner that has some
// or none to every host.
TEST(ReturnedRows, AmongFewHostsWhoHasNoneSaysSo) {
  std::set<uint32_t> senders;
  uint64_t empty = 0;
  for (const Parcel& parcel : sparse_step(kMarkerHostsMax)) {
    if (parcel.header.kind != SectionKind::kHostGather) continue;
    senders.insert(parcel.from);
    empty += parcel.header.count == 0 ? 1 : 0;
  }
  EXPECT_EQ(senders.size(), 2 * kHosts);
  EXPECT_GT(empty, 0u);
}

// Given many hosts, expect no section without rows but those of the census, of which each rank
// sends and gets one for each column, and no word between hosts without rows for each other.
TEST(ReturnedRows, AmongManyHostsWhoHasNoneIsSilent) {
  std::map<SectionKind, uint64_t> sections;
  std::set<uint32_t> owners_reached, senders_back;
  for (const Parcel& parcel : sparse_step(0)) {
    ++sections[parcel.header.kind];
    const bool between_hosts = parcel.header.kind == SectionKind::kHostReduce ||
                               parcel.header.kind == SectionKind::kHostGather;
    EXPECT_TRUE(!between_hosts || parcel.header.count > 0);
    if (parcel.header.kind == SectionKind::kHostReduce) owners_reached.insert(parcel.to);
    if (parcel.header.kind == SectionKind::kHostGather) senders_back.insert(parcel.from);
  }
  EXPECT_GT(owners_reached.size(), 0u);
  EXPECT_LE(owners_reached.size(), 3 * kGivers);
  EXPECT_EQ(senders_back, owners_reached);
  EXPECT_EQ(sections[SectionKind::kArrived], sections[SectionKind::kHostReduce]);
  // Of two stages in each of two columns; the answers of the second go to both ranks of a host.
  EXPECT_EQ(sections[SectionKind::kCensusUp], 2 * 2 * (kHosts - 1));
  EXPECT_EQ(sections[SectionKind::kCensusDown], 2 * (kHosts - 1) + 2 * (2 * kHosts - 1));
}

// Given a rank that hands back more rows than there may be, expect one whose own are still to come
// to say that something does not fit, and to write none behind its buffer's end.
TEST(ReturnedRows, ItsOwnAreTakenWhereThereIsRoom) {
  const Candidate candidate = reduce_rows(kMarkerHostsMax);
  Setting setting = setting_of(candidate);
  setting.hosts = {0, 0};
  ExchangeWorld world(candidate, setting);
  world.expect_anything();
  const auto rows = static_cast<uint32_t>(2 * setting.shape.rows_max);
  uint32_t theirs = 0;
  while (world.partition().owner_of(theirs) != 1) ++theirs;
  Parcel all = {.from = 1, .to = 0};
  all.header.kind = SectionKind::kLocalBroadcast;
  all.header.encoding = Encoding::kRows;
  all.header.step = 1;
  all.header.first = uint64_t{1} << 32;
  all.header.count = rows;
  all.bytes.resize(1 + rows * (1 + world.partition().row_elements()) * sizeof(float));
  for (uint32_t i = 0; i < rows; ++i) {
    std::memcpy(&all.bytes[1 + i * sizeof theirs], &theirs, sizeof theirs);
  }
  ASSERT_TRUE(world.inject(all));
  run_step(world, 1, draw_contributions(setting, {}, world.random()));
  EXPECT_EQ(world.misfits(), std::vector<uint32_t>{0});
  EXPECT_FALSE(world.exchange(0).state(1).delivered);
}

// Given a rank that was not told who sends, expect it to miss who should have told it, and none of
// the owners that have nothing to send.
TEST(ReturnedRows, WhoIsSilentIsNotToBlame) {
  const Candidate candidate = reduce_rows(0);
  for (uint32_t behind = 0; behind < 2 * kHosts; ++behind) {
    ExchangeWorld world(candidate, setting_of(candidate));
    std::set<uint32_t> tellers;
    world.hold([&](const Parcel& parcel) {
      const bool held = parcel.header.kind == SectionKind::kCensusDown &&
                        parcel.header.part == kGatherStage && parcel.to == behind;
      if (held) tellers.insert(parcel.from);
      return held;
    });
    const Contributions contributions = few_rows(world);
    run_step(world, 1, contributions);
    EXPECT_FALSE(world.exchange(behind).state(1).delivered);
    const MissingRanks missing = world.exchange(behind).missing(1);
    const std::vector<uint32_t>& missed = missing.to_tell;
    EXPECT_TRUE(missing.to_give.empty() && missing.to_return.empty());
    EXPECT_EQ(std::set<uint32_t>(missed.begin(), missed.end()), tellers);
    world.hold(nullptr);
    world.run();
    check_step(world, candidate, 1, contributions);
  }
}

// Given a rank that gives nothing and does not end the step, expect the leaders of its host to say
// so of it, and nobody to say it of a rank that has given all: the others wait for somebody's word.
TEST(ReturnedRows, WhoWaitsForAnotherIsNotSaidToGiveNothing) {
  const Candidate candidate = reduce_rows(0);
  for (const uint32_t late : {0u, 1u, 2 * kHosts - 1}) {
    ExchangeWorld world(candidate, setting_of(candidate));
    for (uint32_t rank = 0; rank < world.size(); ++rank) {
      if (rank != late) world.end(rank, 1);
    }
    world.run();
    for (uint32_t rank = 0; rank < world.size(); ++rank) {
      SCOPED_TRACE("rank " + std::to_string(rank) + ", late " + std::to_string(late));
      const MissingRanks missing = world.exchange(rank).missing(1);
      const bool beside = rank / 2 == late / 2;
      EXPECT_EQ(missing.to_give, beside ? std::vector<uint32_t>{late} : std::vector<uint32_t>());
      EXPECT_TRUE(missing.to_return.empty());
      EXPECT_EQ(missing.to_tell.empty(), beside);
    }
  }
}

}  // namespace
}  // namespace parallax::exchange_conformance
