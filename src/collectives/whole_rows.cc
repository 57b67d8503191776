// SPDX-License-Identifier: Apache-2.0
// Memory of rows that go all at once, and which class carries which of their methods. See
// whole_rows.h.
#include "collectives/whole_rows.h"

#include "collectives/algorithms.h"
#include "collectives/made_dense.h"
#include "collectives/row_exchange.h"

namespace parallax {

size_t WholeRows::needed_bytes() {
  Arena measure;
  lay_out(measure);
  return measure.used_bytes();
}

Status WholeRows::reserve() {
  PARALLAX_RETURN_IF_ERROR(arena_.reserve(needed_bytes()));
  lay_out(arena_);
  return reserve_scratch();
}

std::unique_ptr<WholeRows> make_whole_rows(const Columns& columns, const Partition& partition,
                                           Outbox& outbox, Compute& compute,
                                           const ExchangeOptions& options) {
  if (options.method == Method::kMadeDense) {
    return std::make_unique<MadeDense>(columns, partition, outbox, compute, options);
  }
  return std::make_unique<RowExchange>(columns, partition, outbox, compute, options,
                                       row_algorithm_for(options.method));
}

}  // namespace parallax
