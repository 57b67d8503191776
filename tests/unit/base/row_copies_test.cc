// SPDX-License-Identifier: Apache-2.0
#include "base/row_copies.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "base/half_numbers.h"
#include "base/seeded_random.h"

namespace parallax {
namespace {

// Given rows of any width, some of them none, in the order of the source or of the target or
// neither, expect each where it goes, zeros for none, and nothing beside them written.
TEST(RowCopies, EachGoesWhereItIsSaid) {
  for (const uint32_t width : {1u, 3u, 8u, 16u, 17u, 32u, 64u, 65u, 512u}) {
    for (const bool converts : {false, true}) {
      SCOPED_TRACE(std::to_string(width) + (converts ? " converted" : ""));
      SeededRandom random(width + (converts ? 1000 : 0));
      const uint32_t to_dtype = converts ? PARALLAX_BF16 : PARALLAX_F32;
      const size_t to_bytes = bytes_of_dtype(to_dtype);
      const RowCopies copies(converter(PARALLAX_F32, to_dtype), width, to_bytes);
      ASSERT_EQ(copies.bytes(), width * to_bytes);
      constexpr uint32_t kRows = 50;
      // Off any alignment but the numbers' own.
      std::vector<float> from(kRows * width + 1);
      for (float& each : from) each = static_cast<float>(random.below(100));
      for (uint32_t count = 0; count <= RowCopies::kTogether; ++count) {
        std::vector<std::byte> got(kRows * copies.bytes() + 1, std::byte{0x55}), want = got;
        RowCopies::Some some;
        some.count = count;
        for (uint32_t i = 0; i < count; ++i) {
          const auto row = static_cast<uint32_t>(random.below(kRows));
          const uint32_t place = i * 3 % kRows;  // each once
          const bool is_none = random.chance(20);
          const auto* const numbers = &from[1 + row * width];
          some.rows[i] = is_none ? nullptr : reinterpret_cast<const std::byte*>(numbers);
          some.to[i] = &got[1 + place * copies.bytes()];
          for (uint32_t column = 0; column < width; ++column) {
            const float number = is_none ? 0 : numbers[column];
            std::byte* const there = &want[1 + place * copies.bytes() + column * to_bytes];
            if (converts) {
              converter(PARALLAX_F32, to_dtype)(reinterpret_cast<const std::byte*>(&number), there,
                                                1);
            } else {
              std::memcpy(there, &number, sizeof number);
            }
          }
        }
        copies.copy(some);
        ASSERT_EQ(got, want) << count;
      }
    }
  }
}

}  // namespace
}  // namespace parallax
