// SPDX-License-Identifier: Apache-2.0
// Results that go in pieces, by devices whose copies end when the test says so.
#include "engine/leaving_slices.h"

#include <gtest/gtest.h>

#include <numeric>
#include <set>
#include <vector>

#include "support/fake_devices.h"

namespace parallax::testkit {
namespace {

constexpr uint64_t kPieceBytes = 4096;
constexpr uint64_t kNumbersOfPiece = kPieceBytes / sizeof(uint32_t);  // of a piece

// They note what a stream was made to wait for.
class FollowedDevices : public FakeDevices {
 public:
  std::vector<DeviceBatch> followed;
  Status fails;
  Status follow(DeviceBatch batch, uint32_t, void*) override {
    followed.push_back(batch);
    return fails;
  }
};

class LeavingSlicesTest : public testing::Test {
 protected:
  void SetUp() override {
    result_.resize(4 * kNumbersOfPiece + 1);
    std::iota(result_.begin(), result_.end(), 3u);
    to_ = devices_.make(std::vector<uint32_t>(result_.size()));
    ASSERT_TRUE(devices_.mark(0, nullptr, &mark_).ok());
    slices_.begin(2, kPieceBytes);
    number_ = slices_.add(1, sizeof(uint32_t));
    slices_.start(devices_, number_, mark_,
                  {.to = reinterpret_cast<std::byte*>(to_),
                   .from = reinterpret_cast<const std::byte*>(result_.data()),
                   .bytes = result_.size() * sizeof(uint32_t)});
    devices_.copies_held = true;
  }
  void TearDown() override {
    slices_.clear();
    devices_.release(mark_);
  }
  void tell(uint64_t first, uint64_t count) { tell_there(slices_.of_slices()[1], first, count); }
  std::vector<DeviceCopy> rest() {
    slices_.close();
    std::vector<DeviceCopy> copies;
    slices_.add_rest(number_, &copies);
    return copies;
  }
  Status poll_to_the_end() {
    devices_.copies_held = false;
    Status status;
    for (int i = 0; i < 10 && slices_.under_way(); ++i) slices_.poll(devices_, &status);
    EXPECT_FALSE(slices_.under_way());
    return status;
  }

