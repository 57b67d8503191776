// SPDX-License-Identifier: Apache-2.0
#include "world/host_map.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

namespace parallax {
namespace {

using Names = std::vector<std::string>;
using Ranks = std::vector<uint32_t>;

TEST(Hosts, NoRanks) { EXPECT_EQ(map_hosts(Names{}), HostMap{}); }

TEST(Hosts, OneRank) {
  const HostMap map = map_hosts(Names{"a"});
  EXPECT_EQ(map.names, Names{"a"});
  EXPECT_EQ(map.host_of, Ranks{0});
  EXPECT_EQ(map.local_of, Ranks{0});
  EXPECT_EQ(map.ranks_of, std::vector<Ranks>{{0}});
}

TEST(Hosts, BlocksOfRanks) {
  const HostMap map = map_hosts(Names{"a", "a", "b", "b"});
  EXPECT_EQ(map.host_of, (Ranks{0, 0, 1, 1}));
  EXPECT_EQ(map.local_of, (Ranks{0, 1, 0, 1}));
}

TEST(Hosts, InterleavedRanks) {
  const HostMap map = map_hosts(Names{"b", "a", "b", "a", "b", "a"});
  EXPECT_EQ(map.names, (Names{"b", "a"})) << "by first appearance, not by name";
  EXPECT_EQ(map.host_of, (Ranks{0, 1, 0, 1, 0, 1}));
  EXPECT_EQ(map.local_of, (Ranks{0, 0, 1, 1, 2, 2}));
  EXPECT_EQ(map.ranks_of, (std::vector<Ranks>{{0, 2, 4}, {1, 3, 5}}));
}

TEST(Hosts, UnevenHosts) {
  const HostMap map = map_hosts(Names{"a", "b", "b", "c", "a", "b"});
  EXPECT_EQ(map.host_of, (Ranks{0, 1, 1, 2, 0, 1}));
  EXPECT_EQ(map.local_of, (Ranks{0, 0, 1, 0, 1, 2}));
  EXPECT_EQ(map.ranks_of, (std::vector<Ranks>{{0, 4}, {1, 2, 5}, {3}}));
}

TEST(Hosts, NamesAreComparedWhole) {
  const HostMap map = map_hosts(Names{"gpu1", "gpu10", "", "gpu1", ""});
  EXPECT_EQ(map.names, (Names{"gpu1", "gpu10", ""}));
  EXPECT_EQ(map.host_of, (Ranks{0, 1, 2, 0, 2}));
}

constexpr uint32_t kUnknown = NearMemory::kUnknown;

// Given ranks on several NUMA nodes of a host, expect these to be its domains; on one node, its
// caches; and where a rank may run anywhere, one.
TEST(Hosts, DomainsAreNodesElseCaches) {
  HostMap map = map_hosts(Names{"a", "a", "a", "a", "b", "b", "c", "c"});
  set_domains(&map, std::vector<NearMemory>{
                        {3, 6}, {1, 2}, {3, 7}, {1, 2}, {0, 5}, {0, 4}, {0, 0}, {1, kUnknown}});
  EXPECT_EQ(map.domain_of, (Ranks{0, 1, 0, 1, 0, 1, 0, 1}));
  EXPECT_EQ(domain_count(map, 0), 2u);
  const HostMap apart = domains_as_hosts(map);
  EXPECT_EQ(apart.ranks_of, (std::vector<Ranks>{{0, 2}, {1, 3}, {4}, {5}, {6}, {7}}));
  set_domains(
      &map,
      std::vector<NearMemory>{
          {0, 0}, {1, 1}, {kUnknown, kUnknown}, {1, 1}, {0, 3}, {0, 3}, {0, 0}, {0, kUnknown}});
  EXPECT_TRUE(map.domain_of.empty());
  EXPECT_EQ(domain_count(map, 0), 1u);
  EXPECT_EQ(domains_as_hosts(map), map);
}

// Given a part of a job, expect its ranks to lie where they lay.
TEST(Hosts, PartsKeepTheirDomains) {
  HostMap map = map_hosts(Names{"a", "a", "a", "a"});
  set_domains(&map, std::vector<NearMemory>{{0, 0}, {0, 0}, {1, 1}, {2, 2}});
  EXPECT_EQ(part_of(map, Ranks{3, 2, 1}).domain_of, (Ranks{0, 1, 2}));
  EXPECT_TRUE(part_of(map, Ranks{1, 0}).domain_of.empty());
}

// Given any names, expect the three tables to agree with each other and with the names.
TEST(Hosts, TablesAgreeForEveryWorldSize) {
  std::mt19937 random(1);
  for (uint32_t world = 1; world <= 64; ++world) {
    Names names;
    for (uint32_t rank = 0; rank < world; ++rank) {
      names.push_back("host" + std::to_string(random() % (1 + world / 3)));
    }
    const HostMap map = map_hosts(names);
    ASSERT_EQ(map.host_of.size(), world);
    ASSERT_EQ(map.local_of.size(), world);
    ASSERT_EQ(map.names.size(), map.ranks_of.size());
    uint32_t counted = 0;
    uint32_t first_before = 0;
    for (uint32_t host = 0; host < map.ranks_of.size(); ++host) {
      const Ranks& ranks = map.ranks_of[host];
      ASSERT_FALSE(ranks.empty());
      EXPECT_TRUE(std::is_sorted(ranks.begin(), ranks.end()));
      EXPECT_TRUE(host == 0 || ranks[0] > first_before) << "world " << world;
      first_before = ranks[0];
      counted += static_cast<uint32_t>(ranks.size());
      for (uint32_t local = 0; local < ranks.size(); ++local) {
        EXPECT_EQ(map.host_of[ranks[local]], host);
        EXPECT_EQ(map.local_of[ranks[local]], local);
        EXPECT_EQ(names[ranks[local]], map.names[host]);
      }
    }
    EXPECT_EQ(counted, world);
  }
}

TEST(Hosts, RanksAreNamedWithTheirHost) {
  const HostMap map = map_hosts(Names{"a", "b", "a", "b", "a", "c"});
  EXPECT_EQ(rank_name(map, 1), "rank 1 (host b)");
  EXPECT_EQ(rank_name(map, 6), "rank 6") << "of no rank of the job: a peer's number";
  EXPECT_EQ(rank_names(map, Ranks{}), "");
  EXPECT_EQ(rank_names(map, Ranks{5}), "rank 5 (host c)");
  EXPECT_EQ(rank_names(map, Ranks{0, 1}), "rank 0 (host a), rank 1 (host b)");
  EXPECT_EQ(rank_names(map, Ranks{0, 1, 2, 3, 4, 5}),
            "rank 0 (host a), rank 1 (host b), rank 2 (host a), rank 3 (host b) and 2 more");
}

}  // namespace
}  // namespace parallax
