// SPDX-License-Identifier: Apache-2.0
// Rows named by their place among those that were pulled: from the row keys of a push through
// messages to the row keys that the owner adds by, whatever was pulled and pushed.
#include "collectives/listed_rows.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "base/seeded_random.h"
#include "unit/message/outbox_fixture.h"

namespace parallax {
namespace {

using Keys = std::vector<uint32_t>;

struct Pushed {
  Keys row_keys, items;  // as list_rows leaves them
  uint32_t listed = 0;
};

Pushed list(const Keys& pulled, const Keys& pushed, RowScratch* scratch) {
  Pushed rows = {.row_keys = pushed, .items = Keys(pushed.size())};
  for (uint32_t i = 0; i < pushed.size(); ++i) rows.items[i] = 100 + i;
  rows.listed = list_rows(pulled, rows.row_keys, rows.items, scratch);
  return rows;
}

// Each row once, with its item; those that were pulled in the order of that.
void expect_right(const Keys& pulled, const Keys& pushed, const Pushed& rows) {
  std::map<uint32_t, uint32_t> item_of;
  for (uint32_t i = 0; i < pushed.size(); ++i) item_of[pushed[i]] = 100 + i;
  ASSERT_LE(rows.listed, pushed.size());
  for (uint32_t i = 0; i < pushed.size(); ++i) {
    uint32_t row_key = rows.row_keys[i];
    if (i < rows.listed) {
      ASSERT_LT(row_key, pulled.size());
      ASSERT_TRUE(i == 0 || rows.row_keys[i - 1] < row_key) << "places ascend";
      row_key = pulled[row_key];
    }
    ASSERT_EQ(item_of.count(row_key), 1u);
    ASSERT_EQ(item_of[row_key], rows.items[i]);
    item_of.erase(row_key);
  }
  EXPECT_TRUE(item_of.empty());
}

class ListedRows : public outbox_tests::OutboxTest {
 protected:
  void SetUp() override {
    OutboxTest::SetUp();
    ASSERT_TRUE(scratch_.reserve(4000).ok());
  }

  // What the owner reads of the rows that `rows` lists, each row with its item in its elements.
  void expect_read(const Keys& pulled, const Pushed& rows, uint32_t width) {
    std::vector<float> values;
    for (uint32_t i = 0; i < 100 + rows.items.size(); ++i) {
      values.insert(values.end(), width, static_cast<float>(i));
    }
    Send send;
    send.header = {
        .kind = SectionKind::kHostReduce, .encoding = Encoding::kListedRows, .flags = kSectionLast};
    send.rows = {.row_keys = rows.row_keys.data(),
                 .values = reinterpret_cast<const std::byte*>(values.data()),
                 .order = rows.items.data(),
                 .row_elements = width};
    send.count = rows.listed;
    outbox_.add(1, send);
    uint32_t at = 0;
    Keys read(pulled.size());
    for (const outbox_tests::Got& got : flush(1)) {
      const Section section = {.header = got.header, .payload = got.payload};
      std::span<const std::byte> there;
      ASSERT_TRUE(read_listed(section, width * sizeof(float), pulled, read, &there));
      ASSERT_EQ(there.size(), got.header.count * width * sizeof(float));
      for (uint32_t i = 0; i < got.header.count; ++i, ++at) {
        ASSERT_EQ(read[i], pulled[rows.row_keys[at]]);
        float first;
        std::memcpy(&first, &there[i * width * sizeof first], sizeof first);
        ASSERT_EQ(first, static_cast<float>(rows.items[at]));
      }
    }
    EXPECT_EQ(at, rows.listed);
  }

