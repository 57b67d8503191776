// SPDX-License-Identifier: Apache-2.0
#include "message/place_offer.h"

#include <gtest/gtest.h>

#include <vector>

namespace parallax {
namespace {

TEST(PlaceOffer, IsReadAsItWasWritten) {
  PlaceOffer offer;
  offer.address = 0x1234567890;
  offer.area = 7;
  offer.key_bytes = 18;
  for (uint32_t i = 0; i < offer.key_bytes; ++i) offer.key[i] = std::byte(i + 1);
  PlaceOffer read;
  ASSERT_TRUE(read.read(offer.bytes()));
  EXPECT_EQ(read.address, offer.address);
  EXPECT_EQ(read.area, offer.area);
  EXPECT_EQ(read.key_bytes, offer.key_bytes);
  EXPECT_EQ(read.key, offer.key);
}

// Of lengths that are not what the offer says, and keys that are too long.
TEST(PlaceOffer, RefusesAnyOtherLength) {
  PlaceOffer offer;
  offer.key_bytes = 18;
  std::vector<std::byte> bytes(offer.bytes().begin(), offer.bytes().end());
  PlaceOffer read;
  for (const size_t length : {size_t{0}, size_t{15}, size_t{16}, size_t{33}, size_t{35}}) {
    bytes.resize(length);
    EXPECT_FALSE(read.read(bytes)) << length;
  }
  bytes.assign(PlaceOffer::kHeadBytes + kPlaceKeyBytesMax + 1, std::byte{0});
  EXPECT_FALSE(read.read(bytes));
}

}  // namespace
}  // namespace parallax
