// SPDX-License-Identifier: Apache-2.0
// Rows in chunks against the conformance suite of exchanges, and against the same exchange whole.
#include "collectives/chunked_rows.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "unit/collectives/exchange_conformance.h"

namespace parallax::exchange_conformance::chunked_rows {
namespace {

// In so many chunks, or as many as there are rows.
Factory chunks_of(Method method, uint64_t chunks, uint32_t marker_hosts_max = kMarkerHostsMax) {
  return [=](const Columns& columns, const Partition& partition, Outbox& outbox, Compute& compute,
             ExchangeOptions options) {
    options.method = method;
    options.marker_hosts_max = marker_hosts_max;
    options.held = true;
    options.chunk_rows = (partition.rows() - 1) / chunks + 1;
    return std::make_unique<ChunkedRows>(columns, partition, outbox, compute, options);
  };
}

Candidate in_chunks(Method method, uint64_t chunks) {
  const bool made_dense = method == Method::kMadeDense;
  return {.make = chunks_of(method, chunks),
          .rows = true,
          .made_dense = made_dense,
          .integers = !made_dense,
          .pieces = Pieces::kUntold,
          .shapes = kRowShapes,
          .whole_row_keys = false};
}
Candidate allgatherv_in_2_chunks() { return in_chunks(Method::kAllgatherv, 2); }
Candidate allgatherv_in_9_chunks() { return in_chunks(Method::kAllgatherv, 9); }
Candidate reduce_rows_in_3_chunks() { return in_chunks(Method::kReduceRows, 3); }
Candidate reduce_rows_in_7_chunks() { return in_chunks(Method::kReduceRows, 7); }
Candidate reduce_rows_uneven_in_chunks() {
  Candidate candidate = in_chunks(Method::kReduceRows, 4);
  candidate.uneven_owners = true;
  return candidate;
}
Candidate made_dense_in_2_chunks() { return in_chunks(Method::kMadeDense, 2); }
Candidate made_dense_in_9_chunks() { return in_chunks(Method::kMadeDense, 9); }
Candidate made_dense_uneven_in_chunks() {
  Candidate candidate = in_chunks(Method::kMadeDense, 4);
  candidate.uneven_owners = true;
  return candidate;
}

// Among so many hosts that a census tells who has no rows.
Candidate by_census(Candidate candidate, Method method) {
  candidate.all_send = candidate.make;
  candidate.make = chunks_of(method, 3, 0);
  return candidate;
}
Candidate allgatherv_in_chunks_by_census() {
  return by_census(in_chunks(Method::kAllgatherv, 3), Method::kAllgatherv);
}
Candidate reduce_rows_in_chunks_by_census() {
  return by_census(in_chunks(Method::kReduceRows, 3), Method::kReduceRows);
}

CONFORM_EXCHANGE(allgatherv_in_2_chunks, allgatherv_in_2_chunks)
CONFORM_EXCHANGE(allgatherv_in_9_chunks, allgatherv_in_9_chunks)
CONFORM_EXCHANGE(reduce_rows_in_3_chunks, reduce_rows_in_3_chunks)
CONFORM_EXCHANGE(reduce_rows_in_7_chunks, reduce_rows_in_7_chunks)
CONFORM_EXCHANGE(reduce_rows_uneven_in_chunks, reduce_rows_uneven_in_chunks)
CONFORM_EXCHANGE(made_dense_in_2_chunks, made_dense_in_2_chunks)
CONFORM_EXCHANGE(made_dense_in_9_chunks, made_dense_in_9_chunks)
CONFORM_EXCHANGE(made_dense_uneven_in_chunks, made_dense_uneven_in_chunks)
CONFORM_EXCHANGE(allgatherv_in_chunks_by_census, allgatherv_in_chunks_by_census)
CONFORM_EXCHANGE(reduce_rows_in_chunks_by_census, reduce_rows_in_chunks_by_census)

constexpr Method kMethods[] = {Method::kAllgatherv, Method::kReduceRows, Method::kMadeDense};

Setting setting_of(const std::vector<uint32_t>& hosts, const Shape& shape, uint64_t seed) {
  return {.hosts = hosts, .shape = shape, .ordered = true, .counted = seed % 3 == 0, .seed = seed};
}

// Given more chunks than a message's bits tell apart, down to one for each row, expect the sums of
// several steps, some of them without some ranks, or without all.
TEST(ChunkedRows, RowByRow) {
  for (uint32_t world = 1; world <= 6; ++world) {
    for (const auto& hosts : layouts_of(world)) {
      for (const Method method : kMethods) {
        const Candidate candidate = in_chunks(method, UINT32_MAX);
        const Setting setting = setting_of(hosts, {300, 2, 40}, world * 10 + hosts.back());
        ExchangeWorld exchanges(candidate, setting);
        SeededRandom& random = exchanges.random();
        run_steps(exchanges, candidate,
                  {draw_contributions(setting, {.arbitrary = true}, random),
                   draw_contributions(setting, {.absent_percent = 40}, random),
                   draw_contributions(setting, {.absent_percent = 100}, random),
                   draw_contributions(setting, {.empty_percent = 100}, random),
                   draw_contributions(setting, {.arbitrary = true, .absent_percent = 20}, random)},
                  false);
      }
    }
  }
}

// The sections that arrive in a step, but for those of leg 1, which ranks may read where they lie.
size_t arrivals_in_step(const Candidate& candidate, const Setting& setting, const Draw& draw) {
  ExchangeWorld exchanges(candidate, setting);
  size_t arrivals = 0;
  exchanges.tap([&arrivals](const Parcel&) { ++arrivals; });
  run_step(exchanges, 1, draw_contributions(setting, draw, exchanges.random()));
  EXPECT_TRUE(exchanges.exchange(0).state(1).delivered);
  return arrivals;
}

// Given a step in which nobody gives anything, expect one round; a slice without rows takes all.
TEST(ChunkedRows, NothingTakesOneRound) {
  for (const Method method : kMethods) {
    const Setting setting = setting_of({0, 0, 1, 1}, {100, 2, 40}, 7);
    const size_t one = arrivals_in_step(in_chunks(method, 2), setting, {.absent_percent = 100});
    const Candidate many = in_chunks(method, 25);
    EXPECT_EQ(arrivals_in_step(many, setting, {.absent_percent = 100}), one);
    EXPECT_EQ(arrivals_in_step(many, setting, {.empty_percent = 100}), 25 * one);
  }
}

// Of 4 + 3 rows with two elements each.
Setting of_a_short_chunk() {
  Setting setting = setting_of({0, 1, 1}, {7, 2, 7}, 4);
  setting.staged = setting.arrives = false;
  return setting;
}

bool of_chunk(const Parcel& parcel, uint32_t chunk) {
  return RoundNames::chunk_bits_of(parcel.header.part) == RoundNames::bits_of(chunk);
}

// The same with something behind the last chunk's rows, if it can have that.
bool reach_behind(Parcel* parcel) {
  const SectionHeader& header = parcel->header;
  constexpr uint32_t kBehind = 3;
  if (!of_chunk(*parcel, 1) || header.count == 0) return false;
  if (header.encoding == Encoding::kRows) {
    std::memcpy(parcel->payload().data(), &kBehind, sizeof kBehind);
    return true;
  }
  constexpr uint64_t kElement = 2 * kBehind;  // its first
  if (header.encoding != Encoding::kDense || header.first > kElement ||
      header.first + header.count <= kElement) {
    return false;
  }
  const float given = 0;
  std::memcpy(&parcel->payload()[(kElement - header.first) * sizeof given], &given, sizeof given);
  return true;
}

// Given a last chunk of fewer rows than the others, expect a row key behind its last refused, and
// an element.
TEST(ChunkedRows, TheLastChunkIsShorter) {
  for (const Method method : kMethods) {
    const Setting setting = of_a_short_chunk();
    const Candidate candidate = in_chunks(method, 2);
    ExchangeWorld exchanges(candidate, setting);
    uint32_t rows = 0, elements = 0;
    exchanges.tap([&](const Parcel& honest) {
      Parcel parcel = honest;
      if (!reach_behind(&parcel)) return;
      EXPECT_FALSE(exchanges.inject(parcel));
      ++(honest.header.encoding == Encoding::kRows ? rows : elements);
    });
    const Contributions contributions = draw_contributions(setting, {}, exchanges.random());
    run_step(exchanges, 1, contributions);
    check_step(exchanges, candidate, 1, contributions);
    EXPECT_GT(rows, 0u);
    EXPECT_EQ(elements > 0, method == Method::kMadeDense);
  }
}

// Given a host whose elements say that every row was given, and so more than ranks may give, expect
// no rank to take what that sums up to, and one to say so.
TEST(ChunkedRows, MoreRowsThanMayBeGivenAreRefused) {
  Setting setting = setting_of({0, 1, 1}, {64, 2, 4}, 4);
  setting.staged = setting.arrives = false;
  ExchangeWorld exchanges(in_chunks(Method::kMadeDense, 2), setting);
  exchanges.expect_anything();
  uint32_t lies = 0;
  exchanges.tap([&](const Parcel& honest) {
    if (honest.header.kind != SectionKind::kDenseReduce || honest.header.count == 0) return;
    Parcel parcel = honest;
    std::fill(parcel.payload().begin(), parcel.payload().end(), std::byte{1});
    if (exchanges.inject(parcel)) ++lies;
  });
  run_step(exchanges, 1, draw_contributions(setting, {}, exchanges.random()));
  EXPECT_GT(lies, 0u);
  for (uint32_t rank = 0; rank < exchanges.size(); ++rank) {
    EXPECT_FALSE(exchanges.exchange(rank).state(1).delivered);
    EXPECT_LE(exchanges.exchange(rank).whole(1).row_count, 12u);
  }
}

// Given a network that writes where it is told to, expect no rank of a round to be offered a place,
// which others are where rows are made dense as a whole.
TEST(ChunkedRows, NoPlacesAreOffered) {
  Setting setting = setting_of({0, 1, 1, 2}, {60'000, 8, 200}, 9);
  setting.piece_bytes_max = 30'000;
  for (const bool whole : {false, true}) {
    Candidate candidate = in_chunks(Method::kMadeDense, 2);
    if (whole) {
      candidate.make = [](const Columns& columns, const Partition& partition, Outbox& outbox,
                          Compute& compute, ExchangeOptions options) {
        options.method = Method::kMadeDense;
        return make_whole_rows(columns, partition, outbox, compute, options);
      };
      candidate.whole_row_keys = true;
      candidate.pieces = Pieces::kOwner;
    }
    ExchangeWorld exchanges(candidate, setting);
    const Contributions contributions = draw_contributions(setting, {}, exchanges.random());
    run_step(exchanges, 1, contributions);
    check_step(exchanges, candidate, 1, contributions);
    uint64_t written = 0;
    for (uint32_t rank = 0; rank < exchanges.size(); ++rank) {
      written += exchanges.written_bytes(rank);
    }
    EXPECT_EQ(written > 0, whole);
  }
}

// Takes elements as a transport does that receives them where they go. False: nowhere.
bool comes_in_place(ExchangeWorld& exchanges, const Parcel& parcel) {
  Section section = parcel.section();
  section.header.payload_bytes = static_cast<uint32_t>(section.payload.size());
  Exchange& exchange = exchanges.exchange(parcel.to);
  std::byte* const place = exchange.place_of(parcel.from, section);
  if (place == nullptr) return false;
  std::memcpy(place, section.payload.data(), section.payload.size());
  section.payload = {};
  section.in_place = true;
  exchanges.expect_anything();  // it does not come once more
  static_cast<void>(exchange.on_section(parcel.from, section));
  return true;
}

// Given elements of a round that are received where they go, expect the same sums.
TEST(ChunkedRows, ElementsComeInPlace) {
  const Setting setting = setting_of({0, 1, 1}, {300, 2, 40}, 10);
  const Candidate candidate = in_chunks(Method::kMadeDense, 5);
  ExchangeWorld exchanges(candidate, setting);
  uint32_t placed = 0;
  exchanges.tap([&](const Parcel& honest) {
    if (honest.header.kind != SectionKind::kDenseGather) return;
    placed += comes_in_place(exchanges, honest) ? 1 : 0;
  });
  const Contributions contributions = draw_contributions(setting, {}, exchanges.random());
  run_step(exchanges, 1, contributions);
  check_step(exchanges, candidate, 1, contributions);
  EXPECT_GT(placed, 10u);
}

// Given what no message has, as it is received where it goes, with a row behind the last chunk's,
// expect the rank not to take it.
TEST(ChunkedRows, WhatComesInPlaceIsLookedAt) {
  const Candidate candidate = in_chunks(Method::kMadeDense, 2);
  Setting setting = of_a_short_chunk();
  setting.shape.rows_max = 2;  // of 6 rows that may be given some are not
  uint32_t misled_ranks = 0;
  for (setting.seed = 1; setting.seed <= 8; ++setting.seed) {
    ExchangeWorld exchanges(candidate, setting);
    std::vector<bool> misled(exchanges.size());
    exchanges.tap([&](const Parcel& honest) {
      Parcel parcel = honest;
      if (honest.header.kind != SectionKind::kDenseGather || !reach_behind(&parcel)) return;
      misled[honest.to] = misled[honest.to] || comes_in_place(exchanges, parcel);
    });
    run_step(exchanges, 1, draw_contributions(setting, {}, exchanges.random()));
    for (uint32_t rank = 0; rank < exchanges.size(); ++rank) {
      EXPECT_NE(misled[rank], exchanges.exchange(rank).state(1).delivered);
      misled_ranks += misled[rank] ? 1 : 0;
    }
  }
  EXPECT_GT(misled_ranks, 5u);
}

// Given one rank alone, whose rounds no section ends, expect as many as there are chunks all the
// same, and none within another: as many as a stack would not hold.
TEST(ChunkedRows, ARankAloneGoesOnByItself) {
  const Setting setting = setting_of({0}, {200'000, 1, 50}, 5);
  const Candidate candidate = in_chunks(Method::kMadeDense, 100'000);
  ExchangeWorld exchanges(candidate, setting);
  std::vector<Contributions> steps;
  for (int step = 0; step < 2; ++step) {
    steps.push_back(draw_contributions(setting, {}, exchanges.random()));
  }
  run_steps(exchanges, candidate, steps);
}

// Given a section of a chunk that is neither under way nor next, or of another step, expect it
// refused.
TEST(ChunkedRows, OtherRoundsAreRefused) {
  const Setting setting = setting_of({0, 1}, {100, 2, 40}, 8);
  const Candidate candidate = in_chunks(Method::kReduceRows, 10);
  ExchangeWorld exchanges(candidate, setting);
  uint32_t tried = 0;
  exchanges.tap([&](const Parcel& honest) {
    for (const int chunks : {-2, 2, 3}) {
      Parcel parcel = honest;
      parcel.header.part = static_cast<uint8_t>(parcel.header.part +
                                                RoundNames::bits_of(static_cast<uint32_t>(chunks)));
      const bool taken =
          RoundNames::chunk_bits_of(honest.header.part) != 0 && exchanges.inject(parcel);
      EXPECT_FALSE(taken);
    }
    Parcel parcel = honest;
    parcel.header.step = 3;
    EXPECT_FALSE(exchanges.inject(parcel));
    ++tried;
  });
  const Contributions contributions = draw_contributions(setting, {}, exchanges.random());
  run_step(exchanges, 1, contributions);
  check_step(exchanges, candidate, 1, contributions);
  EXPECT_GT(tried, 20u);
}

}  // namespace
}  // namespace parallax::exchange_conformance::chunked_rows
