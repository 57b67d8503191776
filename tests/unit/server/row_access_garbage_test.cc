// SPDX-License-Identifier: Apache-2.0
// Answers and writes of peers that break the rules: what does not fit is refused, whatever it is
// that does not.
#include <gtest/gtest.h>

#include "support/sanitizers.h"
#include "unit/server/rows_garbage.h"

namespace parallax::testkit::rows_garbage {
namespace {

// ---- answer

// Rank 0 reads the values, and the second state, of rows 20 to 69.
class RowAccessGarbageAnswer : public RowAccessGarbage {
 protected:
  static constexpr uint64_t kFirst = 20, kCount = 50;

  void read(uint32_t variable = kRows) {
    begin();
    const uint64_t first = variable == kRows ? kFirst : 2;
    job_->read(0, variable, first, variable == kRows ? kCount : 8, 5);
    asked_.clear();
    for (uint64_t row = kFirst; row < kFirst + kCount; ++row) {
      const uint32_t row_key = job_->partition(kRows).row_key_of(row);
      if (job_->partition(kRows).owner_of(row_key) == 1) asked_.push_back(row_key);
    }
  }
  // Rank 0 pulls three rows of rank 1, the second of them twice; and one of rank 2.
  void pull() {
    begin();
    const Partition& partition = job_->partition(kRows);
    std::vector<int64_t> ids;
    for (const uint32_t row_key : {1u, 4u, 4u, 7u, 2u}) {
      ids.push_back(static_cast<int64_t>(partition.row_of(row_key)));
    }
    job_->pull(0, kRows, ids);
  }
  bool receive_rows(uint32_t from, const SectionHeader& header,
                    const std::vector<uint32_t>& row_keys) {
    return receive(0, from, header, rows_payload(row_keys));
  }
  std::vector<uint32_t> asked_;  // of rank 1
};

TEST_F(RowAccessGarbageAnswer, ReceiveRowsThatDoNotFit) {
  read();
  ASSERT_GE(asked_.size(), 3u);
  const std::vector<uint32_t> two = {asked_[0], asked_[1]};
  const SectionHeader fits = rows_header(SectionKind::kRowsAnswer, 2);
  const auto refused_with = [&](const std::function<void(SectionHeader*)>& change) {
    SectionHeader header = fits;
    change(&header);
    read();
    EXPECT_FALSE(receive_rows(1, header, two));
  };
  for (const Encoding encoding :
       {Encoding::kBytes, Encoding::kDense, Encoding::kIds, Encoding::kValues}) {
    refused_with([&](SectionHeader* header) { header->encoding = encoding; });
  }
  for (const uint32_t count : {0u, 1u, 3u, UINT32_MAX}) {
    refused_with([&](SectionHeader* header) { header->count = count; });
  }
  refused_with([](SectionHeader* header) { header->tag = kDense; });
  refused_with([](SectionHeader* header) { header->tag = 99; });
  refused_with([](SectionHeader* header) { header->step = 0; });  // of the call before
  refused_with([](SectionHeader* header) { header->step = 2; });  // of the next
  refused_with([](SectionHeader* header) { header->part = 1; });  // not asked for
  refused_with([](SectionHeader* header) { header->part = 3; });  // there is none
  refused_with([](SectionHeader* header) { header->part = 255; });
  const auto refused = [&](uint32_t from, const std::vector<uint32_t>& row_keys) {
    read();
    EXPECT_FALSE(receive_rows(from, rows_header(SectionKind::kRowsAnswer, 2), row_keys));
  };
  refused(2, two);                         // another's
  refused(1, {asked_[0], kRowCount + 1});  // beyond
  refused(1, {UINT32_MAX, asked_[0]});
  for (const uint64_t row : {uint64_t{0}, kFirst - 1, kFirst + kCount, kRowCount - 1}) {
    const uint32_t row_key = job_->partition(kRows).row_key_of(row);
    read();
    EXPECT_FALSE(receive_rows(row_key % 3, rows_header(SectionKind::kRowsAnswer, 1), {row_key}))
        << "row " << row << " was not asked for";
  }
  read();
  EXPECT_TRUE(receive_rows(1, fits, two)) << "what all of these began with";
}

// Receive rows in pieces: expect those of each array in their order, once.
TEST_F(RowAccessGarbageAnswer, ReceiveRowsAgain) {
  read();
  ASSERT_GE(asked_.size(), 5u);
  const SectionHeader two = rows_header(SectionKind::kRowsAnswer, 2);
  SectionHeader state = two;
  state.part = 2;
  EXPECT_TRUE(receive_rows(1, two, {asked_[0], asked_[1]}));
  EXPECT_FALSE(receive_rows(1, two, {asked_[0], asked_[1]})) << "again";
  EXPECT_FALSE(receive_rows(1, two, {asked_[1], asked_[2]})) << "in part again";
  EXPECT_TRUE(receive_rows(1, state, {asked_[0], asked_[1]})) << "of another array";
  EXPECT_TRUE(receive_rows(1, two, {asked_[2], asked_[3]}));
  EXPECT_FALSE(receive_rows(1, rows_header(SectionKind::kRowsAnswer, 0), {})) << "none";
  read();
  EXPECT_FALSE(receive_rows(1, two, {asked_[0], asked_[0]})) << "twice in a section";
  read();
  EXPECT_FALSE(receive_rows(1, two, {asked_[1], asked_[0]})) << "backwards";
}

// Rows 2 to 9 are elements 200 to 999. Rank 2 has the first of them, then rank 0; rank 1 none.
TEST_F(RowAccessGarbageAnswer, ReceiveElementsThatDoNotFit) {
  ASSERT_EQ(range_of(2), (Range{0, 512}));
  ASSERT_EQ(range_of(0), (Range{512, 512}));
  SectionHeader fits = header_of(SectionKind::kRowsAnswer, kDense);
  fits.encoding = Encoding::kDense;
  fits.count = 100;
  fits.first = 200;
  const auto refused_with = [&](const std::function<void(SectionHeader*)>& change, size_t bytes) {
    SectionHeader header = fits;
    change(&header);
    read(kDense);
    EXPECT_FALSE(receive_bytes(2, header, bytes));
  };
  for (const uint64_t first :
       {uint64_t{0}, uint64_t{199}, uint64_t{201}, uint64_t{512}, uint64_t{901}, UINT64_MAX}) {
    refused_with([&](SectionHeader* header) { header->first = first; }, 400);
  }
  refused_with([](SectionHeader* header) { header->count = 0; }, 0);
  refused_with([](SectionHeader* header) { header->count = 313; }, 313 * 4);  // rank 0's, by one
  refused_with([](SectionHeader* header) { header->count = UINT32_MAX; }, 400);
  refused_with([](SectionHeader* header) { header->encoding = Encoding::kRows; }, 400);
  refused_with([](SectionHeader* header) { header->encoding = Encoding::kBytes; }, 400);
  for (const size_t bytes : {size_t{0}, size_t{399}, size_t{401}}) {
    refused_with([](SectionHeader*) {}, bytes);
  }
  for (const uint32_t other : {0u, 1u}) {
    read(kDense);
    EXPECT_FALSE(receive_bytes(other, fits, 400)) << "they are rank 2's";
  }
  read(kDense);
  EXPECT_TRUE(receive_bytes(2, fits, 400)) << "what all of these began with";
}

// Receive elements in pieces: expect those of each array in their order, once, and the end only
// behind the last of them.
TEST_F(RowAccessGarbageAnswer, ReceiveElementsAgain) {
  SectionHeader piece = header_of(SectionKind::kRowsAnswer, kDense);
  piece.encoding = Encoding::kDense;
  const SectionHeader last = last_header(SectionKind::kRowsAnswer, kDense);
  const auto next = [&](uint8_t part, uint64_t first, uint32_t count) {
    piece.part = part;
    piece.first = first;
    piece.count = count;
    return receive_bytes(2, piece, count * sizeof(float));
  };
  read(kDense);
  EXPECT_TRUE(next(0, 200, 100));
  EXPECT_FALSE(next(0, 200, 100)) << "again";
  EXPECT_FALSE(next(0, 299, 100)) << "in part again";
  EXPECT_FALSE(next(0, 301, 100)) << "one was left out";
  EXPECT_TRUE(next(2, 200, 312)) << "of another array";
  EXPECT_FALSE(receive_bytes(2, last, 0)) << "there is more of the values";
  EXPECT_TRUE(next(0, 300, 212));
  EXPECT_FALSE(next(0, 512, 1)) << "all of it came";
  EXPECT_FALSE(receive_bytes(2, last, 4)) << "with a payload";
  EXPECT_TRUE(receive_bytes(2, last, 0));
  EXPECT_TRUE(receive_bytes(1, last, 0)) << "rank 1 has none of these rows";
}

// Receive the end of an answer: expect it once of each owner, and the last of them only with all
// that was asked for.
TEST_F(RowAccessGarbageAnswer, ReceiveTheEndTooEarlyOrTwice) {
  const SectionHeader last = last_header(SectionKind::kRowsAnswer);
  EXPECT_FALSE(receive_bytes(1, last, 0)) << "no call is under way";
  read();
  SectionHeader counted = last;
  counted.count = 1;
  EXPECT_FALSE(receive_bytes(1, counted, 4)) << "with rows";
  read();
  EXPECT_TRUE(receive_bytes(1, last, 0));
  EXPECT_FALSE(receive_bytes(1, last, 0)) << "again";
  EXPECT_FALSE(receive_rows(1, rows_header(SectionKind::kRowsAnswer, 1), {asked_[0]}))
      << "after it";
  EXPECT_TRUE(receive_bytes(2, last, 0));
  EXPECT_FALSE(receive_bytes(0, last, 0)) << "and no row came";
}

// Receive answers to the call before (past): expect them refused, whatever this one is.
TEST_F(RowAccessGarbageAnswer, ReceiveAnswersToAnEarlierCall) {
  read();
  job_->network().settle();
  const SectionHeader late = rows_header(SectionKind::kRowsAnswer, 1);
  EXPECT_FALSE(receive_rows(1, late, {asked_[0]})) << "over";
  EXPECT_FALSE(receive_bytes(1, last_header(SectionKind::kRowsAnswer), 0));
  job_->read(0, kRows, kFirst, kCount);
  EXPECT_FALSE(receive_rows(1, late, {asked_[0]}));
  EXPECT_FALSE(receive_bytes(1, last_header(SectionKind::kRowsAnswer), 0));
  job_->network().settle();
  job_->write(0, kRows, 0, 1, 1, 1);
  SectionHeader header = late;
  header.step = 3;
  EXPECT_FALSE(receive_rows(1, header, {asked_[0]})) << "an answer to a write";
}

TEST_F(RowAccessGarbageAnswer, ReceivePulledRowsInAnotherOrder) {
  SectionHeader one = rows_header(SectionKind::kRowsAnswer, 1);
  one.step = 2;  // each portion of a pull has a number
  SectionHeader three = one;
  three.count = 3;
  pull();
  EXPECT_FALSE(receive_rows(1, rows_header(SectionKind::kRowsAnswer, 1), {1}));
  pull();
  EXPECT_FALSE(receive_rows(1, three, {1, 7, 4}));
  pull();
  EXPECT_FALSE(receive_rows(1, one, {10})) << "not asked for";
  pull();
  EXPECT_FALSE(receive_rows(1, one, {2})) << "of rank 2";
  pull();
  SectionHeader state = one;
  state.part = 1;
  EXPECT_FALSE(receive_rows(1, state, {1})) << "a pull is of values";
  pull();
  EXPECT_FALSE(receive_rows(0, one, {1})) << "rank 0 was not asked";
  SectionHeader last = one;
  last.encoding = Encoding::kBytes;
  last.flags = kSectionLast;
  last.count = 0;
  pull();
  EXPECT_TRUE(receive_rows(1, three, {1, 4, 4}));
  EXPECT_FALSE(receive_bytes(1, last, 0)) << "one is missing";
  pull();
  EXPECT_TRUE(receive_rows(1, one, {1}));
  EXPECT_FALSE(receive_rows(1, one, {1})) << "again";
  pull();
  EXPECT_TRUE(receive_rows(1, three, {1, 4, 4}));
  EXPECT_TRUE(receive_rows(1, one, {7}));
  EXPECT_FALSE(receive_rows(1, one, {7})) << "more than was asked for";
}

// ---- write, taken

TEST_F(RowAccessGarbage, ReceiveAWriteThatDoesNotFit) {
  const SectionHeader fits = rows_header(SectionKind::kRowsWrite, 2);
  const auto refused_with = [&](const std::function<void(SectionHeader*)>& change) {
    SectionHeader header = fits;
    change(&header);
    EXPECT_FALSE(receive(0, 1, header, rows_payload({0, 3})));
  };
  for (const Encoding encoding :
       {Encoding::kBytes, Encoding::kDense, Encoding::kIds, Encoding::kValues}) {
    refused_with([&](SectionHeader* header) { header->encoding = encoding; });
  }
  for (const uint32_t count : {0u, 1u, 3u, UINT32_MAX}) {
    refused_with([&](SectionHeader* header) { header->count = count; });
  }
  refused_with([](SectionHeader* header) { header->tag = 3; });
  refused_with([](SectionHeader* header) { header->tag = UINT32_MAX; });
  refused_with([](SectionHeader* header) { header->tag = kDense; });
  refused_with([](SectionHeader* header) { header->part = 3; });
  refused_with([](SectionHeader* header) { header->part = 255; });
  EXPECT_FALSE(receive(0, 1, fits, rows_payload({0, 1}))) << "rank 1's";
  EXPECT_FALSE(receive(0, 1, fits, rows_payload({0, kRowCount})));
  EXPECT_FALSE(
      receive(0, 1, rows_header(SectionKind::kRowsWrite, 1, kMirror), rows_payload({kRowCount})));
  EXPECT_TRUE(receive(0, 1, rows_header(SectionKind::kRowsWrite, 1, kMirror), rows_payload({1})));
  EXPECT_TRUE(receive(0, 1, fits, rows_payload({0, 3}))) << "what all of these began with";
}

TEST_F(RowAccessGarbage, ReceiveElementsToWriteThatDoNotFit) {
  SectionHeader fits = header_of(SectionKind::kRowsWrite, kDense);
  fits.encoding = Encoding::kDense;
  fits.first = range_of(0).first;
  fits.count = 100;
  ASSERT_GE(range_of(0).count, 100u);
  const auto refused_with = [&](const std::function<void(SectionHeader*)>& change, size_t bytes) {
    SectionHeader header = fits;
    change(&header);
    EXPECT_FALSE(receive_bytes(1, header, bytes));
  };
  refused_with([](SectionHeader* header) { --header->first; }, 400);  // another's, by one element
  refused_with([&](SectionHeader* header) { header->first = range_of(0).end() - 99; }, 400);
  refused_with([](SectionHeader* header) { header->first = 1300; }, 400);
  refused_with([](SectionHeader* header) { header->encoding = Encoding::kRows; }, 400);
  for (const size_t bytes : {size_t{0}, size_t{399}, size_t{401}}) {
    refused_with([](SectionHeader*) {}, bytes);
  }
  EXPECT_TRUE(receive_bytes(1, fits, 400)) << "what all of these began with";
}

// Receive a section of which one row does not fit: expect none of it to be written.
TEST_F(RowAccessGarbage, ReceiveAWriteOfWhichSomeFits) {
  const std::vector<float> ones(2 * kWidth, 1);
  std::vector<std::byte> payload = rows_payload({0, 1});
  std::copy_n(as_payload(ones).data(), 2 * kRowBytes, &payload[2 * sizeof(uint32_t)]);
  EXPECT_FALSE(receive(0, 1, rows_header(SectionKind::kRowsWrite, 2), payload)) << "rank 1's";
  job_->expect_tables();
}

// Receive the end of a write: expect nothing more of that call, and the next one to be taken.
TEST_F(RowAccessGarbage, ReceiveMoreOfAWriteThatIsOver) {
  const SectionHeader row = rows_header(SectionKind::kRowsWrite, 1);
  const SectionHeader last = last_header(SectionKind::kRowsWrite);
  // The end tells a row of the table whose count of updates it is.
  constexpr size_t kRowBytes = sizeof(uint64_t);
  EXPECT_FALSE(receive_bytes(1, last, 0));
  EXPECT_FALSE(receive_bytes(1, last, 4));
  EXPECT_FALSE(receive(0, 1, last, as_payload(std::vector<uint64_t>{kRowCount})))
      << "there is no such row";
  EXPECT_TRUE(receive(0, 1, row, rows_payload({0})));
  EXPECT_TRUE(receive_bytes(1, last, kRowBytes));
  EXPECT_FALSE(receive_bytes(1, last, kRowBytes)) << "it would be acknowledged twice";
  EXPECT_FALSE(receive(0, 1, row, rows_payload({0})));
  EXPECT_TRUE(receive_bytes(2, last, kRowBytes)) << "another rank's";
  SectionHeader next = row;
  next.step = 2;
  EXPECT_TRUE(receive(0, 1, next, rows_payload({0})));
  EXPECT_FALSE(receive(0, 1, row, rows_payload({0}))) << "of the call before";
}

TEST_F(RowAccessGarbage, ReceiveTakenThatNobodyWaitsFor) {
  const SectionHeader taken = header_of(SectionKind::kRowsWritten);
  EXPECT_FALSE(receive(0, 1, taken, {})) << "no call is under way";
  job_->read(0, kRows, 0, 10);
  EXPECT_FALSE(receive(0, 1, taken, {})) << "a read";
  begin();
  job_->write(0, kDense, 12, 1, 1, 1);
  for (const uint64_t number : {uint64_t{0}, uint64_t{2}, UINT64_MAX}) {
    SectionHeader other = taken;
    other.step = number;
    EXPECT_FALSE(receive(0, 1, other, {}));
  }
  EXPECT_FALSE(receive(0, 1, taken, {})) << "of another variable";
  SectionHeader dense = taken;
  dense.tag = kDense;
  EXPECT_TRUE(receive(0, 1, dense, {}));
  EXPECT_FALSE(receive(0, 1, dense, {})) << "again";
}

// Receive the acknowledgement of a write of which rows are still to be sent: expect it refused.
TEST_F(RowAccessGarbage, ReceiveTakenTooEarly) {
  const std::vector<Placed> placed = {{managed_variable(2500, kWidth, true, PARALLAX_RULE_SGD)}};
  job_ = std::make_unique<RowsJob>(std::vector<uint32_t>{0, 1, 2}, placed, 1);
  job_->network().hold(0);
  job_->write(0, kRows, 0, 2500, 1, 1);
  EXPECT_FALSE(receive(0, 1, header_of(SectionKind::kRowsWritten), {}));
}

// ---- anything

// Given a read or a write under way, receive anything from anybody: expect what cannot be
// used to be refused, and no memory touched but the exchange's own; the rest is the sanitizers'.
TEST_F(RowAccessGarbage, NoSectionHarms) {
  uint32_t refused = 0, taken = 0;
  for (uint64_t seed = 1; seed <= (kThreadSanitizer ? 50 : 400); ++seed) {
    SeededRandom random(seed);
    begin();
    const auto variable = static_cast<uint32_t>(random.below(3));
    if (random.chance(50)) {
      job_->read(0, variable, 2, 8);
    } else {
      job_->write(0, variable, 2, 8, kAllArrays, 1);
    }
    for (uint32_t i = 0; i < 30; ++i) {
      SectionHeader header = header_of(static_cast<SectionKind>(random.between(18, 21)),
                                       static_cast<uint32_t>(random.below(4)), 1);
      header.encoding = static_cast<Encoding>(random.below(5));
      header.flags = random.chance(10) ? kSectionLast : 0;
      header.part = static_cast<uint8_t>(random.chance(90) ? random.below(4) : random.next());
      header.step = random.chance(90) ? 1 : random.next();
      header.first = random.chance(80) ? random.below(1400) : random.next();
      header.count = static_cast<uint32_t>(random.chance(95) ? random.below(12) : random.next());
      const size_t sizes[] = {header.count * size_t{4}, header.count * kItemBytes,
                              sizeof(AskBytes) + 4 * random.below(4), 4 * random.below(99)};
      std::vector<uint32_t> words(std::min(sizes[random.below(4)], 12 * kItemBytes) / 4);
      for (uint32_t& word : words) {
        word = static_cast<uint32_t>(random.chance(30) ? 0 : random.below(kRowCount + 2));
      }
      const auto from = static_cast<uint32_t>(random.below(3));
      if (random.chance(50)) {
        // One that might be due: rows to write of rank 0, or an answer with rows of its sender.
        const bool write = random.chance(50);
        const auto count = static_cast<uint32_t>(random.between(1, 3));
        header = rows_header(write ? SectionKind::kRowsWrite : SectionKind::kRowsAnswer, count,
                             write ? kRows : variable);
        words.assign(count * kItemBytes / 4, 0);
        for (uint32_t& word : words) {
          word = static_cast<uint32_t>((write ? 0 : from) + 3 * random.below(30));
        }
      }
      ++(receive(0, from, header, as_payload(words)) ? taken : refused);
      if (random.chance(20)) job_->network().move();
    }
  }
  EXPECT_GT(refused, 1000u);
  EXPECT_GT(taken, kThreadSanitizer ? 10u : 100u);
}

}  // namespace
}  // namespace parallax::testkit::rows_garbage
