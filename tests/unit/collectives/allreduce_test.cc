// SPDX-License-Identifier: Apache-2.0
// Every builder for every world of 1 to 64 ranks and several layouts, run on symbols: each rank
// ends with each contribution exactly once, and the owners have what they say.
#include "collectives/allreduce.h"

#include <gtest/gtest.h>

#include <bit>
#include <memory>
#include <ostream>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/seeded_random.h"
#include "collectives/schedule_wiring.h"
#include "support/host_map_of.h"
#include "support/sanitizers.h"
#include "support/slot_maps.h"
#include "unit/collectives/layouts.h"
#include "unit/collectives/symbolic_run.h"

namespace parallax::schedules {
namespace {

struct Builder {
  const char* name;
  Schedule (*build)(const AllreduceShape& shape);
  bool ordered;      // it can keep an order
  bool kept = true;  // owners alone may have the sum
  bool by_domains = false;
  // Of it a layout is one of domains, on one host.
  HostMap map(const std::vector<uint32_t>& layout) const {
    return by_domains ? testkit::map_of_domains(layout) : testkit::host_map(layout);
  }
};

// As test listings show it.
std::ostream& operator<<(std::ostream& out, const Builder& builder) { return out << builder.name; }

constexpr Builder kBuilders[] = {
    {"direct", allreduce_direct, true},
    {"tree", allreduce_tree, false},
    {"ring", allreduce_ring, false},
    {"oneshot", allreduce_oneshot, true, false},
    {"halving", allreduce_halving, false, false},
    {"levels", allreduce_levels, false, true, true},
};

// A world of schedules that has been run.
struct Proof {
  Proof(const Builder& builder, const HostMap& hosts, uint64_t elements, bool ordered,
        bool returned, std::vector<double> numbers)
      : partition(elements, 1, false,
                  testkit::a_slot_each(static_cast<uint32_t>(hosts.host_of.size())), 3) {
    std::vector<Schedule> schedules;
    for (uint32_t rank = 0; rank < hosts.host_of.size(); ++rank) {
      const Columns columns(hosts, rank);
      schedules.push_back(builder.build({.columns = columns,
                                         .partition = partition,
                                         .variable = 3,
                                         .ordered = ordered,
                                         .returned = returned}));
      owned.push_back(schedules.back().owned);
    }
    run = std::make_unique<SymbolicRun>(std::move(schedules), elements, std::move(numbers));
    wrong = run->run();
  }

