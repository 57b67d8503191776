// SPDX-License-Identifier: Apache-2.0
// A rank that pulls and leaders that break the rules: what does not fit is refused, whatever it is
// that does not. What it does with leaders that keep them: pull_exchange_test.cc.
#include "server/pull_source.h"

#include <gtest/gtest.h>

#include "unit/server/pull_garbage.h"

namespace parallax::testkit::pull_garbage {
namespace {

TEST_F(PullGarbageLocal, ReceiveRowsThatDoNotFit) {
  const SectionHeader fits = values_header(SectionKind::kValuesLocal, 3);
  const auto refused = [&](uint32_t from, const SectionHeader& header, size_t bytes) {
    pull();
    EXPECT_FALSE(receive_bytes(1, from, header, bytes)) << "of rank " << from;
  };
  const auto refused_with = [&](const std::function<void(SectionHeader*)>& change) {
    SectionHeader header = fits;
    change(&header);
    refused(0, header, header.count * kRowBytes);
  };
  for (const uint32_t stranger : {2u, 3u, 4u}) refused(stranger, fits, 3 * kRowBytes);
  refused(1, fits, 3 * kRowBytes);  // of column 1 it wants two
  for (const Encoding encoding :
       {Encoding::kBytes, Encoding::kDense, Encoding::kRows, Encoding::kIds}) {
    refused_with([&](SectionHeader* header) { header->encoding = encoding; });
  }
  for (const size_t bytes : {size_t{0}, 3 * kRowBytes - 1, 3 * kRowBytes + 1}) {
    refused(0, fits, bytes);
  }
  for (const uint32_t count : {0u, 4u, 6u}) {
    refused_with([&](SectionHeader* header) { header->count = count; });
  }
  for (const uint64_t first : {uint64_t{1}, uint64_t{1} << 32, UINT64_MAX}) {
    refused_with([&](SectionHeader* header) { header->first = first; });
  }
  refused_with([](SectionHeader* header) { header->flags = flags_of(PARALLAX_F16); });
  refused_with([](SectionHeader* header) { header->step = 3; });
  refused_with([](SectionHeader* header) { header->tag = kIntegers; });  // not of this pull
  refused_with([](SectionHeader* header) { header->tag = 99; });
  pull();
  EXPECT_TRUE(receive_bytes(1, 0, fits, 3 * kRowBytes)) << "what all of these began with";
}

// Receive an answer in pieces: expect each to go on where the last ended. What the other leader
// still owes is no room for a piece that comes again.
TEST_F(PullGarbageLocal, ReceiveAPieceOfTheRowsAgain) {
  pull();
  const SectionHeader one = values_header(SectionKind::kValuesLocal, 1);
  EXPECT_TRUE(receive_bytes(1, 0, one, kRowBytes));
  EXPECT_FALSE(receive_bytes(1, 0, one, kRowBytes)) << "again";
  EXPECT_FALSE(receive_bytes(1, 0, following(one, 2), kRowBytes)) << "one was left out";
  SectionHeader two = following(one, 1);
  two.count = 2;
  EXPECT_TRUE(receive_bytes(1, 0, two, 2 * kRowBytes));
  EXPECT_FALSE(receive_bytes(1, 0, two, 2 * kRowBytes)) << "all of it came";
  two.first = 0;
  EXPECT_TRUE(receive_bytes(1, 1, two, 2 * kRowBytes)) << "the other leader's";
}

// Leader 0 has the ranges of ranks 0, 2 and 3, and in that order.
TEST_F(PullGarbageLocal, ReceiveElementsThatDoNotFit) {
  const SectionHeader fits = following(dense_header(200), range_of(0).first);
  ASSERT_LT(range_of(0).count, 300u);
  const auto refused_with = [&](const std::function<void(SectionHeader*)>& change, size_t bytes) {
    SectionHeader header = fits;
    change(&header);
    pull();
    EXPECT_FALSE(receive_bytes(1, 0, header, bytes));
  };
  const auto as_is = [](SectionHeader*) {};
  for (const size_t bytes : {size_t{0}, size_t{799}, size_t{801}}) refused_with(as_is, bytes);
  refused_with([](SectionHeader* header) { header->encoding = Encoding::kValues; }, 800);
  refused_with([](SectionHeader* header) { header->tag = kRows; }, 800);
  for (const uint64_t first :
       {range_of(0).first - 1, range_of(0).first + 1, range_of(1).first, range_of(2).first,
        range_of(4).first, uint64_t{1701}, UINT64_MAX, UINT64_MAX - 199}) {
    refused_with([&](SectionHeader* header) { header->first = first; }, 800);
  }
  refused_with([](SectionHeader* header) { header->count = 0; }, 0);
  refused_with([](SectionHeader* header) { header->count = 300; }, 300 * sizeof(float));
  refused_with([](SectionHeader* header) { header->count = UINT32_MAX; }, 800);
  pull();
  EXPECT_FALSE(receive_bytes(1, 1, fits, 800)) << "the other leader's";
  EXPECT_TRUE(receive_bytes(1, 0, fits, 800)) << "what all of these began with";
  EXPECT_FALSE(receive_bytes(1, 0, fits, 800)) << "again";
  EXPECT_FALSE(receive_bytes(1, 0, following(fits, range_of(2).first), 800)) << "a gap";
  SectionHeader rest = following(fits, fits.first + 200);
  rest.count = static_cast<uint32_t>(range_of(0).count) - 200;
  EXPECT_TRUE(receive_bytes(1, 0, rest, rest.count * sizeof(float)));
  EXPECT_FALSE(receive_bytes(1, 0, following(fits, range_of(3).first), 800)) << "rank 2's is next";
  EXPECT_TRUE(receive_bytes(1, 0, following(fits, range_of(2).first), 800));
}

// Receive all of a pull: expect it to be finished with the last of it, and nothing more to be due.
TEST_F(PullGarbageLocal, ReceiveMoreThanAllOfIt) {
  EXPECT_FALSE(receive_bytes(1, 0, values_header(SectionKind::kValuesLocal, 3), 3 * kRowBytes))
      << "no pull is under way";
  pull();
  for (const uint32_t leader : {0u, 1u}) {
    SectionHeader over = end_header();
    over.kind = SectionKind::kValuesLocal;
    EXPECT_FALSE(receive(1, leader, over, {})) << "a section without values";
  }
  EXPECT_TRUE(receive_bytes(1, 0, values_header(SectionKind::kValuesLocal, 3), 3 * kRowBytes));
  EXPECT_EQ(exchange(1).missing_ranks(), (std::vector<uint32_t>{0, 1, 4}))
      << "as its own leader both owners";
  EXPECT_TRUE(receive_bytes(1, 1, values_header(SectionKind::kValuesLocal, 2), 2 * kRowBytes));
  EXPECT_FALSE(receive_bytes(1, 1, values_header(SectionKind::kValuesLocal, 2), 2 * kRowBytes));
  for (const uint32_t owner : {0u, 2u, 3u, 1u, 4u}) {
    EXPECT_FALSE(exchange(1).finished());
    const Range range = range_of(owner);
    const SectionHeader whole =
        following(dense_header(static_cast<uint32_t>(range.count)), range.first);
    const uint32_t leader = owner == 1 || owner == 4 ? 1 : 0;
    EXPECT_TRUE(receive_bytes(1, leader, whole, range.count * sizeof(float)));
  }
  EXPECT_TRUE(exchange(1).finished());
  EXPECT_TRUE(exchange(1).missing_ranks().empty());
  EXPECT_FALSE(receive_bytes(1, 0, dense_header(1), sizeof(float)));
  exchange(1).finish();
  EXPECT_FALSE(receive_bytes(1, 0, dense_header(1), sizeof(float)));
}

}  // namespace
}  // namespace parallax::testkit::pull_garbage
