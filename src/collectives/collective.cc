// SPDX-License-Identifier: Apache-2.0
// What follows from a call's fields. See collective.h.
#include "collectives/collective.h"

#include <numeric>

namespace parallax {

namespace {

// The finalizer of splitmix64 (Steele, Lea and Flood 2014).
uint64_t mixed(uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

// Of `count` numbers from one rank to another.
uint64_t mark_of(uint32_t from, uint32_t to, uint64_t count) {
  return count == 0 ? 0 : mixed(mixed(uint64_t{from} << 32 | to) ^ count);
}

}  // namespace

uint64_t CollectiveTerms::elements(uint32_t world) const {
  const bool each =
      kind == PARALLAX_ALLGATHER || kind == PARALLAX_GATHER || kind == PARALLAX_REDUCE_SCATTER;
  return each ? count * world : count;
}

bool CollectiveTerms::fused(uint32_t world) const {
  return kind != PARALLAX_ALLTOALLV && count <= kFusedBytesMax &&
         elements(world) <= kFusedBytesMax / element_bytes();
}

Range Collective::given_by(uint32_t of) const {
  switch (terms.kind) {
    case PARALLAX_BROADCAST:
      return {0, of == terms.root ? terms.count : 0};
    case PARALLAX_ALLGATHERV:
      return {std::accumulate(recv_counts.begin(), recv_counts.begin() + of, uint64_t{0}),
              recv_counts[of]};
    default:
      return {of * terms.count, terms.count};
  }
}

Range Collective::got() const {
  if (terms.kind == PARALLAX_REDUCE_SCATTER) return {rank * terms.count, terms.count};
  const bool elsewhere = has_root(terms.kind) && terms.kind != PARALLAX_BROADCAST;
  if ((elsewhere && rank != terms.root) || recv == nullptr) return {};
  return {0, terms.elements(world)};
}

uint64_t counts_sent(const Collective& what) {
  uint64_t sum = 0;
  for (uint32_t to = 0; to < what.send_counts.size(); ++to) {
    sum += mark_of(what.rank, to, what.send_counts[to]);
  }
  return sum;
}

uint64_t counts_expected(const Collective& what) {
  if (what.terms.kind != PARALLAX_ALLTOALLV) return 0;
  uint64_t sum = 0;
  for (uint32_t from = 0; from < what.recv_counts.size(); ++from) {
    sum += mark_of(from, what.rank, what.recv_counts[from]);
  }
  return sum;
}

uint64_t digest_of(const std::vector<uint64_t>& counts) {
  uint64_t digest = 0;
  for (const uint64_t count : counts) digest = mixed(digest ^ count);
  return digest;
}

}  // namespace parallax
