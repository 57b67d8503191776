// SPDX-License-Identifier: Apache-2.0
#include "base/row_copies.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "base/half_numbers.h"
#include "base/seeded_random.h"
#include "support/numbers.h"
#include "support/row_widths.h"
#include "support/vector_levels.h"

namespace parallax {
namespace {

constexpr uint32_t kRows = 50;
constexpr size_t kBehind = 1;  // first is one number that is no row's: rows lie off any alignment

struct Types {
  uint32_t from, to;
};
constexpr Types kTypes[] = {{PARALLAX_F32, PARALLAX_F32},   {PARALLAX_F16, PARALLAX_F16},
                            {PARALLAX_BF16, PARALLAX_BF16}, {PARALLAX_F32, PARALLAX_F16},
                            {PARALLAX_F32, PARALLAX_BF16},  {PARALLAX_F16, PARALLAX_F32},
                            {PARALLAX_BF16, PARALLAX_F32}};

// The same rows in both types, converted one number at a time. They are no numbers of f16 or bf16
// before they are rounded.
struct DrawnRows {
  DrawnRows(const Types& types, uint32_t width)
      : from(types.from, kBehind + kRows * width), to(types.to, from.size()) {
    SeededRandom random(width);
    for (size_t i = 0; i < from.size(); ++i) {
      from.set(i, static_cast<double>(static_cast<float>(random.unit() - 0.5)));
      to.set(i, from[i]);
    }
  }
  static const std::byte* row(testkit::Numbers& numbers, uint32_t row, uint32_t width) {
    return static_cast<const std::byte*>(numbers.data()) +
           (kBehind + row * width) * bytes_of_dtype(numbers.dtype());
  }
  testkit::Numbers from, to;
};

// So many rows, some of them none: each where it goes, zeros for none, and nothing beside them
// written.
void copy_some(const RowCopies& copies, DrawnRows& drawn, uint32_t width, uint32_t count,
               SeededRandom& random) {
  std::vector<std::byte> got(kRows * copies.bytes() + 1, std::byte{0x55}), want = got;
  RowCopies::Some some;
  some.count = count;
  for (uint32_t i = 0; i < count; ++i) {
    const auto row = static_cast<uint32_t>(random.below(kRows));
    const size_t place = 1 + i * 3 % kRows * copies.bytes();  // each once
    const bool is_none = random.chance(20);
    some.rows[i] = is_none ? nullptr : DrawnRows::row(drawn.from, row, width);
    some.to[i] = &got[place];
    if (is_none) {
      std::memset(&want[place], 0, copies.bytes());
    } else {
      std::memcpy(&want[place], DrawnRows::row(drawn.to, row, width), copies.bytes());
    }
  }
  copies.copy(some);
  ASSERT_EQ(std::memcmp(got.data(), want.data(), got.size()), 0) << count << " rows";
}

// So many numbers of rows, some of no row: each row behind the one before.
void copy_some_numbered(const RowCopies& copies, DrawnRows& drawn, uint32_t width, uint32_t count,
                        SeededRandom& random) {
  constexpr uint32_t kKnown = 9;
  std::vector<std::byte> got(count * copies.bytes() + 2, std::byte{0x55}), want = got;
  std::vector<const std::byte*> rows;
  for (uint32_t row = 0; row < kKnown; ++row) {
    rows.push_back(DrawnRows::row(drawn.from, kRows - 1 - row * 3, width));
  }
  std::vector<uint32_t> numbers;
  for (uint32_t i = 0; i < count; ++i) {
    const auto number = static_cast<uint32_t>(random.below(kKnown));
    std::byte* const place = &want[1 + i * copies.bytes()];
    numbers.push_back(random.chance(20) ? RowCopies::kNone : number);
    if (numbers.back() == RowCopies::kNone) {
      std::memset(place, 0, copies.bytes());
    } else {
      std::memcpy(place, DrawnRows::row(drawn.to, kRows - 1 - number * 3, width), copies.bytes());
    }
  }
  copies.copy_numbered(
      {.rows = rows.data(), .numbers = numbers.data(), .count = count, .to = &got[1]});
  ASSERT_EQ(std::memcmp(got.data(), want.data(), got.size()), 0) << count << " numbers";
}

// Given rows of any width, as they are or to be converted, in the order of the source or of the
// target or neither, at each level of vector code: expect the bits of one number at a time.
TEST(RowCopies, EachGoesWhereItIsSaid) {
  for (const uint32_t width : testkit::kRowWidths) {
    for (const Types& types : kTypes) {
      SCOPED_TRACE(std::to_string(width) + " " + dtype_name(types.from) + " to " +
                   dtype_name(types.to));
      DrawnRows drawn(types, width);
      const RowCopies copies(converter(types.from, types.to), width, bytes_of_dtype(types.to));
      ASSERT_EQ(copies.bytes(), width * bytes_of_dtype(types.to));
      testkit::at_each_vector_level([&] {
        SeededRandom random(width);
        const uint32_t step = width > 500 ? 8 : 1;  // few of the wide ones, to be quick
        for (uint32_t count = 0; count <= RowCopies::kTogether; count += step) {
          copy_some(copies, drawn, width, count, random);
          copy_some_numbered(copies, drawn, width, count, random);
          if (testing::Test::HasFatalFailure()) return;
        }
      });
    }
  }
}

}  // namespace
}  // namespace parallax
