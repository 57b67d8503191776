// SPDX-License-Identifier: Apache-2.0
// Patterns: which rank talks to which. Peer arithmetic only, no buffers; pure and tested for every
// world size 1..64.
//
// Columns. Each host offers its first `columns` ranks (the least number of ranks on any host) as
// leaders; every owner belongs to column local_index % columns. What is owned in column c is summed
// on each host by its leader of column c and leaves the host from there: every leader does its
// share, and no single rank carries a host's traffic. On the way back an owner sends to the leaders
// of its column, and they pass on to the ranks of their host.
//
// Tree. Control (votes, decisions, barriers) and broadcasts travel along a tree: the ranks of a
// host under its first rank, those under each other with kTreeArity children. Any rank can be the
// root: its host comes first, and it leads its host.
#ifndef PARALLAX_WORLD_PATTERNS_H_
#define PARALLAX_WORLD_PATTERNS_H_

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <set>
#include <utility>
#include <vector>

#include "world/host_map.h"

namespace parallax {

inline constexpr uint32_t kTreeArity = 4;
inline constexpr uint32_t kNoRank = UINT32_MAX;

class Columns {
 public:
  Columns(const HostMap& hosts, uint32_t rank) : hosts_(hosts), rank_(rank) {}

  uint32_t rank() const { return rank_; }
  uint32_t world() const { return static_cast<uint32_t>(hosts_.host_of.size()); }
  uint32_t host() const { return hosts_.host_of[rank_]; }
  uint32_t host_count() const { return static_cast<uint32_t>(hosts_.ranks_of.size()); }
  uint32_t host_of(uint32_t rank) const { return hosts_.host_of[rank]; }
  uint32_t local() const { return hosts_.local_of[rank_]; }
  uint32_t local_of(uint32_t rank) const { return hosts_.local_of[rank]; }
  const std::vector<uint32_t>& locals() const { return hosts_.ranks_of[host()]; }
  const HostMap& map() const { return hosts_; }

  uint32_t count() const { return hosts_.column_count; }
  uint32_t column_of(uint32_t owner) const { return hosts_.column_of[owner]; }
  // The same, and a place in the column and a host, for who asks of many: by rank.
  const uint32_t* columns_of_owners() const { return &hosts_.column_of[0]; }
  const uint32_t* places_of_owners() const { return &hosts_.place_in_column[0]; }
  const uint32_t* hosts_of_owners() const { return &hosts_.host_of[0]; }
  uint32_t leader(uint32_t host, uint32_t column) const { return hosts_.ranks_of[host][column]; }
  bool is_leader() const { return local() < count(); }
  bool is_leader(uint32_t rank) const { return hosts_.local_of[rank] < count(); }
  // The column that this rank leads; only if is_leader().
  uint32_t my_column() const { return local(); }
  // Owners of a column, ascending, and an owner's index among them.
  const std::vector<uint32_t>& owners(uint32_t column) const {
    return hosts_.owners_of_column[column];
  }
  uint32_t place_in_column(uint32_t owner) const { return hosts_.place_in_column[owner]; }

