// SPDX-License-Identifier: Apache-2.0
// Pulls and asks of peers that break the rules: what does not fit is refused, whatever it is that
// does not. Of values: pull_road_values_test.cc.
#include <gtest/gtest.h>

#include "unit/server/pull_garbage.h"

namespace parallax::testkit::pull_garbage {
namespace {

// ---- rank -> leader

TEST_F(PullGarbage, ReceiveAPullOfOtherSenders) {
  const SectionHeader header = ids_header(SectionKind::kPullLocal, 2);
  const std::vector<uint32_t> row_keys = owned_by(0, 2);
  for (const uint32_t local : {0u, 1u, 2u}) EXPECT_TRUE(receive_ids(0, local, header, row_keys));
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
  EXPECT_FALSE(receive_ids(0, 1, ids_header(SectionKind::kPullLocal, 7), owned_by(3, 7)));
  for (const uint32_t unknown : {4u, 99u, UINT32_MAX - 1}) {
    SectionHeader header = fits;
    header.tag = unknown;
    refused(header, owned_by(0, 2));
  }
  begin();
  EXPECT_TRUE(receive_ids(0, 1, fits, owned_by(0, 2))) << "what all of these began with";
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

// Column 1 owns row 1 of the two of this variable; on the other host likewise.
TEST_F(PullGarbage, ReceiveAPullOfAVariableOfAnotherColumn) {
  begin();
  const std::vector<Variable> few = {pulled_variable(1, 1, 1, PARALLAX_F32)};
  job_ = std::make_unique<PullJob>(hosts_, few, 1);
  EXPECT_TRUE(receive_ids(0, 2, ids_header(SectionKind::kPullLocal, 1), {0}));
  EXPECT_FALSE(receive_ids(1, 2, ids_header(SectionKind::kPullLocal, 0), {}));
  EXPECT_FALSE(receive_ids(1, 2, ids_header(SectionKind::kPullLocal, 1), {0}));
}

// Receive the end of a pull (past): expect nothing more of it to be taken.
TEST_F(PullGarbage, ReceiveMoreOfAPullThatIsOver) {
  EXPECT_TRUE(receive(0, 1, end_header(), {}));
  EXPECT_FALSE(receive(0, 1, end_header(), {})) << "a second end";
  EXPECT_FALSE(receive_ids(0, 1, ids_header(SectionKind::kPullLocal, 1), {0}));
  EXPECT_TRUE(receive_ids(0, 2, ids_header(SectionKind::kPullLocal, 1), {0})) << "of another rank";
  ask();
  for (const uint32_t local : {0u, 1u, 2u}) {
    EXPECT_FALSE(receive(0, local, end_header(), {})) << "the round was asked for";
    EXPECT_FALSE(receive_ids(0, local, ids_header(SectionKind::kPullLocal, 1), {0}));
  }
}

// Receive a pull two rounds or two steps ahead (future): expect it to find no room while the round
// whose slot it takes waits, and room in the next.
TEST_F(PullGarbage, ReceiveAPullThatIsTooFarAhead) {
  EXPECT_TRUE(receive(0, 1, end_header(0), {}));
  EXPECT_TRUE(receive(0, 1, end_header(1), {}));
  EXPECT_FALSE(receive(0, 1, end_header(2), {}));
  EXPECT_FALSE(receive(0, 1, end_header(3), {}));
  SectionHeader header = end_header();
  header.step = 2;
  EXPECT_TRUE(receive(0, 1, header, {}));
  header.step = 3;
  EXPECT_FALSE(receive(0, 1, header, {}));
  // The round was asked for, and its values are to come: its owners would be blamed for them.
  ASSERT_NO_FATAL_FAILURE(ask());
  EXPECT_TRUE(receive(0, 1, end_header(1), {}));
  EXPECT_FALSE(receive(0, 1, end_header(2), {}));
  SectionHeader values = values_header(SectionKind::kValuesHost, 2);
  EXPECT_TRUE(receive_bytes(0, 3, values, 2 * kRowBytes));
  values.count = 4;
  EXPECT_TRUE(receive_bytes(0, 0, values, 4 * kRowBytes));
  EXPECT_TRUE(receive(0, 1, end_header(2), {}));
}

// Receive a pull of step 3 where a round of step 1 (past) was left open: expect room, and nothing
// to be told of the old one.
TEST_F(PullGarbage, ReceiveAPullWhereAnOldRoundIsOpen) {
  EXPECT_TRUE(receive(0, 1, end_header(), {}));
  EXPECT_EQ(exchange(0).waiting(1).number, 1u);
  exchange(0).open(3);
  EXPECT_EQ(exchange(0).waiting(1).number, 0u);
  SectionHeader header = end_header();
  header.step = 3;
  EXPECT_TRUE(receive(0, 1, header, {}));
}

// ---- leader -> owner

TEST_F(PullGarbage, ReceiveAnAskOfOtherSenders) {
  const SectionHeader header = ids_header(SectionKind::kPullHost, 2);
  for (const uint32_t leader : {0u, 3u}) {
    EXPECT_TRUE(receive_ids(0, leader, header, owned_by(0, 2)));
  }
  for (const uint32_t stranger : {1u, 2u, 4u}) {
    begin();
    EXPECT_FALSE(receive_ids(0, stranger, header, owned_by(0, 2))) << stranger;
  }
  // Rank 2 handles nothing, but owns rows of column 0.
  begin();
  EXPECT_TRUE(receive_ids(2, 3, header, owned_by(2, 2)));
  EXPECT_FALSE(receive_ids(2, 4, header, owned_by(2, 2)));
}

TEST_F(PullGarbage, ReceiveAnAskThatDoesNotFit) {
  const SectionHeader fits = ids_header(SectionKind::kPullHost, 2);
  const auto refused = [&](SectionHeader header, const std::vector<uint32_t>& row_keys) {
    begin();
    EXPECT_FALSE(receive_ids(0, 3, header, row_keys));
  };
  for (const Encoding encoding :
       {Encoding::kBytes, Encoding::kDense, Encoding::kRows, Encoding::kValues}) {
    SectionHeader header = fits;
    header.encoding = encoding;
    refused(header, owned_by(0, 2));
  }
  refused(fits, owned_by(0, 1));
  refused(fits, owned_by(0, 3));
  for (const uint32_t count : {0u, 1u, 3u, 1u << 30, UINT32_MAX}) {
    refused(ids_header(SectionKind::kPullHost, count), owned_by(0, 2));
  }
  refused(fits, {0, kRowCount});
  refused(fits, {UINT32_MAX, 0});
  refused(fits, {0, 3});  // rank 3's, of the same column
  // Rank 0 owns 12 rows: a list of more names one twice.
  std::vector<uint32_t> twice = owned_by(0, 12);
  twice.push_back(0);
  refused(ids_header(SectionKind::kPullHost, 13), twice);
  for (const uint64_t first : {uint64_t{1}, uint64_t{2}, UINT64_MAX}) {  // a list begins at 0
    SectionHeader header = fits;
    header.first = first;
    refused(header, owned_by(0, 2));
  }
  for (const uint32_t unknown : {4u, 99u, UINT32_MAX}) {
    SectionHeader header = fits;
    header.tag = unknown;
    refused(header, owned_by(0, 2));
  }
  begin();
  EXPECT_FALSE(receive_ids(3, 3, {.kind = SectionKind::kPullHost, .tag = kFew}, {}))
      << "rank 3 owns nothing of it";
  EXPECT_TRUE(receive_ids(0, 3, fits, owned_by(0, 2))) << "what all of these began with";
}

// Receive a list in parts: expect each to go on where the last ended, in the step and the round.
TEST_F(PullGarbage, ReceiveAListThatSkipsOrRepeats) {
  SectionHeader header = ids_header(SectionKind::kPullHost, 2);
  header.step = 2;  // not to be answered yet
  const auto next = [&](uint64_t first) {
    header.first = first;
    return receive_ids(0, 3, header, owned_by(0, 2));
  };
  EXPECT_TRUE(next(0));
  EXPECT_TRUE(next(2));
  EXPECT_FALSE(next(2)) << "again";
  EXPECT_FALSE(next(6)) << "beyond";
  EXPECT_FALSE(next(0)) << "another list, while this one waits";
  EXPECT_TRUE(next(4));
  header.part = 1;
  EXPECT_FALSE(next(0)) << "another round, while this one waits";
  EXPECT_FALSE(next(6));
  exchange(0).applied(1);
  EXPECT_TRUE(next(0)) << "the list before was answered";
}

}  // namespace
}  // namespace parallax::testkit::pull_garbage
