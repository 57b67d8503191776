// SPDX-License-Identifier: Apache-2.0
// Parsing and writing "0-3,8". See pu_list.h.
#include "topology/pu_list.h"

#include <algorithm>
#include <charconv>

namespace parallax {

namespace {

bool parse_number(std::string_view text, uint32_t* number) {
  const char* end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, *number);
  return error == std::errc() && at == end && *number <= kPuIndexMax;
}

}  // namespace

bool parse_pu_list(std::string_view text, std::vector<uint32_t>* numbers) {
  std::vector<bool> listed(kPuIndexMax + 1);
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const std::string_view item = text.substr(begin, end - begin);
    const size_t dash = item.find('-');
    uint32_t first = 0;
    if (!parse_number(item.substr(0, dash), &first)) return false;
    uint32_t last = first;
    if (dash != item.npos && !parse_number(item.substr(dash + 1), &last)) return false;
    if (last < first) return false;
    std::fill(listed.begin() + first, listed.begin() + last + 1, true);
    begin = end + 1;
  }
  numbers->clear();
  for (uint32_t number = 0; number <= kPuIndexMax; ++number) {
    if (listed[number]) numbers->push_back(number);
  }
  return true;
}

std::string pu_list_text(std::span<const uint32_t> numbers) {
  std::string text;
  for (size_t i = 0; i < numbers.size();) {
    size_t last = i;
    while (last + 1 < numbers.size() && numbers[last + 1] == numbers[last] + 1) ++last;
    if (!text.empty()) text += ',';
    text += std::to_string(numbers[i]);
    if (last > i) text += '-' + std::to_string(numbers[last]);
    i = last + 1;
  }
  return text;
}

}  // namespace parallax
