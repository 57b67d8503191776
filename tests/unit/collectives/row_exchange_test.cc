// SPDX-License-Identifier: Apache-2.0
// Every algorithm of rows, run by RowExchange, against the conformance suite of exchanges.
#include "collectives/row_exchange.h"

#include <gtest/gtest.h>

#include <memory>

#include "unit/collectives/exchange_conformance.h"

namespace parallax::exchange_conformance {
namespace {

Factory exchange_of(Method method, uint32_t marker_hosts_max = kMarkerHostsMax) {
  return [=](const Columns& columns, const Partition& partition, Outbox& outbox, Compute& compute,
             ExchangeOptions options) {
    options.method = method;
    options.marker_hosts_max = marker_hosts_max;
    return std::make_unique<RowExchange>(columns, partition, outbox, compute, options,
                                         row_algorithm_for(method));
  };
}

Candidate allgatherv() {
  return {.make = exchange_of(Method::kAllgatherv),
          .rows = true,
          .pieces = Pieces::kHost,
          .shapes = kRowShapes};
}

Candidate reduce_rows() {
  return {.make = exchange_of(Method::kReduceRows), .rows = true, .shapes = kRowShapes};
}

Candidate push_pull_rows() {
  return {.make = exchange_of(Method::kPushPull),
          .rows = true,
          .delivers = false,
          .shapes = kRowShapes};
}

// Some ranks own nothing, and others more than their share.
Candidate with_uneven_owners(Candidate candidate) {
  candidate.uneven_owners = true;
  return candidate;
}
Candidate reduce_rows_uneven() { return with_uneven_owners(reduce_rows()); }
Candidate push_pull_rows_uneven() { return with_uneven_owners(push_pull_rows()); }

// The same among so many hosts that a census tells who has no rows.
Candidate by_census(Candidate candidate, Method method) {
  candidate.all_send = candidate.make;
  candidate.make = exchange_of(method, 0);
  return candidate;
}
Candidate allgatherv_by_census() { return by_census(allgatherv(), Method::kAllgatherv); }
Candidate reduce_rows_by_census() { return by_census(reduce_rows(), Method::kReduceRows); }
Candidate push_pull_rows_by_census() { return by_census(push_pull_rows(), Method::kPushPull); }
Candidate push_pull_rows_uneven_by_census() {
  return with_uneven_owners(push_pull_rows_by_census());
}
Candidate reduce_rows_uneven_by_census() {
  return by_census(reduce_rows_uneven(), Method::kReduceRows);
}

CONFORM_EXCHANGE(allgatherv, allgatherv)
CONFORM_EXCHANGE(reduce_rows, reduce_rows)
CONFORM_EXCHANGE(push_pull_rows, push_pull_rows)
CONFORM_EXCHANGE(push_pull_rows_uneven_by_census, push_pull_rows_uneven_by_census)
CONFORM_EXCHANGE(allgatherv_by_census, allgatherv_by_census)
CONFORM_EXCHANGE(reduce_rows_by_census, reduce_rows_by_census)
CONFORM_EXCHANGE(push_pull_rows_by_census, push_pull_rows_by_census)
CONFORM_EXCHANGE(reduce_rows_uneven, reduce_rows_uneven)
CONFORM_EXCHANGE(push_pull_rows_uneven, push_pull_rows_uneven)
CONFORM_EXCHANGE(reduce_rows_uneven_by_census, reduce_rows_uneven_by_census)

}  // namespace
}  // namespace parallax::exchange_conformance
