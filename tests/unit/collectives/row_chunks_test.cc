// SPDX-License-Identifier: Apache-2.0
// How wide chunks are under a ceiling: as wide as that allows, the same on every rank, and none
// that would pass it.
#include "collectives/row_chunks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <vector>

#include "collectives/chunked_rows.h"
#include "collectives/whole_rows.h"
#include "unit/collectives/exchange_conformance.h"

namespace parallax::exchange_conformance::row_chunks {
namespace {

// What there is to make an exchange of, of one rank.
struct Place {
  const Columns& columns;
  const Partition& partition;
  Outbox& outbox;
  Compute& compute;
  ExchangeOptions options;

  RowChunks chunks(uint64_t bytes_max) const {
    return find_row_chunks(columns, partition, outbox, compute, options, bytes_max);
  }
  uint64_t bytes_of_chunk(uint64_t rows) const {
    const Partition chunk = partition.of_rows(rows);
    ExchangeOptions of_chunk = ChunkedRows::options_of_chunk(options, rows);
    of_chunk.staging = nullptr;
    return make_whole_rows(columns, chunk, outbox, compute, of_chunk)->needed_bytes();
  }
};

void at_every_rank(Method method, const Setting& setting,
                   const std::function<void(const Place& place)>& body) {
  const Candidate candidate = {.make =
                                   [&](const Columns& columns, const Partition& partition,
                                       Outbox& outbox, Compute& compute, ExchangeOptions options) {
                                     options.method = method;
                                     options.held = true;
                                     body({columns, partition, outbox, compute, options});
                                     return make_exchange(columns, partition, outbox, compute,
                                                          options);
                                   },
                               .rows = true};
  const ExchangeWorld world(candidate, setting);
}

std::vector<Setting> settings() {
  std::vector<Setting> all;
  for (const auto& hosts : std::vector<std::vector<uint32_t>>{
           {0}, {0, 0, 0, 0}, {0, 1}, {0, 0, 1, 1}, {0, 1, 2, 1, 2}, {0, 0, 0, 1, 1, 1, 2, 2}}) {
    for (const bool ordered : {false, true}) {
      all.push_back({.hosts = hosts, .shape = {3000, 5, 900}, .ordered = ordered, .domains = 1});
    }
    all.push_back({.hosts = hosts, .shape = {3000, 5, 900}, .domains = 2});
  }
  return all;
}

constexpr Method kMethods[] = {Method::kAllgatherv, Method::kReduceRows, Method::kMadeDense};

// The narrowest that so many can be, in turns of so many slots.
uint64_t width_of(uint64_t rows, uint64_t chunks, uint64_t slots) {
  const uint64_t share = (rows + chunks - 1) / chunks;
  return (share + slots - 1) / slots * slots;
}

// Given ceilings, expect every rank to cut alike, no chunk past the ceiling at any rank, and one
// chunk less past it at some.
TEST(RowChunks, AreAsFewAsTheCeilingAllows) {
  for (const Method method : kMethods) {
    for (const Setting& setting : settings()) {
      SCOPED_TRACE(setting.say());
      for (const uint64_t bytes_max : {40'000u, 60'000u, 100'000u}) {
        std::vector<RowChunks> found;
        uint64_t most = 0, wider = 0;
        at_every_rank(method, setting, [&](const Place& place) {
          const RowChunks chunks = found.emplace_back(place.chunks(bytes_max));
          if (chunks.rows == 0) return;
          const uint64_t rows = setting.shape.rows, slots = place.partition.slots().size();
          EXPECT_EQ(chunks.rows, width_of(rows, chunks.count, slots));
          most = std::max(most, place.bytes_of_chunk(chunks.rows));
          if (chunks.count == 2) return;
          const uint64_t of_fewer = width_of(rows, chunks.count - 1, slots);
          wider = std::max(wider, place.bytes_of_chunk(of_fewer));
        });
        const RowChunks& first = found.front();
        EXPECT_TRUE(first.fit());
        EXPECT_LE(first.bytes, bytes_max);
        for (const RowChunks& each : found) {
          EXPECT_EQ(each.rows, first.rows);
          EXPECT_EQ(each.count, first.count);
          EXPECT_EQ(each.bytes, first.bytes);
        }
        if (first.rows == 0) continue;
        EXPECT_EQ(first.bytes, most);
        EXPECT_TRUE(first.count == 2 || wider > bytes_max);
        EXPECT_EQ(first.count, (setting.shape.rows - 1) / first.rows + 1);
        EXPECT_GT(first.count, 1u);
      }
    }
  }
}

// Given the least ceiling that is told, expect it to do, and a byte less not to.
TEST(RowChunks, TellTheLeastCeiling) {
  for (const Method method : kMethods) {
    for (const Setting& setting : settings()) {
      SCOPED_TRACE(setting.say());
      at_every_rank(method, setting, [&](const Place& place) {
        const RowChunks none = place.chunks(1);
        EXPECT_FALSE(none.fit());
        EXPECT_FALSE(place.chunks(none.bytes - 1).fit());
        const RowChunks least = place.chunks(none.bytes);
        EXPECT_TRUE(least.fit());
        EXPECT_EQ(least.bytes, none.bytes);
        EXPECT_LE(least.count, kRowChunksMax);
      });
    }
  }
}

// Given room for all, expect one round.
TEST(RowChunks, NoneWhereThereIsRoom) {
  for (const Method method : kMethods) {
    at_every_rank(method, settings()[8], [&](const Place& place) {
      const RowChunks whole = place.chunks(uint64_t{1} << 30);
      EXPECT_EQ(whole.rows, 0u);
      EXPECT_EQ(whole.count, 1u);
      EXPECT_EQ(place.chunks(whole.bytes).count, 1u);
      EXPECT_NE(place.chunks(whole.bytes - 1).count, 1u);
    });
  }
}

// Of a table with more rows than chunks there may be.
TEST(RowChunks, AreNoMoreThanThereMayBe) {
  const Setting setting = {.hosts = {0, 0, 1, 1}, .shape = {4'000'000, 1, 100'000}};
  for (const Method method : {Method::kReduceRows, Method::kMadeDense}) {
    at_every_rank(method, setting, [&](const Place& place) {
      const RowChunks least = place.chunks(place.chunks(1).bytes);
      EXPECT_TRUE(least.fit());
      EXPECT_LE(least.count, kRowChunksMax);
      EXPECT_GT(least.count, kRowChunksMax - 100);
      EXPECT_EQ(least.rows % place.partition.slots().size(), 0u);
    });
  }
}

}  // namespace
}  // namespace parallax::exchange_conformance::row_chunks
