// SPDX-License-Identifier: Apache-2.0
// What both ends keep of a host's pulls in a step.
#include "aggregate/pulled_keys.h"

#include <gtest/gtest.h>

#include <vector>

namespace parallax {
namespace {

using Keys = std::vector<uint32_t>;

class PulledKeysTest : public testing::Test {
 protected:
  void SetUp() override {
    const std::vector<uint64_t> rows_max = {4, 0, 2};
    Arena measure;
    keys_.lay_out(measure, rows_max);
    ASSERT_TRUE(arena_.reserve(measure.used_bytes()).ok());
    keys_.lay_out(arena_, rows_max);
  }
  void add(uint64_t step, uint32_t peer, uint32_t row_key) {
    keys_.add(step, peer, std::as_bytes(std::span(&row_key, 1)));
  }
  Keys of(uint64_t step, uint32_t peer) const {
    const auto all = keys_.of(step, peer);
    return {all.begin(), all.end()};
  }
  Keys known(uint64_t step, uint32_t peer) const {
    const auto all = keys_.known(step, peer);
    return {all.begin(), all.end()};
  }

  Arena arena_;
  PulledKeys keys_;
};

TEST_F(PulledKeysTest, OfEachStepAndPeerInOrder) {
  for (const uint32_t key : {7u, 3u}) add(5, 0, key);
  add(5, 2, 9);
  add(6, 0, 8);
  add(5, 0, 1);
  EXPECT_EQ(of(5, 0), (Keys{7, 3, 1}));
  EXPECT_EQ(of(5, 2), (Keys{9}));
  EXPECT_EQ(of(6, 0), (Keys{8}));
  EXPECT_EQ(of(6, 2), Keys()) << "asked for nothing";
  EXPECT_EQ(of(7, 0), Keys()) << "nothing of the step before the last";
  add(7, 0, 4);
  EXPECT_EQ(of(7, 0), (Keys{4}));
  EXPECT_EQ(of(5, 0), Keys()) << "its memory has another step's";
}

// Both ends keep the same, whatever comes beyond what they have room for.
TEST_F(PulledKeysTest, KeepsTheFirstThatFit) {
  for (const uint32_t key : {1u, 2u, 3u, 4u}) {
    add(1, 2, key);
    add(1, 1, key);
  }
  EXPECT_EQ(of(1, 2), (Keys{1, 2}));
  EXPECT_EQ(of(1, 1), Keys());
  EXPECT_EQ(of(1, 17), Keys()) << "no such peer";
  add(1, 17, 1);
  keys_.answered(1, 17, 1);
  EXPECT_EQ(known(1, 17), Keys());
}

TEST_F(PulledKeysTest, KnownOnceAllIsAnswered) {
  for (const uint32_t key : {1u, 2u, 3u}) add(1, 2, key);
  EXPECT_EQ(known(1, 2), Keys());
  keys_.answered(1, 2, 2);
  EXPECT_EQ(known(1, 2), Keys()) << "of those beyond the room, too";
  keys_.answered(1, 2, 1);
  EXPECT_EQ(known(1, 2), (Keys{1, 2}));
  add(1, 2, 9);
  EXPECT_EQ(known(1, 2), Keys()) << "asked for more";
  add(3, 2, 5);
  keys_.answered(1, 2, 1);
  EXPECT_EQ(known(3, 2), Keys()) << "an answer of another step";
}

}  // namespace
}  // namespace parallax
