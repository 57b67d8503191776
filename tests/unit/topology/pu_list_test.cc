// SPDX-License-Identifier: Apache-2.0
#include "topology/pu_list.h"

#include <gtest/gtest.h>

namespace parallax {
namespace {

using Numbers = std::vector<uint32_t>;

TEST(PuList, ReadsWhatTasksetWrites) {
  const std::pair<const char*, Numbers> cases[] = {{"0", {0}},
                                                   {"0-3", {0, 1, 2, 3}},
                                                   {"0-1,8-9,5", {0, 1, 5, 8, 9}},
                                                   {"3,3,2-3", {2, 3}},
                                                   {"65535", {65535}}};
  for (const auto& [text, expected] : cases) {
    Numbers numbers = {42};
    EXPECT_TRUE(parse_pu_list(text, &numbers)) << text;
    EXPECT_EQ(numbers, expected) << text;
  }
}

TEST(PuList, RefusesTheRest) {
  for (const char* text : {"", ",", "1,", ",1", "1,,2", "a", "1-", "-1", "3-2", "1-2-3", " 1", "1 ",
                           "0x1", "+1", "65536", "0-65536", "99999999999999999999", "1.5"}) {
    Numbers numbers = {42};
    EXPECT_FALSE(parse_pu_list(text, &numbers)) << text;
    EXPECT_EQ(numbers, Numbers{42}) << text;
  }
}

TEST(PuList, WritesRuns) {
  EXPECT_EQ(pu_list_text({}), "");
  EXPECT_EQ(pu_list_text(Numbers{7}), "7");
  EXPECT_EQ(pu_list_text(Numbers{0, 1}), "0-1");
  EXPECT_EQ(pu_list_text(Numbers{0, 2, 3, 4, 9}), "0,2-4,9");
}

}  // namespace
}  // namespace parallax