 private:
  const HostMap& hosts_;
  const uint32_t rank_;
};

// The tree of hosts under `root_host`: hosts count from it, and the p-th hangs under the ((p - 1) /
// kTreeArity)-th.
inline uint32_t host_tree_parent(uint32_t host_count, uint32_t root_host, uint32_t host) {
  const uint32_t place = (host + host_count - root_host) % host_count;
  return ((place - 1) / kTreeArity + root_host) % host_count;  // not asked of the root
}

inline std::vector<uint32_t> host_tree_children(uint32_t host_count, uint32_t root_host,
                                                uint32_t host) {
  std::vector<uint32_t> children;
  const uint64_t place = (host + host_count - root_host) % host_count;
  for (uint64_t i = place * kTreeArity + 1; i <= place * kTreeArity + kTreeArity; ++i) {
    if (i < host_count) children.push_back(static_cast<uint32_t>((i + root_host) % host_count));
  }
  return children;
}

// The parent of `rank` in the tree of `root`; kNoRank for the root itself.
inline uint32_t tree_parent(const HostMap& hosts, uint32_t root, uint32_t rank) {
  if (rank == root) return kNoRank;
  const uint32_t host_count = static_cast<uint32_t>(hosts.ranks_of.size());
  const uint32_t root_host = hosts.host_of[root];
  const auto leader = [&](uint32_t host) {
    return host == root_host ? root : hosts.ranks_of[host][0];
  };
  const uint32_t host = hosts.host_of[rank];
  if (rank != leader(host)) return leader(host);
  return leader(host_tree_parent(host_count, root_host, host));
}

inline std::vector<uint32_t> tree_children(const HostMap& hosts, uint32_t root, uint32_t rank) {
  std::vector<uint32_t> children;
  const uint32_t host_count = static_cast<uint32_t>(hosts.ranks_of.size());
  const uint32_t root_host = hosts.host_of[root];
  const uint32_t host = hosts.host_of[rank];
  const auto leader = [&](uint32_t of) { return of == root_host ? root : hosts.ranks_of[of][0]; };
  if (rank != leader(host)) return children;
  for (const uint32_t child : host_tree_children(host_count, root_host, host)) {
    children.push_back(leader(child));
  }
  for (const uint32_t local : hosts.ranks_of[host]) {
    if (local != rank) children.push_back(local);
  }
  return children;
}

// The tree of ranks under rank 0 before hosts are known, by radix: rank r hangs under r with its
// lowest digit that is not 0 made 0, as 83 under 80 and 80 under 64 for radix 8 (0123, 0120, 0100).
// So ranks that a launcher started next to each other, on one host as a rule, hang together.
inline constexpr uint32_t kRadix = 8;

inline uint32_t radix_parent(uint32_t rank) {
  uint64_t stride = 1;
  while (rank != 0 && rank % (stride * kRadix) == 0) stride *= kRadix;
  return rank - static_cast<uint32_t>(rank % (stride * kRadix));  // not asked of rank 0
}

inline std::vector<uint32_t> radix_children(uint32_t world, uint32_t rank) {
  std::vector<uint32_t> children;
  for (uint64_t stride = 1; stride < world && rank % (stride * kRadix) == 0; stride *= kRadix) {
    for (uint64_t digit = 1; digit < kRadix && rank + digit * stride < world; ++digit) {
      children.push_back(static_cast<uint32_t>(rank + digit * stride));
    }
  }
  return children;
}

// The ranks that `rank` watches, and that watch it: those of its host, those of like local index on
// the hosts at distance 1, 2, 4, ... both ways round, and its neighbours in the tree of rank 0.
// Symmetric, connected, and about 2 log2(hosts) in number beyond the host.
inline std::vector<uint32_t> watch_neighbours(const HostMap& hosts, uint32_t rank) {
  std::set<uint32_t> watched;
  const uint32_t host_count = static_cast<uint32_t>(hosts.ranks_of.size());
  const uint32_t host = hosts.host_of[rank];
  const uint32_t local = hosts.local_of[rank];
  for (const uint32_t other : hosts.ranks_of[host]) watched.insert(other);
  for (uint64_t distance = 1; distance < host_count; distance *= 2) {
    for (const uint64_t at : {host + distance, host + host_count - distance}) {
      const auto& ranks = hosts.ranks_of[at % host_count];
      if (local < ranks.size()) watched.insert(ranks[local]);
    }
  }
  const uint32_t parent = tree_parent(hosts, 0, rank);
  if (parent != kNoRank) watched.insert(parent);
  for (const uint32_t child : tree_children(hosts, 0, rank)) watched.insert(child);
  watched.erase(rank);
  return {watched.begin(), watched.end()};
}

// The ranks of other hosts to which `rank` is connected before it sends them anything: all of them
// in a world of up to kWiredWorldMax ranks, else those that it watches. Symmetric.
inline constexpr uint32_t kWiredWorldMax = 64;

inline std::vector<uint32_t> wired_peers(const HostMap& hosts, uint32_t rank) {
  std::vector<uint32_t> peers = watch_neighbours(hosts, rank);
  if (hosts.host_of.size() <= kWiredWorldMax) {
    peers.resize(hosts.host_of.size());
    std::iota(peers.begin(), peers.end(), 0U);
  }
  std::erase_if(peers, [&](uint32_t each) { return hosts.host_of[each] == hosts.host_of[rank]; });
  return peers;
}

}  // namespace parallax

#endif  // PARALLAX_WORLD_PATTERNS_H_
