// SPDX-License-Identifier: Apache-2.0
// Algorithms: the tables of ways a gradient can travel. What elements cost is counted from their
// schedules (schedule_cost.h), what rows cost is in src/planner/cost.h under the names of the
// methods.
//
// Elements (dense_exchange.h): an algorithm is a builder of schedules, proved by
// tests/unit/collectives/allreduce_test.cc. Of the rows that apply the one is taken that takes
// least time (algorithm_choice.h). To add one is a builder and a row. Each is the best somewhere:
// bench/scale/algorithms.cc.
//
// Rows (row_exchange.h): ways differ in two legs.
//   leg 1  every rank -> the leader of the column, inside the host        (all of them; of other
//          NUMA nodes than the leader's by a rank of each: world/domain_columns.h)
//   leg 2  leader -> the owner, or the leaders of its column on all hosts
//   leg 3  owner -> the leaders of its column on all hosts, or nobody
//   leg 4  leader -> every rank of its host                               (unless nobody)
#ifndef PARALLAX_COLLECTIVES_ALGORITHMS_H_
#define PARALLAX_COLLECTIVES_ALGORITHMS_H_

#include <bit>
#include <cstdint>
#include <iterator>

#include "base/check.h"
#include "collectives/allreduce.h"
#include "message/lending.h"
#include "planner/plan.h"

