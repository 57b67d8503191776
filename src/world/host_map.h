// SPDX-License-Identifier: Apache-2.0
// Hosts: which ranks share a host, from the host name that each rank told at the rendezvous. Pure
// values; any thread; nothing blocks. What a host *is* was decided before: the name may be the
// caller's, and shared memory is proved by attaching, never by the name.
#ifndef PARALLAX_WORLD_HOST_MAP_H_
#define PARALLAX_WORLD_HOST_MAP_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/near_memory.h"
#include "base/shared_array.h"
#include "base/status.h"

namespace parallax {

// Hosts are numbered by the lowest rank on them, so every rank derives the same numbers.
// Copies share their arrays.
struct HostMap {
  SharedArray<std::string> names;               // by host
  SharedArray<uint32_t> host_of;                // by rank
  SharedArray<std::vector<uint32_t>> ranks_of;  // by host: its ranks, ascending; never empty
  SharedArray<uint32_t> local_of;               // its index in ranks_of[host]
  // Columns (world/patterns.h): the least number of ranks on any host; by rank which one it is of,
  // as is asked of every row; owners ascending, by column, and an owner's index among them, by
  // rank.
  uint32_t column_count = 0;
  SharedArray<uint32_t> column_of;
  SharedArray<std::vector<uint32_t>> owners_of_column;
  SharedArray<uint32_t> place_in_column;
  // Domains of memory (set_domains): by rank, which of those on its host it lies in, counted from
  // the lowest rank's. Empty: no host has more than one.
  SharedArray<uint32_t> domain_of;
  SharedArray<uint8_t> domains_are_nodes;  // by host: of NUMA, else caches or one; empty likewise
  // Of a part of a job (part_of): by rank, what the whole job calls it. Empty: it is the whole.
  SharedArray<uint32_t> job_rank_of;

  bool operator==(const HostMap&) const = default;
};

// `host_names` by rank. Equal names are one host, the empty name included.
HostMap map_hosts(std::span<const std::string> host_names);

// Domains of the ranks of each host: NUMA nodes, where its ranks lie on several, else caches of the
// last level. A host of which a rank does not know its place, or may run at several, has one.
void set_domains(HostMap* hosts, std::span<const NearMemory> places);
// How many a host has.
uint32_t domain_count(const HostMap& hosts, uint32_t host);
// The map in which each domain is a host of its own.
HostMap domains_as_hosts(const HostMap& hosts);

// The map of a part: of these distinct ranks of `hosts`, which are numbered in this order.
HostMap part_of(const HostMap& hosts, std::span<const uint32_t> ranks);
// What the whole job calls this rank.
uint32_t job_rank(const HostMap& hosts, uint32_t rank);

// Notes that a failure names this rank; kNoRank is left out.
void note_peer(const HostMap& hosts, uint32_t rank, ErrorFacts& about);

// As sentences name ranks: "rank 3 (host gpu1)", in a part "rank 0 (rank 3 of the job, host gpu1)",
// and of several "rank 3 (host gpu1), rank 4 (host
// gpu2) and 7 more".
std::string rank_name(const HostMap& hosts, uint32_t rank);
std::string rank_names(const HostMap& hosts, std::span<const uint32_t> ranks);

}  // namespace parallax

#endif  // PARALLAX_WORLD_HOST_MAP_H_
