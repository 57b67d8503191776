// SPDX-License-Identifier: Apache-2.0
// Gradients that come in pieces, by devices whose copies end when the test says so.
#include "engine/arriving_slices.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "support/fake_devices.h"

namespace parallax::testkit {
namespace {

constexpr uint64_t kPiece = 4096;

class ArrivingSlicesTest : public testing::Test {
 protected:
  // One slice of so many numbers, on its way.
  void begin(size_t numbers) {
    given_.resize(numbers);
    std::iota(given_.begin(), given_.end(), 3u);
    here_.assign(numbers, 0);
    from_ = devices_.make(given_);
    ASSERT_TRUE(devices_.mark(0, nullptr, &mark_).ok());
    slices_.begin(2, kPiece);
    number_ = slices_.add(1, 0, sizeof(uint32_t));
    slices_.reserve();
    ASSERT_TRUE(
        slices_
            .begin_copy(devices_, mark_, number_,
                        {reinterpret_cast<std::byte*>(here_.data()),
                         reinterpret_cast<const std::byte*>(from_), numbers * sizeof(uint32_t)})
            .ok());
  }
  void TearDown() override {
    slices_.clear();
    if (mark_ != 0) devices_.release(mark_);
  }
  ArrivingElements& elements() { return *slices_.of_slices()[1]; }

  FakeDevices devices_;
  ArrivingSlices slices_;
  DeviceMark mark_ = 0;
  uint32_t number_ = 0;
  std::vector<uint32_t> given_, here_;
  uint32_t* from_ = nullptr;
};

TEST_F(ArrivingSlicesTest, WhatIsHereIsToldFrontToBack) {
  devices_.copies_held = true;
  begin(3 * kPiece / sizeof(uint32_t) + 1);
  EXPECT_EQ(devices_.batches(), 4u) << "an end for each piece";
  EXPECT_EQ(slices_.of_slices()[0], nullptr);
  uint32_t told = 0;
  elements().more = [&told] { ++told; };
  Status status;
  slices_.poll(devices_, &status);
  slices_.bring();
  EXPECT_TRUE(slices_.under_way());
  EXPECT_FALSE(slices_.begun());
  EXPECT_EQ(told, 0u);
  devices_.copies_held = false;
  for (int i = 0; i < 10 && slices_.under_way(); ++i) slices_.poll(devices_, &status);
  EXPECT_TRUE(status.ok());
  EXPECT_TRUE(slices_.begun());
  slices_.bring();
  EXPECT_EQ(told, 1u);
  EXPECT_EQ(elements().count, given_.size());
  EXPECT_TRUE(here_ == given_);
}

// Whatever its size a slice has few pieces.
TEST_F(ArrivingSlicesTest, PiecesAreFew) {
  devices_.copies_held = true;
  begin(100 * kPiece / sizeof(uint32_t));
  EXPECT_LE(devices_.batches(), ArrivingSlices::kPiecesMax);
  EXPECT_GT(devices_.batches(), ArrivingSlices::kPiecesMax / 2);
  devices_.copies_held = false;
  Status status;
  for (int i = 0; i < 40 && slices_.under_way(); ++i) slices_.poll(devices_, &status);
  EXPECT_FALSE(slices_.under_way());
}

TEST_F(ArrivingSlicesTest, NothingIsHereBehindAFailure) {
  devices_.copies_held = true;
  begin(3 * kPiece / sizeof(uint32_t));
  devices_.fail_next_copy = io_error("it burns");
  devices_.copies_held = false;
  Status status;
  for (int i = 0; i < 10 && slices_.under_way(); ++i) slices_.poll(devices_, &status);
  EXPECT_EQ(status.code(), PARALLAX_IO);
  slices_.bring();
  EXPECT_EQ(elements().count, 0u);
}

// Who reads them is told once that no more come, and not where all are there.
TEST_F(ArrivingSlicesTest, WhoReadsThemHearsThatNoMoreCome) {
  devices_.copies_held = true;
  begin(2 * kPiece / sizeof(uint32_t));
  uint32_t told = 0;
  elements().more = [&] {
    ++told;
    elements().over = elements().given_up;
  };
  slices_.give_up();
  slices_.give_up();
  EXPECT_EQ(told, 1u);
  devices_.copies_held = false;
  Status status;
  for (int i = 0; i < 10 && slices_.under_way(); ++i) slices_.poll(devices_, &status);
}

}  // namespace
}  // namespace parallax::testkit
