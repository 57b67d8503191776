// SPDX-License-Identifier: Apache-2.0
#include "base/prefetch.h"

#include <gtest/gtest.h>

#include <array>

namespace parallax {
namespace {

// Given rows of any length, and what is mapped nowhere: expect what there is to stay as it is.
TEST(Prefetch, ChangesNothing) {
  std::array<std::byte, 1000> row;
  row.fill(std::byte{5});
  const std::array<std::byte, 1000> before = row;
  for (const uint64_t bytes : {0u, 1u, 64u, 65u, 256u, 1000u}) {
    prefetch_row(row.data(), bytes);
    prefetch_row_to_write(row.data(), bytes);
    prefetch_bytes(row.data(), bytes);
    prefetch_first_rows_to_write(row, bytes);
  }
  prefetch_object(&row);
  const auto* const nowhere = reinterpret_cast<const std::byte*>(uintptr_t{8});
  prefetch_row(nowhere, 1000);
  prefetch_row_to_write(nowhere, 1000);
  prefetch_bytes(nowhere, 1000);
  prefetch_first_rows_to_write({nowhere, 1000}, 1000);
  prefetch_bytes(nullptr, 1000);
  prefetch_first_rows_to_write({}, 1000);
  EXPECT_EQ(row, before);
}

}  // namespace
}  // namespace parallax
