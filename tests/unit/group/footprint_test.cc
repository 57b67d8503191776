// SPDX-License-Identifier: Apache-2.0
#include "group/footprint.h"

#include <gtest/gtest.h>

#include "support/words.h"

namespace parallax {
namespace {

using testkit::has;

constexpr uint64_t kGiB = uint64_t{1} << 30;

TEST(Footprint, BytesAreShownWhole) {
  EXPECT_EQ(shown_bytes(0), "0 bytes");
  EXPECT_EQ(shown_bytes(10239), "10239 bytes");
  EXPECT_EQ(shown_bytes(10240), "10 KiB");
  EXPECT_EQ(shown_bytes(12 * kGiB + 5), "12 GiB");
  EXPECT_EQ(shown_bytes(UINT64_MAX), "16383 PiB");
}

// Given two ranks whose variables fit, then one byte more, expect silence, then a sentence
// that names host, machine and variables, the largest first.
TEST(Footprint, AShortageNamesTheLargest) {
  std::vector<Footprint> variables = {{.name = "small", .table_bytes = kGiB},
                                      {.name = "tiny", .buffer_bytes = 100},
                                      {.name = "bias", .buffer_bytes = 50},
                                      {.name = "table", .table_bytes = 10 * kGiB}};
  const uint64_t each = total_bytes(variables);
  EXPECT_EQ(each, 11 * kGiB + 150);
  const MachineMemory enough = {.total_bytes = 2 * each};
  EXPECT_EQ(memory_shortage(variables, 2, "a", enough), "");
  EXPECT_EQ(memory_shortage(variables, 200, "a", {}), "") << "nothing is known";
  const std::string said = memory_shortage(variables, 2, "a", {.total_bytes = 2 * each - 1});
  EXPECT_TRUE(has(said, "the 2 ranks of host a may touch 22 GiB")) << said;
  EXPECT_TRUE(has(said, "the machine has 22 GiB (with swap)")) << said;
  EXPECT_TRUE(has(said, "variables: 'table' (10 GiB values and state, 0 bytes buffers), 'small'"))
      << said;
  EXPECT_TRUE(has(said, "and 1 more")) << said;
}

TEST(Footprint, AControlGroupIsNamed) {
  const std::string said =
      memory_shortage({{.name = "table", .table_bytes = UINT64_MAX - 1}}, 3, "a",
                      {.total_bytes = 24 * kGiB, .limit_bytes = 4 * kGiB, .limit_file = "/x/y"});
  EXPECT_TRUE(has(said, "their control group gives them 4096 MiB (/x/y)")) << said;
  EXPECT_TRUE(has(said, "'table'")) << said;
}

TEST(Footprint, TheRemedyFitsTheLargerPart) {
  EXPECT_TRUE(has(smaller_remedy({.table_bytes = 2, .buffer_bytes = 1, .ids_declared = true}),
                  "fewer rows"));
  EXPECT_TRUE(has(smaller_remedy({.table_bytes = 1, .buffer_bytes = 2, .ids_declared = true}),
                  "lower its rows_max"));
  EXPECT_TRUE(has(smaller_remedy({.buffer_bytes = 2}), "cut it in two"));
}

}  // namespace
}  // namespace parallax
