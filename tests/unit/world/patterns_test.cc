// SPDX-License-Identifier: Apache-2.0
// Peer arithmetic for every world size 1..64 on many layouts of hosts.
#include "world/patterns.h"

#include <gtest/gtest.h>

#include <functional>
#include <queue>
#include <random>
#include <set>
#include <string>

namespace parallax {
namespace {

HostMap hosts_by(uint32_t world, const std::function<uint64_t(uint32_t)>& host_of) {
  std::vector<std::string> names;
  for (uint32_t rank = 0; rank < world; ++rank) names.push_back(std::to_string(host_of(rank)));
  return map_hosts(names);
}

void for_every_layout(const std::function<void(const HostMap&)>& check) {
  std::mt19937 random(3);
  for (uint32_t world = 1; world <= 64; ++world) {
    std::vector<HostMap> maps;
    for (const uint32_t per_host : {1u, 2u, 3u, 4u, 8u, 64u}) {
      maps.push_back(hosts_by(world, [=](uint32_t rank) { return rank / per_host; }));
      maps.push_back(hosts_by(world, [=](uint32_t rank) { return rank % per_host; }));
    }
    maps.push_back(hosts_by(world, [](uint32_t rank) { return rank == 0 ? 0 : 1; }));
    maps.push_back(hosts_by(world, [=](uint32_t rank) { return rank + 1 == world ? 1 : 0; }));
    for (int i = 0; i < 4; ++i) {
      maps.push_back(hosts_by(world, [&](uint32_t) { return random() % (1 + random() % world); }));
    }
    for (const HostMap& map : maps) {
      check(map);
      if (testing::Test::HasFailure()) {
        std::string layout;
        for (const uint32_t host : map.host_of) layout += std::to_string(host) + ",";
        FAIL() << "hosts by rank: " << layout;
      }
    }
  }
}

TEST(Columns, EveryOwnerIsInOneColumnWithALeaderOnEveryHost) {
  for_every_layout([](const HostMap& map) {
    const auto world = static_cast<uint32_t>(map.host_of.size());
    const Columns first(map, 0);
    size_t least = world;
    for (const auto& ranks : map.ranks_of) least = std::min(least, ranks.size());
    ASSERT_EQ(first.count(), least) << "the least number of ranks on any host";
    std::vector<uint32_t> seen(world);
    for (uint32_t column = 0; column < first.count(); ++column) {
      ASSERT_FALSE(first.owners(column).empty());
      for (size_t i = 0; i < first.owners(column).size(); ++i) {
        const uint32_t owner = first.owners(column)[i];
        ++seen[owner];
        ASSERT_EQ(first.column_of(owner), column);
        ASSERT_EQ(first.place_in_column(owner), i);
        ASSERT_TRUE(i == 0 || first.owners(column)[i - 1] < owner);
      }
      for (uint32_t host = 0; host < first.host_count(); ++host) {
        const uint32_t leader = first.leader(host, column);
        ASSERT_EQ(map.host_of[leader], host);
        ASSERT_TRUE(first.is_leader(leader));
        ASSERT_EQ(Columns(map, leader).my_column(), column);
      }
    }
    for (const uint32_t times : seen) ASSERT_EQ(times, 1u);
    for (uint32_t rank = 0; rank < world; ++rank) {
      const Columns mine(map, rank);
      ASSERT_EQ(mine.is_leader(), first.is_leader(rank));
      ASSERT_EQ(mine.locals()[mine.local()], rank);
    }
  });
}

uint32_t depth_bound(const HostMap& map) {
  uint32_t depth = 1;  // a rank under its host's leader
  for (uint64_t reach = 1, level = 1; reach < map.ranks_of.size(); ++depth) {
    level *= kTreeArity;
    reach += level;
  }
  return depth;
}

TEST(Tree, ParentsAndChildrenAgreeAndReachTheRoot) {
  for_every_layout([](const HostMap& map) {
    const auto world = static_cast<uint32_t>(map.host_of.size());
    const uint32_t bound = depth_bound(map);
    for (uint32_t root = 0; root < world; ++root) {
      ASSERT_EQ(tree_parent(map, root, root), kNoRank);
      std::vector<uint32_t> parent_by_child(world, kNoRank);
      for (uint32_t rank = 0; rank < world; ++rank) {
        uint32_t remote = 0;
        for (const uint32_t child : tree_children(map, root, rank)) {
          ASSERT_EQ(parent_by_child[child], kNoRank) << "two parents";
          parent_by_child[child] = rank;
          remote += map.host_of[child] != map.host_of[rank] ? 1 : 0;
        }
        ASSERT_LE(remote, kTreeArity);
      }
      for (uint32_t rank = 0; rank < world; ++rank) {
        ASSERT_EQ(tree_parent(map, root, rank), parent_by_child[rank]) << rank << " under " << root;
        uint32_t depth = 0;
        for (uint32_t at = rank; at != root; at = tree_parent(map, root, at)) {
          ASSERT_LT(depth++, bound) << "too deep";
        }
      }
    }
  });
}

TEST(HostTree, ParentsAndChildrenAgree) {
  for (uint32_t hosts = 1; hosts <= 64; ++hosts) {
    for (uint32_t root = 0; root < hosts; ++root) {
      uint32_t edges = 0;
      for (uint32_t host = 0; host < hosts; ++host) {
        for (const uint32_t child : host_tree_children(hosts, root, host)) {
          ++edges;
          ASSERT_NE(child, root);
          ASSERT_EQ(host_tree_parent(hosts, root, child), host) << hosts << " hosts, root " << root;
        }
      }
      ASSERT_EQ(edges, hosts - 1);
    }
  }
}

TEST(WatchNeighbours, AreSymmetricConnectedAndFew) {
  for_every_layout([](const HostMap& map) {
    const auto world = static_cast<uint32_t>(map.host_of.size());
    std::vector<std::set<uint32_t>> watched(world);
    for (uint32_t rank = 0; rank < world; ++rank) {
      for (const uint32_t other : watch_neighbours(map, rank)) {
        ASSERT_NE(other, rank);
        ASSERT_LT(other, world);
        ASSERT_TRUE(watched[rank].insert(other).second) << "twice";
      }
      uint32_t log2_hosts = 0;
      while ((1u << log2_hosts) < map.ranks_of.size()) ++log2_hosts;
      const size_t local = map.ranks_of[map.host_of[rank]].size() - 1;
      ASSERT_LE(watched[rank].size(), local + 2 * log2_hosts + kTreeArity + 1);
    }
    for (uint32_t rank = 0; rank < world; ++rank) {
      for (const uint32_t other : watched[rank]) {
        ASSERT_EQ(watched[other].count(rank), 1u) << rank << " watches " << other << " alone";
      }
    }
    std::set<uint32_t> reached = {0};
    std::queue<uint32_t> next({0});
    for (; !next.empty(); next.pop()) {
      for (const uint32_t other : watched[next.front()]) {
        if (reached.insert(other).second) next.push(other);
      }
    }
    ASSERT_EQ(reached.size(), world) << "not connected";
  });
}

// Given hosts of any number, expect a rank to be wired to ranks of other hosts alone, which are
// wired to it too: to all of them in a small world, to few in a large one.
TEST(Patterns, WiredPeersAreSymmetricAndBounded) {
  for (const uint32_t hosts : {1U, 2U, 5U, 8U, 9U, 125U}) {
    std::vector<std::string> names;
    for (uint32_t rank = 0; rank < hosts * 8; ++rank) {
      names.push_back("host" + std::to_string(rank / 8));
    }
    const HostMap map = map_hosts(names);
    for (uint32_t rank = 0; rank < names.size(); rank += 3) {
      const std::vector<uint32_t> peers = wired_peers(map, rank);
      ASSERT_TRUE(names.size() > kWiredWorldMax || peers.size() == names.size() - 8);
      ASSERT_LE(peers.size(), kWiredWorldMax);
      for (const uint32_t peer : peers) {
        ASSERT_NE(map.host_of[peer], map.host_of[rank]);
        const std::vector<uint32_t> back = wired_peers(map, peer);
        ASSERT_EQ(std::count(back.begin(), back.end(), rank), 1);
      }
    }
  }
}

// Every rank hangs under a lower one, on the way to rank 0, as its parent's child and no other's.
TEST(RadixTree, every_world_is_one_tree) {
  for (uint32_t world = 1; world <= 600; world += world < 70 ? 1 : 53) {
    std::vector<uint32_t> parent_of(world, kNoRank);
    for (uint32_t rank = 0; rank < world; ++rank) {
      for (const uint32_t child : radix_children(world, rank)) {
        ASSERT_LT(child, world);
        ASSERT_GT(child, rank);
        ASSERT_EQ(parent_of[child], kNoRank) << child << " of " << world;
        parent_of[child] = rank;
      }
    }
    for (uint32_t rank = 1; rank < world; ++rank) {
      ASSERT_EQ(radix_parent(rank), parent_of[rank]) << rank << " of " << world;
    }
  }
}

TEST(RadixTree, nobody_has_many_children) {
  EXPECT_EQ(radix_children(8, 0).size(), 7u);
  EXPECT_EQ(radix_children(64, 0).size(), 14u);
  EXPECT_EQ(radix_children(256, 0).size(), 17u);
  EXPECT_EQ(radix_children(4096, 0).size(), 28u);
  EXPECT_EQ(radix_children(16, 8), (std::vector<uint32_t>{9, 10, 11, 12, 13, 14, 15}));
  EXPECT_EQ(radix_parent(83), 80u);
  EXPECT_EQ(radix_parent(80), 64u);
  EXPECT_EQ(radix_parent(64), 0u);
}

}  // namespace
}  // namespace parallax
