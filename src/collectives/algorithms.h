// SPDX-License-Identifier: Apache-2.0
// Algorithms: the table of ways a gradient can travel. They differ in two hops only, and in whether
// rows or elements cross the wire; src/collectives/gradient_road.h is the one mechanism that runs
// them all. Costs are in src/planner/cost.h under the same names.
//
//   hop 1  every rank -> the handler of the column, inside the host        (all methods)
//   hop 2  handler -> the owner, or the handlers of its column on all hosts
//   hop 3  owner -> the handlers of its column on all hosts, or nobody
//   hop 4  handler -> every rank of its host                               (unless nobody)
#ifndef PARALLAX_COLLECTIVES_ALGORITHMS_H_
#define PARALLAX_COLLECTIVES_ALGORITHMS_H_

#include "planner/plan.h"

namespace parallax {

enum class UpTo : unsigned char { kOwner, kEveryHost };
enum class DownTo : unsigned char { kNobody, kEveryHost, kOwnHost };

struct Algorithm {
  Method method;
  const char* description;
  bool dense_wire;  // elements cross the wire, whatever the form of the slices
  UpTo up;
  DownTo down;
};

inline constexpr Algorithm kAlgorithms[] = {
    {Method::kAllreduce, "direct reduce-scatter, then allgather, of elements", true, UpTo::kOwner,
     DownTo::kEveryHost},
    {Method::kAllgatherv, "every host gets every host's merged rows and merges them", false,
     UpTo::kEveryHost, DownTo::kOwnHost},
    {Method::kReduceRows, "reduce-scatter of rows to hashed owners, then allgather of the union",
     false, UpTo::kOwner, DownTo::kEveryHost},
    {Method::kMadeDense, "rows scattered into zeros, then as allreduce", true, UpTo::kOwner,
     DownTo::kEveryHost},
    {Method::kPushPull, "to the owner alone, who keeps and updates the value", false, UpTo::kOwner,
     DownTo::kNobody},
};

inline const Algorithm& algorithm_of(Method method) {
  for (const Algorithm& algorithm : kAlgorithms) {
    if (algorithm.method == method) return algorithm;
  }
  return kAlgorithms[0];
}

}  // namespace parallax

#endif  // PARALLAX_COLLECTIVES_ALGORITHMS_H_
