// SPDX-License-Identifier: Apache-2.0
#include "message/number_coding.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <numbers>
#include <vector>

#include "base/number.h"
#include "base/seeded_random.h"
#include "support/vector_levels.h"

namespace parallax {
namespace {

using testkit::at_each_vector_level;
using NumberBytes = std::vector<std::byte>;

float normal(SeededRandom& random) {
  const double radius = std::sqrt(-2 * std::log(1 - random.unit()));
  return static_cast<float>(radius * std::cos(2 * std::numbers::pi * random.unit()));
}

// Of f32, or its upper half: cut off, since any bits will do.
NumberBytes bytes_of(const std::vector<uint32_t>& words, uint32_t bytes_each) {
  NumberBytes bytes(words.size() * bytes_each);
  for (size_t i = 0; i < words.size(); ++i) {
    const uint32_t word = bytes_each == 2 ? words[i] >> 16 : words[i];
    std::memcpy(&bytes[i * bytes_each], &word, bytes_each);
  }
  return bytes;
}

// At an odd address, and with room for as much as is said and no byte more.
size_t code_at_odd_address(uint32_t bytes_each, const NumberBytes& numbers, size_t room,
                           NumberBytes* coded) {
  const auto in = std::make_unique<std::byte[]>(numbers.size() + 1);
  std::copy(numbers.begin(), numbers.end(), &in[1]);
  const auto out = std::make_unique<std::byte[]>(room + 1);
  const size_t bytes =
      code_numbers(bytes_each, &in[1], numbers.size() / bytes_each, {&out[1], room});
  coded->assign(&out[1], &out[1] + bytes);
  return bytes;
}

bool read_at_odd_address(uint32_t bytes_each, const NumberBytes& coded, size_t count,
                         NumberBytes* numbers) {
  const auto in = std::make_unique<std::byte[]>(coded.size() + 1);
  std::copy(coded.begin(), coded.end(), &in[1]);
  const auto out = std::make_unique<std::byte[]>(count * bytes_each + 1);
  const bool right = read_numbers(bytes_each, {&in[1], coded.size()}, count, &out[1]);
  numbers->assign(&out[1], &out[1] + count * bytes_each);
  return right;
}

// The layout of the header once more, number by number. False: malformed.
class NaiveReader {
 public:
  NaiveReader(uint32_t bytes_each, const NumberBytes& coded) : each_(bytes_each), coded_(coded) {}

  bool read(size_t count, NumberBytes* numbers) {
    numbers->clear();
    for (size_t left = count; left > 0;) {
      const size_t here = std::min<size_t>(left, 128);
      if (!read_block(here, numbers)) return false;
      left -= here;
    }
    return at_ == coded_.size();
  }

 private:
  bool take(size_t count, NumberBytes* bytes) {
    if (coded_.size() - at_ < count) return false;
    bytes->assign(&coded_[at_], &coded_[at_] + count);
    at_ += count;
    return true;
  }

