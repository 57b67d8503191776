// SPDX-License-Identifier: Apache-2.0
// Asks of peers that break the rules: what does not fit is refused, whatever it is that does not.
// How those that fit are served: row_access_test.cc.
#include "server/row_asks.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "unit/server/rows_garbage.h"

namespace parallax::testkit::rows_garbage {
namespace {

TEST_F(RowAccessGarbage, ReceiveAnAskThatDoesNotFit) {
  const AskBytes fits = {.row_count = 10};
  for (const uint64_t first : {kRowCount + 1, UINT64_MAX, UINT64_MAX - 9, kRowCount - 9}) {
    EXPECT_FALSE(receive_ask({.first_row = first, .row_count = 10})) << first;
  }
  EXPECT_FALSE(receive_ask({.row_count = kRowCount + 1}));
  EXPECT_FALSE(receive_ask({.first_row = 1, .row_count = UINT64_MAX}));
  for (const uint32_t arrays : {8u, 9u, UINT32_MAX}) {  // it has three
    EXPECT_FALSE(receive_ask({.row_count = 10, .arrays = arrays}));
  }
  EXPECT_FALSE(receive_ask({.row_count = 10, .arrays = 2}, {}, kMirror)) << "it has one";
  for (const uint32_t unknown : {3u, 99u, UINT32_MAX}) {
    EXPECT_FALSE(receive_ask(fits, {}, unknown));
  }
  const SectionHeader header = header_of(SectionKind::kRowsAsk);
  for (const size_t bytes : {size_t{0}, sizeof fits - 1}) {
    EXPECT_FALSE(receive_bytes(1, header, bytes));
  }
  EXPECT_FALSE(receive_ask(fits, {0})) << "a row_key of no list";
  EXPECT_TRUE(receive_ask(fits)) << "what all of these began with";
}

TEST_F(RowAccessGarbage, ReceiveAListThatDoesNotFit) {
  const AskBytes fits = {.row_count = 2, .listed = 2};
  EXPECT_FALSE(receive_ask(fits, {0})) << "too short";
  EXPECT_FALSE(receive_ask(fits, {0, 3, 6})) << "too long";
  EXPECT_FALSE(receive_ask(fits, {0, 1})) << "rank 1's";
  EXPECT_FALSE(receive_ask(fits, {0, kRowCount}));
  EXPECT_FALSE(receive_ask(fits, {UINT32_MAX, 0}));
  EXPECT_FALSE(receive_ask({.row_count = 3, .listed = 2}, {0, 3}));
  EXPECT_FALSE(receive_ask({.first_row = 1, .row_count = 2, .listed = 2}, {0, 3}));
  EXPECT_FALSE(receive_ask(fits, {0, 3}, kDense)) << "it has no rows by id";
  EXPECT_FALSE(receive_ask({.row_count = 513, .listed = 513}, std::vector<uint32_t>(513)));
  EXPECT_FALSE(receive_ask({.row_count = UINT32_MAX, .listed = UINT32_MAX}, {0, 3}));
  EXPECT_TRUE(receive_ask(fits, {0, 3})) << "what all of these began with";
}

// Receive an ask while another of that rank is served: expect it refused, that of others not, and
// the next one taken.
TEST_F(RowAccessGarbage, ReceiveAnAskBeforeTheAnswer) {
  const AskBytes whole = {.row_count = kRowCount};
  EXPECT_TRUE(receive_ask(whole));
  EXPECT_FALSE(receive_ask(whole, {}, kRows, 2));
  EXPECT_TRUE(receive(0, 2, header_of(SectionKind::kRowsAsk), ask_payload(whole, {})));
  job_->network().settle();
  EXPECT_TRUE(receive_ask(whole, {}, kRows, 2));
  begin();
  EXPECT_TRUE(receive_ask({.step = 1, .row_count = 1})) << "of a commit to come";
  EXPECT_FALSE(receive_ask({.row_count = 1}, {}, kRows, 2));
  job_->network().settle();
  EXPECT_FALSE(receive_ask({.row_count = 1}, {}, kRows, 2)) << "still";
}

// Receive an ask that was answered once more, or one of an earlier call (past): expect it refused.
TEST_F(RowAccessGarbage, ReceiveAnAskAgain) {
  const AskBytes some = {.row_count = 10};
  EXPECT_TRUE(receive_ask(some, {}, kRows, 5));
  job_->network().settle();
  EXPECT_FALSE(receive_ask(some, {}, kRows, 5));
  EXPECT_FALSE(receive_ask(some, {}, kMirror, 4));
  EXPECT_TRUE(receive_ask(some, {}, kMirror, 7)) << "calls that asked this rank for nothing";
}

// ---- what is held

// Expect the ranks' shares of any rows to be those rows, and a mirror to have all of them anywhere.
TEST_F(RowAccessGarbage, SharesOfElementsAreDisjoint) {
  for (const uint64_t first : {0u, 2u, 12u}) {
    for (uint64_t count = 0; count <= 13 - first; ++count) {
      uint64_t held = 0;
      for (uint32_t rank = 0; rank < 3; ++rank) {
        const Range range = held_elements(job_->table(0, kDense), rank, first, count);
        held += range.count;
        if (range.count == 0) continue;
        EXPECT_GE(range.first, std::max(first * 100, range_of(rank).first));
        EXPECT_LE(range.end(), std::min((first + count) * 100, range_of(rank).end()));
      }
      EXPECT_EQ(held, count * 100);
      EXPECT_EQ(held_elements(job_->table(0, kMirror), 2, first, count),
                (Range{first * kWidth, count * kWidth}));
    }
  }
}

}  // namespace
}  // namespace parallax::testkit::rows_garbage
