// SPDX-License-Identifier: Apache-2.0
// An owner and leaders that break the rules: what does not fit is refused, whatever it is that does
// not. What it does for leaders that keep them: pull_exchange_test.cc.
#include "server/pull_owner.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "unit/server/pull_garbage.h"

namespace parallax::testkit::pull_garbage {
namespace {

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

// Receive a list in parts, to be answered later: expect each to go on where the last ended, in the
// step and the dtype.
TEST_F(PullGarbage, ReceiveAListThatSkipsOrRepeats) {
  SectionHeader header = ids_header(SectionKind::kPullHost, 2);
  header.step = 2;  // not to be answered yet
  const auto next = [&](uint64_t first, uint8_t flags = 0) {
    header.flags = flags;
    return receive_ids(0, 3, following(header, first), owned_by(0, 2));
  };
  EXPECT_TRUE(next(0));
  EXPECT_TRUE(next(2));
  EXPECT_FALSE(next(2)) << "again";
  EXPECT_FALSE(next(6)) << "beyond";
  EXPECT_FALSE(next(0)) << "another list, while this one goes on";
  EXPECT_FALSE(next(4, flags_of(PARALLAX_F16)));
  header.step = 3;
  EXPECT_FALSE(next(4)) << "another step, while this one waits";
  EXPECT_FALSE(next(0));
  header.step = 2;
  EXPECT_TRUE(next(4));
  exchange(0).applied(1);
  EXPECT_FALSE(next(0)) << "what was asked for in this step before";
  EXPECT_FALSE(next(6, flags_of(PARALLAX_F16))) << "the answer is not packed yet";
  EXPECT_TRUE(next(6));
  job_->network().hold(3);  // what rank 3 is told in answer it did not ask for
  while (job_->network().move()) {
  }
  EXPECT_TRUE(next(8, flags_of(PARALLAX_F16))) << "all that was listed is answered and packed";
}

// Receive more than the host may have asked for while nothing was answered: expect it refused,
// and room for as much again once it was.
TEST_F(PullGarbage, ReceiveAListBeyondItsBound) {
  SectionHeader header = ids_header(SectionKind::kPullHost, 12);
  header.step = 2;
  EXPECT_TRUE(receive_ids(0, 3, header, owned_by(0, 12))) << "all the rows that rank 0 owns";
  header = following(header, 12);
  header.count = 1;
  EXPECT_FALSE(receive_ids(0, 3, header, {0})) << "before it was answered";
  exchange(0).applied(1);
  EXPECT_FALSE(receive_ids(0, 3, header, {0})) << "before the answer is packed";
  while (job_->network().move()) {
  }
  header.count = 12;
  EXPECT_TRUE(receive_ids(0, 3, header, owned_by(0, 12)));
}

// Receive a list once more when it was answered: expect it refused, and none of a step that is
// behind.
TEST_F(PullGarbage, ReceiveAListOnceMore) {
  const auto settle = [&] {
    while (job_->network().move()) {
    }
  };
  SectionHeader header = ids_header(SectionKind::kPullHost, 2);
  EXPECT_TRUE(receive_ids(0, 3, header, owned_by(0, 2)));
  EXPECT_FALSE(receive_ids(0, 3, header, owned_by(0, 2)));
  settle();
  EXPECT_FALSE(receive_ids(0, 3, header, owned_by(0, 2)));
  EXPECT_TRUE(receive_ids(0, 0, header, owned_by(0, 2))) << "of the other host";
  header = following(header, 2);
  EXPECT_TRUE(receive_ids(0, 3, header, owned_by(0, 2))) << "the same rows, asked for anew";
  settle();
  exchange(0).applied(1);
  SectionHeader later = following(header, 0);
  later.step = 2;
  EXPECT_TRUE(receive_ids(0, 3, later, owned_by(0, 2)));
  settle();
  EXPECT_FALSE(receive_ids(0, 3, following(header, 4), owned_by(0, 2))) << "of the step before";
  EXPECT_FALSE(receive_ids(0, 3, following(header, 0), owned_by(0, 2)));
}

// Receive a list that comes in parts and grows long, to be answered at once or later: expect the
// values of each of its rows, in its order.
TEST_F(PullGarbage, ReceiveAListThatGrowsLong) {
  constexpr uint32_t kParts[] = {10, 6, 1, 30, 3};
  for (const uint64_t step : {1, 2}) {
    PullJob job({0, 1}, {pulled_variable(400, 2, 400, PARALLAX_F32)}, 1);
    std::vector<float> values;
    job.tap = [&](uint32_t to, uint32_t, const Section& section) {
      if (to != 1 || section.header.kind != SectionKind::kValuesHost) return;
      EXPECT_EQ(section.header.first * 2, values.size());
      const size_t before = values.size();
      values.resize(before + section.payload.size() / sizeof(float));
      std::memcpy(&values[before], section.payload.data(), section.payload.size());
    };
    std::vector<float> wanted;
    SectionHeader header{.kind = SectionKind::kPullHost, .encoding = Encoding::kIds};
    header.step = step;
    for (const uint32_t part : kParts) {
      std::vector<uint32_t> row_keys;
      for (uint32_t i = 0; i < part; ++i) {
        row_keys.push_back(static_cast<uint32_t>(header.first + i) * 2);
        for (const uint64_t column : {0, 1}) {
          const uint64_t row = job.partition(0).row_of(row_keys.back());
          wanted.push_back(static_cast<float>(value_at(0, row, column, step - 1)));
        }
      }
      header.count = part;
      const OwnedSection section(header, as_payload(row_keys));
      ASSERT_TRUE(job.exchange(0).on_section(1, section.view()));
      header.first += part;
    }
    job.network().settle();
    EXPECT_EQ(values.empty(), step == 2);
    if (step == 2) job.commit(0, 1);
    job.network().settle();
    EXPECT_EQ(values, wanted);
  }
}

// Receive an ask for a dense variable: expect nothing to come with it, and it to come once.
TEST_F(PullGarbage, ReceiveAnAskForADenseVariableThatDoesNotFit) {
  SectionHeader fits{.kind = SectionKind::kPullHost, .tag = kDense};
  fits.step = 1;
  for (const Encoding encoding :
       {Encoding::kDense, Encoding::kRows, Encoding::kIds, Encoding::kValues}) {
    SectionHeader header = fits;
    header.encoding = encoding;
    EXPECT_FALSE(receive(0, 3, header, {}));
  }
  EXPECT_FALSE(receive_bytes(0, 3, fits, 1)) << "with a payload";
  SectionHeader counted = fits;
  counted.count = 1;
  EXPECT_FALSE(receive(0, 3, counted, {}));
  for (const uint64_t first : {uint64_t{1}, UINT64_MAX}) {
    EXPECT_FALSE(receive(0, 3, following(fits, first), {}));
  }
  EXPECT_FALSE(receive(0, 4, fits, {})) << "rank 4 leads no column of it";
  EXPECT_TRUE(receive(0, 3, fits, {})) << "what all of these began with";
  EXPECT_FALSE(receive(0, 3, fits, {})) << "again";
  EXPECT_TRUE(receive(0, 3, following(fits, 1), {})) << "once more";
}

}  // namespace
}  // namespace parallax::testkit::pull_garbage
