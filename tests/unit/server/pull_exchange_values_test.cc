// SPDX-License-Identifier: Apache-2.0
// Values of peers that break the rules: what does not fit is refused, whatever it is that does
// not; and what is of nobody's making reads and writes nothing that is not its own.
#include <gtest/gtest.h>

#include "support/sanitizers.h"
#include "unit/server/pull_garbage.h"

namespace parallax::testkit::pull_garbage {
namespace {

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
  refused_with([](SectionHeader* header) { header->step = 3; });  // of the same slot
  refused_with([](SectionHeader* header) { header->part = 1; });
  refused_with([](SectionHeader* header) { header->part = 2; });
  refused_with([](SectionHeader* header) { header->tag = kDense; });
  refused_with([](SectionHeader* header) { header->tag = kIntegers; });
  refused_with([](SectionHeader* header) { header->tag = 99; });
  SectionHeader huge = fits;
  huge.count = UINT32_MAX;
  refused(3, huge, 2 * kRowBytes);
  ASSERT_NO_FATAL_FAILURE(ask());
  EXPECT_TRUE(receive_bytes(0, 3, fits, 2 * kRowBytes)) << "what all of these began with";
}

// Receive values before the round is asked for (future), or when it is over (past): expect them
// refused, those without a row too.
TEST_F(PullGarbage, ReceiveValuesThatNobodyWaitsFor) {
  const SectionHeader values = values_header(SectionKind::kValuesHost, 2);
  const SectionHeader nothing = values_header(SectionKind::kValuesHost, 0);
  EXPECT_FALSE(receive_bytes(0, 3, values, 2 * kRowBytes)) << "no round";
  EXPECT_TRUE(receive_ids(0, 0, ids_header(SectionKind::kPullLocal, 2), {3, 8}));
  EXPECT_FALSE(receive_bytes(0, 3, values, 2 * kRowBytes)) << "not asked for yet";
  ASSERT_NO_FATAL_FAILURE(ask());
  EXPECT_TRUE(receive_bytes(0, 3, values, 2 * kRowBytes));
  EXPECT_TRUE(receive_bytes(0, 0, values_header(SectionKind::kValuesHost, 4), 4 * kRowBytes));
  EXPECT_FALSE(receive_bytes(0, 3, values, 2 * kRowBytes)) << "again, when all of it is there";
  EXPECT_FALSE(receive_bytes(0, 3, nothing, 0)) << "it would be answered twice";
  ASSERT_NO_FATAL_FAILURE(ask());
  exchange(0).open(3);
  EXPECT_FALSE(receive_bytes(0, 3, values, 2 * kRowBytes)) << "of a step that is over";
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

// ---- leader -> rank

// Rank 1 wants three rows of column 0 and two of column 1, and a dense variable.
class PullGarbageLocal : public PullGarbage {
 protected:
  void pull() {
    begin();
    Wish rows(kRows, {});
    for (const uint32_t row_key : {0u, 5u, 10u, 1u, 6u}) {
      rows.ids.push_back(static_cast<int64_t>(job_->partition(kRows).row_of(row_key)));
    }
    pull_ = &job_->pull(1, 1, {rows, Wish::whole(kDense)});
  }
  SectionHeader dense_header(uint32_t count) const {
    SectionHeader header = values_header(SectionKind::kValuesLocal, count);
    header.encoding = Encoding::kDense;
    header.tag = kDense;
    return header;
  }
  SectionHeader over() const {
    SectionHeader header = end_header();
    header.kind = SectionKind::kValuesLocal;
    return header;
  }
  Pull* pull_ = nullptr;
};

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
  refused_with([](SectionHeader* header) { header->part = 2; });
  refused_with([](SectionHeader* header) { header->tag = kIntegers; });  // not of this pull
  refused_with([](SectionHeader* header) { header->tag = 99; });
  pull();
  EXPECT_TRUE(receive_bytes(1, 0, fits, 3 * kRowBytes)) << "what all of these began with";
}

TEST_F(PullGarbageLocal, ReceiveElementsThatDoNotFit) {
  const SectionHeader fits = dense_header(300);
  const auto refused_with = [&](const std::function<void(SectionHeader*)>& change, size_t bytes) {
    SectionHeader header = fits;
    change(&header);
    pull();
    EXPECT_FALSE(receive_bytes(1, 0, header, bytes));
  };
  const auto as_is = [](SectionHeader*) {};
  for (const size_t bytes : {size_t{0}, size_t{1199}, size_t{1201}}) refused_with(as_is, bytes);
  refused_with([](SectionHeader* header) { header->encoding = Encoding::kValues; }, 1200);
  refused_with([](SectionHeader* header) { header->tag = kRows; }, 1200);
  for (const uint64_t first : {uint64_t{1401}, uint64_t{1701}, UINT64_MAX, UINT64_MAX - 299}) {
    refused_with([&](SectionHeader* header) { header->first = first; }, 1200);
  }
  refused_with([](SectionHeader* header) { header->count = 1701; }, 1701 * sizeof(float));
  pull();
  EXPECT_TRUE(receive_bytes(1, 0, fits, 1200)) << "what all of these began with";
}

// Receive all of a pull: expect its end from each leader once, and nothing more.
TEST_F(PullGarbageLocal, ReceiveMoreThanAllOfIt) {
  EXPECT_FALSE(receive(1, 0, over(), {})) << "no pull is under way";
  pull();
  for (const uint32_t stranger : {2u, 3u, 4u}) EXPECT_FALSE(receive(1, stranger, over(), {}));
  EXPECT_TRUE(receive_bytes(1, 0, values_header(SectionKind::kValuesLocal, 3), 3 * kRowBytes));
  EXPECT_TRUE(receive_bytes(1, 1, values_header(SectionKind::kValuesLocal, 2), 2 * kRowBytes));
  EXPECT_FALSE(receive_bytes(1, 1, values_header(SectionKind::kValuesLocal, 2), 2 * kRowBytes));
  EXPECT_TRUE(receive_bytes(1, 0, dense_header(1700), 1700 * sizeof(float)));
  EXPECT_FALSE(receive_bytes(1, 0, dense_header(1), sizeof(float)));
  EXPECT_FALSE(exchange(1).finished());
  EXPECT_TRUE(receive(1, 0, over(), {}));
  EXPECT_FALSE(exchange(1).finished()) << "leader 1 has not said so";
  EXPECT_TRUE(receive(1, 1, over(), {}));
  EXPECT_TRUE(exchange(1).finished());
  EXPECT_FALSE(receive(1, 1, over(), {}));
  exchange(1).finish();
  EXPECT_FALSE(receive(1, 1, over(), {}));
}

// ---- anything

SectionHeader draw_header(SeededRandom& random) {
  SectionHeader header;
  header.kind = static_cast<SectionKind>(random.between(13, 16));
  header.encoding = static_cast<Encoding>(random.below(5));
  header.flags = flags_of(random.chance(80) ? 0 : static_cast<uint32_t>(random.below(16)));
  header.part = static_cast<uint8_t>(random.chance(95) ? 0 : random.next());
  header.tag = static_cast<uint32_t>(random.chance(80) ? random.below(4) : random.next());
  if (random.chance(10)) header.tag = kEnd;
  header.step = random.chance(90) ? 1 : random.next();
  header.first = random.chance(60) ? 0 : random.chance(80) ? random.below(1800) : random.next();
  header.count = static_cast<uint32_t>(random.chance(95) ? random.below(20) : random.next());
  return header;
}

// Given a pull under way, receive anything from anybody: expect what cannot be used to be
// refused, and no memory touched but the exchange's own; the rest is the sanitizers'.
TEST_F(PullGarbageLocal, NoSectionHarms) {
  uint32_t refused = 0, taken = 0;
  for (uint64_t seed = 1; seed <= (kThreadSanitizer ? 50 : 400); ++seed) {
    SeededRandom random(seed);
    pull();
    for (uint32_t i = 0; i < 30; ++i) {
      const SectionHeader header = draw_header(random);
      const size_t sizes[] = {header.count * size_t{4}, header.count * kRowBytes, 0,
                              random.below(500)};
      std::vector<uint32_t> payload(std::min<size_t>(sizes[random.below(4)], 20 * kRowBytes) / 4);
      for (uint32_t& word : payload) word = static_cast<uint32_t>(random.below(kRowCount + 2));
      const auto to = static_cast<uint32_t>(random.below(2));
      const auto from = static_cast<uint32_t>(random.below(5));
      ++(receive_ids(to, from, header, payload) ? taken : refused);
      if (random.chance(20)) job_->network().move();
    }
  }
  EXPECT_GT(refused, 1000u);
  EXPECT_GT(taken, kThreadSanitizer ? 10u : 100u);
}

}  // namespace
}  // namespace parallax::testkit::pull_garbage
