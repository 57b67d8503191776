// SPDX-License-Identifier: Apache-2.0
// Design notes. All goes block by block, so that what is looked at stays in the first cache, and by
// words that are moved on by whole bytes, so that nothing branches on how many bits a key has. The
// ones of a block say by their places how many zeros are ahead of each key, without a sum; what is
// summed up are the low bits.
#include "message/row_key_coding.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

namespace parallax {
namespace {

constexpr size_t kGapsMax = 128;
constexpr uint8_t kAllZero = 255;
constexpr uint32_t kLowBitsMax = 31;
constexpr size_t kWordBytes = sizeof(uint64_t);
// Of the lowest bits of a block.
constexpr size_t kLowBytesMax = kGapsMax * kLowBitsMax / 8;
// Of the rest: a one for each gap, and fewer than two zeros (low_bits_for).
constexpr size_t kRestBytesMax = kGapsMax * 3 / 8;

// The layout's bits are those of little-endian words.
uint64_t in_order(uint64_t word) {
  return std::endian::native == std::endian::little ? word : __builtin_bswap64(word);
}
uint64_t load_word(const std::byte* from) {
  uint64_t word;
  std::memcpy(&word, from, sizeof word);
  return in_order(word);
}
void store_word(std::byte* to, uint64_t word) {
  word = in_order(word);
  std::memcpy(to, &word, sizeof word);
}

using Gaps = std::array<uint32_t, kGapsMax>;

uint64_t bits_of_rest(const Gaps& gaps, size_t count, uint32_t low_bits) {
  uint64_t zeros = 0;
  for (size_t i = 0; i < count; ++i) zeros += gaps[i] >> low_bits;
  return zeros + count;
}

// How many low bits take the fewest in all. The search begins where 2^bits exceeds the mean, so
// that the zeros are fewer than the gaps; one bit more would cost each gap one, and save fewer.
// Downwards it ends at the first loss, since the sum is convex but for rounding. A bit less at
// least doubles the zeros, and is taken if it adds fewer than there are gaps: so in the end they
// are fewer than two for each gap.
uint32_t low_bits_for(const Gaps& gaps, size_t count, uint64_t sum, uint64_t* rest_bits) {
  uint32_t low_bits = static_cast<uint32_t>(std::bit_width(sum / count));
  low_bits = std::min(low_bits, kLowBitsMax);
  *rest_bits = bits_of_rest(gaps, count, low_bits);
  while (low_bits > 0) {
    const uint64_t next = bits_of_rest(gaps, count, low_bits - 1);
    if (next >= *rest_bits + count) break;
    *rest_bits = next;
    --low_bits;
  }
  return low_bits;
}

// The lowest bits of each gap. Writes up to a word beyond what it returns the end of.
std::byte* put_low(const Gaps& gaps, size_t count, uint32_t low_bits, std::byte* to) {
  const uint64_t mask = (uint64_t{1} << low_bits) - 1;
  uint64_t word = 0;
  uint32_t filled = 0;
  for (size_t i = 0; i < count; ++i) {
    word |= (gaps[i] & mask) << filled;
    filled += low_bits;
    store_word(to, word);  // always, and moved on by whole bytes: nothing branches on how full
    to += filled / 8;
    word >>= filled / 8 * 8;
    filled %= 8;
  }
  return to + (filled + 7) / 8;
}

// The rest of each gap, into bytes that are zero.
void put_rest(const Gaps& gaps, size_t count, uint32_t low_bits, std::byte* to) {
  uint64_t word = 0;
  uint64_t at = 0;
  for (size_t i = 0; i < count; ++i) {
    const uint64_t one = at + (gaps[i] >> low_bits);
    if (one / 64 != at / 64) {
      store_word(to + at / 64 * kWordBytes, word);
      word = 0;
    }
    word |= uint64_t{1} << one % 64;
    at = one + 1;
    if (at % 64 == 0) {
      store_word(to + one / 64 * kWordBytes, word);
      word = 0;
    }
  }
  if (at % 64 != 0) store_word(to + at / 64 * kWordBytes, word);
}

// One block, with room for all that it may write.
struct GapBlock {
  std::array<std::byte, 1 + kLowBytesMax + kRestBytesMax + 2 * kWordBytes> bytes;
  size_t count = 0;

