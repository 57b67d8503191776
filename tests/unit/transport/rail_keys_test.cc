// SPDX-License-Identifier: Apache-2.0
#include "transport/ucx/rail_keys.h"

#include <gtest/gtest.h>

#include <vector>

namespace parallax {
namespace {

using Bytes = std::vector<std::byte>;

Bytes bytes_of(size_t count, int value) { return {count, static_cast<std::byte>(value)}; }

Bytes key_of(const Bytes& key, uint32_t rail) {
  const auto own = rail_key(key, rail);
  return {own.begin(), own.end()};
}

TEST(RailKeys, WhatIsAddedIsFound) {
  Bytes key;
  for (int rail = 0; rail < 8; ++rail) {
    ASSERT_TRUE(add_rail_key(bytes_of(static_cast<size_t>(18 + rail), rail), &key));
  }
  for (int rail = 0; rail < 8; ++rail) {
    EXPECT_EQ(key_of(key, static_cast<uint32_t>(rail)),
              bytes_of(static_cast<size_t>(18 + rail), rail));
  }
  EXPECT_TRUE(key_of(key, 8).empty());
}

TEST(RailKeys, WhatDoesNotFitIsNotAdded) {
  Bytes key;
  EXPECT_FALSE(add_rail_key({}, &key));
  EXPECT_FALSE(add_rail_key(bytes_of(256, 1), &key));
  EXPECT_TRUE(key.empty());
  ASSERT_TRUE(add_rail_key(bytes_of(200, 1), &key));
  EXPECT_FALSE(add_rail_key(bytes_of(55, 2), &key)) << "257 bytes in all";
  EXPECT_EQ(key.size(), 201u);
  EXPECT_TRUE(add_rail_key(bytes_of(54, 2), &key));
}

// Given a peer's bytes, cut anywhere or of nonsense, expect whole keys or none.
TEST(RailKeys, APeersBytesAreNotBelieved) {
  Bytes key;
  ASSERT_TRUE(add_rail_key(bytes_of(20, 1), &key));
  ASSERT_TRUE(add_rail_key(bytes_of(30, 2), &key));
  for (size_t bytes = 0; bytes < key.size(); ++bytes) {
    const Bytes cut(key.begin(), key.begin() + static_cast<ptrdiff_t>(bytes));
    EXPECT_EQ(key_of(cut, 0).size(), bytes < 21 ? 0u : 20u) << bytes;
    EXPECT_TRUE(key_of(cut, 1).empty()) << bytes;
  }
  EXPECT_TRUE(key_of(bytes_of(100, 0), 7).empty()) << "lengths of 0";
  EXPECT_TRUE(key_of(bytes_of(100, 255), 0).empty());
  EXPECT_TRUE(key_of(bytes_of(300, 100), 0).empty()) << "longer than any";
}

}  // namespace
}  // namespace parallax
