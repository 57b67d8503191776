// SPDX-License-Identifier: Apache-2.0
// Numbering of hosts by first appearance, and the names of ranks. Pure; any thread; nothing blocks.
#include "world/host_map.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

namespace parallax {

namespace {

void set_columns(HostMap* map) {
  map->column_count = UINT32_MAX;
  for (const std::vector<uint32_t>& ranks : map->ranks_of) {
    map->column_count = std::min(map->column_count, static_cast<uint32_t>(ranks.size()));
  }
  if (map->ranks_of.empty()) map->column_count = 0;
  std::vector<std::vector<uint32_t>> owners(map->column_count);
  std::vector<uint32_t> places(map->host_of.size()), columns(places.size());
  for (uint32_t owner = 0; owner < places.size(); ++owner) {
    columns[owner] = map->local_of[owner] % map->column_count;
    std::vector<uint32_t>& column = owners[columns[owner]];
    places[owner] = static_cast<uint32_t>(column.size());
    column.push_back(owner);
  }
  map->column_of = std::move(columns);
  map->owners_of_column = std::move(owners);
  map->place_in_column = std::move(places);
}

}  // namespace

HostMap map_hosts(std::span<const std::string> host_names) {
  std::vector<std::string> names;
  std::vector<uint32_t> host_of, local_of;
  std::vector<std::vector<uint32_t>> ranks_of;
  std::unordered_map<std::string, uint32_t> host_by_name;
  for (uint32_t rank = 0; rank < host_names.size(); ++rank) {
    const std::string& name = host_names[rank];
    const auto next = static_cast<uint32_t>(names.size());
    const auto [entry, is_new] = host_by_name.emplace(name, next);
    if (is_new) {
      names.push_back(name);
      ranks_of.emplace_back();
    }
    std::vector<uint32_t>& ranks = ranks_of[entry->second];
    host_of.push_back(entry->second);
    local_of.push_back(static_cast<uint32_t>(ranks.size()));
    ranks.push_back(rank);
  }
  HostMap map;
  map.names = std::move(names);
  map.host_of = std::move(host_of);
  map.ranks_of = std::move(ranks_of);
  map.local_of = std::move(local_of);
  set_columns(&map);
  return map;
}

namespace {

// By rank of one host, its domain; empty: they have one.
std::vector<uint32_t> number_domains(const std::vector<uint32_t>& ranks,
                                     std::span<const NearMemory> places,
                                     uint32_t NearMemory::*level) {
  std::vector<uint32_t> seen, numbers;
  for (const uint32_t rank : ranks) {
    const uint32_t place = places[rank].*level;
    if (place == NearMemory::kUnknown) return {};
    const auto found = std::find(seen.begin(), seen.end(), place);
    numbers.push_back(static_cast<uint32_t>(found - seen.begin()));
    if (found == seen.end()) seen.push_back(place);
  }
  return seen.size() > 1 ? numbers : std::vector<uint32_t>();
}

}  // namespace

void set_domains(HostMap* hosts, std::span<const NearMemory> places) {
  std::vector<uint32_t> domain_of(hosts->host_of.size());
  std::vector<uint8_t> are_nodes;
  bool any = false;
  for (const std::vector<uint32_t>& ranks : hosts->ranks_of) {
    std::vector<uint32_t> numbers = number_domains(ranks, places, &NearMemory::node);
    are_nodes.push_back(numbers.empty() ? 0 : 1);
    if (numbers.empty()) numbers = number_domains(ranks, places, &NearMemory::cache);
    for (size_t i = 0; i < numbers.size(); ++i) domain_of[ranks[i]] = numbers[i];
    any = any || !numbers.empty();
  }
  hosts->domain_of = any ? std::move(domain_of) : std::vector<uint32_t>();
  hosts->domains_are_nodes = any ? std::move(are_nodes) : std::vector<uint8_t>();
}

uint32_t domain_count(const HostMap& hosts, uint32_t host) {
  uint32_t last = 0;
  if (hosts.domain_of.empty()) return 1;
  for (const uint32_t rank : hosts.ranks_of[host]) last = std::max(last, hosts.domain_of[rank]);
  return last + 1;
}

HostMap domains_as_hosts(const HostMap& hosts) {
  if (hosts.domain_of.empty()) return hosts;
  std::vector<std::string> names;
  for (uint32_t rank = 0; rank < hosts.host_of.size(); ++rank) {
    names.push_back(std::to_string(hosts.host_of[rank]) + "/" +
                    std::to_string(hosts.domain_of[rank]));
  }
  return map_hosts(names);
}

HostMap part_of(const HostMap& hosts, std::span<const uint32_t> ranks) {
  std::vector<std::string> names;
  std::vector<uint32_t> job_ranks;
  std::vector<NearMemory> places;
  for (const uint32_t rank : ranks) {
    names.push_back(hosts.names[hosts.host_of[rank]]);
    job_ranks.push_back(job_rank(hosts, rank));
    if (hosts.domain_of.empty()) continue;
    const bool nodes = hosts.domains_are_nodes[hosts.host_of[rank]] != 0;
    (nodes ? places.emplace_back().node : places.emplace_back().cache) = hosts.domain_of[rank];
  }
  HostMap part = map_hosts(names);
  if (!places.empty()) set_domains(&part, places);
  part.job_rank_of = std::move(job_ranks);
  return part;
}

uint32_t job_rank(const HostMap& hosts, uint32_t rank) {
  return hosts.job_rank_of.empty() ? rank : hosts.job_rank_of[rank];
}

void note_peer(const HostMap& hosts, uint32_t rank, ErrorFacts& about) {
  if (rank >= hosts.host_of.size()) return;
  about.peer = rank;
  about.host = hosts.names[hosts.host_of[rank]];
}

std::string rank_name(const HostMap& hosts, uint32_t rank) {
  const std::string name = "rank " + std::to_string(rank);
  if (rank >= hosts.host_of.size()) return name;
  const std::string host = "host " + hosts.names[hosts.host_of[rank]] + ")";
  if (hosts.job_rank_of.empty()) return name + " (" + host;
  return name + " (rank " + std::to_string(job_rank(hosts, rank)) + " of the job, " + host;
}

std::string rank_names(const HostMap& hosts, std::span<const uint32_t> ranks) {
  constexpr size_t kNamed = 4;
  std::string names;
  for (size_t i = 0; i < ranks.size() && i < kNamed; ++i) {
    names += (i == 0 ? "" : ", ") + rank_name(hosts, ranks[i]);
  }
  if (ranks.size() > kNamed) names += " and " + std::to_string(ranks.size() - kNamed) + " more";
  return names;
}

}  // namespace parallax
