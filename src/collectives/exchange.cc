// SPDX-License-Identifier: Apache-2.0
// Which class carries which method. See exchange.h.
#include "collectives/exchange.h"

#include "collectives/gradient_exchange.h"

namespace parallax {

std::unique_ptr<Exchange> make_exchange(const Columns& columns, const Partition& partition,
                                        Outbox& outbox, Compute& compute,
                                        const ExchangeOptions& options) {
  return std::make_unique<GradientExchange>(columns, partition, outbox, compute, options);
}

}  // namespace parallax
