// SPDX-License-Identifier: Apache-2.0
// Design notes. A block is worked on in arrays of bytes, one of each part of a number, by loops of
// fixed length that the compiler makes vector code of (base/vector_code.h). A block of fewer
// numbers is filled up by copies of its last, so that there is one set of loops. Exceptions alone
// are looked at one by one: of normal numbers three or four of a block.
#include "message/number_coding.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/vector_code.h"

namespace parallax {
namespace {

constexpr size_t kNumbersMax = 128;
constexpr uint8_t kRaw = 0x80;
constexpr uint8_t kEqual = 0x40;
constexpr uint8_t kLowIsZero = 0x20;
constexpr uint8_t kZeroHasCode = 0x10;
constexpr uint8_t kWidthMask = 0x0f;
constexpr uint32_t kWidthMax = 4;
constexpr size_t kHeadBytes = 3;

using Bytes = std::array<uint8_t, kNumbersMax>;

// Of each number of a block its exponent; sign and upper mantissa; of f32 the lower bits.
struct Parts {
  alignas(64) Bytes exponents;
  alignas(64) Bytes tops;
  alignas(64) std::array<uint16_t, kNumbersMax> lows;
};

template <typename Word>
constexpr size_t kLowBytes = sizeof(Word) - 2;

template <typename Word>
Word load_number(const std::byte* from, size_t i) {
  Word word;
  std::memcpy(&word, from + i * sizeof word, sizeof word);
  return word;
}

// The bytes of a plane: of a bit of each code.
constexpr size_t stride_of(size_t count) { return (count + 7) / 8; }

// How a block is coded, and in how many bytes.
struct Choice {
  uint8_t mode = kRaw;
  uint8_t base = 0;
  size_t bytes = 0;

