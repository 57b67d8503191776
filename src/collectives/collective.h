// SPDX-License-Identifier: Apache-2.0
// Collective: what one call of parallax_collective asks for, checked (engine/collective_checks.h),
// and what follows from it for all that carry it out: who gives which numbers of the whole, who
// gets it, and what ranks must agree about. Plain values; pure.
#ifndef PARALLAX_COLLECTIVES_COLLECTIVE_H_
#define PARALLAX_COLLECTIVES_COLLECTIVE_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "aggregate/combine.h"
#include "base/number.h"
#include "parallax/parallax.h"
#include "variable/partition.h"

namespace parallax {

// Up to so many bytes in all, numbers travel with the report that a rank has called: one way up
// the tree of ranks and one down. A report fits a message with room for others.
inline constexpr uint64_t kFusedBytesMax = 1024;

// Which collectives are one on all ranks. Those of tag 0 are counted; those of another tag are
// done one after the other, so that their tag tells all.
struct CollectiveKey {
  bool tagged = false;
  uint64_t number = 0;  // the tag, or how many of tag 0 came before
  auto operator<=>(const CollectiveKey&) const = default;
};

constexpr bool combines(uint32_t kind) {
  return kind == PARALLAX_ALLREDUCE || kind == PARALLAX_REDUCE || kind == PARALLAX_REDUCE_SCATTER;
}
constexpr bool has_root(uint32_t kind) {
  return kind == PARALLAX_REDUCE || kind == PARALLAX_GATHER || kind == PARALLAX_BROADCAST;
}
constexpr bool is_collective_kind(uint32_t kind) {
  return kind >= PARALLAX_ALLREDUCE && kind <= PARALLAX_GATHER;
}

// What all ranks must say alike; a field that the kind does not look at is 0. As it travels.
struct CollectiveTerms {
  uint64_t count = 0;          // allgatherv: of all ranks
  uint64_t counts_digest = 0;  // allgatherv: of recv_counts
  uint32_t root = 0;
  uint8_t kind = 0;
  uint8_t dtype = 0;
  uint8_t op = 0;
  uint8_t reserved = 0;
  bool operator==(const CollectiveTerms&) const = default;

  SumType sum() const { return sum_type_of(dtype); }
  // Numbers of the whole: what one rank has in the end that has all.
  uint64_t elements(uint32_t world) const;
  // Of a number while it travels: combined ones are widened.
  uint32_t element_bytes() const {
    return combines(kind) ? bytes_of_sum(sum()) : bytes_of_dtype(dtype);
  }
  // They travel with the report. Never those of alltoallv, of whose whole no rank knows.
  bool fused(uint32_t world) const;
  // Bytes of a report's numbers.
  uint64_t fused_bytes(uint32_t world) const {
    return fused(world) ? elements(world) * element_bytes() : 0;
  }
};

struct Collective {
  CollectiveTerms terms;
  CollectiveKey key;
  uint32_t rank = 0;
  uint32_t world = 1;
  const std::byte* send = nullptr;
  std::byte* recv = nullptr;
  uint64_t send_bytes = 0;  // of the caller's buffers, by the dtype
  uint64_t recv_bytes = 0;
  std::vector<uint64_t> send_counts;  // alltoallv
  std::vector<uint64_t> recv_counts;  // alltoallv, allgatherv

  // Which numbers of the whole a rank gives, where the kind combines nothing.
  Range given_by(uint32_t of) const;
  // Which of them this rank gets in recv; no alltoallv.
  Range got() const;
  double factor() const { return terms.op == PARALLAX_OP_MEAN ? 1.0 / world : 1.0; }
};

// Equal on the ranks of a collective if, but for chance, send_counts and recv_counts agree: the sum
// over all ranks of what each sends to whom, and of what each expects of whom. Zeros do not count.
uint64_t counts_sent(const Collective& what);
uint64_t counts_expected(const Collective& what);
uint64_t digest_of(const std::vector<uint64_t>& counts);

}  // namespace parallax

#endif  // PARALLAX_COLLECTIVES_COLLECTIVE_H_
