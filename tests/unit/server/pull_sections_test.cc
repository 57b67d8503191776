// SPDX-License-Identifier: Apache-2.0
// What sections of a pull say of themselves.
#include "server/pull_sections.h"

#include <gtest/gtest.h>

#include <vector>

#include "unit/server/section_network.h"

namespace parallax::testkit {
namespace {

TEST(PullSections, ASendCarriesItsStepAndDtype) {
  Send send = pull_send(SectionKind::kPullHost, Encoding::kIds, 7, 3);
  send.header.flags = pull_flags(PARALLAX_I64) | kSectionLast;
  EXPECT_EQ(send.header.kind, SectionKind::kPullHost);
  EXPECT_EQ(send.header.encoding, Encoding::kIds);
  EXPECT_EQ(send.header.tag, 7u);
  EXPECT_EQ(send.header.step, 3u);
  EXPECT_EQ(pull_dtype(send.header), uint32_t{PARALLAX_I64});
}

TEST(PullSections, RowKeysAreCountedAndNotAligned) {
  const std::vector<uint32_t> row_keys = {5, UINT32_MAX, 0};
  SectionHeader header{.kind = SectionKind::kPullLocal, .encoding = Encoding::kIds};
  header.count = 3;
  const OwnedSection section(header, as_payload(row_keys));
  ASSERT_TRUE(is_row_keys(section.view()));
  for (uint32_t i = 0; i < 3; ++i) EXPECT_EQ(row_key_at(section.view(), i), row_keys[i]);
  EXPECT_FALSE(is_bare(section.view()));
  for (const uint32_t count : {0u, 2u, 4u, UINT32_MAX}) {
    header.count = count;
    EXPECT_FALSE(is_row_keys(OwnedSection(header, as_payload(row_keys)).view())) << count;
  }
  header.count = 0;
  EXPECT_FALSE(is_row_keys(OwnedSection(header, {}).view())) << "none";
  header.count = 3;
  header.encoding = Encoding::kValues;
  EXPECT_FALSE(is_row_keys(OwnedSection(header, as_payload(row_keys)).view()));
}

TEST(PullSections, ABareSectionHasNothingBehindIt) {
  SectionHeader header{.kind = SectionKind::kPullLocal};
  EXPECT_TRUE(is_bare(OwnedSection(header, {}).view()));
  EXPECT_FALSE(is_bare(OwnedSection(header, std::vector<std::byte>(1)).view()));
  header.count = 1;
  EXPECT_FALSE(is_bare(OwnedSection(header, {}).view()));
  header.count = 0;
  header.encoding = Encoding::kDense;
  EXPECT_FALSE(is_bare(OwnedSection(header, {}).view()));
}

// Given any dtype asked for, expect values to travel as the smaller of it and the master's, and a
// peer to be able to ask for that.
TEST(PullSections, ValuesTravelAsTheSmallerType) {
  EXPECT_EQ(wire_dtype(PARALLAX_F16, PARALLAX_F32), uint32_t{PARALLAX_F16});
  EXPECT_EQ(wire_dtype(PARALLAX_F64, PARALLAX_F32), uint32_t{PARALLAX_F32});
  EXPECT_EQ(wire_dtype(PARALLAX_F32, PARALLAX_F64), uint32_t{PARALLAX_F32});
  EXPECT_EQ(wire_dtype(PARALLAX_I64, PARALLAX_I64), uint32_t{PARALLAX_I64});
  EXPECT_EQ(wire_dtype(PARALLAX_F32, PARALLAX_BF16), uint32_t{PARALLAX_BF16});
  EXPECT_EQ(wire_dtype(PARALLAX_F16, PARALLAX_BF16), uint32_t{PARALLAX_BF16});
  EXPECT_TRUE(may_travel_as(PARALLAX_BF16, PARALLAX_F32));
  EXPECT_FALSE(may_travel_as(PARALLAX_F32, PARALLAX_BF16)) << "no room for it";
  EXPECT_TRUE(may_travel_as(PARALLAX_F32, PARALLAX_F32));
  EXPECT_FALSE(may_travel_as(PARALLAX_F64, PARALLAX_F32)) << "no room for it";
  EXPECT_FALSE(may_travel_as(PARALLAX_I32, PARALLAX_F32)) << "never converted";
  for (uint32_t unknown = PARALLAX_I64 + 1; unknown < 16; ++unknown) {
    EXPECT_FALSE(may_travel_as(unknown, PARALLAX_F64));
  }
}

}  // namespace
}  // namespace parallax::testkit
