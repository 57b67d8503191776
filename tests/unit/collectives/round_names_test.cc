// SPDX-License-Identifier: Apache-2.0
#include "collectives/round_names.h"

#include <gtest/gtest.h>

namespace parallax {
namespace {

SectionHeader header_of(uint64_t round, uint8_t stage) {
  SectionHeader header;
  header.step = round;
  header.part = stage;
  return header;
}

// Given two rounds that are open, expect each by its step and chunk, and the stage beside them.
TEST(RoundNames, TellStepChunkAndStage) {
  RoundNames names;
  names.set(7, 3, 2);
  names.set(8, 4, 0);
  for (const uint8_t stage : {0, 1}) {
    SectionHeader seventh = header_of(7, stage), eighth = header_of(8, stage);
    name_round(&names, &seventh);
    name_round(&names, &eighth);
    EXPECT_EQ(seventh.step, 3u);
    EXPECT_EQ(RoundNames::chunk_bits_of(seventh.part), RoundNames::bits_of(2));
    EXPECT_EQ(RoundNames::stage_of(seventh.part), stage);
    EXPECT_EQ(eighth.step, 4u);
    EXPECT_EQ(RoundNames::chunk_bits_of(eighth.part), RoundNames::bits_of(0));
    EXPECT_EQ(RoundNames::stage_of(eighth.part), stage);
  }
}

// Given no names, expect the step as it is.
TEST(RoundNames, WithoutAnyStepsAreThemselves) {
  SectionHeader header = header_of(7, 1);
  name_round(nullptr, &header);
  EXPECT_EQ(header.step, 7u);
  EXPECT_EQ(header.part, 1);
}

// Neighbours are told apart, however many chunks there are.
TEST(RoundNames, NeighboursDiffer) {
  for (uint32_t chunk = 0; chunk < 1000; ++chunk) {
    EXPECT_NE(RoundNames::bits_of(chunk), RoundNames::bits_of(chunk + 1));
    EXPECT_EQ(RoundNames::stage_of(RoundNames::bits_of(chunk)), 0);
  }
}

}  // namespace
}  // namespace parallax
