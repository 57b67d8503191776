// SPDX-License-Identifier: Apache-2.0
// Copies in pieces, by devices whose copies end when the test says so.
#include "engine/pieced_copies.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "support/fake_devices.h"
#include "support/words.h"

namespace parallax::testkit {
namespace {

constexpr uint64_t kSmallest = BlockPool::kSmallestBytes;

class PiecedCopiesTest : public testing::Test {
 protected:
  // Numbers of so many pieces, and a few more.
  static std::vector<uint32_t> numbers(uint64_t pieces) {
    std::vector<uint32_t> made(pieces * kSmallest / sizeof(uint32_t) + 5);
    std::iota(made.begin(), made.end(), 7u);
    return made;
  }
  DeviceMark mark() {
    DeviceMark made = 0;
    EXPECT_TRUE(devices_.mark(0, nullptr, &made).ok());
    return made;
  }
  Status run(PiecedCopies& copies) {
    Status status;
    for (int i = 0; i < 100 && copies.under_way(); ++i) copies.advance(&status);
    EXPECT_FALSE(copies.under_way());
    return status;
  }

  FakeDevices devices_;
  PinnedPool pool_{devices_, 3 * kSmallest};
  PinnedPieces pieces_;
};

TEST_F(PiecedCopiesTest, ThereAndBack) {
  ASSERT_TRUE(pieces_.join(pool_).ok());
  EXPECT_EQ(pieces_.piece_bytes(), kSmallest) << "as large as the bound allows";
  EXPECT_EQ(pool_.bytes_in_use(), 3 * kSmallest);
  const std::vector<uint32_t> given = numbers(9);
  const uint64_t bytes = given.size() * sizeof(uint32_t);
  auto* from = reinterpret_cast<std::byte*>(devices_.make(given));
  auto* to = reinterpret_cast<std::byte*>(devices_.make(std::vector<uint32_t>(given.size())));
  std::vector<uint32_t> here(given.size());
  const DeviceMark at = mark();
  PiecedCopies copies;
  copies.start(devices_, pieces_, CopyDirection::kToHost, 1);
  copies.add(at, {reinterpret_cast<std::byte*>(here.data()), from, bytes});
  devices_.copies_held = true;
  Status status;
  copies.advance(&status);
  EXPECT_EQ(devices_.batches(), 3u) << "all pieces are under way";
  EXPECT_EQ(here[0], 0u);
  devices_.copies_held = false;
  ASSERT_TRUE(run(copies).ok());
  EXPECT_TRUE(here == given);
  copies.start(devices_, pieces_, CopyDirection::kToDevice, 1);
  copies.add(at, {to, reinterpret_cast<std::byte*>(here.data()), bytes});
  ASSERT_TRUE(run(copies).ok());
  EXPECT_TRUE(devices_.read(reinterpret_cast<uint32_t*>(to), given.size()) == given);
  devices_.release(at);
  pieces_.leave(pool_);
  EXPECT_EQ(pool_.bytes_in_use(), 0u);
}

// One that failed stops the rest; so does who has no more use for them.
TEST_F(PiecedCopiesTest, AFailureIsTheLastPiece) {
  ASSERT_TRUE(pieces_.join(pool_).ok());
  const std::vector<uint32_t> given = numbers(9);
  auto* from = reinterpret_cast<std::byte*>(devices_.make(given));
  std::vector<uint32_t> here(given.size());
  const DeviceCopy copy = {reinterpret_cast<std::byte*>(here.data()), from,
                           given.size() * sizeof(uint32_t)};
  const DeviceMark at = mark();
  PiecedCopies copies;
  for (const bool refused : {true, false}) {
    copies.start(devices_, pieces_, CopyDirection::kToHost, 1);
    copies.add(at, copy);
    (refused ? devices_.refuse_next_copy : devices_.fail_next_copy) = io_error("device 0: no");
    EXPECT_TRUE(has(run(copies), "device 0: no"));
    EXPECT_EQ(here.back(), 0u);
  }
  copies.add(at, copy);
  devices_.copies_held = true;
  Status status;
  copies.advance(&status);
  copies.stop();
  EXPECT_TRUE(copies.under_way()) << "what has begun is waited for";
  devices_.copies_held = false;
  ASSERT_TRUE(run(copies).ok());
  EXPECT_EQ(here.back(), 0u);
  devices_.release(at);
  pieces_.leave(pool_);
}

// Whoever finds none asks again once one came back.
TEST_F(PiecedCopiesTest, CallsShareThem) {
  ASSERT_TRUE(pieces_.join(pool_).ok());
  ASSERT_TRUE(pieces_.join(pool_).ok());
  std::byte* const one = pieces_.take();
  std::byte* const two = pieces_.take();
  std::byte* const three = pieces_.take();
  ASSERT_TRUE(one != nullptr && two != nullptr && three != nullptr);
  EXPECT_FALSE(pieces_.may_ask_again()) << "nobody asked in vain";
  EXPECT_EQ(pieces_.take(), nullptr);
  EXPECT_FALSE(pieces_.may_ask_again());
  pieces_.give_back(two);
  EXPECT_TRUE(pieces_.may_ask_again());
  EXPECT_FALSE(pieces_.may_ask_again()) << "told once";
  EXPECT_EQ(pieces_.take(), two);
  pieces_.leave(pool_);
  EXPECT_EQ(pool_.bytes_in_use(), 3 * kSmallest) << "the other call has them yet";
  for (std::byte* each : {one, two}) pieces_.give_back(each);
  pieces_.abandon(pool_, three);
  pieces_.leave(pool_);
  EXPECT_EQ(pool_.bytes_in_use(), 0u);
}

TEST_F(PiecedCopiesTest, NotEvenOne) {
  MemoryBlock all;
  ASSERT_TRUE(pool_.take(2 * kSmallest, &all).ok());
  MemoryBlock rest;
  ASSERT_TRUE(pool_.take(kSmallest, &rest).ok());
  EXPECT_EQ(pieces_.join(pool_).code(), PARALLAX_LIMIT);
  pool_.give_back(rest);
  ASSERT_TRUE(pieces_.join(pool_).ok()) << "with one it works";
  std::byte* const only = pieces_.take();
  EXPECT_NE(only, nullptr);
  EXPECT_EQ(pieces_.take(), nullptr);
  pieces_.give_back(only);
  pieces_.leave(pool_);
  pool_.give_back(all);
}

}  // namespace
}  // namespace parallax::testkit
