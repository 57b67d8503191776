// SPDX-License-Identifier: Apache-2.0
// Algorithms: the tables of ways a gradient can travel. What elements cost is counted from their
// schedules (schedule_cost.h), what rows cost is in src/planner/cost.h under the names of the
// methods.
//
// Elements (dense_exchange.h): an algorithm is a builder of schedules, proved by
// tests/unit/collectives/allreduce_test.cc. The first row that applies is taken. To add one is a
// builder and a row.
//
// Rows (row_exchange.h): ways differ in two legs.
//   leg 1  every rank -> the leader of the column, inside the host        (all of them)
//   leg 2  leader -> the owner, or the leaders of its column on all hosts
//   leg 3  owner -> the leaders of its column on all hosts, or nobody
//   leg 4  leader -> every rank of its host                               (unless nobody)
#ifndef PARALLAX_COLLECTIVES_ALGORITHMS_H_
#define PARALLAX_COLLECTIVES_ALGORITHMS_H_

#include <cstdint>

#include "base/check.h"
#include "collectives/allreduce.h"
#include "planner/plan.h"

namespace parallax {

// What a row may ask before it applies.
struct DenseShape {
  uint64_t elements = 0;
  uint32_t hosts = 1;
  uint32_t ranks = 1;
  bool ordered = false;   // hosts must be summed in their order
  bool returned = true;   // every rank gets the sum, not only its owners
  bool of_hosts = false;  // see AllreduceShape
  bool held = false;      // of a variable that the framework holds, in a step
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
};

// Up to so many elements that a rank takes in, of so many ranks, a round spared outweighs the
// elements and sums that are more. Between more than two hosts, where a link may be slow, up to
// what one small message carries. What is managed has no share to spare: owners' norms and
// placements are of their own ranges.
inline constexpr uint64_t kOneshotElementsMax = 8 * 1024;
inline constexpr uint64_t kOneshotWireElementsMax = 1024;
inline constexpr uint32_t kOneshotRanksMax = 8;

// Up to so many elements, which fit one message, and from so many hosts on, a tree's log(hosts)
// rounds of four messages beat an owner that takes in and sends out one message per host.
inline constexpr uint64_t kTreeElementsMax = 1024;
inline constexpr uint32_t kTreeHostsMin = 9;

// From so many hosts on, if each rank's range is some messages long, so that the hops of a ring
// overlap: then a host takes in from one other at a time, and not from all at once. Virtual time of
// a reduction on the simulator (100 Gbit/s, 2 us, one message at a time into a host), hosts of one
// rank where it does not say two, direct / ring in ms. Without jitter, which 2 (P - 1) sends in a
// row would feel most: so not from 8 hosts on.
//   elements a range        16,384          65,536         262,144
//    8 hosts                           0.33 / 0.30     1.65 / 1.19
//   16 hosts           0.25 / 0.24     0.75 / 0.64     3.83 / 2.55
//   16 hosts of two    0.52 / 0.44     2.19 / 1.36
//   32 hosts           0.51 / 0.49     2.14 / 1.32     9.75 / 5.26
//   64 hosts           1.27 / 1.00     5.38 / 2.68
inline constexpr uint32_t kRingHostsMin = 16;
inline constexpr uint64_t kRingRangeMin = 64 * 1024;

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

inline constexpr DenseAlgorithm kDenseAlgorithms[] = {
    {"oneshot", "from every rank to every other, each of which sums all",
     [](const DenseShape& shape) {
       // Where hosts have several ranks, what crosses must be summed first.
       const bool flat = shape.hosts == 1 || shape.hosts == shape.ranks;
       return flat && shape.ranks > 1 && shape.ranks <= kOneshotRanksMax && shape.held &&
              shape.elements * (shape.ranks - 1) <=
                  (shape.hosts > 2 ? kOneshotWireElementsMax : kOneshotElementsMax) &&
              shape.returned && !shape.of_hosts;
     },
     allreduce_oneshot, [](const DenseShape& shape) { return shape.ranks > 1 ? 1u : 0u; }, false},
    {"tree", "summed up and handed down a tree of hosts",
     [](const DenseShape& shape) {
       return shape.elements <= kTreeElementsMax && shape.hosts >= kTreeHostsMin &&
              !shape.ordered && shape.returned && !shape.of_hosts;
     },
     allreduce_tree, tree_rounds, false},
    {"ring", "once round all ranks to be summed, once round to be handed out",
     [](const DenseShape& shape) {
       return shape.elements / shape.ranks >= kRingRangeMin && shape.hosts >= kRingHostsMin &&
              !shape.ordered && shape.returned && !shape.of_hosts;
     },
     allreduce_ring, ring_rounds, true},
    {"direct", "reduce-scatter to the owners, then allgather",
     [](const DenseShape&) { return true; }, allreduce_direct, direct_rounds, true},
};

inline const DenseAlgorithm& dense_algorithm_for(const DenseShape& shape) {
  for (const DenseAlgorithm& algorithm : kDenseAlgorithms) {
    if (algorithm.applies(shape)) return algorithm;
  }
  check_failed("a shape without an algorithm", __FILE__, __LINE__);
}

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