namespace parallax {

// What a row may ask before it applies.
struct DenseShape {
  uint64_t elements = 0;
  uint32_t hosts = 1;
  uint32_t ranks = 1;
  uint32_t domains = 1;                    // of memory, of the one host; of several hosts 1
  bool ordered = false;                    // hosts must be summed in their order
  bool returned = true;                    // every rank gets the sum, not only its owners
  bool of_hosts = false;                   // see AllreduceShape
  bool held = false;                       // of a variable that the framework holds, in a step
  uint32_t element_bytes = sizeof(float);  // of a sum
};

// How the time of an algorithm grows where a job is too large to be played (algorithm_choice.h).
enum class Growth : uint8_t {
  kNone,        // it carries nothing of large jobs
  kByHost,      // as much for each host more, ranges being as long
  kByDoubling,  // as much for each doubling of the hosts
  kByLevel,     // as much for each level of the tree of hosts
};

struct DenseAlgorithm {
  const char* name;
  const char* description;
  bool (*applies)(const DenseShape& shape);
  Schedule (*build)(const AllreduceShape& shape);
  // Sends that wait for one another, the most in a row, where all hosts have equally many ranks;
  // not more elsewhere. Said and not counted, since to follow them takes the schedules of all
  // ranks; proved by schedule_cost_test.cc.
  uint32_t (*rounds)(const DenseShape& shape);
  // Each owner's range goes its own way, one like the other: of an even split, hosts of one size do
  // alike, and so do the ranks of a single host. Else all elements go together.
  bool by_range;
  Growth growth;
};

// Up to so many bytes of sums that a rank takes in, of so many ranks: beyond, messages and sums
// that are more outweigh a round spared on any machine. What is managed has no share to spare:
// owners' norms and placements are of their own ranges.
inline constexpr uint64_t kOneshotBytesMax = 32 * 1024;
// Of two ranks of one host, which have a core each as a rule: from here on what they lend each
// other goes back as it is summed, faster than by boards, and what they do not takes as long either
// way (docs/adr/0107).
inline constexpr uint64_t kOneshotOfTwoBytesEnd = kReturnedBytesMin;
// Between hosts a round is longer: two of them, 64 KiB, plain, 35 to 44 us for 37 to 51.
inline constexpr uint64_t kOneshotBetweenBytesMax = 64 * 1024;
inline constexpr uint32_t kOneshotRanksMax = 8;

// Beyond, inner hosts of a tree would hold, and carry several times over, what others cut up.
inline constexpr uint64_t kTreeElementsMax = 64 * 1024;

// Of so long ranges halving keeps each rank waiting for one other, where a ring or the owners keep
// all links busy.
inline constexpr uint64_t kHalvingRangeMax = 32 * 1024;

// Of the sends of each algorithm, see DenseAlgorithm::rounds.
inline uint32_t tree_rounds(const DenseShape& shape) {
  uint32_t up = shape.ranks > shape.hosts ? 1 : 0;  // to the leader
  for (uint32_t place = shape.hosts - 1; place > 0; place = (place - 1) / kTreeArity) ++up;
  return shape.returned ? 2 * up : up;
}
inline uint32_t ring_rounds(const DenseShape& shape) {
  return (shape.ranks - 1) * (shape.returned ? 2 : 1);
}
inline uint32_t direct_rounds(const DenseShape& shape) {
  const uint32_t inside = shape.ranks > shape.hosts ? 1 : 0;  // to the leader, or from it
  const uint32_t between = shape.hosts > 1 ? 1 : 0;           // to the owner, or from it
  return (shape.of_hosts ? 0 : inside) + between + (shape.returned ? inside + between : 0);
}

// Inside a domain, between them, and back.
inline uint32_t levels_rounds(const DenseShape& shape) {
  if (shape.domains == 1) return direct_rounds(shape);
  return shape.returned ? 4 : 2;
}

inline uint32_t halving_rounds(const DenseShape& shape) {
  const uint32_t inside = shape.ranks > shape.hosts ? 1 : 0;
  const uint32_t beyond = std::has_single_bit(shape.hosts) ? 0 : 1;
  return 2 * (inside + beyond + static_cast<uint32_t>(std::bit_width(shape.hosts)) - 1);
}

// Where hosts have several ranks, what crosses must be summed first.
inline bool suits_oneshot(const DenseShape& shape) {
  const uint64_t bytes = shape.elements * shape.element_bytes;
  const uint64_t taken_in = bytes * (shape.ranks - 1);
  if (shape.hosts > 1) return shape.hosts == shape.ranks && taken_in <= kOneshotBetweenBytesMax;
  return shape.ranks == 2 ? bytes < kOneshotOfTwoBytesEnd : taken_in <= kOneshotBytesMax;
}

// What only the direct one is for: sums in order, to the owners alone, of hosts, of nothing. And
// what takes three hosts to be another thing.
inline bool is_for_all(const DenseShape& shape) {
  return !shape.ordered && shape.returned && !shape.of_hosts && shape.elements > 0;
}
inline constexpr uint32_t kOthersHostsMin = 3;

inline constexpr DenseAlgorithm kDenseAlgorithms[] = {
    {"oneshot", "from every rank to every other, each of which sums all",
     [](const DenseShape& shape) {
       return shape.ranks > 1 && shape.ranks <= kOneshotRanksMax && shape.held &&
              suits_oneshot(shape) && shape.returned && !shape.of_hosts;
     },
     allreduce_oneshot, [](const DenseShape& shape) { return shape.ranks > 1 ? 1u : 0u; }, false,
     Growth::kNone},
    {"tree", "summed up and handed down a tree of hosts",
     [](const DenseShape& shape) {
       return shape.hosts >= kOthersHostsMin && shape.elements <= kTreeElementsMax &&
              is_for_all(shape);
     },
     allreduce_tree, tree_rounds, false, Growth::kByLevel},
    {"halving", "halved among hosts each round to be summed, and doubled back",
     [](const DenseShape& shape) {
       return shape.hosts >= kOthersHostsMin && is_for_all(shape) &&
              shape.elements / shape.ranks <= kHalvingRangeMax;
     },
     allreduce_halving, halving_rounds, false, Growth::kByDoubling},
    {"ring", "once round all ranks to be summed, once round to be handed out",
     [](const DenseShape& shape) { return shape.hosts >= kOthersHostsMin && is_for_all(shape); },
     allreduce_ring, ring_rounds, true, Growth::kByHost},
    {"levels", "summed inside domains of memory of a host, then between them by columns",
     [](const DenseShape& shape) {
       return shape.domains > 1 && shape.domains < shape.ranks && is_for_all(shape);
     },
     allreduce_levels, levels_rounds, true, Growth::kByHost},
    {"direct", "reduce-scatter to the owners, then allgather",
     [](const DenseShape&) { return true; }, allreduce_direct, direct_rounds, true,
     Growth::kByHost},
};

// It applies to every shape.
inline const DenseAlgorithm& direct_algorithm() { return *(std::end(kDenseAlgorithms) - 1); }

enum class ReduceTo : uint8_t { kOwner, kEveryHost };
enum class ReturnTo : uint8_t { kNobody, kEveryHost, kOwnHost };

struct RowAlgorithm {
  const char* name;
  const char* description;
  Method method;
  ReduceTo up;
  ReturnTo down;
};

inline constexpr RowAlgorithm kRowAlgorithms[] = {
    {"allgatherv", "every host gets every host's coalesced rows and adds them up",
     Method::kAllgatherv, ReduceTo::kEveryHost, ReturnTo::kOwnHost},
    {"reduce_rows", "reduce-scatter of rows to hashed owners, then allgather of the union",
     Method::kReduceRows, ReduceTo::kOwner, ReturnTo::kEveryHost},
    {"push_pull", "to the owner alone, who keeps and updates the value", Method::kPushPull,
     ReduceTo::kOwner, ReturnTo::kNobody},
};

inline const RowAlgorithm& row_algorithm_for(Method method) {
  for (const RowAlgorithm& algorithm : kRowAlgorithms) {
    if (algorithm.method == method) return algorithm;
  }
  check_failed("a method of rows without an algorithm", __FILE__, __LINE__);
}

}  // namespace parallax

#endif  // PARALLAX_COLLECTIVES_ALGORITHMS_H_
