// SPDX-License-Identifier: Apache-2.0
// Rows that go all at once: which class carries which method, and whose memory that is.
#include "collectives/whole_rows.h"

#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "collectives/made_dense.h"
#include "collectives/row_exchange.h"
#include "unit/collectives/exchange_conformance.h"

namespace parallax::exchange_conformance::whole_rows {
namespace {

constexpr Method kMethods[] = {Method::kAllgatherv, Method::kReduceRows, Method::kMadeDense};

struct Told final : WholeRows::Runner {
  void on_moved() override { ++times; }
  int times = 0;
};

Setting setting_of(std::vector<uint32_t> hosts) {
  return {.hosts = std::move(hosts), .shape = {64, 3, 24}};
}

// Calls visit(exchange) for that of each rank, which is not reserved.
template <typename Visit>
void each_exchange(Method method, const Setting& setting, const Visit& visit) {
  const Candidate candidate = {.make =
                                   [&](const Columns& columns, const Partition& partition,
                                       Outbox& outbox, Compute& compute, ExchangeOptions options) {
                                     options.method = method;
                                     const auto make = [&] {
                                       return make_whole_rows(columns, partition, outbox, compute,
                                                              options);
                                     };
                                     visit(*make());
                                     return make();
                                   },
                               .rows = true};
  const ExchangeWorld world(candidate, setting);
}

// Given a method, expect its class, and as much of another's arena as it would reserve itself.
TEST(WholeRows, OfAMethodInAnyArena) {
  for (const Method method : kMethods) {
    each_exchange(method, setting_of({0, 0, 1}), [method](WholeRows& exchange) {
      const bool made_dense = dynamic_cast<MadeDense*>(&exchange) != nullptr;
      EXPECT_EQ(made_dense, method == Method::kMadeDense);
      EXPECT_NE(made_dense, dynamic_cast<RowExchange*>(&exchange) != nullptr);
      const size_t bytes = exchange.needed_bytes();
      Arena arena;
      ASSERT_TRUE(arena.reserve(bytes).ok());
      exchange.lay_out(arena);
      EXPECT_EQ(arena.used_bytes(), bytes);
      EXPECT_EQ(exchange.arena().reserved_bytes(), 0u);
    });
  }
}

// Given a rank alone, expect its runner to be told where a step ends with no section.
TEST(WholeRows, ARunnerIsToldWhatNoSectionSays) {
  for (const Method method : kMethods) {
    Told told;
    const Setting setting = setting_of({0});
    const Candidate candidate = {
        .make =
            [&](const Columns& columns, const Partition& partition, Outbox& outbox,
                Compute& compute, ExchangeOptions options) {
              options.method = method;
              auto exchange = make_whole_rows(columns, partition, outbox, compute, options);
              exchange->set_runner(&told);
              return exchange;
            },
        .rows = true};
    ExchangeWorld world(candidate, setting);
    run_step(world, 1, draw_contributions(setting, {}, world.random()));
    EXPECT_TRUE(world.exchange(0).state(1).delivered);
    EXPECT_GT(told.times, 0u) << "nobody would know";
  }
}

}  // namespace
}  // namespace parallax::exchange_conformance::whole_rows