  bool read_block(size_t count, NumberBytes* numbers) {
    NumberBytes head;
    NumberBytes body;
    if (!take(1, &head)) return false;
    const uint32_t mode = std::to_integer<uint32_t>(head[0]);
    if (mode == 0x80) {
      if (!take(count * each_, &body)) return false;
      numbers->insert(numbers->end(), body.begin(), body.end());
      return true;
    }
    if (mode == 0x40) {
      if (!take(each_, &body)) return false;
      for (size_t i = 0; i < count; ++i) numbers->insert(numbers->end(), body.begin(), body.end());
      return true;
    }
    const uint32_t width = mode & 0xf;
    const bool zero_has_code = (mode & 0x10) != 0;
    const bool no_lows = (mode & 0x20) != 0 || each_ == 2;
    if (mode >= 0x40 || width > 4 || (zero_has_code && width < 2)) return false;
    if (each_ == 2 && (mode & 0x20) != 0) return false;
    NumberBytes tops;
    NumberBytes lows(2 * count);
    NumberBytes planes;
    NumberBytes exceptions;
    const size_t stride = (count + 7) / 8;
    if (!take(2, &head) || !take(count, &tops) || (!no_lows && !take(2 * count, &lows)) ||
        !take(width * stride, &planes) || !take(std::to_integer<size_t>(head[1]), &exceptions)) {
      return false;
    }
    size_t exception = 0;
    for (size_t i = 0; i < count; ++i) {
      uint32_t code = 0;
      for (uint32_t bit = 0; bit < width; ++bit) {
        const std::byte plane = planes[bit * stride + i % stride];
        code |= (std::to_integer<uint32_t>(plane) >> i / stride & 1) << bit;
      }
      uint32_t exponent = (std::to_integer<uint32_t>(head[0]) - code) & 0xff;
      if (zero_has_code && code == (1u << width) - 2) exponent = 0;
      if (width > 0 && code == (1u << width) - 1) {
        if (exception == exceptions.size()) return false;
        exponent = std::to_integer<uint32_t>(exceptions[exception++]);
      }
      const uint32_t top = std::to_integer<uint32_t>(tops[i]);
      const uint32_t upper = (top & 0x80) << 8 | exponent << 7 | (top & 0x7f);
      if (each_ == 4) numbers->insert(numbers->end(), {lows[2 * i], lows[2 * i + 1]});
      numbers->insert(numbers->end(), {std::byte(upper & 0xff), std::byte(upper >> 8)});
    }
    return exception == exceptions.size();
  }

