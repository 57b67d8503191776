// SPDX-License-Identifier: Apache-2.0
#include "message/row_key_coding.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <set>
#include <vector>

#include "base/seeded_random.h"

namespace parallax {
namespace {

using Keys = std::vector<uint32_t>;

// Exactly as long as is said, so that a sanitizer sees a byte too many.
std::vector<std::byte> coded_keys(const Keys& keys) {
  std::vector<std::byte> out(keys.size() * sizeof(uint32_t));
  out.resize(code_row_keys(keys, out));
  out.shrink_to_fit();
  return out;
}

// The layout of the header once more, bit by bit. Empty: malformed.
Keys naive_keys(std::span<const std::byte> coded, uint32_t count, size_t* used) {
  size_t at = 0;
  uint64_t key = 0;
  for (uint32_t shift = 0;; shift += 7) {
    if (at == coded.size() || shift > 28) return {};
    const uint64_t byte = std::to_integer<uint64_t>(coded[at++]);
    key |= (byte & 0x7f) << shift;
    if (byte < 0x80) break;
  }
  if (key > UINT32_MAX) return {};
  Keys keys = {static_cast<uint32_t>(key)};
  while (keys.size() < count) {
    const size_t here = std::min<size_t>(128, count - keys.size());
    if (at == coded.size()) return {};
    const uint32_t low_bits = std::to_integer<uint32_t>(coded[at++]);
    if (low_bits > 31 && low_bits != 255) return {};
    const size_t begin = at * 8;
    size_t rest = low_bits == 255 ? begin : begin + (here * low_bits + 7) / 8 * 8;
    const size_t rest_end = std::min(coded.size() * 8, rest + size_t{48} * 8);
    const auto bit = [&](size_t i) { return std::to_integer<uint64_t>(coded[i / 8]) >> i % 8 & 1; };
    if (rest > coded.size() * 8) return {};
    for (size_t i = 0; i < here; ++i) {
      uint64_t gap = 0;
      if (low_bits != 255) {
        for (size_t j = 0; j < low_bits; ++j) gap |= bit(begin + i * low_bits + j) << j;
        for (;; gap += uint64_t{1} << low_bits) {
          if (rest == rest_end) return {};
          if (bit(rest++) == 1) break;
        }
      }
      key += gap + 1;
      if (key > UINT32_MAX) return {};
      keys.push_back(static_cast<uint32_t>(key));
    }
    at = (rest + 7) / 8;
  }
  *used = at;
  return keys;
}

void expect_same(const Keys& keys) {
  const std::vector<std::byte> coded = coded_keys(keys);
  if (coded.empty()) return;
  ASSERT_LT(coded.size(), keys.size() * sizeof(uint32_t));
  size_t used = 0;
  Keys read(keys.size());
  ASSERT_TRUE(read_row_keys(coded, static_cast<uint32_t>(keys.size()), read.data(), &used));
  ASSERT_EQ(used, coded.size());
  ASSERT_EQ(read, keys);
  ASSERT_EQ(naive_keys(coded, static_cast<uint32_t>(keys.size()), &used), keys);
}

Keys drawn_keys(SeededRandom& random, size_t count, uint64_t bound) {
  std::set<uint32_t> keys;
  while (keys.size() < count) keys.insert(static_cast<uint32_t>(random.below(bound)));
  return {keys.begin(), keys.end()};
}

TEST(RowKeyCoding, GivesBackEveryCountOfDrawnKeys) {
  SeededRandom random(1);
  for (size_t count = 0; count <= 300; ++count) {
    for (const uint64_t bound :
         {uint64_t{300}, uint64_t{1000}, uint64_t{1} << 20, uint64_t{1} << 32}) {
      ASSERT_NO_FATAL_FAILURE(expect_same(drawn_keys(random, count, bound))) << count;
    }
  }
  ASSERT_NO_FATAL_FAILURE(expect_same(drawn_keys(random, 20000, 1 << 24)));
}

TEST(RowKeyCoding, GivesBackKeysOfEveryGap) {
  for (uint32_t bits = 0; bits <= 31; ++bits) {
    for (const uint64_t gap :
         {uint64_t{1} << bits, (uint64_t{1} << bits) + 1, (uint64_t{2} << bits) - 1}) {
      Keys keys;
      for (uint64_t key = 0; key <= UINT32_MAX && keys.size() < 300; key += gap) {
        keys.push_back(static_cast<uint32_t>(key));
      }
      ASSERT_NO_FATAL_FAILURE(expect_same(keys)) << gap;
      for (uint32_t& key : keys) key = UINT32_MAX - key;
      std::reverse(keys.begin(), keys.end());
      ASSERT_NO_FATAL_FAILURE(expect_same(keys)) << gap;
    }
  }
}

// One far from all others, at every place: what a block has most zeros of.
TEST(RowKeyCoding, GivesBackKeysWithOneFarAway) {
  for (uint32_t place = 0; place < 300; ++place) {
    for (uint32_t far = 1; far != 0; far <<= 1) {
      Keys keys;
      for (uint32_t i = 0; i < 300; ++i) keys.push_back(2 * i + (i >= place ? far : 0));
      if (keys.back() < keys.front()) continue;
      ASSERT_NO_FATAL_FAILURE(expect_same(keys)) << place << " " << far;
    }
  }
}

// Half of the steps are of each size, and sizes are of any two kinds.
TEST(RowKeyCoding, GivesBackKeysInClusters) {
  SeededRandom random(2);
  for (int round = 0; round < 2000; ++round) {
    const uint64_t small = uint64_t{1} << random.below(8);
    const uint64_t large = uint64_t{1} << random.below(30);
    const uint32_t chance = static_cast<uint32_t>(random.below(101));
    uint64_t key = random.below(1000);
    Keys keys;
    for (size_t count = random.below(400); keys.size() < count && key <= UINT32_MAX;) {
      keys.push_back(static_cast<uint32_t>(key));
      key += 1 + random.below(random.chance(chance) ? small : large);
    }
    ASSERT_NO_FATAL_FAILURE(expect_same(keys)) << round;
  }
}

// The bytes as they travel: the first key 300; low bits of a gap, as many as are best; and a row
// of neighbours.
TEST(RowKeyCoding, KeepsItsLayout) {
  const auto bytes = [](std::initializer_list<unsigned> numbers) {
    std::vector<std::byte> all;
    for (const unsigned number : numbers) all.push_back(std::byte(number));
    return all;
  };
  // Gaps 2, 5, 0, 3 and 11: low bits 10 01 00 11 11, the rest 0, 1, 0, 0 and 2.
  EXPECT_EQ(coded_keys({300, 303, 309, 310, 314, 326}),
            bytes({0xac, 0x02, 0x02, 0xc6, 0x03, 0x9d}));
  EXPECT_EQ(coded_keys({7, 8, 9, 10}), bytes({0x07, 0xff}));
  // Gaps 0, 1 and 0: a bitmap of what follows the first key.
  EXPECT_EQ(coded_keys({7, 8, 10, 11}), bytes({0x07, 0x00, 0x0d}));
}

TEST(RowKeyCoding, ComesNearTheEntropy) {
  SeededRandom random(3);
  const auto bits_per_key = [&](size_t count, uint64_t rows) {
    return 8.0 * static_cast<double>(coded_keys(drawn_keys(random, count, rows)).size()) /
           static_cast<double>(count);
  };
  // log2(rows choose count) / count is 10.40, 7.69, 10.73 and 1.99.
  EXPECT_LT(bits_per_key(800, 400000), 10.7);
  EXPECT_LT(bits_per_key(650, 50000), 8.0);
  EXPECT_LT(bits_per_key(16000, 10000000), 11.0);
  EXPECT_LT(bits_per_key(1000, 2000), 2.2);
}

TEST(RowKeyCoding, RefusesWhatIsNoSmaller) {
  const auto code = [](Keys keys, size_t room) {
    std::vector<std::byte> out(room);
    return code_row_keys(keys, out);
  };
  EXPECT_EQ(code({}, 100), 0u);
  EXPECT_EQ(code({UINT32_MAX}, 100), 0u);  // five bytes
  EXPECT_EQ(code({1u << 21}, 100), 0u);    // four
  EXPECT_EQ(code({(1u << 21) - 1}, 100), 3u);
  EXPECT_EQ(code({5, 5}, 100), 0u);  // twice the same
  EXPECT_EQ(code({6, 5}, 100), 0u);
  EXPECT_EQ(code({0, 1, 2, 3, 1}, 100), 0u);
  Keys keys(300);
  for (uint32_t i = 0; i < 300; ++i) keys[i] = i * 1000;
  const size_t bytes = code(keys, 1200);
  ASSERT_NE(bytes, 0u);
  EXPECT_EQ(code(keys, bytes), bytes);
  for (size_t room = 0; room < bytes; ++room) ASSERT_EQ(code(keys, room), 0u) << room;
  std::swap(keys[200], keys[201]);
  EXPECT_EQ(code(keys, 1200), 0u);
}

TEST(RowKeyCoding, RefusesKeysBeyond32Bits) {
  size_t used = 0;
  uint32_t keys[2] = {};
  const auto read = [&](std::vector<unsigned> numbers, uint32_t count) {
    std::vector<std::byte> coded;
    for (const unsigned number : numbers) coded.push_back(std::byte(number));
    return read_row_keys(coded, count, keys, &used);
  };
  EXPECT_TRUE(read({0xff, 0xff, 0xff, 0xff, 0x0f}, 1));
  EXPECT_EQ(keys[0], UINT32_MAX);
  EXPECT_FALSE(read({0xff, 0xff, 0xff, 0xff, 0x1f}, 1));
  EXPECT_FALSE(read({0xff, 0xff, 0xff, 0xff, 0x8f, 0x00}, 1));
  EXPECT_FALSE(read({0xff, 0xff, 0xff, 0xff, 0x0f, 0xff}, 2));  // one more
  EXPECT_TRUE(read({0xfe, 0xff, 0xff, 0xff, 0x0f, 0xff}, 2));
  EXPECT_FALSE(read({0xfe, 0xff, 0xff, 0xff, 0x0f, 0x00, 0x02}, 2));
  EXPECT_TRUE(read({0xfe, 0xff, 0xff, 0xff, 0x0f, 0x00, 0x01}, 2));
  EXPECT_FALSE(read({0x00, 0x20, 0x00, 0x00, 0x00, 0x00, 0x01}, 2));  // 32 low bits
  EXPECT_TRUE(read({}, 0));
  EXPECT_EQ(used, 0u);
  EXPECT_FALSE(read({}, 1));
}

// Any bytes: what is read is what the naive reader reads, and nothing beyond them is looked at.
TEST(RowKeyCoding, ReadsAnyBytesAsTheLayoutSays) {
  SeededRandom random(4);
  size_t right = 0;
  for (int round = 0; round < 20000; ++round) {
    const size_t count = 1 + random.below(300);
    std::vector<std::byte> coded = coded_keys(drawn_keys(random, count, count << random.below(20)));
    for (size_t i = random.below(4); i > 0 && !coded.empty(); --i) {
      coded[random.below(random.chance(50) ? 8 : coded.size()) % coded.size()] =
          std::byte(random.next());
    }
    if (random.chance(30)) coded.resize(random.below(coded.size() + 1));
    const auto exact = std::make_unique<std::byte[]>(coded.size());
    std::copy(coded.begin(), coded.end(), exact.get());
    size_t used = 0;
    size_t naive_used = 0;
    Keys read(count);
    const bool well = read_row_keys({exact.get(), coded.size()}, static_cast<uint32_t>(count),
                                    read.data(), &used);
    const Keys naive = naive_keys(coded, static_cast<uint32_t>(count), &naive_used);
    ASSERT_EQ(well, !naive.empty()) << round;
    if (!well) continue;
    ++right;
    ASSERT_EQ(read, naive) << round;
    ASSERT_EQ(used, naive_used) << round;
    ASSERT_TRUE(std::is_sorted(read.begin(), read.end()));
  }
  EXPECT_GT(right, 2000u);
}

}  // namespace
}  // namespace parallax
