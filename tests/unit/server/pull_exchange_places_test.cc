// SPDX-License-Identifier: Apache-2.0
// Rows that an owner's device writes into the leader's memory: that all are right, whatever the
// orders and the dtypes; that nothing stays shared, and nothing is written elsewhere; and what of
// offers and placed sections is refused.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "message/place_offer.h"
#include "server/pull_sections.h"
#include "support/sanitizers.h"
#include "support/slot_maps.h"
#include "unit/server/pull_job.h"

namespace parallax::testkit::pull_places {
namespace {

constexpr uint64_t kRowCount = 1000, kWidth = 960;  // of a row to a message
constexpr size_t kRowBytes = kWidth * sizeof(float);
constexpr uint64_t kRowsMax = 300;
constexpr size_t kPieceBytesMax = 256 * 1024;

enum : uint32_t { kWide, kNarrow, kDense };

std::vector<Variable> variables() {
  return {pulled_variable(kRowCount, kWidth, kRowsMax, PARALLAX_F32),
          pulled_variable(60, 3, 16, PARALLAX_F32), pulled_variable(300, 400, 0, PARALLAX_F32)};
}

std::vector<int64_t> ids(int64_t first, int64_t count) {
  std::vector<int64_t> made(static_cast<size_t>(count));
  std::iota(made.begin(), made.end(), first);
  return made;
}

class PullPlaces : public testing::Test {
 protected:
  void start(const std::vector<uint32_t>& hosts, uint64_t seed = 1, const SlotMap& slots = {},
             size_t piece_bytes_max = kPieceBytesMax,
             uint64_t early_bytes_min = PullExchange::kNeverEarly) {
    job_ = std::make_unique<PullJob>(hosts, variables(), seed, slots, piece_bytes_max, false,
                                     early_bytes_min);
    placed_rows_ = copied_rows_ = 0;
    job_->tap = [this](uint32_t to, uint32_t from, const Section& section) {
      const SectionHeader& header = section.header;
      if (header.kind != SectionKind::kValuesHost || header.tag != kWide || to == from) return;
      (header.encoding == Encoding::kPlaced ? placed_rows_ : copied_rows_) += header.count;
    };
  }
  SectionNetwork& network() { return job_->network(); }
  void settle() {
    network().settle();
    ASSERT_TRUE(network().refusals().empty()) << told(network().refusals());
    for (uint32_t rank = 0; rank < job_->world(); ++rank) {
      EXPECT_EQ(network().places(rank).shared, 0u) << "rank " << rank;
      EXPECT_EQ(network().places(rank).refused_pieces, 0u) << "rank " << rank;
    }
  }

