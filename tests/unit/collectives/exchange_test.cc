// SPDX-License-Identifier: Apache-2.0
// Which class carries which method.
#include "collectives/exchange.h"

#include <gtest/gtest.h>

#include "collectives/chunked_rows.h"
#include "collectives/dense_exchange.h"
#include "collectives/made_dense.h"
#include "collectives/row_exchange.h"
#include "unit/collectives/exchange_conformance.h"

namespace parallax::exchange_conformance {
namespace {

template <typename Class>
bool makes(Method method, bool rows, uint64_t chunk_rows = 0) {
  bool made = false;
  const Candidate candidate = {.make =
                                   [&](const Columns& columns, const Partition& partition,
                                       Outbox& outbox, Compute& compute, ExchangeOptions options) {
                                     options.method = method;
                                     options.held = chunk_rows != 0;
                                     options.chunk_rows = chunk_rows;
                                     auto exchange = make_exchange(columns, partition, outbox,
                                                                   compute, options);
                                     made = dynamic_cast<Class*>(exchange.get()) != nullptr;
                                     return exchange;
                                   },
                               .rows = rows};
  const ExchangeWorld world(candidate, {.shape = {64, 3, rows ? 24u : 0u}});
  return made;
}

// Given a method and whether the variable has row ids, expect its class.
TEST(MakeExchange, ElementsRowsAndRowsMadeDenseAreClassesOfTheirOwn) {
  EXPECT_TRUE(makes<DenseExchange>(Method::kAllreduce, false));
  EXPECT_TRUE(makes<DenseExchange>(Method::kPushPull, false));
  EXPECT_TRUE(makes<RowExchange>(Method::kPushPull, true));
  EXPECT_TRUE(makes<RowExchange>(Method::kAllgatherv, true));
  EXPECT_TRUE(makes<RowExchange>(Method::kReduceRows, true));
  EXPECT_TRUE(makes<MadeDense>(Method::kMadeDense, true));
  EXPECT_TRUE(makes<ChunkedRows>(Method::kAllgatherv, true, 10));
  EXPECT_TRUE(makes<ChunkedRows>(Method::kReduceRows, true, 10));
  EXPECT_TRUE(makes<ChunkedRows>(Method::kMadeDense, true, 10));
}

}  // namespace
}  // namespace parallax::exchange_conformance