  RowScratch scratch_;
};

TEST_F(ListedRows, TheSameRowsTakeNoBits) {
  const Keys pulled = {30, 10, 20};
  const Pushed rows = list(pulled, pulled, nullptr);
  EXPECT_EQ(rows.listed, 3u);
  EXPECT_EQ(rows.row_keys, (Keys{0, 1, 2}));
  const std::vector<float> values(200, 1);
  Send send;
  send.header = {.kind = SectionKind::kHostReduce, .encoding = Encoding::kListedRows};
  send.rows = {.row_keys = rows.row_keys.data(),
               .values = reinterpret_cast<const std::byte*>(values.data()),
               .order = rows.items.data(),
               .row_elements = 1};
  send.count = 3;
  outbox_.add(1, send);
  const auto got = flush(1);
  ASSERT_EQ(got.size(), 1u);
  EXPECT_EQ(got[0].payload.size(), 3 * sizeof(float)) << "the rows, and nothing else";
}

// Some of what was pulled, in its order, and some that was not: found without an index.
TEST_F(ListedRows, OthersHereAndThere) {
  Keys pulled, pushed;
  for (uint32_t i = 0; i < 1000; ++i) {
    pulled.push_back(3 * i);
    if (i % 7 == 3) pushed.push_back(3 * i + 1);
    if (i % 5 != 0) pushed.push_back(i % 11 == 0 ? 3 * i + 2 : 3 * i);
  }
  const auto kept = static_cast<uint32_t>(std::count_if(
      pushed.begin(), pushed.end(), [](uint32_t row_key) { return row_key % 3 == 0; }));
  const Pushed rows = list(pulled, pushed, nullptr);
  expect_right(pulled, pushed, rows);
  EXPECT_EQ(rows.listed, kept);
  expect_read(pulled, rows, 1);
}

// Rows in another order cost a bounded walk, and are not looked up where no scratch is given.
TEST_F(ListedRows, AnotherOrderIsGivenUp) {
  Keys pulled(4000);
  for (uint32_t i = 0; i < pulled.size(); ++i) pulled[i] = i;
  Keys pushed(pulled.rbegin(), pulled.rend());
  EXPECT_LT(list(pulled, pushed, nullptr).listed, 200u);
  EXPECT_EQ(list(pulled, pushed, &scratch_).listed, 4000u);
}

// Some of what was pulled, in its order: found without an index.
TEST_F(ListedRows, SomeOfThemInTheirOrder) {
  const Keys pulled = {5, 4, 9, 1, 7}, pushed = {4, 1, 7};
  const Pushed rows = list(pulled, pushed, nullptr);
  EXPECT_EQ(rows.listed, 3u);
  EXPECT_EQ(rows.row_keys, (Keys{1, 3, 4}));
  expect_read(pulled, rows, 2);
}

TEST_F(ListedRows, OthersInAnyOrder) {
  const Keys pulled = {5, 4, 9, 1, 7}, pushed = {8, 7, 4, 2, 5};
  EXPECT_EQ(list(pulled, pushed, nullptr).listed, 1u) << "a walk finds the first pulled";
  const Pushed rows = list(pulled, pushed, &scratch_);
  EXPECT_EQ(rows.listed, 3u);
  EXPECT_EQ(rows.row_keys, (Keys{0, 1, 4, 2, 8}));
  EXPECT_EQ(rows.items, (Keys{104, 102, 101, 103, 100}));
}

TEST_F(ListedRows, NotWhereBitsTakeMoreThanRowKeys) {
  Keys pulled(3200);
  for (uint32_t i = 0; i < pulled.size(); ++i) pulled[i] = 2 * i;
  const Keys far = {pulled.front(), pulled.back()};
  const Pushed rows = list(pulled, far, &scratch_);
  EXPECT_EQ(rows.listed, 0u);
  EXPECT_EQ(rows.row_keys, far);
  EXPECT_EQ(list(pulled, {pulled[100], pulled[101], pulled[103]}, &scratch_).listed, 0u);
  EXPECT_EQ(list({}, far, &scratch_).listed, 0u);
}

// A row that was pulled in two types stands twice in the list, and slots of an index are no places.
TEST_F(ListedRows, ARowThatWasPulledTwice) {
  const Keys pulled = {5, 4, 5, 9, 8}, pushed = {5, 9, 4, 8};
  const Pushed rows = list(pulled, pushed, &scratch_);
  expect_right(pulled, pushed, rows);
  EXPECT_EQ(rows.listed, 3u) << "those that the walk finds";
  EXPECT_EQ(rows.row_keys, (Keys{0, 3, 4, 4}));
}

TEST_F(ListedRows, AnyRowsThroughMessages) {
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    SeededRandom random(seed);
    std::set<uint32_t> drawn;
    Keys pulled, pushed;
    for (uint64_t i = random.below(700); i > 0; --i) {
      const auto key = static_cast<uint32_t>(random.below(2000));
      if (drawn.insert(key).second) pulled.push_back(key);
    }
    const uint64_t kept_percent = random.below(101), other_percent = random.below(30);
    for (const uint32_t key : pulled) {
      if (random.below(100) < kept_percent) pushed.push_back(key);
      const auto other = static_cast<uint32_t>(2000 + random.below(2000));
      if (random.below(100) < other_percent && drawn.insert(other).second) pushed.push_back(other);
    }
    if (random.below(2) == 0) {
      for (size_t i = pushed.size(); i > 1; --i) std::swap(pushed[i - 1], pushed[random.below(i)]);
    }
    for (RowScratch* scratch : {static_cast<RowScratch*>(nullptr), &scratch_}) {
      const Pushed rows = list(pulled, pushed, scratch);
      expect_right(pulled, pushed, rows);
      if (rows.listed > 0) expect_read(pulled, rows, seed % 2 == 0 ? 1 : 37);
      if (HasFailure()) FAIL() << "seed " << seed;
    }
  }
}

TEST_F(ListedRows, TakesNothingElse) {
  const Keys pulled = {5, 4, 9, 1, 7, 3, 2, 8, 6, 0};
  const auto reads = [&](uint64_t first, uint32_t count, std::vector<uint8_t> bits,
                         size_t rows_bytes, size_t room = 10) {
    std::vector<std::byte> payload;
    for (const uint8_t byte : bits) payload.push_back(std::byte{byte});
    payload.resize(payload.size() + rows_bytes);
    Section section;
    section.header.encoding = Encoding::kListedRows;
    section.header.first = first;
    section.header.count = count;
    section.payload = payload;
    Keys keys(room);
    std::span<const std::byte> rows;
    return read_listed(section, 4, pulled, keys, &rows);
  };
  EXPECT_TRUE(reads(0, 10, {}, 40));
  EXPECT_TRUE(reads(8, 2, {}, 8));
  EXPECT_TRUE(reads(7, 2, {0b101}, 8));
  EXPECT_TRUE(reads(0, 2, {0, 0b11}, 8));
  EXPECT_FALSE(reads(0, 0, {}, 0)) << "nothing";
  EXPECT_FALSE(reads(9, 2, {}, 8)) << "beyond the list";
  EXPECT_FALSE(reads(10, 1, {}, 4));
  EXPECT_FALSE(reads(UINT64_MAX, 2, {}, 8));
  EXPECT_FALSE(reads(0, 11, {}, 44));
  EXPECT_FALSE(reads(0, 10, {}, 40, 9)) << "no room";
  EXPECT_FALSE(reads(0, 3, {}, 11)) << "fewer bytes than rows";
  EXPECT_FALSE(reads(0, 2, {0b111}, 8)) << "more bits than rows";
  EXPECT_FALSE(reads(0, 2, {0b1}, 8)) << "fewer";
  EXPECT_FALSE(reads(7, 2, {0b1001}, 8)) << "a bit beyond the list";
  EXPECT_FALSE(reads(0, 2, {0b11, 0, 0}, 8)) << "more bytes than the list has bits";
}

}  // namespace
}  // namespace parallax