  FollowedDevices devices_;
  LeavingSlices slices_;
  DeviceMark mark_ = 0;
  uint32_t number_ = 0;
  std::vector<uint32_t> result_;
  uint32_t* to_ = nullptr;
};

TEST_F(LeavingSlicesTest, APieceGoesOnceAllOfItIsThere) {
  EXPECT_EQ(slices_.of_slices()[0], nullptr);
  EXPECT_FALSE(slices_.are_many(2 * kPieceBytes - 1));
  EXPECT_TRUE(slices_.are_many(2 * kPieceBytes));
  tell(10, kNumbersOfPiece - 11);
  tell(0, 10);
  EXPECT_EQ(devices_.batches(), 0u) << "one number is missing";
  tell(kNumbersOfPiece - 1, 1);
  EXPECT_EQ(devices_.batches(), 1u);
  tell(2 * kNumbersOfPiece - 1, kNumbersOfPiece + 1);
  EXPECT_EQ(devices_.batches(), 2u) << "the third, and not the second";
  EXPECT_TRUE(slices_.under_way());
  EXPECT_TRUE(poll_to_the_end().ok());
  const std::vector<uint32_t> there = devices_.read(to_, result_.size());
  for (size_t i = 0; i < there.size(); ++i) {
    const bool went = i / kNumbersOfPiece == 0 || i / kNumbersOfPiece == 2;
    ASSERT_EQ(there[i], went ? result_[i] : 0) << i;
  }
}

// The rest has what has not gone, neighbours as one, and from then on nothing goes by itself.
TEST_F(LeavingSlicesTest, TheRestIsWhatHasNotGone) {
  tell(kNumbersOfPiece, kNumbersOfPiece);
  const std::vector<DeviceCopy> copies = rest();
  ASSERT_EQ(copies.size(), 2u);
  EXPECT_EQ(copies[0].bytes, kPieceBytes);
  EXPECT_EQ(copies[1].bytes, 2 * kPieceBytes + sizeof(uint32_t));
  EXPECT_EQ(copies[1].to, reinterpret_cast<std::byte*>(to_ + 2 * kNumbersOfPiece));
  EXPECT_EQ(copies[1].from, reinterpret_cast<const std::byte*>(&result_[2 * kNumbersOfPiece]));
  tell(0, kNumbersOfPiece);
  EXPECT_EQ(devices_.batches(), 1u);
  EXPECT_TRUE(poll_to_the_end().ok());
}

// Given pieces of one result, expect a stream to wait for each that is under way: behind more
// streams than a device has queues each may be on a queue of its own.
TEST_F(LeavingSlicesTest, AStreamFollowsEveryPieceThatIsUnderWay) {
  EXPECT_TRUE(slices_.follow(devices_, 1, nullptr).ok());
  EXPECT_TRUE(devices_.followed.empty()) << "none has gone";
  tell(0, kNumbersOfPiece);
  tell(2 * kNumbersOfPiece, 2 * kNumbersOfPiece);
  EXPECT_TRUE(slices_.follow(devices_, 1, nullptr).ok());
  ASSERT_EQ(devices_.followed.size(), 3u);
  const std::set<DeviceBatch> distinct(devices_.followed.begin(), devices_.followed.end());
  EXPECT_EQ(distinct.size(), 3u);
  EXPECT_EQ(distinct.count(0), 0u);
  devices_.fails = io_error("no");
  EXPECT_EQ(slices_.follow(devices_, 1, nullptr).code(), PARALLAX_IO);
  EXPECT_TRUE(poll_to_the_end().ok());
  devices_.followed.clear();
  EXPECT_TRUE(slices_.follow(devices_, 1, nullptr).ok());
  EXPECT_TRUE(devices_.followed.empty()) << "they are over";
}

TEST_F(LeavingSlicesTest, OfAllThatWentNothingIsLeft) {
  tell(0, result_.size());
  EXPECT_EQ(devices_.batches(), 5u);
  EXPECT_TRUE(rest().empty());
  EXPECT_TRUE(poll_to_the_end().ok());
  EXPECT_TRUE(devices_.read(to_, result_.size()) == result_);
}

TEST_F(LeavingSlicesTest, PiecesAreFew) {
  slices_.begin(1, kPieceBytes);
  slices_.clear();
  std::vector<uint32_t> large(100 * kNumbersOfPiece);
  slices_.begin(1, kPieceBytes);
  const uint32_t number = slices_.add(0, sizeof(uint32_t));
  uint32_t* const to = devices_.make(large);
  slices_.start(devices_, number, mark_,
                {.to = reinterpret_cast<std::byte*>(to),
                 .from = reinterpret_cast<const std::byte*>(large.data()),
                 .bytes = large.size() * sizeof(uint32_t)});
  tell_there(slices_.of_slices()[0], 0, large.size());
  EXPECT_LE(devices_.batches(), LeavingSlices::kPiecesMax);
  EXPECT_GT(devices_.batches(), LeavingSlices::kPiecesMax / 2);
  EXPECT_TRUE(poll_to_the_end().ok());
}

// What keeps a piece from beginning is told behind, and nothing else begins.
TEST_F(LeavingSlicesTest, WhatFailsIsKept) {
  devices_.refuse_next_copy = io_error("it burns");
  tell(0, 2 * kNumbersOfPiece);
  EXPECT_EQ(devices_.batches(), 0u);
  EXPECT_EQ(slices_.status().code(), PARALLAX_IO);
  EXPECT_FALSE(slices_.under_way());
}

TEST_F(LeavingSlicesTest, AFailureOfAPieceIsTold) {
  tell(0, 2 * kNumbersOfPiece);
  devices_.fail_next_copy = io_error("it burns");
  EXPECT_EQ(poll_to_the_end().code(), PARALLAX_IO);
}

}  // namespace
}  // namespace parallax::testkit