  const uint32_t each_;
  const NumberBytes& coded_;
  size_t at_ = 0;
};

void expect_same_bits(uint32_t bytes_each, const NumberBytes& numbers) {
  NumberBytes coded;
  const size_t bytes = code_at_odd_address(bytes_each, numbers, numbers.size(), &coded);
  if (bytes == 0) return;
  ASSERT_LT(bytes, numbers.size());
  NumberBytes read;
  ASSERT_TRUE(read_at_odd_address(bytes_each, coded, numbers.size() / bytes_each, &read));
  ASSERT_EQ(read, numbers);
  ASSERT_TRUE(NaiveReader(bytes_each, coded).read(numbers.size() / bytes_each, &read));
  ASSERT_EQ(read, numbers);
  ASSERT_EQ(code_at_odd_address(bytes_each, numbers, bytes, &coded), bytes);
  ASSERT_EQ(code_at_odd_address(bytes_each, numbers, bytes - 1, &coded), 0u);
}

// Bits of floats, of all kinds that there are.
using Draw = std::function<uint32_t(SeededRandom&)>;
std::vector<Draw> draws() {
  const auto bits = [](float value) { return std::bit_cast<uint32_t>(value); };
  const auto any = [](SeededRandom& random) { return static_cast<uint32_t>(random.next()); };
  static constexpr uint32_t kSpecial[] = {
      0,          0x80000000, 1,          0x80000001, 0x007fffff, 0x00800000, 0x7f7fffff,
      0x7f800000, 0xff800000, 0x7fc00000, 0x7f800001, 0xffffffff, 0x3f800000, 0xbf800000};
  const auto special = [](SeededRandom& random) { return kSpecial[random.below(14)]; };
  return {
      [=](SeededRandom& random) { return bits(normal(random)); },
      [=](SeededRandom& random) { return bits(0.01f * static_cast<float>(random.unit())); },
      [=](SeededRandom& random) { return random.chance(50) ? bits(normal(random)) : 0; },
      [=](SeededRandom& random) { return random.chance(98) ? 0 : bits(normal(random)); },
      [=](SeededRandom& random) { return random.chance(98) ? bits(normal(random)) : any(random); },
      [=](SeededRandom& random) {
        return random.chance(99) ? bits(normal(random)) : special(random);
      },
      [=](SeededRandom& random) { return bits(normal(random)) & 0xffff0000; },
      [=](SeededRandom& random) { return any(random) & 0x807fffff; },  // denormals
      [=](SeededRandom& random) { return (any(random) & 0x8fffffff) % 0x8fffffff; },
      [=](SeededRandom&) { return bits(0.1f); },
      [=](SeededRandom& random) { return random.chance(99) ? bits(0.1f) : bits(0.2f); },
      special,
      any,
  };
}

TEST(NumberCoding, GivesBackEveryCountBitForBit) {
  at_each_vector_level([] {
    SeededRandom random(1);
    for (size_t count = 0; count <= 300; ++count) {
      for (const Draw& draw : draws()) {
        std::vector<uint32_t> words(count);
        for (uint32_t& word : words) word = draw(random);
        ASSERT_NO_FATAL_FAILURE(expect_same_bits(2, bytes_of(words, 2))) << count;
        ASSERT_NO_FATAL_FAILURE(expect_same_bits(4, bytes_of(words, 4))) << count;
      }
    }
  });
}

// One of any exponent among others, so that each is an exception once, and each the base.
TEST(NumberCoding, GivesBackEveryExponent) {
  at_each_vector_level([] {
    SeededRandom random(2);
    for (uint32_t exponent = 0; exponent < 256; ++exponent) {
      std::vector<uint32_t> words(256);
      for (uint32_t& word : words) word = std::bit_cast<uint32_t>(normal(random));
      words[random.below(256)] = exponent << 23 | static_cast<uint32_t>(random.below(1 << 23));
      for (const uint32_t bytes_each : {2u, 4u}) {
        const NumberBytes numbers = bytes_of(words, bytes_each);
        NumberBytes coded;
        ASSERT_NE(code_at_odd_address(bytes_each, numbers, numbers.size(), &coded), 0u);
        ASSERT_NO_FATAL_FAILURE(expect_same_bits(bytes_each, numbers)) << exponent;
      }
    }
  });
}

// Each width has its bytes: a head of 3, and of each number, but for lower bits, a byte and `width`
// bits. One of 128 numbers is zero: with 0 bits it is like all others, with 1 an exception, and
// with more it has a code.
TEST(NumberCoding, TakesAsManyBitsAsTheExponentsAreWide) {
  for (uint32_t width = 0; width <= 4; ++width) {
    std::vector<uint32_t> words(128);
    const uint32_t steps = width < 2 ? 1 : (1u << width) - 2;
    const uint32_t base = width == 0 ? 0 : 120;
    for (uint32_t i = 0; i < 127; ++i) words[i] = (base - i % steps) << 23 | i << 16 | i;
    const size_t exceptions = width == 1 ? 1 : 0;
    NumberBytes coded;
    EXPECT_EQ(code_at_odd_address(2, bytes_of(words, 2), 256, &coded),
              3 + 128 + 16 * width + exceptions);
    EXPECT_EQ(code_at_odd_address(4, bytes_of(words, 4), 512, &coded),
              3 + 3 * 128 + 16 * width + exceptions);
    ASSERT_NO_FATAL_FAILURE(expect_same_bits(2, bytes_of(words, 2)));
    ASSERT_NO_FATAL_FAILURE(expect_same_bits(4, bytes_of(words, 4)));
  }
}

// The bytes as they travel, of a block of twelve numbers.
TEST(NumberCoding, KeepsItsLayout) {
  const auto bytes = [](std::initializer_list<unsigned> numbers) {
    NumberBytes all;
    for (const unsigned number : numbers) all.push_back(std::byte(number));
    return all;
  };
  const auto coded = [](uint32_t bytes_each, const std::vector<uint32_t>& words) {
    NumberBytes to;
    code_at_odd_address(bytes_each, bytes_of(words, bytes_each), words.size() * bytes_each, &to);
    return to;
  };
  // 1, -2, 1.5, 2, ..., and a denormal: of two bits, 0 is 2^1, 1 is 2^0, 2 is 2^-1 and 3 an
  // exception.
  const std::vector<uint32_t> words = {0x3f800001, 0xc0000002, 0x3fc00003, 0x40000004,
                                       0x3f800005, 0x3f000006, 0x3f800007, 0x40000008,
                                       0x3f800009, 0xbf80000a, 0x3f80000b, 0x0040000c};
  EXPECT_EQ(coded(4, words),
            bytes({0x02, 0x80, 0x01, 0x00, 0x80, 0x40, 0x00, 0x00, 0x00, 0x00, 0x00,
                   0x00, 0x80, 0x00, 0x40, 0x01, 0x00, 0x02, 0x00, 0x03, 0x00, 0x04,
                   0x00, 0x05, 0x00, 0x06, 0x00, 0x07, 0x00, 0x08, 0x00, 0x09, 0x00,
                   0x0a, 0x00, 0x0b, 0x00, 0x0c, 0x00, 0x3f, 0x30, 0x00, 0x24, 0x00}));
  EXPECT_EQ(coded(4, std::vector<uint32_t>(12, 0x12345678)), bytes({0x40, 0x78, 0x56, 0x34, 0x12}));
  NumberBytes raw(1024);
  SeededRandom random(3);
  for (std::byte& byte : raw) byte = std::byte(random.next());
  NumberBytes to(2048);
  EXPECT_EQ(code_numbers(2, raw.data(), 512, to), 0u);
}

double ratio_of(uint32_t bytes_each, const std::function<float()>& draw) {
  std::vector<uint32_t> words(8192);
  for (uint32_t& word : words) word = std::bit_cast<uint32_t>(draw());
  NumberBytes coded;
  const NumberBytes numbers = bytes_of(words, bytes_each);
  const size_t bytes = code_at_odd_address(bytes_each, numbers, numbers.size(), &coded);
  return static_cast<double>(numbers.size()) / static_cast<double>(bytes);
}

TEST(NumberCoding, MakesTrainedNumbersSmaller) {
  SeededRandom random(4);
  for (const float scale : {0.01f, 1.0f}) {
    EXPECT_GT(ratio_of(2, [&] { return scale * normal(random); }), 1.39);
    EXPECT_GT(ratio_of(4, [&] { return scale * normal(random); }), 1.16);
  }
  const auto uniform = [&] { return static_cast<float>(random.unit() - 0.5); };
  EXPECT_GT(ratio_of(2, uniform), 1.4);
  EXPECT_GT(ratio_of(4, uniform), 1.17);
  EXPECT_GT(ratio_of(4, [&] { return widen(to_bfloat(normal(random))); }), 2.7);
  EXPECT_GT(ratio_of(2, [] { return 0.0f; }), 80);
}

TEST(NumberCoding, KnowsNumbersOfTwoAndFourBytes) {
  const NumberBytes zeros(1024);
  NumberBytes out(1024);
  for (const uint32_t bytes_each : {0u, 1u, 3u, 8u}) {
    EXPECT_EQ(code_numbers(bytes_each, zeros.data(), 128, out), 0u);
    EXPECT_FALSE(read_numbers(bytes_each, {zeros.data(), 0}, 0, out.data()));
  }
  EXPECT_EQ(code_numbers(4, nullptr, 0, out), 0u);
  EXPECT_TRUE(read_numbers(4, {}, 0, nullptr));
  EXPECT_FALSE(read_numbers(4, {zeros.data(), 1}, 0, nullptr));
}

// Any bytes: what is read is what the naive reader reads, and nothing beyond them is looked at.
TEST(NumberCoding, ReadsAnyBytesAsTheLayoutSays) {
  SeededRandom random(5);
  const std::vector<Draw> all = draws();
  size_t right = 0;
  for (int round = 0; round < 20000; ++round) {
    const uint32_t bytes_each = random.chance(50) ? 2 : 4;
    std::vector<uint32_t> words(1 + random.below(300));
    const Draw& draw = all[random.below(all.size())];
    for (uint32_t& word : words) word = draw(random);
    NumberBytes numbers = bytes_of(words, bytes_each);
    NumberBytes coded;
    code_at_odd_address(bytes_each, numbers, numbers.size(), &coded);
    for (size_t i = random.below(3); i > 0 && !coded.empty(); --i) {
      const size_t at = random.below(random.chance(50) ? 3 : coded.size()) % coded.size();
      coded[at] = std::byte(random.chance(50) ? random.below(64) : random.next());
    }
    if (random.chance(20)) coded.resize(random.below(coded.size() + 1));
    NumberBytes naive;
    const bool naive_right = NaiveReader(bytes_each, coded).read(words.size(), &naive);
    ASSERT_EQ(read_at_odd_address(bytes_each, coded, words.size(), &numbers), naive_right) << round;
    if (!naive_right) continue;
    ++right;
    ASSERT_EQ(numbers, naive) << round;
  }
  EXPECT_GT(right, 2000u);
}

}  // namespace
}  // namespace parallax