  std::unique_ptr<PullJob> job_;
  uint64_t placed_rows_ = 0, copied_rows_ = 0;  // between ranks
};

// Given any layout, owners of unequal shares, and pulls that overlap, in any dtype: expect the
// owners' rows, those between hosts placed, for three steps.
TEST_F(PullPlaces, PlacedRowsAreTheOwnersRows) {
  const std::vector<std::vector<uint32_t>> layouts = {
      {0, 1}, {0, 1, 2}, {0, 0, 1, 1}, {0, 1, 0, 1}, {0, 0, 0, 1, 1}};
  for (const std::vector<uint32_t>& hosts : layouts) {
    if (kBrief && hosts.size() > 3) continue;
    for (uint64_t seed = 1; seed <= (kBrief ? 1 : 3); ++seed) {
      SCOPED_TRACE(std::to_string(hosts.size()) + " ranks, seed " + std::to_string(seed));
      const auto world = static_cast<uint32_t>(hosts.size());
      start(hosts, seed, seed % 2 == 0 ? uneven_slots(world, seed) : SlotMap());
      SeededRandom random(seed);
      uint64_t placed = 0;
      for (uint64_t step = 1; step <= 3; ++step) {
        std::vector<Pull*> pulls;
        for (uint32_t rank = 0; rank < world; ++rank) {
          for (int i = 0; i < 2; ++i) {
            Wish wish(kWide, {}, random.chance(30) ? PARALLAX_F16 : PARALLAX_F32);
            for (uint64_t row = 0; row < kRowsMax; ++row) {
              wish.ids.push_back(static_cast<int64_t>(random.below(kRowCount)));
            }
            pulls.push_back(&job_->pull(rank, step, {wish, Wish::whole(kDense)}));
          }
          for (uint64_t moves = random.below(40); moves > 0; --moves) network().move();
        }
        ASSERT_NO_FATAL_FAILURE(settle());
        for (const Pull* pull : pulls) ASSERT_NO_FATAL_FAILURE(job_->expect_values(*pull));
        job_->end_all(step);
        ASSERT_NO_FATAL_FAILURE(settle());
        job_->commit_all(step);
        placed += placed_rows_;
      }
      EXPECT_GT(placed, 0u);
    }
  }
}

// Given two hosts of a rank, expect every row of the other's written once, and none in messages.
TEST_F(PullPlaces, NoRowOfALongAnswerIsInAMessage) {
  start({0, 1});
  Pull& pull = job_->pull(0, 1, {Wish(kWide, ids(0, 300))});
  ASSERT_NO_FATAL_FAILURE(settle());
  ASSERT_NO_FATAL_FAILURE(job_->expect_values(pull));
  EXPECT_EQ(copied_rows_, 0u);
  EXPECT_GT(placed_rows_, 100u);
  EXPECT_EQ(network().places(0).written_bytes, placed_rows_ * kRowBytes);
  EXPECT_EQ(network().places(1).written_bytes, 0u);
}

TEST_F(PullPlaces, ShortAnswersAreInMessages) {
  start({0, 1});
  const Pull& pull = job_->pull(0, 1, {Wish(kWide, ids(0, 20)), Wish(kNarrow, ids(0, 16))});
  ASSERT_NO_FATAL_FAILURE(settle());
  ASSERT_NO_FATAL_FAILURE(job_->expect_values(pull));
  EXPECT_EQ(network().places(0).shares, 0u);
  EXPECT_GT(copied_rows_, 0u);
}

TEST_F(PullPlaces, WithoutRoomToRegisterAnswersAreInMessages) {
  for (const bool none_shared : {true, false}) {
    start({0, 1}, 1, {}, none_shared ? kPieceBytesMax : 0);
    network().places(0).none_shared = none_shared;
    const Pull& pull = job_->pull(0, 1, {Wish(kWide, ids(0, 300))});
    ASSERT_NO_FATAL_FAILURE(settle());
    ASSERT_NO_FATAL_FAILURE(job_->expect_values(pull));
    EXPECT_EQ(placed_rows_, 0u);
    EXPECT_GT(copied_rows_, 100u);
  }
}

// Given more asks at once than an owner keeps places for, expect the first ones placed, the others
// copied, and all right.
TEST_F(PullPlaces, WhatIsBeyondTheOwnersPlacesIsCopied) {
  start({0, 0, 0, 0, 0, 0, 1}, 1, {}, kPieceBytesMax);
  network().hold(6, 0);
  const Partition& partition = job_->partition(kWide);
  const auto enough = static_cast<uint32_t>(kPlacedBytesMin / kRowBytes + 1);
  ASSERT_GE(partition.rows_owned(6), 6 * enough);
  std::vector<const Pull*> pulls;
  for (uint32_t rank = 0; rank < 6; ++rank) {
    Wish wish(kWide, {});
    for (uint32_t i = rank * enough; i < (rank + 1) * enough; ++i) {
      wish.ids.push_back(static_cast<int64_t>(partition.row_of(partition.row_key_at(6, i))));
    }
    pulls.push_back(&job_->pull(rank, 1, {wish}));
  }
  network().settle();
  EXPECT_EQ(network().places(0).shared, kPullPlacesMax);
  network().release();
  ASSERT_NO_FATAL_FAILURE(settle());
  for (const Pull* pull : pulls) ASSERT_NO_FATAL_FAILURE(job_->expect_values(*pull));
  EXPECT_EQ(placed_rows_, kPullPlacesMax * enough);
  EXPECT_EQ(copied_rows_, (6 - kPullPlacesMax) * enough);
}

// Given a pull that is posted with the end of the step before, expect its rows placed like any,
// also where pulls might go early.
TEST_F(PullPlaces, RowsOfAPullThatIsPostedEarlyArePlaced) {
  for (const uint64_t early_bytes_min : {uint64_t{1}, PullExchange::kNeverEarly}) {
    start({0, 1}, 1, {}, kPieceBytesMax, early_bytes_min);
    job_->end_all(1);
    const Pull& pull = job_->pull(0, 2, {Wish(kWide, ids(0, 300))});
    network().settle();
    job_->commit_all(1);
    ASSERT_NO_FATAL_FAILURE(settle());
    ASSERT_NO_FATAL_FAILURE(job_->expect_values(pull));
    EXPECT_EQ(copied_rows_, 0u) << early_bytes_min;
    EXPECT_GT(placed_rows_, 100u) << early_bytes_min;
  }
}

// Given an owner whose places are all taken, by rows that are not packed yet, and a pull of the
// next step of which some rows are posted early and others once the step is decided: expect what it
// cannot keep a place for in messages, and all right.
TEST_F(PullPlaces, APullBehindPlacesThatAreTakenIsServed) {
  start({0, 0, 0, 0, 1}, 1, {}, kPieceBytesMax, 1);
  const Partition& partition = job_->partition(kWide);
  const auto enough = static_cast<uint32_t>(kPlacedBytesMin / kRowBytes + 1);
  const auto rows_of_4 = [&](uint32_t first, uint32_t count) {
    Wish wish(kWide, {});
    for (uint32_t i = first; i < first + count; ++i) {
      wish.ids.push_back(static_cast<int64_t>(partition.row_of(partition.row_key_at(4, i))));
    }
    return wish;
  };
  network().hold(4, 0);
  std::vector<const Pull*> pulls;
  for (uint32_t rank = 0; rank < 4; ++rank) {
    pulls.push_back(&job_->pull(rank, 1, {rows_of_4(rank * enough, enough)}));
  }
  network().settle();
  EXPECT_EQ(network().places(0).shared, kPullPlacesMax);
  network().release();
  ASSERT_NO_FATAL_FAILURE(settle());
  job_->end_all(1);
  ASSERT_NO_FATAL_FAILURE(settle());
  network().hold(4, 0);
  pulls.push_back(&job_->pull(0, 2, {rows_of_4(0, 40)}));
  network().settle();
  for (const uint32_t rank : {0u, 1u}) job_->decide(rank, 1);
  pulls.push_back(&job_->pull(1, 2, {rows_of_4(100, 30)}));
  network().settle();
  network().release();
  network().settle();
  job_->commit_all(1);
  ASSERT_NO_FATAL_FAILURE(settle());
  for (const Pull* pull : pulls) ASSERT_NO_FATAL_FAILURE(job_->expect_values(*pull));
}

// Given an owner that is late, and a variable that is removed meanwhile: expect that nothing is
// shared any more, and that the owner's pieces are written nowhere.
TEST_F(PullPlaces, NothingIsWrittenOnceTheVariableIsGone) {
  start({0, 1});
  network().hold(1, 0);
  job_->pull(0, 1, {Wish(kWide, ids(0, 300))});
  network().settle();
  EXPECT_EQ(network().places(0).shared, 1u);
  const size_t areas = network().places(0).areas.size();
  job_->exchange(0).remove_variable(kWide);
  EXPECT_EQ(network().places(0).shared, 0u);
  EXPECT_EQ(network().places(0).areas.size(), areas - 2);
  network().release();
  network().settle();
  EXPECT_EQ(network().places(0).written_bytes, 0u);
  EXPECT_GT(network().places(0).refused_pieces, 0u);
  EXPECT_FALSE(network().refusals().empty()) << "values of no variable";
}

// ---- what is refused

class PullPlacesGarbage : public PullPlaces {
 protected:
  bool receive(uint32_t to, uint32_t from, const SectionHeader& header,
               std::span<const std::byte> payload) {
    const bool fits = job_->exchange(to).on_section(from, OwnedSection(header, payload).view());
    job_->advance(to);
    return fits;
  }
  static SectionHeader placed(uint64_t first, uint32_t count) {
    SectionHeader header{.kind = SectionKind::kValuesHost, .encoding = Encoding::kPlaced};
    header.step = 1;
    header.first = first;
    header.count = count;
    header.payload_bytes = static_cast<uint32_t>(count * kRowBytes);
    return header;
  }
  // Rank 0 waits for rows of rank 1, which are offered a place or not; how many.
  uint64_t ask(bool offered) {
    start({0, 1}, 1, {}, offered ? kPieceBytesMax : 0);
    network().hold(1, 0);
    uint64_t asked = 0;
    job_->tap = [&asked](uint32_t, uint32_t from, const Section& section) {
      const bool ask = section.header.kind == SectionKind::kPullHost && from == 0;
      if (ask) asked = section.header.first + section.header.count;
    };
    job_->pull(0, 1, {Wish(kWide, ids(0, 300))});
    network().settle();
    job_->tap = nullptr;
    return asked;
  }
};

TEST_F(PullPlacesGarbage, ReceivePlacedValuesWithoutAnOffer) {
  ask(false);
  EXPECT_FALSE(receive(0, 1, placed(0, 1), {}));
}

TEST_F(PullPlacesGarbage, ReceivePlacedValuesThatDoNotFit) {
  const auto count = static_cast<uint32_t>(ask(true));
  job_->expect_any_values();
  ASSERT_GT(count, 20u);
  EXPECT_FALSE(receive(0, 1, placed(0, count + 1), {})) << "more than were offered";
  EXPECT_FALSE(receive(0, 1, placed(1, 1), {})) << "not the next one";
  EXPECT_FALSE(receive(0, 1, placed(0, 0), {}));
  SectionHeader header = placed(0, 2);
  header.payload_bytes += 4;
  EXPECT_FALSE(receive(0, 1, header, {})) << "another length";
  const std::vector<std::byte> bytes(2 * kRowBytes);
  EXPECT_FALSE(receive(0, 1, placed(0, 2), bytes)) << "in the message too";
  header = placed(0, 2);
  header.step = 2;
  EXPECT_FALSE(receive(0, 1, header, {}));
  EXPECT_TRUE(receive(0, 1, placed(0, 2), {})) << "what all of these began with";
  EXPECT_FALSE(receive(0, 1, placed(0, 2), {})) << "again";
  EXPECT_TRUE(receive(0, 1, placed(2, count - 2), {}));
  EXPECT_EQ(network().places(0).shared, 0u) << "all is here";
}

// Receive another order of rows that have a place, of an owner that may not have kept it: expect
// the place to end, and the values in that order and in messages only.
TEST_F(PullPlacesGarbage, ReceiveEarlyRowsThatHaveAPlace) {
  start({0, 1});
  network().hold(1, 0);
  std::vector<uint32_t> row_keys;
  job_->tap = [&](uint32_t to, uint32_t, const Section& section) {
    if (section.header.kind != SectionKind::kPullHost || to != 1) return;
    for (uint32_t i = 0; i < section.header.count; ++i) {
      row_keys.push_back(row_key_at(section, i));
    }
  };
  const Pull& pull = job_->pull(0, 1, {Wish(kWide, ids(0, 300))});
  network().settle();
  ASSERT_EQ(network().places(0).shared, 1u);
  const auto third = std::byte{0b100};
  SectionHeader bits{.kind = SectionKind::kEarlyRows, .tag = kWide};
  bits.step = bits.count = 1;
  ASSERT_TRUE(receive(0, 1, bits, std::span(&third, 1)));
  std::rotate(row_keys.begin(), row_keys.begin() + 2, row_keys.begin() + 3);
  const auto count = static_cast<uint32_t>(row_keys.size());
  EXPECT_FALSE(receive(0, 1, placed(0, 1), {}));
  EXPECT_FALSE(receive(0, 1, placed(0, count), {}));
  std::vector<float> values;
  for (const uint32_t row_key : row_keys) {
    for (uint64_t column = 0; column < kWidth; ++column) {
      const uint64_t row = job_->partition(kWide).row_of(row_key);
      values.push_back(static_cast<float>(value_at(kWide, row, column, 0)));
    }
  }
  SectionHeader header = placed(0, count);
  header.encoding = Encoding::kValues;
  ASSERT_TRUE(receive(0, 1, header, as_payload(values)));
  EXPECT_EQ(network().places(0).shared, 0u);
  network().settle();
  ASSERT_NO_FATAL_FAILURE(job_->expect_values(pull));
}

TEST_F(PullPlacesGarbage, ReceiveAnOfferThatDoesNotFit) {
  start({0, 0, 1});
  const std::byte key{7};
  SectionHeader header{.kind = SectionKind::kPullPlace, .encoding = Encoding::kBytes};
  header.step = 1;
  const auto offered = [&](uint32_t from, uint64_t bytes) {
    const PlaceOffer offer({.first = 4096, .bytes = bytes}, {.area = 1, .key = {&key, 1}});
    return receive(2, from, header, offer.bytes());
  };
  EXPECT_TRUE(offered(0, 64 * kRowBytes));
  EXPECT_FALSE(offered(1, 64 * kRowBytes)) << "rank 0 leads for that host";
  EXPECT_FALSE(offered(2, 64 * kRowBytes)) << "of itself";
  EXPECT_FALSE(offered(0, 0));
  EXPECT_FALSE(offered(0, kRowBytes + 4)) << "no whole rows";
  EXPECT_FALSE(offered(0, uint64_t{UINT32_MAX} * kRowBytes + kRowBytes));
  header.first = UINT64_MAX - 3;
  EXPECT_FALSE(offered(0, 64 * kRowBytes)) << "behind the last of all numbers";
  header.first = 0;
  header.tag = kDense;
  EXPECT_FALSE(offered(0, 64 * kRowBytes)) << "of elements";
  header.tag = 99;
  EXPECT_FALSE(offered(0, 64 * kRowBytes));
  header.tag = kWide;
  header.flags = static_cast<uint8_t>(PARALLAX_F64 << kSectionDtypeShift);
  EXPECT_FALSE(offered(0, 64 * kRowBytes)) << "wider than the owner has them";
  header.flags = 0;
  EXPECT_FALSE(receive(2, 0, header, {})) << "no offer is as short";
  header.encoding = Encoding::kIds;
  EXPECT_FALSE(offered(0, 64 * kRowBytes));
  header.encoding = Encoding::kBytes;
  // Any number of them: a leader that gets messages instead is content.
  for (int i = 0; i < 100; ++i) EXPECT_TRUE(offered(0, 64 * kRowBytes));
}

}  // namespace
}  // namespace parallax::testkit::pull_places
