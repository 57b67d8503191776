// SPDX-License-Identifier: Apache-2.0
#include "collectives/narrow_numbers.h"

#include <gtest/gtest.h>

#include <vector>

#include "support/numbers.h"

namespace parallax {
namespace {

using testkit::Numbers;

TEST(NarrowNumbers, AreToldByTheirLength) {
  const NarrowNumbers halves = {PARALLAX_F32, PARALLAX_F16};
  EXPECT_EQ(halves.of_bytes(5, 20), uint32_t{PARALLAX_F32});
  EXPECT_EQ(halves.of_bytes(5, 10), uint32_t{PARALLAX_F16});
  for (const uint64_t bytes : {0u, 5u, 19u, 40u}) {
    EXPECT_EQ(halves.of_bytes(5, bytes), NarrowNumbers::kNoDtype) << bytes;
  }
  EXPECT_TRUE(halves.are_narrow(PARALLAX_F16));
  EXPECT_FALSE(halves.are_narrow(PARALLAX_F32));
  const NarrowNumbers floats = {PARALLAX_F32, PARALLAX_F32};
  EXPECT_FALSE(floats.are_narrow(PARALLAX_F32));
  EXPECT_EQ(floats.of_bytes(5, 10), NarrowNumbers::kNoDtype);
}

TEST(NarrowNumbers, TravelAsTheyAreOrAsTheSum) {
  const NarrowNumbers halves = {PARALLAX_F32, PARALLAX_F16};
  const WireFormat as_is = halves.format(PARALLAX_F16, true);
  EXPECT_EQ(as_is.element_bytes, 2u);
  EXPECT_EQ(as_is.source_bytes, 2u);
  EXPECT_EQ(as_is.convert, nullptr);
  const WireFormat widened = halves.format(PARALLAX_F16, false);
  EXPECT_EQ(widened.element_bytes, 4u);
  EXPECT_EQ(widened.source_bytes, 2u);
  EXPECT_EQ(widened.convert, converter(PARALLAX_F16, PARALLAX_F32));
  const WireFormat rounded = halves.format(PARALLAX_F32, true);
  EXPECT_EQ(rounded.element_bytes, 2u);
  EXPECT_EQ(rounded.source_bytes, 4u);
  EXPECT_EQ(rounded.convert, converter(PARALLAX_F32, PARALLAX_F16));
}

TEST(ResultPlace, TakesNumbersOfAnyDtype) {
  Numbers result(PARALLAX_BF16, 4);
  auto* const values = static_cast<std::byte*>(result.data());
  const ResultPlace place = ResultPlace::at(values, PARALLAX_BF16, true);
  Numbers floats(PARALLAX_F32, std::vector<double>{1.00390625, 2});
  place.put(1, 2, {static_cast<std::byte*>(floats.data()), PARALLAX_F32});
  EXPECT_EQ(result.all(), (std::vector<double>{0, 1, 2, 0})) << "half of the last bit: to even";
  Numbers same(PARALLAX_BF16, std::vector<double>{3});
  place.put(3, 1, {static_cast<std::byte*>(same.data()), PARALLAX_BF16});
  place.put(3, 1, {place.of(3), PARALLAX_BF16});  // where it is
  EXPECT_EQ(result.all(), (std::vector<double>{0, 1, 2, 3}));
}

}  // namespace
}  // namespace parallax