  void code(const Gaps& gaps, size_t gap_count, uint64_t sum) {
    if (sum == 0) {
      bytes[0] = std::byte{kAllZero};
      count = 1;
      return;
    }
    uint64_t rest_bits = 0;
    const uint32_t low_bits = low_bits_for(gaps, gap_count, sum, &rest_bits);
    bytes[0] = std::byte(low_bits);
    std::byte* const rest = put_low(gaps, gap_count, low_bits, &bytes[1]);
    const size_t rest_bytes = (rest_bits + 7) / 8;
    std::memset(rest, 0, rest_bytes);
    put_rest(gaps, gap_count, low_bits, rest);
    count = static_cast<size_t>(rest - bytes.data()) + rest_bytes;
  }
};

size_t put_first(uint32_t key, std::byte* to) {
  size_t count = 0;
  for (; key >= 0x80; key >>= 7) to[count++] = std::byte(key | 0x80);
  to[count++] = std::byte(key);
  return count;
}

// 0: malformed, or beyond 32 bits.
size_t read_first(std::span<const std::byte> coded, uint32_t* key) {
  uint64_t value = 0;
  for (size_t i = 0; i < std::min<size_t>(coded.size(), 5); ++i) {
    const uint64_t byte = std::to_integer<uint64_t>(coded[i]);
    value |= (byte & 0x7f) << (7 * i);
    if (byte < 0x80) {
      *key = static_cast<uint32_t>(value);
      return value <= UINT32_MAX ? i + 1 : 0;
    }
  }
  return 0;
}

// The word that begins at byte `at`, with zeros for what lies beyond the end.
uint64_t word_at(std::span<const std::byte> bytes, size_t at) {
  const size_t here = bytes.size() - at;
  if (here >= kWordBytes) return load_word(&bytes[at]);
  std::array<std::byte, kWordBytes> last = {};
  std::memcpy(last.data(), &bytes[at], here);
  return load_word(last.data());
}

// Into `keys`, of each its place among the ones: as many zeros are ahead of it as its gap and all
// gaps before it have beyond their low bits, shifted down. 0: the bytes end before, or there are
// more zeros than a block has; else how many bytes it took.
size_t read_rest(std::span<const std::byte> bytes, size_t count, uint32_t* keys) {
  bytes = bytes.first(std::min(bytes.size(), kRestBytesMax));
  size_t i = 0;
  for (size_t at = 0; at < bytes.size(); at += kWordBytes) {
    uint64_t word = word_at(bytes, at);
    for (; word != 0 && i < count; ++i) {
      keys[i] = static_cast<uint32_t>(at * 8) + static_cast<uint32_t>(std::countr_zero(word));
      word &= word - 1;
    }
    if (i == count) return keys[count - 1] / 8 + 1;
  }
  return 0;
}

// Makes keys of what read_rest found, with the low bits. Reads up to a word beyond these. False:
// beyond 32 bits.
bool add_low(const std::byte* low, size_t count, uint32_t low_bits, uint32_t before,
             uint32_t* keys) {
  const uint64_t mask = (uint64_t{1} << low_bits) - 1;
  uint64_t sum = uint64_t{before} + 1;  // of the low bits, and of 1 for each key
  uint64_t key = 0;
  for (size_t i = 0; i < count; ++i) {
    const size_t bit = i * low_bits;
    sum += load_word(low + bit / 8) >> bit % 8 & mask;
    key = sum + ((uint64_t{keys[i]} - i) << low_bits);
    keys[i] = static_cast<uint32_t>(key);
    ++sum;
  }
  return key <= UINT32_MAX;  // the largest
}

// One block of `count` keys that follow the key `before`. 0: malformed; else the bytes it took.
size_t read_gap_block(std::span<const std::byte> coded, size_t count, uint32_t before,
                      uint32_t* keys) {
  if (coded.empty()) return 0;
  const uint32_t low_bits = std::to_integer<uint32_t>(coded[0]);
  if (low_bits == kAllZero) {
    if (UINT32_MAX - before < count) return 0;
    for (size_t i = 0; i < count; ++i) keys[i] = before + 1 + static_cast<uint32_t>(i);
    return 1;
  }
  if (low_bits > kLowBitsMax) return 0;
  const size_t low_bytes = (count * low_bits + 7) / 8;
  if (coded.size() - 1 < low_bytes) return 0;
  const std::span<const std::byte> rest = coded.subspan(1 + low_bytes);
  const size_t rest_bytes = read_rest(rest, count, keys);
  if (rest_bytes == 0) return 0;
  std::array<std::byte, kLowBytesMax + kWordBytes> copy;  // where words would reach beyond the end
  const std::byte* low = &coded[1];
  if (rest.size() < kWordBytes) {
    std::memcpy(copy.data(), low, low_bytes);
    std::memset(&copy[low_bytes], 0, kWordBytes);
    low = copy.data();
  }
  if (!add_low(low, count, low_bits, before, keys)) return 0;
  return 1 + low_bytes + rest_bytes;
}

}  // namespace

size_t code_row_keys(std::span<const uint32_t> keys, std::span<std::byte> out) {
  std::array<std::byte, 5> first;
  if (keys.empty()) return 0;
  const size_t bytes_max = std::min(out.size(), keys.size() * sizeof(uint32_t) - 1);
  size_t bytes = put_first(keys[0], first.data());
  if (bytes > bytes_max) return 0;
  std::memcpy(out.data(), first.data(), bytes);
  Gaps gaps;
  GapBlock block;
  for (size_t at = 1; at < keys.size(); at += kGapsMax) {
    const size_t count = std::min(kGapsMax, keys.size() - at);
    const uint32_t* const before = &keys[at - 1];
    uint32_t wrong = 0;
    for (size_t i = 0; i < count; ++i) {
      gaps[i] = before[i + 1] - before[i] - 1;
      wrong |= before[i + 1] <= before[i] ? 1 : 0;
    }
    if (wrong != 0) return 0;
    block.code(gaps, count, uint64_t{before[count]} - before[0] - count);
    if (block.count > bytes_max - bytes) return 0;
    std::memcpy(&out[bytes], block.bytes.data(), block.count);
    bytes += block.count;
  }
  return bytes;
}

bool read_row_keys(std::span<const std::byte> coded, uint32_t count, uint32_t* keys, size_t* used) {
  *used = 0;
  if (count == 0) return true;
  size_t at = read_first(coded, keys);
  if (at == 0) return false;
  for (size_t done = 1; done < count; done += kGapsMax) {
    const size_t bytes = read_gap_block(coded.subspan(at), std::min<size_t>(kGapsMax, count - done),
                                        keys[done - 1], keys + done);
    if (bytes == 0) return false;
    at += bytes;
  }
  *used = at;
  return true;
}

}  // namespace parallax