  Partition partition;
  std::vector<Range> owned;
  std::unique_ptr<SymbolicRun> run;
  std::string wrong;
};

void expect_each_once(const Value* value, uint32_t world, const std::string& what) {
  ASSERT_NE(value, nullptr) << what;
  EXPECT_EQ(value->times, std::vector<uint8_t>(world, 1)) << what;
}

void prove(const Builder& builder, const std::vector<uint32_t>& layout, uint64_t elements,
           bool ordered, bool returned) {
  const auto world = static_cast<uint32_t>(layout.size());
  SCOPED_TRACE(std::string(builder.name) + ", world " + std::to_string(world) + ", " +
               std::to_string(elements) + " elements" + (ordered ? ", ordered" : "") +
               (returned ? "" : ", kept by the owners"));
  const HostMap hosts = builder.map(layout);
  const Proof proof(builder, hosts, elements, ordered, returned, std::vector<double>(world, 1));
  ASSERT_EQ(proof.wrong, "");
  uint64_t owned = 0;
  for (uint32_t rank = 0; rank < world; ++rank) {
    const Range& range = proof.owned[rank];
    owned += range.count;
    for (const uint64_t start : proof.run->starts()) {
      const std::string what =
          "rank " + std::to_string(rank) + ", element " + std::to_string(start);
      if (returned) {
        expect_each_once(proof.run->result(rank, start), world, what);
      } else {
        EXPECT_EQ(proof.run->result(rank, start), nullptr) << what;
      }
      if (start >= range.first && start < range.end()) {
        expect_each_once(proof.run->total(rank, start), world, what + ", owned");
      }
    }
    if (testing::Test::HasFailure()) return;
  }
  EXPECT_EQ(owned, elements);
}

class Allreduce : public testing::TestWithParam<Builder> {};

// Given every world and layout, a variable with a range for each rank, one with fewer blocks than
// ranks and one of an element, expect each contribution once, everywhere or at the owners.
TEST_P(Allreduce, EveryRankEndsWithEachContributionOnce) {
  for (uint32_t world = 1; world <= 64; ++world) {
    if (skipped(world)) continue;
    for (const std::vector<uint32_t>& layout : layouts(world)) {
      for (const uint64_t elements : {uint64_t{1}, uint64_t{700}, 256 * uint64_t{world} + 17}) {
        const bool returned = !GetParam().kept || (world + elements) % 3 != 0;
        prove(GetParam(), layout, elements, false, returned);
        if (GetParam().ordered) prove(GetParam(), layout, elements, true, returned);
        if (HasFailure()) return;
      }
    }
  }
}

// Given numbers whose sum depends on the order, expect that of ranks in a host, then of hosts.
TEST_P(Allreduce, OrderedSumsKeepTheirOrder) {
  if (!GetParam().ordered) GTEST_SKIP() << "it follows another order";
  SeededRandom random(7);
  for (const uint32_t world : {1u, 2u, 5u, 8u, 13u, 24u}) {
    for (const std::vector<uint32_t>& layout : layouts(world)) {
      const HostMap hosts = testkit::host_map(layout);
      std::vector<double> numbers(world);
      for (double& number : numbers) number = random.unit() - 0.5;
      double naive = 0;
      for (const std::vector<uint32_t>& ranks : hosts.ranks_of) {
        double of_host = 0;
        for (const uint32_t rank : ranks) of_host += numbers[rank];
        naive += of_host;
      }
      const Proof proof(GetParam(), hosts, 3000, true, true, numbers);
      ASSERT_EQ(proof.wrong, "");
      for (uint32_t rank = 0; rank < world; ++rank) {
        for (const uint64_t start : proof.run->starts()) {
          const double got = proof.run->result(rank, start)->number;
          ASSERT_EQ(std::bit_cast<uint64_t>(got), std::bit_cast<uint64_t>(naive))
              << "world " << world << ", rank " << rank << ", element " << start;
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Builders, Allreduce, testing::ValuesIn(kBuilders),
                         [](const auto& info) { return std::string(info.param.name); });

// Given hosts that contribute through the leaders of their columns, expect of each host the leader
// of the owner's column, once, at every rank and at the owner.
TEST(AllreduceDirect, HostsContributeOnce) {
  for (const uint32_t world : {1u, 2u, 5u, 8u, 24u}) {
    for (const std::vector<uint32_t>& layout : layouts(world)) {
      const HostMap hosts = testkit::host_map(layout);
      const Partition partition(3000, 2, true, testkit::a_slot_each(world), 3);
      std::vector<Schedule> schedules;
      for (uint32_t rank = 0; rank < world; ++rank) {
        const Columns columns(hosts, rank);
        schedules.push_back(allreduce_direct({.columns = columns,
                                              .partition = partition,
                                              .variable = 3,
                                              .ordered = world % 2 == 0,
                                              .of_hosts = true}));
        for (const Op& op : schedules.back().ops) EXPECT_FALSE(op.ends_with_step);
      }
      SymbolicRun run(std::move(schedules), partition.elements(), std::vector<double>(world, 1));
      ASSERT_EQ(run.run(), "") << "world " << world;
      const Columns columns(hosts, 0);
      for (uint32_t owner = 0; owner < world; ++owner) {
        std::vector<uint8_t> leaders(world);
        for (uint32_t host = 0; host < columns.host_count(); ++host) {
          leaders[columns.leader(host, columns.column_of(owner))] = 1;
        }
        const uint64_t element = partition.range_of(owner).first;
        for (uint32_t rank = 0; rank < world; ++rank) {
          ASSERT_NE(run.result(rank, element), nullptr);
          EXPECT_EQ(run.result(rank, element)->times, leaders) << "owner " << owner;
        }
        EXPECT_EQ(run.total(owner, element)->times, leaders);
      }
    }
  }
}

// Given one host, expect nothing to be sent that a rank could keep: each range goes once to its
// owner from everybody else, and once back.
TEST(AllreduceDirect, OneHostHasNoSecondLeg) {
  for (const uint32_t world : {1u, 2u, 4u, 7u}) {
    const Proof proof(kBuilders[0], testkit::host_map(std::vector<uint32_t>(world, 0)), 4096, false,
                      true, std::vector<double>(world, 1));
    ASSERT_EQ(proof.wrong, "");
    EXPECT_EQ(proof.run->messages(), uint64_t{2} * world * (world - 1));
  }
}

// Given four domains of four ranks, expect of each range one sum of each other domain to cross, and
// one total to each.
TEST(AllreduceLevels, ADomainsSumCrossesOnce) {
  std::vector<uint32_t> domains(16);
  for (uint32_t rank = 0; rank < 16; ++rank) domains[rank] = rank % 4;
  const HostMap hosts = testkit::map_of_domains(domains);
  const Partition partition(256 * 16, 1, false, testkit::a_slot_each(16), 3);
  const auto crossing = [&](Schedule (*build)(const AllreduceShape&)) {
    uint64_t elements = 0;
    for (uint32_t rank = 0; rank < 16; ++rank) {
      const Columns columns(hosts, rank);
      for (const Op& op : build({.columns = columns, .partition = partition}).ops) {
        if (op.kind == OpKind::kSend && domains[op.peer] != domains[rank]) {
          elements += op.range.count;
        }
      }
    }
    return elements;
  };
  EXPECT_EQ(crossing(allreduce_levels), 2 * 3 * partition.elements());
  EXPECT_EQ(crossing(allreduce_direct), 2 * 12 * partition.elements());
}

// Given a ring, expect each range to take one hop fewer than there are ranks, twice.
TEST(AllreduceRing, EachRangeGoesRoundTwice) {
  for (const uint32_t world : {2u, 3u, 9u}) {
    const Proof proof(kBuilders[2], testkit::host_map(std::vector<uint32_t>(world, 0)), 256 * world,
                      false, true, std::vector<double>(world, 1));
    ASSERT_EQ(proof.wrong, "");
    EXPECT_EQ(proof.run->messages(), uint64_t{2} * world * (world - 1));
  }
}

// Given one shot, expect a message from each rank to each other and none after it.
TEST(AllreduceOneshot, EveryRankTellsEveryOtherOnce) {
  for (const uint32_t world : {1u, 2u, 5u}) {
    const Proof proof(kBuilders[3], testkit::host_map(std::vector<uint32_t>(world, 0)), 2500, false,
                      true, std::vector<double>(world, 1));
    ASSERT_EQ(proof.wrong, "");
    EXPECT_EQ(proof.run->messages(), uint64_t{world} * (world - 1));
  }
}

// Given a power of two of hosts and of others, expect as many elements to come as an owner of them
// all would get, and each leader to talk to one host a round.
TEST(AllreduceHalving, HostsTalkToOneAnotherOnceARound) {
  for (const uint32_t world : {1u, 2u, 8u, 11u, 16u, 23u}) {
    std::vector<uint32_t> layout(world);
    for (uint32_t rank = 0; rank < world; ++rank) layout[rank] = rank;
    const HostMap hosts = testkit::host_map(layout);
    const Partition partition(256 * uint64_t{world}, 1, false, testkit::a_slot_each(world), 3);
    const uint32_t places = std::bit_floor(world);
    uint64_t received = 0;
    for (uint32_t rank = 0; rank < world; ++rank) {
      const Columns columns(hosts, rank);
      std::set<uint32_t> peers;
      for (const Op& op : allreduce_halving({.columns = columns, .partition = partition}).ops) {
        if (op.kind == OpKind::kSend) peers.insert(op.peer);
        if (is_receive(op)) received += op.range.count;
      }
      const uint32_t with_extra = rank < world - places ? 1 : 0;
      const auto rounds = static_cast<uint32_t>(std::countr_zero(places));
      EXPECT_EQ(peers.size(), rank < places ? rounds + with_extra : 1);
    }
    const uint64_t all = partition.elements();
    EXPECT_EQ(received, 2 * (places - 1) * all + 2 * (world - places) * all);
  }
}

}  // namespace
}  // namespace parallax::schedules
