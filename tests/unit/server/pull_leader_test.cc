// SPDX-License-Identifier: Apache-2.0
// A leader and peers that break the rules, on both sides of it: what does not fit is refused,
// whatever it is that does not. What it does for peers that keep them: pull_exchange_test.cc.
#include "server/pull_leader.h"

#include <gtest/gtest.h>

#include <cstring>
#include <span>
#include <vector>

#include "unit/server/pull_garbage.h"

namespace parallax::testkit::pull_garbage {
namespace {

// ---- owner -> leader: which rows come first

// Receive bits for rows that an owner owes, expect them taken, once; and refused for any others.
TEST_F(PullGarbage, ReceiveEarlyRowsThatDoNotFit) {
  SectionHeader fits{.kind = SectionKind::kEarlyRows, .tag = kRows};
  fits.step = 1;
  fits.count = 1;
  const auto bits = [&](uint32_t from, const SectionHeader& header, uint8_t of) {
    return receive(0, from, header, std::as_bytes(std::span(&of, 1)));
  };
  ask();  // two rows of rank 3
  EXPECT_FALSE(bits(3, fits, 0b101)) << "more rows than it owes";
  EXPECT_FALSE(bits(3, following(fits, 1), 0b10));
  EXPECT_FALSE(bits(3, following(fits, 2), 0b1));
  EXPECT_FALSE(bits(3, following(fits, UINT64_MAX), 0b1));
  EXPECT_FALSE(bits(3, fits, 0)) << "none";
  EXPECT_FALSE(receive(0, 3, fits, {}));
  EXPECT_FALSE(bits(2, fits, 0b1)) << "it owes nothing";
  EXPECT_FALSE(bits(4, fits, 0b1)) << "of another column";
  for (const uint32_t other : {uint32_t{kDense}, 4u, UINT32_MAX}) {
    SectionHeader header = fits;
    header.tag = other;
    EXPECT_FALSE(bits(3, header, 0b1)) << "variable " << other;
  }
  SectionHeader of_ids = fits;
  of_ids.encoding = Encoding::kIds;
  EXPECT_FALSE(bits(3, of_ids, 0b1));
  SectionHeader later = fits;
  later.step = 2;
  EXPECT_FALSE(bits(3, later, 0b1));
  EXPECT_TRUE(bits(3, fits, 0b10)) << "what all of these began with";
  EXPECT_FALSE(bits(3, fits, 0b10)) << "again, before any has come";
  EXPECT_FALSE(bits(3, fits, 0b1));
  EXPECT_TRUE(bits(3, following(fits, 1), 0b1)) << "behind those";
  EXPECT_FALSE(bits(3, following(fits, 1), 0b1));
  // Values come one by one: bits for one that is here are no more taken.
  ask();
  EXPECT_TRUE(receive_bytes(0, 3, values_header(SectionKind::kValuesHost, 1), kRowBytes));
  EXPECT_FALSE(bits(3, fits, 0b1));
  EXPECT_TRUE(bits(3, following(fits, 1), 0b1));
  // Of another step they are said anew.
  EXPECT_TRUE(
      receive_bytes(0, 3, following(values_header(SectionKind::kValuesHost, 1), 1), kRowBytes));
  EXPECT_TRUE(receive_bytes(0, 0, values_header(SectionKind::kValuesHost, 4), 4 * kRowBytes));
  exchange(0).decided(1);
  SectionHeader list = ids_header(SectionKind::kPullLocal, 2);
  SectionHeader end = end_header();
  list.step = end.step = 2;
  EXPECT_TRUE(receive_ids(0, 2, list, owned_by(3, 2)));
  EXPECT_TRUE(receive(0, 2, end, {}));
  EXPECT_TRUE(bits(3, later, 0b1));
}

// Given bits behind a row whose values are still under way, expect each row's values to be its own.
TEST_F(PullGarbage, ReceiveEarlyRowsBehindValuesUnderWay) {
  ask();  // four rows of rank 0, two of rank 3
  std::vector<float> given;
  job_->tap = [&](uint32_t to, uint32_t, const Section& section) {
    if (to != 1 || section.header.kind != SectionKind::kValuesLocal) return;
    for (uint32_t row = 0; row < section.header.count; ++row) {
      float value;
      std::memcpy(&value, &section.payload[row * kRowBytes], sizeof value);
      given.push_back(value);
    }
  };
  SectionHeader bits{.kind = SectionKind::kEarlyRows, .tag = kRows};
  bits.step = 1;
  bits.first = 1;
  bits.count = 1;
  const uint8_t third = 0b100;
  ASSERT_TRUE(receive(0, 0, bits, std::as_bytes(std::span(&third, 1))));
  const auto receive_rows = [&](uint32_t from, const std::vector<float>& rows) {
    std::vector<float> values;
    for (const float row : rows) values.insert(values.end(), 3, row);
    return receive(0, from,
                   values_header(SectionKind::kValuesHost, static_cast<uint32_t>(rows.size())),
                   as_payload(values));
  };
  ASSERT_TRUE(receive_rows(0, {10, 13, 11, 12}));
  ASSERT_TRUE(receive_rows(3, {20, 21}));
  while (job_->network().move()) {
  }
  EXPECT_EQ(given, (std::vector<float>{10, 11, 12, 13, 20, 21}));
}

// ---- rank -> leader

TEST_F(PullGarbage, ReceiveAPullOfOtherSenders) {
  const SectionHeader header = ids_header(SectionKind::kPullLocal, 2);
  const std::vector<uint32_t> row_keys = owned_by(0, 2);
  for (const uint32_t local : {1u, 2u}) EXPECT_TRUE(receive_ids(0, local, header, row_keys));
  EXPECT_FALSE(receive_ids(0, 0, header, row_keys)) << "what it wants itself it knows";
  for (const uint32_t stranger : {3u, 4u}) {
    begin();
    EXPECT_FALSE(receive_ids(0, stranger, header, row_keys)) << "of another host";
    EXPECT_FALSE(receive(0, stranger, end_header(), {}));
  }
  EXPECT_FALSE(receive_ids(2, 1, header, owned_by(2, 2))) << "rank 2 handles no column";
  EXPECT_FALSE(receive(2, 1, end_header(), {}));
}

TEST_F(PullGarbage, ReceiveAPullOfRowsThatDoesNotFit) {
  const SectionHeader fits = ids_header(SectionKind::kPullLocal, 2);
  const auto refused = [&](SectionHeader header, const std::vector<uint32_t>& row_keys) {
    begin();
    EXPECT_FALSE(receive_ids(0, 1, header, row_keys));
  };
  for (const Encoding encoding :
       {Encoding::kBytes, Encoding::kDense, Encoding::kRows, Encoding::kValues}) {
    SectionHeader header = fits;
    header.encoding = encoding;
    refused(header, owned_by(0, 2));
  }
  refused(fits, owned_by(0, 1));  // the payload is too short, too long
  refused(fits, owned_by(0, 3));
  for (const uint32_t count : {0u, 1u, 3u, 1u << 30, UINT32_MAX}) {
    refused(ids_header(SectionKind::kPullLocal, count), owned_by(0, 2));
  }
  refused(fits, {0, kRowCount});  // beyond the variable
  refused(fits, {UINT32_MAX, 0});
  refused(fits, {0, 1});  // rank 1 owns it, of the other column
  // More than rows_max, at once or in parts. Column 0 has more rows than that.
  refused(ids_header(SectionKind::kPullLocal, kRowsMax + 1), owned_by(0, kRowsMax + 1));
  begin();
  EXPECT_TRUE(receive_ids(0, 1, ids_header(SectionKind::kPullLocal, 10), owned_by(0, 10)));
  EXPECT_FALSE(
      receive_ids(0, 1, following(ids_header(SectionKind::kPullLocal, 7), 10), owned_by(3, 7)));
  for (const uint32_t unknown : {4u, 99u, UINT32_MAX - 1}) {
    SectionHeader header = fits;
    header.tag = unknown;
    refused(header, owned_by(0, 2));
  }
  begin();
  EXPECT_TRUE(receive_ids(0, 1, fits, owned_by(0, 2))) << "what all of these began with";
}

// Receive a list in pieces: expect each to go on where the last ended, in its dtype; and the lists
// of other ranks not to be touched by it.
TEST_F(PullGarbage, ReceiveAPieceOfAPullAgain) {
  const SectionHeader piece = ids_header(SectionKind::kPullLocal, 2);
  EXPECT_FALSE(receive_ids(0, 1, ids_header(SectionKind::kPullLocal, 0), {})) << "nothing";
  EXPECT_TRUE(receive_ids(0, 1, piece, owned_by(0, 2)));
  EXPECT_FALSE(receive_ids(0, 1, piece, owned_by(0, 2))) << "again";
  EXPECT_FALSE(receive_ids(0, 1, following(piece, 1), owned_by(3, 2))) << "in part again";
  EXPECT_FALSE(receive_ids(0, 1, following(piece, 3), owned_by(3, 2))) << "one was left out";
  SectionHeader other = following(piece, 2);
  other.flags = flags_of(PARALLAX_F16);
  EXPECT_FALSE(receive_ids(0, 1, other, owned_by(3, 2))) << "in another dtype";
  EXPECT_TRUE(receive_ids(0, 2, piece, owned_by(0, 2)));
  EXPECT_TRUE(receive_ids(0, 1, following(piece, 2), owned_by(3, 2)));
}

TEST_F(PullGarbage, ReceiveAPullInADtypeThatDoesNotServe) {
  struct Case {
    uint32_t variable, dtype;
    bool fits;
  };
  for (const Case& each : {Case{kRows, PARALLAX_F32, true},
                           {kRows, PARALLAX_F16, true},
                           {kRows, PARALLAX_BF16, true},
                           {kRows, PARALLAX_F64, false},
                           {kRows, PARALLAX_I32, false},
                           {kRows, PARALLAX_I64, false},
                           {kRows, PARALLAX_I64 + 1, false},
                           {kRows, 15, false},
                           {kIntegers, PARALLAX_I32, true},
                           {kIntegers, PARALLAX_F32, false},
                           {kIntegers, PARALLAX_F16, false},
                           {kIntegers, PARALLAX_I64, false}}) {
    begin();
    SectionHeader header = ids_header(SectionKind::kPullLocal, 1);
    header.tag = each.variable;
    header.flags = flags_of(each.dtype);
    EXPECT_EQ(receive_ids(0, 1, header, {0}), each.fits) << each.variable << " as " << each.dtype;
    begin();
    header.kind = SectionKind::kPullHost;
    EXPECT_EQ(receive_ids(0, 3, header, {0}), each.fits) << each.variable << " as " << each.dtype;
  }
}

TEST_F(PullGarbage, ReceiveAPullOfADenseVariableAsRows) {
  SectionHeader header{.kind = SectionKind::kPullLocal, .tag = kDense};
  header.step = 1;
  EXPECT_TRUE(receive(0, 1, header, {}));
  for (const Encoding encoding :
       {Encoding::kDense, Encoding::kRows, Encoding::kIds, Encoding::kValues}) {
    begin();
    header.encoding = encoding;
    EXPECT_FALSE(receive(0, 1, header, {}));
  }
}

TEST_F(PullGarbage, ReceiveAPullOfADenseVariableTwiceOrWithMore) {
  SectionHeader header{.kind = SectionKind::kPullLocal, .tag = kDense};
  header.step = 1;
  EXPECT_FALSE(receive_bytes(0, 1, header, 4)) << "with a payload";
  SectionHeader counted = header;
  counted.count = 1;
  EXPECT_FALSE(receive(0, 1, counted, {}));
  EXPECT_TRUE(receive(0, 1, header, {}));
  EXPECT_FALSE(receive(0, 1, header, {})) << "again";
  EXPECT_TRUE(receive(0, 2, header, {})) << "of another rank";
}

// Column 1 owns row 1 of the two of this variable; on the other host likewise.
TEST_F(PullGarbage, ReceiveAPullOfAVariableOfAnotherColumn) {
  begin();
  const std::vector<Variable> few = {pulled_variable(1, 1, 1, PARALLAX_F32)};
  job_ = std::make_unique<PullJob>(hosts_, few, 1);
  EXPECT_TRUE(receive_ids(0, 2, ids_header(SectionKind::kPullLocal, 1), {0}));
  EXPECT_FALSE(receive_ids(1, 2, ids_header(SectionKind::kPullLocal, 0), {}));
  EXPECT_FALSE(receive_ids(1, 2, ids_header(SectionKind::kPullLocal, 1), {0}));
}

// Receive the end of a pull (past): expect nothing more of it to be taken, nor another pull before
// it was answered; and none of nothing.
TEST_F(PullGarbage, ReceiveMoreOfAPullThatIsOver) {
  const SectionHeader list = ids_header(SectionKind::kPullLocal, 1);
  EXPECT_FALSE(receive(0, 1, end_header(), {})) << "of nothing";
  begin();
  EXPECT_TRUE(receive_ids(0, 1, list, {0}));
  EXPECT_TRUE(receive(0, 1, end_header(), {}));
  EXPECT_FALSE(receive(0, 1, end_header(), {})) << "a second end";
  EXPECT_FALSE(receive_ids(0, 1, following(list, 1), {3}));
  EXPECT_FALSE(receive_ids(0, 1, list, {0})) << "another pull";
  EXPECT_TRUE(receive_ids(0, 2, list, {0})) << "of another rank";
  EXPECT_TRUE(receive_bytes(0, 0, values_header(SectionKind::kValuesHost, 1), kRowBytes));
  EXPECT_FALSE(receive_ids(0, 1, list, {0})) << "before its answer is packed";
  job_->network().settle();
  EXPECT_TRUE(receive_ids(0, 1, list, {0}));
}

TEST_F(PullGarbage, ReceiveAnEndWithMore) {
  EXPECT_TRUE(receive_ids(0, 1, ids_header(SectionKind::kPullLocal, 1), {0}));
  EXPECT_FALSE(receive_bytes(0, 1, end_header(), 4)) << "with a payload";
  for (const Encoding encoding : {Encoding::kIds, Encoding::kValues}) {
    SectionHeader header = end_header();
    header.encoding = encoding;
    EXPECT_FALSE(receive(0, 1, header, {}));
  }
  SectionHeader counted = end_header();
  counted.count = 1;
  EXPECT_FALSE(receive(0, 1, counted, {}));
  SectionHeader later = end_header();
  later.step = 2;
  EXPECT_FALSE(receive(0, 1, later, {})) << "of another step";
  EXPECT_TRUE(receive(0, 1, end_header(), {}));
}

// Receive the end of a step from a rank whose pull is not answered: expect it refused, whatever of
// the pull is here; that of another rank not.
TEST_F(PullGarbage, ReceiveTheEndOfAStepBeforeItsPullIsAnswered) {
  EXPECT_TRUE(receive_ids(0, 1, ids_header(SectionKind::kPullLocal, 1), {0}));
  EXPECT_FALSE(exchange(0).end_local(1, 1)) << "in part";
  EXPECT_TRUE(exchange(0).end_local(2, 1));
  EXPECT_TRUE(receive(0, 1, end_header(), {}));
  EXPECT_FALSE(exchange(0).end_local(1, 1)) << "whole";
  EXPECT_TRUE(receive_bytes(0, 0, values_header(SectionKind::kValuesHost, 1), kRowBytes));
  EXPECT_TRUE(exchange(0).end_local(1, 1)) << "answered";
}

// Receive a pull of a step that its rank has ended, or that is decided (past): expect it refused,
// that of the next not.
TEST_F(PullGarbage, ReceiveAPullBehindTheEndOfItsStep) {
  SectionHeader list = ids_header(SectionKind::kPullLocal, 1);
  EXPECT_TRUE(exchange(0).end_local(1, 1));
  EXPECT_FALSE(receive_ids(0, 1, list, {0}));
  EXPECT_TRUE(receive_ids(0, 2, list, {0})) << "of another rank";
  exchange(0).decided(1);
  list.step = 2;
  EXPECT_TRUE(receive_ids(0, 1, list, {0}));
}

// Receive a pull of the next step (future): expect its owners to be asked when this rank knows that
// the step before is decided, and pulls of that one to be served meanwhile.
TEST_F(PullGarbage, ReceiveAPullOfTheNextStep) {
  SectionHeader list = ids_header(SectionKind::kPullLocal, 2);
  SectionHeader end = end_header();
  list.step = end.step = 2;
  uint32_t asked = 0;
  job_->tap = [&](uint32_t to, uint32_t, const Section& section) {
    asked += to == 3 && section.header.kind == SectionKind::kPullHost ? 1 : 0;
  };
  EXPECT_TRUE(receive_ids(0, 1, list, owned_by(3, 2)));
  EXPECT_TRUE(receive(0, 1, end, {}));
  job_->network().settle();
  EXPECT_EQ(asked, 0u);
  list.step = end.step = 1;
  EXPECT_TRUE(receive_ids(0, 2, list, owned_by(3, 2)));
  EXPECT_TRUE(receive(0, 2, end, {}));
  job_->network().settle();
  EXPECT_EQ(asked, 1u);
  exchange(0).decided(1);
  job_->network().settle();
  EXPECT_EQ(asked, 2u);
}

// Receive the whole pull of a rank that says nothing more, and the step is decided all the same:
// expect nobody to be asked for it any more, and the pulls of the next step to be served.
TEST_F(PullGarbage, ReceiveAPullOfARankThatVotedBeforeItsAnswer) {
  SectionHeader list = ids_header(SectionKind::kPullLocal, 2);
  SectionHeader end = end_header();
  EXPECT_TRUE(receive_ids(0, 1, list, owned_by(3, 2)));
  EXPECT_TRUE(receive(0, 1, end, {}));
  exchange(0).decided(1);
  list.step = end.step = 2;
  EXPECT_TRUE(receive_ids(0, 2, list, owned_by(3, 2)));
  EXPECT_TRUE(receive(0, 2, end, {}));
  SectionHeader values = values_header(SectionKind::kValuesHost, 2);
  values.step = 2;
  EXPECT_FALSE(receive_bytes(0, 3, values, 2 * kRowBytes)) << "it owes those of step 1 first";
  values.step = 1;
  EXPECT_TRUE(receive_bytes(0, 3, values, 2 * kRowBytes));
  EXPECT_FALSE(receive_bytes(0, 3, values, 2 * kRowBytes));
  values.step = 2;
  EXPECT_TRUE(receive_bytes(0, 3, values, 2 * kRowBytes));
}

// ---- owner -> leader

TEST_F(PullGarbage, ReceiveValuesThatDoNotFit) {
  const SectionHeader fits = values_header(SectionKind::kValuesHost, 2);
  const auto refused = [&](uint32_t from, const SectionHeader& header, size_t bytes) {
    ASSERT_NO_FATAL_FAILURE(ask());
    EXPECT_FALSE(receive_bytes(0, from, header, bytes)) << "of rank " << from;
  };
  const auto refused_with = [&](const std::function<void(SectionHeader*)>& change) {
    SectionHeader header = fits;
    change(&header);
    refused(3, header, header.count * kRowBytes);
  };
  for (const uint32_t stranger : {1u, 4u}) refused(stranger, fits, 2 * kRowBytes);
  refused(2, fits, 2 * kRowBytes);  // an owner of the column that was asked for nothing
  for (const Encoding encoding :
       {Encoding::kBytes, Encoding::kDense, Encoding::kRows, Encoding::kIds}) {
    refused_with([&](SectionHeader* header) { header->encoding = encoding; });
  }
  for (const size_t bytes : {size_t{0}, kRowBytes, 2 * kRowBytes - 1, 2 * kRowBytes + 1}) {
    refused(3, fits, bytes);
  }
  refused_with([](SectionHeader* header) { header->count = 3; });  // it was asked for two
  refused_with([](SectionHeader* header) { header->first = 1; });
  refused_with([](SectionHeader* header) { header->first = UINT64_MAX; });
  refused_with([](SectionHeader* header) { header->first = uint64_t{1} << 32; });
  refused_with([](SectionHeader* header) { header->flags = flags_of(PARALLAX_F16); });
  refused_with([](SectionHeader* header) { header->step = 2; });
  refused_with([](SectionHeader* header) { header->step = 3; });
  refused_with([](SectionHeader* header) { header->tag = kDense; });
  refused_with([](SectionHeader* header) { header->tag = kIntegers; });
  refused_with([](SectionHeader* header) { header->tag = 99; });
  SectionHeader huge = fits;
  huge.count = UINT32_MAX;
  refused(3, huge, 2 * kRowBytes);
  ASSERT_NO_FATAL_FAILURE(ask());
  EXPECT_TRUE(receive_bytes(0, 3, fits, 2 * kRowBytes)) << "what all of these began with";
}

// Receive values before anything is asked for (future), or when all of it came (past): expect them
// refused, those without a row too.
TEST_F(PullGarbage, ReceiveValuesThatNobodyWaitsFor) {
  const SectionHeader values = values_header(SectionKind::kValuesHost, 2);
  const SectionHeader nothing = values_header(SectionKind::kValuesHost, 0);
  EXPECT_FALSE(receive_bytes(0, 3, values, 2 * kRowBytes)) << "no pull";
  EXPECT_TRUE(receive_ids(0, 1, ids_header(SectionKind::kPullLocal, 2), {3, 8}));
  EXPECT_FALSE(receive_bytes(0, 3, values, 2 * kRowBytes)) << "not asked for yet";
  ASSERT_NO_FATAL_FAILURE(ask());
  EXPECT_TRUE(receive_bytes(0, 3, values, 2 * kRowBytes));
  EXPECT_TRUE(receive_bytes(0, 0, values_header(SectionKind::kValuesHost, 4), 4 * kRowBytes));
  EXPECT_FALSE(receive_bytes(0, 3, values, 2 * kRowBytes)) << "again, when all of it is there";
  EXPECT_FALSE(receive_bytes(0, 3, nothing, 0)) << "it would be answered twice";
}

// Receive an answer in pieces: expect each to go on where the last ended. What another owner still
// owes is no room for a piece that comes again.
TEST_F(PullGarbage, ReceiveAPieceOfTheValuesAgain) {
  ASSERT_NO_FATAL_FAILURE(ask());
  const SectionHeader piece = values_header(SectionKind::kValuesHost, 2);
  EXPECT_TRUE(receive_bytes(0, 0, piece, 2 * kRowBytes));
  EXPECT_FALSE(receive_bytes(0, 0, piece, 2 * kRowBytes)) << "again";
  const SectionHeader one = values_header(SectionKind::kValuesHost, 1);
  EXPECT_FALSE(receive_bytes(0, 0, following(one, 1), kRowBytes)) << "in part again";
  EXPECT_FALSE(receive_bytes(0, 0, following(one, 3), kRowBytes)) << "one was left out";
  EXPECT_TRUE(receive_bytes(0, 0, following(piece, 2), 2 * kRowBytes));
  EXPECT_FALSE(receive_bytes(0, 0, following(piece, 2), 2 * kRowBytes)) << "all of it came";
  EXPECT_TRUE(receive_bytes(0, 3, piece, 2 * kRowBytes)) << "the other owner's";
}

// Receive values of a variable that nobody wants in this step, but somebody did in an earlier one:
// expect them refused, whether those came or not.
TEST_F(PullGarbage, ReceiveValuesOfAnEarlierStepsVariable) {
  for (const bool answered : {true, false}) {
    ASSERT_NO_FATAL_FAILURE(ask());
    SectionHeader values = values_header(SectionKind::kValuesHost, 2);
    if (answered) {
      EXPECT_TRUE(receive_bytes(0, 3, values, 2 * kRowBytes));
      SectionHeader four = values;
      four.count = 4;
      EXPECT_TRUE(receive_bytes(0, 0, four, 4 * kRowBytes));
    }
    exchange(0).decided(2);
    SectionHeader wish = ids_header(SectionKind::kPullLocal, 2);
    SectionHeader end = end_header();
    wish.tag = kIntegers;
    wish.flags = flags_of(PARALLAX_I32);
    wish.step = end.step = values.step = 3;
    ASSERT_TRUE(receive_ids(0, 2, wish, {3, 8}));
    ASSERT_TRUE(receive(0, 2, end, {}));
    EXPECT_FALSE(receive_bytes(0, 3, values, 2 * kRowBytes)) << answered;
    values.tag = kIntegers;
    values.flags = flags_of(PARALLAX_I32);
    EXPECT_TRUE(receive_bytes(0, 3, values, 2 * kRowBytes));
  }
}

TEST_F(PullGarbage, ReceiveAPieceOfTheElementsAgain) {
  ASSERT_NO_FATAL_FAILURE(ask_dense());
  for (const uint32_t owner : {0u, 2u, 3u}) {
    ASSERT_GE(range_of(owner).count, 256u);
    SectionHeader piece{
        .kind = SectionKind::kValuesHost, .encoding = Encoding::kDense, .tag = kDense};
    piece.step = 1;
    piece.count = 100;
    piece.first = range_of(owner).first;
    EXPECT_TRUE(receive_bytes(0, owner, piece, 400));
    EXPECT_FALSE(receive_bytes(0, owner, piece, 400)) << "again";
    EXPECT_FALSE(receive_bytes(0, owner, following(piece, piece.first + 101), 400)) << "a gap";
    EXPECT_TRUE(receive_bytes(0, owner, following(piece, piece.first + 100), 400));
  }
}

TEST_F(PullGarbage, ReceiveElementsThatDoNotFit) {
  SectionHeader fits{.kind = SectionKind::kValuesHost, .encoding = Encoding::kDense, .tag = kDense};
  fits.step = 1;
  fits.count = 256;
  begin();
  uint32_t sender = 3;
  if (range_of(sender).count < 256) sender = 0;
  fits.first = range_of(sender).first;
  ASSERT_GE(range_of(sender).count, 256u);
  const auto refused_with = [&](const std::function<void(SectionHeader*)>& change) {
    SectionHeader header = fits;
    change(&header);
    ASSERT_NO_FATAL_FAILURE(ask_dense());
    EXPECT_FALSE(receive_bytes(0, sender, header, header.count * sizeof(float)));
  };
  refused_with([](SectionHeader* header) { header->encoding = Encoding::kValues; });
  refused_with([](SectionHeader* header) { header->first = 1700; });
  refused_with([](SectionHeader* header) { header->first = UINT64_MAX; });
  refused_with([](SectionHeader* header) { --header->first; });  // another's, by one element
  refused_with([&](SectionHeader* header) { header->first += range_of(sender).count; });
  refused_with([&](SectionHeader* header) { header->count += 512; });
  refused_with([](SectionHeader* header) { header->flags = flags_of(PARALLAX_BF16); });
  for (const size_t bytes : {size_t{0}, size_t{1023}, size_t{1025}}) {
    ASSERT_NO_FATAL_FAILURE(ask_dense());
    EXPECT_FALSE(receive_bytes(0, sender, fits, bytes));
  }
  ASSERT_NO_FATAL_FAILURE(ask_dense());
  EXPECT_TRUE(receive_bytes(0, sender, fits, 1024)) << "what all of these began with";
}

}  // namespace
}  // namespace parallax::testkit::pull_garbage
