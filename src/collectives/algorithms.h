// SPDX-License-Identifier: Apache-2.0
// Algorithms: the table of ways a gradient can travel. They differ in two legs only, and in whether
// rows or elements cross the wire; src/collectives/gradient_exchange.h is the one mechanism that
// runs them all. Costs are in src/planner/cost.h under the names of the methods.
//
//   leg 1  every rank -> the leader of the column, inside the host        (all of them)
//   leg 2  leader -> the owner, or the leaders of its column on all hosts, or up a tree of hosts
//   leg 3  owner -> the leaders of its column on all hosts, or nobody, or down the tree
//   leg 4  leader -> every rank of its host                               (unless nobody)
//
// A method has one row or more; the first that applies is taken. The rows of one method move the
// same bytes: they differ in messages.
#ifndef PARALLAX_COLLECTIVES_ALGORITHMS_H_
#define PARALLAX_COLLECTIVES_ALGORITHMS_H_

#include <cstdint>

#include "base/check.h"
#include "planner/plan.h"

namespace parallax {

enum class ReduceTo : uint8_t { kOwner, kEveryHost, kTree };
enum class ReturnTo : uint8_t { kNobody, kEveryHost, kOwnHost, kTree };

// What a row may ask before it applies.
struct ExchangeShape {
  uint64_t elements = 0;
  uint32_t hosts = 1;
  bool ordered = false;  // hosts must be summed in their order
};

struct Algorithm {
  const char* name;
  const char* description;
  Method method;
  bool dense_wire;  // elements cross the wire, whatever the form of the slices
  ReduceTo up;
  ReturnTo down;
  bool (*applies)(const ExchangeShape& shape);
};

// Up to so many elements, which fit one message, and from so many hosts on, a tree's log(hosts)
// rounds of four messages beat an owner that takes in and sends out one message per host.
inline constexpr uint64_t kTreeElementsMax = 1024;
inline constexpr uint32_t kTreeHostsMin = 9;

inline constexpr Algorithm kAlgorithms[] = {
    {"allreduce_tree", "summed up and handed down a tree of hosts", Method::kAllreduce, true,
     ReduceTo::kTree, ReturnTo::kTree,
     [](const ExchangeShape& shape) {
       return shape.elements <= kTreeElementsMax && shape.hosts >= kTreeHostsMin && !shape.ordered;
     }},
    {"allreduce_direct", "reduce-scatter to the owners, then allgather, of elements",
     Method::kAllreduce, true, ReduceTo::kOwner, ReturnTo::kEveryHost,
     [](const ExchangeShape&) { return true; }},
    {"allgatherv", "every host gets every host's coalesced rows and adds them up",
     Method::kAllgatherv, false, ReduceTo::kEveryHost, ReturnTo::kOwnHost,
     [](const ExchangeShape&) { return true; }},
    {"reduce_rows", "reduce-scatter of rows to hashed owners, then allgather of the union",
     Method::kReduceRows, false, ReduceTo::kOwner, ReturnTo::kEveryHost,
     [](const ExchangeShape&) { return true; }},
    {"made_dense", "rows scattered into zeros, then as allreduce_direct", Method::kMadeDense, true,
     ReduceTo::kOwner, ReturnTo::kEveryHost, [](const ExchangeShape&) { return true; }},
    {"push_pull", "to the owner alone, who keeps and updates the value", Method::kPushPull, false,
     ReduceTo::kOwner, ReturnTo::kNobody, [](const ExchangeShape&) { return true; }},
};

inline const Algorithm& algorithm_for(Method method, const ExchangeShape& shape) {
  for (const Algorithm& algorithm : kAlgorithms) {
    if (algorithm.method == method && algorithm.applies(shape)) return algorithm;
  }
  check_failed("a method without an algorithm", __FILE__, __LINE__);
}

}  // namespace parallax

#endif  // PARALLAX_COLLECTIVES_ALGORITHMS_H_
