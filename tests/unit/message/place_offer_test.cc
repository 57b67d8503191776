// SPDX-License-Identifier: Apache-2.0
#include "message/place_offer.h"

#include <gtest/gtest.h>

#include <vector>

namespace parallax {
namespace {

TEST(PlaceOffer, IsReadAsItWasWritten) {
  std::vector<std::byte> key(18);
  for (size_t i = 0; i < key.size(); ++i) key[i] = std::byte(i + 1);
  const PlaceOffer offer({.first = 0x1234567890, .bytes = 0x987654321}, {.area = 7, .key = key});
  PlaceOffer read;
  ASSERT_TRUE(read.read(offer.bytes()));
  EXPECT_EQ(read.address, offer.address);
  EXPECT_EQ(read.address, 0x1234567890u);
  EXPECT_EQ(read.place_bytes, 0x987654321u);
  EXPECT_EQ(read.area, 7u);
  EXPECT_EQ(read.key_bytes, 18u);
  EXPECT_EQ(read.key_bytes, offer.key_bytes);
  EXPECT_EQ(read.key, offer.key);
}

// Of lengths that are not what the offer says, and keys that are too long.
TEST(PlaceOffer, RefusesAnyOtherLength) {
  PlaceOffer offer;
  offer.key_bytes = 18;
  std::vector<std::byte> bytes(offer.bytes().begin(), offer.bytes().end());
  PlaceOffer read;
  for (const size_t length : {size_t{0}, size_t{23}, size_t{24}, size_t{41}, size_t{43}}) {
    bytes.resize(length);
    EXPECT_FALSE(read.read(bytes)) << length;
  }
  bytes.assign(PlaceOffer::kHeadBytes + kPlaceKeyBytesMax + 1, std::byte{0});
  EXPECT_FALSE(read.read(bytes));
}

}  // namespace
}  // namespace parallax
