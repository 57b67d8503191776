// SPDX-License-Identifier: Apache-2.0
// Fuzz: coded row keys and numbers, as a peer may send them, and keys and numbers of any bits. The
// first is refused or read, within its bytes; the second comes back as it was.
//
// The input: a byte that says which, two of a count, and the bytes.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <span>
#include <vector>

#include "message/number_coding.h"
#include "message/row_key_coding.h"

namespace {

void check(bool right) {
  if (!right) std::abort();
}

void read_keys(std::span<const std::byte> coded, uint32_t count) {
  std::vector<uint32_t> keys(count);
  size_t used = 0;
  if (!parallax::read_row_keys(coded, count, keys.data(), &used)) return;
  check(used <= coded.size());
  check(std::is_sorted(keys.begin(), keys.end(), std::less_equal<>()));
}

void read_numbers(uint32_t bytes_each, std::span<const std::byte> coded, uint32_t count) {
  std::vector<std::byte> numbers(size_t{count} * bytes_each);
  (void)parallax::read_numbers(bytes_each, coded, count, numbers.data());
}

// Keys by differences of 1 to 4 bytes.
void keys_there_and_back(std::span<const std::byte> bytes) {
  std::vector<uint32_t> keys;
  uint64_t key = 0;
  while (!bytes.empty()) {
    const size_t difference_bytes = 1 + std::to_integer<size_t>(bytes[0]) % 4;
    uint32_t difference = 0;
    bytes = bytes.subspan(1);
    const size_t here = std::min(difference_bytes, bytes.size());
    if (here > 0) std::memcpy(&difference, bytes.data(), here);
    bytes = bytes.subspan(here);
    key += uint64_t{difference} + (keys.empty() ? 0 : 1);
    if (key > UINT32_MAX) break;
    keys.push_back(static_cast<uint32_t>(key));
  }
  std::vector<std::byte> coded(keys.size() * sizeof(uint32_t));
  coded.resize(parallax::code_row_keys(keys, coded));
  if (coded.empty()) return;
  std::vector<uint32_t> read(keys.size());
  size_t used = 0;
  check(parallax::read_row_keys(coded, static_cast<uint32_t>(keys.size()), read.data(), &used));
  check(used == coded.size() && read == keys);
}

void numbers_there_and_back(uint32_t bytes_each, std::span<const std::byte> bytes) {
  const size_t count = bytes.size() / bytes_each;
  std::vector<std::byte> coded(bytes.size());
  coded.resize(parallax::code_numbers(bytes_each, bytes.data(), count, coded));
  if (coded.empty()) return;
  std::vector<std::byte> read(count * bytes_each);
  check(parallax::read_numbers(bytes_each, coded, count, read.data()));
  check(std::equal(read.begin(), read.end(), bytes.begin()));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t byte_count) {
  if (byte_count < 3) return 0;
  const std::span<const std::byte> bytes(reinterpret_cast<const std::byte*>(data) + 3,
                                         byte_count - 3);
  const uint32_t count = (data[1] | uint32_t{data[2]} << 8) % 1024;
  switch (data[0] % 6) {
    case 0:
      read_keys(bytes, count);
      break;
    case 1:
      read_numbers(2, bytes, count);
      break;
    case 2:
      read_numbers(4, bytes, count);
      break;
    case 3:
      keys_there_and_back(bytes);
      break;
    case 4:
      numbers_there_and_back(2, bytes);
      break;
    default:
      numbers_there_and_back(4, bytes);
      break;
  }
  return 0;
}
