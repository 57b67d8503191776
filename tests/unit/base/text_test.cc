// SPDX-License-Identifier: Apache-2.0
// Text of others, as a terminal gets it.
#include "base/text.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace parallax {
namespace {

// Given texts with control characters, in ASCII and beyond, and bytes that are no UTF-8, expect
// them escaped and all else as it was.
TEST(Text, is_made_printable) {
  struct Row {
    std::string given, expected;
  };
  const std::vector<Row> rows = {
      {"", ""},
      {"rank 3 (host gpu07): a \\x1b of its own", "rank 3 (host gpu07): a \\x1b of its own"},
      {"\x1b]0;owned\x07\x1b[2J", "\\x1b]0;owned\\x07\\x1b[2J"},
      {"two\nlines\r\n\tand a tab", "two lines   and a tab"},
      {std::string("a\0b", 3), "a\\x00b"},
      {"\x7f\b", "\\x7f\\x08"},
      {"Zürich, 東京, 😀", "Zürich, 東京, 😀"},
      {"\xc2\x9b"
       "2J",
       "\\xc2\\x9b2J"},  // U+009B: what ESC [ begins
      {"\x9b"
       "2J",
       "\\x9b2J"},                              // the same where a terminal takes single bytes
      {"\xc0\x9b\xe0\x82\x9b\xf0\x80\x82\x9b",  // the same, written longer
       "\\xc0\\x9b\\xe0\\x82\\x9b\\xf0\\x80\\x82\\x9b"},
      {"cut \xe6\x9d", "cut \\xe6\\x9d"},
      {"\xff\xfe", "\\xff\\xfe"},
      {"\xed\xa0\x80", "\\xed\\xa0\\x80"},           // half a pair of UTF-16
      {"\xf4\x90\x80\x80", "\\xf4\\x90\\x80\\x80"},  // beyond U+10FFFF
  };
  for (const Row& row : rows) {
    EXPECT_EQ(printable(row.given), row.expected);
    EXPECT_EQ(printable(row.expected), row.expected);
  }
}

// Given every pair of bytes, expect no control byte to pass.
TEST(Text, lets_no_control_byte_pass) {
  for (int pair = 0; pair < 1 << 16; ++pair) {
    const std::string given = {static_cast<char>(pair >> 8), static_cast<char>(pair)};
    for (const char each : printable(given)) {
      const auto byte = static_cast<unsigned char>(each);
      ASSERT_TRUE(byte >= 0x20 && byte != 0x7f) << pair;
    }
  }
}

}  // namespace
}  // namespace parallax