  uint32_t width() const { return mode & kWidthMask; }
  // Of what has no code of its own; of a width of 0 there is none.
  uint8_t exception_code() const { return static_cast<uint8_t>((1u << width()) - 1); }
  // With kZeroHasCode.
  uint8_t zero_code() const { return static_cast<uint8_t>(exception_code() - 1); }
};

template <typename Word>
void split(const std::byte* numbers, Parts* parts) {
  for (size_t i = 0; i < kNumbersMax; ++i) {
    const Word word = load_number<Word>(numbers, i);
    const uint16_t top = static_cast<uint16_t>(word >> (8 * kLowBytes<Word>));
    parts->exponents[i] = static_cast<uint8_t>(top >> 7);
    parts->tops[i] = static_cast<uint8_t>((top >> 8 & 0x80) | (top & 0x7f));
    if constexpr (kLowBytes<Word> != 0) parts->lows[i] = static_cast<uint16_t>(word);
  }
}

template <typename Word>
void join(const Parts& parts, std::byte* numbers) {
  for (size_t i = 0; i < kNumbersMax; ++i) {
    const uint32_t top =
        (parts.tops[i] & 0x80u) << 8 | uint32_t{parts.exponents[i]} << 7 | (parts.tops[i] & 0x7fu);
    Word word = static_cast<Word>(top << (8 * kLowBytes<Word>));
    if constexpr (kLowBytes<Word> != 0) word = static_cast<Word>(word | parts.lows[i]);
    std::memcpy(numbers + i * sizeof word, &word, sizeof word);
  }
}

// Of vectors of 16 bytes, where the compiler would take loops over bytes one by one.
typedef uint8_t SixteenBytes __attribute__((vector_size(16), aligned(1), may_alias));
typedef uint64_t TwoWords __attribute__((vector_size(16), aligned(1), may_alias));
constexpr size_t kSixteen = sizeof(SixteenBytes);
constexpr uint64_t kOnes = 0x0101010101010101;

const SixteenBytes& sixteen_at(const Bytes& bytes, size_t i) {
  return *reinterpret_cast<const SixteenBytes*>(bytes.data() + i);
}

// The exponents that have no code by each width: those that are as far below the base as the
// largest code or farther; with_zero: as the second largest, and not 0.
using Counts = std::array<size_t, kWidthMax + 1>;
template <bool with_zero>
Counts count_exceptions(const Bytes& exponents, uint8_t base) {
  SixteenBytes sums[kWidthMax + 1] = {};
  for (size_t i = 0; i < kNumbersMax; i += kSixteen) {
    const SixteenBytes exponent = sixteen_at(exponents, i);
    const SixteenBytes below = base - exponent;
    for (uint32_t width = 1; width <= kWidthMax; ++width) {
      const uint8_t reach = static_cast<uint8_t>((1u << width) - (with_zero ? 2 : 1));
      auto beyond = below >= reach;
      if (with_zero) beyond &= exponent != 0;
      sums[width] -= reinterpret_cast<SixteenBytes>(beyond);  // of what is true all bits are set
    }
  }
  Counts counts = {};
  for (uint32_t width = 1; width <= kWidthMax; ++width) {
    const TwoWords halves = reinterpret_cast<TwoWords>(sums[width]);
    counts[width] = ((halves[0] + halves[1]) * kOnes) >> 56;  // the sum of the bytes, below 256
  }
  return counts;
}

// The cheapest width, with a code of zero or without. Exponents beyond the first `count` are set to
// the base: they are no exceptions, and their code is 0.
Choice choose(Bytes* all, size_t count, size_t fixed_bytes, size_t raw_bytes) {
  Bytes& exponents = *all;
  uint8_t base = 0;
  uint8_t least = 255;
  for (size_t i = 0; i < kNumbersMax; ++i) {
    base = std::max(base, exponents[i]);
    least = std::min(least, exponents[i]);
  }
  std::fill(exponents.begin() + static_cast<std::ptrdiff_t>(count), exponents.end(), base);
  const size_t stride = stride_of(count);
  Choice best = {.mode = kRaw, .base = base, .bytes = raw_bytes};
  const auto offer = [&](uint32_t mode, size_t bytes) {
    if (bytes >= best.bytes) return;
    best.mode = static_cast<uint8_t>(mode);
    best.bytes = bytes;
  };
  if (least == base) {
    offer(0, fixed_bytes);
    return best;
  }
  const Counts without = count_exceptions<false>(exponents, base);
  for (uint32_t width = 1; width <= kWidthMax; ++width) {
    offer(width, fixed_bytes + width * stride + without[width]);
  }
  if (least != 0) return best;
  const Counts with = count_exceptions<true>(exponents, base);
  for (uint32_t width = 2; width <= kWidthMax; ++width) {
    offer(width | kZeroHasCode, fixed_bytes + width * stride + with[width]);
  }
  return best;
}

void encode(const Bytes& exponents, const Choice& choice, Bytes* codes) {
  const uint8_t base = choice.base;
  const bool zero_has_code = (choice.mode & kZeroHasCode) != 0;
  const uint8_t exception = choice.exception_code();
  const uint8_t reach = zero_has_code ? choice.zero_code() : exception;
  const uint8_t of_zero = choice.zero_code();
  for (size_t i = 0; i < kNumbersMax; ++i) {
    const uint8_t below = static_cast<uint8_t>(base - exponents[i]);
    (*codes)[i] = below < reach ? below : exception;
  }
  if (!zero_has_code) return;
  for (size_t i = 0; i < kNumbersMax; ++i) {
    (*codes)[i] = exponents[i] == 0 ? of_zero : (*codes)[i];
  }
}

void decode(const Bytes& codes, const Choice& choice, Bytes* exponents) {
  const uint8_t base = choice.base;
  for (size_t i = 0; i < kNumbersMax; ++i) {
    (*exponents)[i] = static_cast<uint8_t>(base - codes[i]);
  }
  if ((choice.mode & kZeroHasCode) == 0) return;
  const uint8_t of_zero = choice.zero_code();
  for (size_t i = 0; i < kNumbersMax; ++i) {
    (*exponents)[i] = codes[i] == of_zero ? 0 : (*exponents)[i];
  }
}

TwoWords two_words_at(const Bytes& bytes, size_t i) {
  return *reinterpret_cast<const TwoWords*>(bytes.data() + i);
}

// The planes of the lowest `width` bits of all codes, each of `stride` bytes. They are gathered by
// vectors, of which the first `stride` bytes are meant.
std::byte* put_planes(const Bytes& codes, uint32_t width, size_t stride, std::byte* to) {
  for (uint32_t bit = 0; bit < width; ++bit, to += stride) {
    TwoWords plane = {};
    for (uint32_t each = 0; each < 8; ++each) {
      plane |= (two_words_at(codes, each * stride) >> bit & kOnes) << each;
    }
    std::memcpy(to, &plane, stride);
  }
  return to;
}

// The codes again. A vector's bytes beyond its first `stride` are overwritten by the next; what
// lies beyond the last code is set to 0.
void read_planes(const std::byte* from, uint32_t width, size_t stride, size_t count, Bytes* codes) {
  TwoWords planes[kWidthMax] = {};
  for (uint32_t bit = 0; bit < width; ++bit) std::memcpy(&planes[bit], from + bit * stride, stride);
  for (uint32_t each = 0; each < 8; ++each) {
    TwoWords code = {};
    for (uint32_t bit = 0; bit < kWidthMax; ++bit) code |= (planes[bit] >> each & kOnes) << bit;
    *reinterpret_cast<TwoWords*>(codes->data() + each * stride) = code;
  }
  std::fill(codes->begin() + static_cast<std::ptrdiff_t>(count), codes->end(), uint8_t{0});
}

// Calls each(i) for every code that is `wanted`, until it returns false.
template <typename Each>
bool each_equal(const Bytes& codes, uint8_t wanted, Each each) {
  for (size_t at = 0; at < kNumbersMax; at += sizeof kOnes) {
    uint64_t word;
    std::memcpy(&word, &codes[at], sizeof word);
    word ^= kOnes * wanted;
    // A byte of 0 is looked for; none: all codes have less than 7 bits, so that nothing carries.
    if (((word - kOnes) & kOnes << 7) == 0) continue;
    for (size_t i = at; i < at + sizeof kOnes; ++i) {
      if (codes[i] == wanted && !each(i)) return false;
    }
  }
  return true;
}

// ---- one block

template <typename Word>
bool all_equal(const std::byte* numbers) {
  const Word first = load_number<Word>(numbers, 0);
  if (first != load_number<Word>(numbers, 1)) return false;  // as nearly always
  Word other = 0;
  for (size_t i = 0; i < kNumbersMax; ++i) {
    other = static_cast<Word>(other | (load_number<Word>(numbers, i) ^ first));
  }
  return other == 0;
}

bool all_zero(const std::array<uint16_t, kNumbersMax>& lows) {
  uint16_t any = 0;
  for (const uint16_t low : lows) any = static_cast<uint16_t>(any | low);
  return any == 0;
}

// Codes kNumbersMax numbers, of which the first `count` are meant, if it takes `room` bytes at
// most. 0: it would take more.
template <typename Word>
size_t code_number_block(const std::byte* numbers, size_t count, std::byte* out, size_t room) {
  if (all_equal<Word>(numbers)) {
    if (room < 1 + sizeof(Word)) return 0;
    out[0] = std::byte{kEqual};
    std::memcpy(out + 1, numbers, sizeof(Word));
    return 1 + sizeof(Word);
  }
  Parts parts;
  split<Word>(numbers, &parts);
  const bool no_lows = kLowBytes<Word> != 0 && all_zero(parts.lows);
  const size_t low_bytes = no_lows ? 0 : count * kLowBytes<Word>;
  const Choice choice =
      choose(&parts.exponents, count, kHeadBytes + count + low_bytes, 1 + count * sizeof(Word));
  if (room < choice.bytes) return 0;
  if (choice.mode == kRaw) {
    out[0] = std::byte{kRaw};
    std::memcpy(out + 1, numbers, count * sizeof(Word));
    return choice.bytes;
  }
  out[0] = std::byte(choice.mode | (no_lows ? kLowIsZero : 0));
  out[1] = std::byte{choice.base};
  std::byte* to = out + kHeadBytes;
  std::memcpy(to, parts.tops.data(), count);
  to += count;
  if (low_bytes != 0) std::memcpy(to, parts.lows.data(), low_bytes);
  to += low_bytes;
  alignas(64) Bytes codes;
  encode(parts.exponents, choice, &codes);
  std::byte* const exceptions = put_planes(codes, choice.width(), stride_of(count), to);
  std::byte* end = exceptions;
  if (choice.width() != 0) {
    each_equal(codes, choice.exception_code(), [&](size_t i) {
      *end++ = std::byte{parts.exponents[i]};
      return true;
    });
  }
  out[2] = std::byte(end - exceptions);
  return choice.bytes;
}

// Puts the exceptions' exponents in their places. False: they are not as many as codes say.
bool add_exceptions(const Bytes& codes, uint8_t wanted, std::span<const std::byte> exceptions,
                    Bytes* exponents) {
  size_t found = 0;
  const bool enough = each_equal(codes, wanted, [&](size_t i) {
    if (found == exceptions.size()) return false;
    (*exponents)[i] = std::to_integer<uint8_t>(exceptions[found++]);
    return true;
  });
  return enough && found == exceptions.size();
}

// Reads a block of neither kRaw nor kEqual into `numbers`, which has room for kNumbersMax. 0:
// malformed; else how many bytes it took.
template <typename Word>
size_t read_parts(std::span<const std::byte> coded, size_t count, std::byte* numbers) {
  if (coded.size() < kHeadBytes) return 0;
  const Choice choice = {.mode = std::to_integer<uint8_t>(coded[0]),
                         .base = std::to_integer<uint8_t>(coded[1])};
  const size_t exception_count = std::to_integer<size_t>(coded[2]);
  const uint32_t width = choice.width();
  const bool no_lows = (choice.mode & kLowIsZero) != 0;
  if (width > kWidthMax || (width < 2 && (choice.mode & kZeroHasCode) != 0)) return 0;
  if (exception_count > (width == 0 ? 0 : count)) return 0;
  if (no_lows && kLowBytes<Word> == 0) return 0;
  const size_t low_bytes = no_lows ? 0 : count * kLowBytes<Word>;
  const size_t stride = stride_of(count);
  const size_t bytes = kHeadBytes + count + low_bytes + width * stride + exception_count;
  if (coded.size() < bytes) return 0;
  Parts parts;
  if (count < kNumbersMax) parts = {};
  const std::byte* from = &coded[kHeadBytes];
  std::memcpy(parts.tops.data(), from, count);
  from += count;
  if (no_lows) parts.lows = {};
  if (low_bytes != 0) std::memcpy(parts.lows.data(), from, low_bytes);
  from += low_bytes;
  alignas(64) Bytes codes;
  read_planes(from, width, stride, count, &codes);
  from += width * stride;
  decode(codes, choice, &parts.exponents);
  if (width != 0 &&
      !add_exceptions(codes, choice.exception_code(), {from, exception_count}, &parts.exponents)) {
    return 0;
  }
  join<Word>(parts, numbers);
  return bytes;
}

template <typename Word>
size_t read_number_block(std::span<const std::byte> coded, size_t count, std::byte* numbers) {
  if (coded.empty()) return 0;
  const uint8_t mode = std::to_integer<uint8_t>(coded[0]);
  if (mode == kRaw) {
    const size_t bytes = count * sizeof(Word);
    if (coded.size() - 1 < bytes) return 0;
    std::memcpy(numbers, &coded[1], bytes);
    return 1 + bytes;
  }
  if (mode == kEqual) {
    if (coded.size() < 1 + sizeof(Word)) return 0;
    const Word same = load_number<Word>(&coded[1], 0);
    for (size_t i = 0; i < kNumbersMax; ++i) {
      std::memcpy(numbers + i * sizeof same, &same, sizeof same);
    }
    return 1 + sizeof same;
  }
  if ((mode & (kRaw | kEqual)) != 0) return 0;
  return read_parts<Word>(coded, count, numbers);
}

// ---- all of them

template <typename Word>
using NumberBlock = std::array<std::byte, kNumbersMax * sizeof(Word)>;

template <typename Word>
size_t code_all(const std::byte* numbers, size_t count, std::span<std::byte> out) {
  const size_t bytes_max = std::min(out.size(), count * sizeof(Word) - 1);
  size_t bytes = 0;
  for (size_t at = 0; at < count; at += kNumbersMax) {
    const size_t here = std::min(kNumbersMax, count - at);
    const std::byte* from = numbers + at * sizeof(Word);
    NumberBlock<Word> filled;
    if (here < kNumbersMax) {
      std::memcpy(filled.data(), from, here * sizeof(Word));
      for (size_t i = here; i < kNumbersMax; ++i) {
        std::memcpy(&filled[i * sizeof(Word)], from + (here - 1) * sizeof(Word), sizeof(Word));
      }
      from = filled.data();
    }
    const size_t took = code_number_block<Word>(from, here, out.data() + bytes, bytes_max - bytes);
    if (took == 0) return 0;
    bytes += took;
  }
  return bytes;
}

template <typename Word>
bool read_all(std::span<const std::byte> coded, size_t count, std::byte* numbers) {
  for (size_t at = 0; at < count; at += kNumbersMax) {
    const size_t here = std::min(kNumbersMax, count - at);
    std::byte* const to = numbers + at * sizeof(Word);
    NumberBlock<Word> filled;
    const size_t took =
        read_number_block<Word>(coded, here, here < kNumbersMax ? filled.data() : to);
    if (took == 0) return false;
    if (here < kNumbersMax) std::memcpy(to, filled.data(), here * sizeof(Word));
    coded = coded.subspan(took);
  }
  return coded.empty();
}

}  // namespace

size_t code_numbers(uint32_t bytes_each, const std::byte* numbers, size_t count,
                    std::span<std::byte> out) {
  size_t bytes = 0;
  if (count == 0) return bytes;
  in_vectors([&] {
    if (bytes_each == sizeof(uint16_t)) bytes = code_all<uint16_t>(numbers, count, out);
    if (bytes_each == sizeof(uint32_t)) bytes = code_all<uint32_t>(numbers, count, out);
  });
  return bytes;
}

bool read_numbers(uint32_t bytes_each, std::span<const std::byte> coded, size_t count,
                  std::byte* numbers) {
  bool right = false;
  in_vectors([&] {
    if (bytes_each == sizeof(uint16_t)) right = read_all<uint16_t>(coded, count, numbers);
    if (bytes_each == sizeof(uint32_t)) right = read_all<uint32_t>(coded, count, numbers);
  });
  return right;
}

}  // namespace parallax
