// SPDX-License-Identifier: Apache-2.0
// Which class carries which method. See exchange.h.
#include "collectives/exchange.h"

#include <utility>

#include "collectives/algorithm_choice.h"
#include "collectives/board_exchange.h"
#include "collectives/chunked_rows.h"
#include "collectives/counting_exchange.h"
#include "collectives/dense_exchange.h"
#include "collectives/whole_rows.h"

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
    if (options.entries != nullptr && algorithm.build == allreduce_oneshot) {
      const EntryPlace place = options.entries->reserve(
          options.variable, partition.elements() * bytes_of_sum(options.sum));
      if (place.exists()) {
        return std::make_unique<BoardExchange>(columns, partition, *options.entries, place,
                                               options);
      }
    }
    return std::make_unique<DenseExchange>(columns, partition, outbox, options, algorithm);
  }
  if (options.chunk_rows != 0) {
    return std::make_unique<ChunkedRows>(columns, partition, outbox, compute, options);
  }
  return make_whole_rows(columns, partition, outbox, compute, options);
}

}  // namespace

bool is_on_boards(const Exchange& exchange) {
  return dynamic_cast<const BoardExchange*>(&exchange) != nullptr;
}

bool takes_arriving(const Exchange& exchange) {
  return dynamic_cast<const DenseExchange*>(&exchange) != nullptr ||
         dynamic_cast<const WholeRows*>(&exchange) != nullptr;
}

DenseShape dense_shape(const Partition& partition, const ExchangeOptions& options) {
  return {.elements = partition.elements(),
          .ordered = options.ordered,
          .returned = options.method != Method::kPushPull,
          .held = options.held,
          .element_bytes = bytes_of_sum(options.sum)};
}

std::unique_ptr<Exchange> make_exchange(const Columns& columns, const Partition& partition,
                                        Outbox& outbox, Compute& compute,
                                        const ExchangeOptions& options) {
  auto carrier = make_carrier(columns, partition, outbox, compute, options);
  // On boards everybody sees who gave.
  if (!options.counts_contributors || is_on_boards(*carrier)) return carrier;
  return std::make_unique<CountingExchange>(columns, outbox, options.variable, std::move(carrier));
}

}  // namespace parallax
