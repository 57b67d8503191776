// SPDX-License-Identifier: Apache-2.0
// Every method's exchange, by each row of the table of algorithms, against the conformance suite.
#include "collectives/exchange.h"

#include <gtest/gtest.h>

#include "collectives/algorithms.h"
#include "unit/collectives/exchange_conformance.h"

namespace parallax::exchange_conformance {
namespace {

// An exchange of this method, which takes the algorithm of this name.
Factory exchange_of(Method method, std::string algorithm) {
  return [method, algorithm](const Columns& columns, const Partition& partition, Outbox& outbox,
                             Compute& compute, ExchangeOptions options) {
    options.method = method;
    EXPECT_EQ(algorithm_for(method, {.elements = partition.elements(),
                                     .hosts = columns.host_count(),
                                     .ordered = options.ordered})
                  .name,
              algorithm);
    return make_exchange(columns, partition, outbox, compute, options);
  };
}

bool goes_by_tree(const Shape& shape, uint32_t hosts, bool ordered) {
  return shape.elements() <= kTreeElementsMax && hosts >= kTreeHostsMin && !ordered;
}

// A range for each of 16 ranks; several sections; fewer blocks than ranks; less than a block.
const std::vector<Shape> kElementShapes = {{1281, 3}, {61, 37}, {103, 10}, {7, 3}};
// A row for each of 16 ranks; several sections; fewer rows than ranks, and a slice may have every
// one.
const std::vector<Shape> kRowShapes = {{64, 3, 24}, {37, 100, 30}, {5, 2, 12}};

Candidate allreduce_direct() {
  return {.make = exchange_of(Method::kAllreduce, "allreduce_direct"),
          .shapes = kElementShapes,
          .applies = [](const Shape& shape, uint32_t hosts, bool ordered) {
            return !goes_by_tree(shape, hosts, ordered);
          }};
}

Candidate allreduce_tree() {
  return {.make = exchange_of(Method::kAllreduce, "allreduce_tree"),
          .pieces = Pieces::kNone,
          .shapes = {{1000, 1}, {1024, 1}, {7, 3}},
          .applies = goes_by_tree,
          .rare = true,
          .any_handler_returns = true};
}

Candidate allgatherv() {
  return {.make = exchange_of(Method::kAllgatherv, "allgatherv"),
          .rows = true,
          .pieces = Pieces::kHost,
          .shapes = kRowShapes};
}

Candidate reduce_rows() {
  return {
      .make = exchange_of(Method::kReduceRows, "reduce_rows"), .rows = true, .shapes = kRowShapes};
}

Candidate made_dense() {
  return {.make = exchange_of(Method::kMadeDense, "made_dense"),
          .rows = true,
          .made_dense = true,
          .integers = false,
          .shapes = kRowShapes};
}

Candidate push_pull_rows() {
  return {.make = exchange_of(Method::kPushPull, "push_pull"),
          .rows = true,
          .delivers = false,
          .shapes = kRowShapes};
}

Candidate push_pull_elements() {
  return {.make = exchange_of(Method::kPushPull, "push_pull"),
          .delivers = false,
          .shapes = kElementShapes};
}

CONFORM_EXCHANGE(allreduce_direct, allreduce_direct)
CONFORM_EXCHANGE(allreduce_tree, allreduce_tree)
CONFORM_EXCHANGE(allgatherv, allgatherv)
CONFORM_EXCHANGE(reduce_rows, reduce_rows)
CONFORM_EXCHANGE(made_dense, made_dense)
CONFORM_EXCHANGE(push_pull_rows, push_pull_rows)
CONFORM_EXCHANGE(push_pull_elements, push_pull_elements)

}  // namespace
}  // namespace parallax::exchange_conformance
