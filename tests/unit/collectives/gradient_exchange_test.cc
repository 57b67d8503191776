// SPDX-License-Identifier: Apache-2.0
// GradientExchange, by each row of the table of algorithms, against the conformance suite.
#include "collectives/gradient_exchange.h"

#include <gtest/gtest.h>

#include "unit/collectives/exchange_conformance.h"

namespace parallax::exchange_conformance {
namespace {

class RoadUnderTest final : public ExchangeUnderTest {
 public:
  RoadUnderTest(const Columns& columns, const Partition& partition, Outbox& outbox,
                Compute& compute, const GradientExchangeOptions& options)
      : exchange_(columns, partition, outbox, compute, options) {}

  const Algorithm& algorithm() const { return exchange_.algorithm(); }

  size_t needed_bytes() override { return exchange_.needed_bytes(); }
  Status reserve() override { return exchange_.reserve(); }
  size_t reserved_bytes() const override { return exchange_.arena().reserved_bytes(); }
  size_t used_bytes() const override { return exchange_.arena().used_bytes(); }
  void open(uint64_t step) override { exchange_.open(step); }
  void contribute_dense(uint64_t step, const RowValues& values, uint32_t* pending) override {
    exchange_.contribute_dense(step, values, pending);
  }
  void contribute_rows(uint64_t step, const RowSlice& first, const RowSlice& more,
                       uint32_t* pending) override {
    exchange_.contribute_rows(step, first, more, pending);
  }
  bool coalescing(uint64_t step) const override { return exchange_.coalescing(step); }
  void end_local(uint32_t from, uint64_t step) override { exchange_.end_local(from, step); }
  bool on_section(uint32_t from, const Section& section) override {
    return exchange_.on_section(from, section);
  }
  bool reduced(uint64_t step) const override { return exchange_.reduced(step); }
  bool delivered(uint64_t step) const override { return exchange_.delivered(step); }
  std::vector<uint32_t> missing_ranks(uint64_t step) const override {
    return exchange_.missing_ranks(step);
  }
  ReducedGradient owned(uint64_t step) const override { return exchange_.owned(step); }
  ReducedGradient whole(uint64_t step) const override { return exchange_.whole(step); }
  void add_squared_norm(uint64_t step, ExactSum* sum) const override {
    exchange_.add_squared_norm(step, sum);
  }
  ExchangeCounts counts(uint64_t step) const override { return exchange_.counts(step); }

 private:
  GradientExchange exchange_;
};

// An exchange of this method; by the row of this name, whatever else the method has.
Factory exchange_of(Method method, std::string algorithm) {
  return [method, algorithm](const Columns& columns, const Partition& partition, Outbox& outbox,
                             Compute& compute, const ExchangeSettings& settings) {
    auto exchange =
        std::make_unique<RoadUnderTest>(columns, partition, outbox, compute,
                                        GradientExchangeOptions{.variable = settings.variable,
                                                                .method = method,
                                                                .rows_max = settings.rows_max,
                                                                .ordered = settings.ordered,
                                                                .sum = settings.sum,
                                                                .counted = settings.counted});
    EXPECT_EQ(exchange->algorithm().name, algorithm);
    return exchange;
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
