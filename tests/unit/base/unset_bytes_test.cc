// SPDX-License-Identifier: Apache-2.0
// Bytes that nobody sets.
#include "base/unset_bytes.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace parallax {
namespace {

TEST(UnsetBytes, GrowWithoutBeingWritten) {
  UnsetBytes bytes(64, std::byte{7});
  bytes.resize(16);
  bytes.resize(64);
  EXPECT_EQ(std::count(bytes.begin(), bytes.end(), std::byte{7}), 64);
}

TEST(UnsetBytes, KeepWhatTheyHoldAsTheyMove) {
  UnsetBytes bytes;
  for (int i = 0; i < 100; ++i) bytes.push_back(std::byte{static_cast<uint8_t>(i)});
  bytes.reserve(bytes.capacity() + 1);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(bytes[i], std::byte{static_cast<uint8_t>(i)});
}

}  // namespace
}  // namespace parallax
