// SPDX-License-Identifier: Apache-2.0
// Rows made dense, against the conformance suite of exchanges.
#include "collectives/made_dense.h"

#include <gtest/gtest.h>

#include <memory>

#include "unit/collectives/exchange_conformance.h"

namespace parallax::exchange_conformance {
namespace {

std::unique_ptr<Exchange> make_it_dense(const Columns& columns, const Partition& partition,
                                        Outbox& outbox, Compute& compute, ExchangeOptions options) {
  options.method = Method::kMadeDense;
  return std::make_unique<MadeDense>(columns, partition, outbox, compute, options);
}

Candidate made_dense() {
  return {.make = make_it_dense,
          .rows = true,
          .made_dense = true,
          .integers = false,
          .shapes = kRowShapes};
}

CONFORM_EXCHANGE(made_dense, made_dense)

}  // namespace
}  // namespace parallax::exchange_conformance
