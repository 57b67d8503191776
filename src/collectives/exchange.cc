// SPDX-License-Identifier: Apache-2.0
// Which class carries which method. See exchange.h.
#include "collectives/exchange.h"

#include <utility>

#include "collectives/algorithm_choice.h"
#include "collectives/counting_exchange.h"
#include "collectives/dense_exchange.h"
#include "collectives/made_dense.h"
#include "collectives/row_exchange.h"

namespace parallax {

namespace {

std::unique_ptr<Exchange> make_carrier(const Columns& columns, const Partition& partition,
                                       Outbox& outbox, Compute& compute,
                                       const ExchangeOptions& options) {
  if (!partition.ids_declared()) {
    const DenseAlgorithm& algorithm =
        options.algorithms == nullptr
            ? direct_algorithm()
            : options.algorithms->of(dense_shape(partition, options), options.sum);
    return std::make_unique<DenseExchange>(columns, partition, outbox, options, algorithm);
  }
  if (options.method == Method::kMadeDense) {
    return std::make_unique<MadeDense>(columns, partition, outbox, compute, options);
  }
  return std::make_unique<RowExchange>(columns, partition, outbox, compute, options,
                                       row_algorithm_for(options.method));
}

}  // namespace

DenseShape dense_shape(const Partition& partition, const ExchangeOptions& options) {
  return {.elements = partition.elements(),
          .ordered = options.ordered,
          .returned = options.method != Method::kPushPull,
          .held = options.held};
}

std::unique_ptr<Exchange> make_exchange(const Columns& columns, const Partition& partition,
                                        Outbox& outbox, Compute& compute,
                                        const ExchangeOptions& options) {
  auto carrier = make_carrier(columns, partition, outbox, compute, options);
  if (!options.counts_contributors) return carrier;
  return std::make_unique<CountingExchange>(columns, outbox, options.variable, std::move(carrier));
}

}  // namespace parallax
