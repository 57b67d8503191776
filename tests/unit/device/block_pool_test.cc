// SPDX-License-Identifier: Apache-2.0
// Blocks that are kept, the bound, and a machine that has no more.
#include "device/block_pool.h"

#include <gtest/gtest.h>

#include "support/fake_devices.h"
#include "support/words.h"

namespace parallax::testkit {
namespace {

constexpr uint64_t kBlock = 65536;

TEST(PinnedPool, BlocksThatComeBackAreUsedAgain) {
  FakeDevices devices;
  {
    PinnedPool pool(devices, 0);
    MemoryBlock one, two, three;
    ASSERT_TRUE(pool.take(1, &one).ok());
    ASSERT_TRUE(pool.take(kBlock, &two).ok());
    ASSERT_TRUE(pool.take(kBlock + 1, &three).ok());
    EXPECT_EQ(one.bytes, kBlock);
    EXPECT_EQ(two.bytes, kBlock);
    EXPECT_EQ(three.bytes, 2 * kBlock);
    EXPECT_NE(one.memory, two.memory);
    EXPECT_EQ(pool.bytes_in_use(), 4 * kBlock);
    pool.give_back(one);
    pool.give_back(three);
    ASSERT_TRUE(pool.take(100, &one).ok());
    ASSERT_TRUE(pool.take(2 * kBlock, &three).ok());
    EXPECT_EQ(pool.growth_count(), 3u);
    EXPECT_EQ(pool.bytes_held(), 4 * kBlock);
    for (const MemoryBlock& each : {one, two, three}) pool.give_back(each);
    EXPECT_EQ(pool.bytes_in_use(), 0u);
  }
  EXPECT_EQ(devices.pinned(), 0u) << "the pool's end releases what it kept";
}

TEST(PinnedPool, TheBoundCountsWhatIsKeptLast) {
  FakeDevices devices;
  PinnedPool pool(devices, 4 * kBlock);
  MemoryBlock small, large, more;
  ASSERT_TRUE(pool.take(kBlock, &small).ok());
  pool.give_back(small);
  ASSERT_TRUE(pool.take(4 * kBlock, &large).ok()) << "what nobody uses is given up first";
  EXPECT_EQ(pool.bytes_held(), 4 * kBlock);
  const Status refused = pool.take(1, &more);
  EXPECT_EQ(refused.code(), PARALLAX_LIMIT);
  EXPECT_TRUE(has(refused, "pinned_max_bytes is 262144")) << refused.message();
  EXPECT_EQ(refused.facts().field, "pinned_max_bytes");
  pool.give_back(large);
  ASSERT_TRUE(pool.take(1, &more).ok());
  pool.give_back(more);
  EXPECT_EQ(pool.take(uint64_t{1} << 60, &more).code(), PARALLAX_LIMIT);
}

TEST(PinnedPool, ABlockThatADeviceMayWriteToIsGivenUp) {
  FakeDevices devices;
  PinnedPool pool(devices, 0);
  MemoryBlock lost, next;
  ASSERT_TRUE(pool.take(1, &lost).ok());
  pool.abandon(lost);
  ASSERT_TRUE(pool.take(1, &next).ok());
  EXPECT_NE(lost.memory, next.memory);
  pool.give_back(next);
  devices.release_pinned(lost.memory);
}

TEST(PinnedPool, AMachineWithoutMoreIsNamed) {
  FakeDevices devices;
  PinnedPool pool(devices, 0);
  MemoryBlock block;
  devices.refuse_pinning = limit("cuMemHostAlloc: no more");
  const Status refused = pool.take(100, &block);
  EXPECT_EQ(refused.code(), PARALLAX_LIMIT);
  EXPECT_TRUE(has(refused, "100 bytes of pinned host memory: cuMemHostAlloc: no more"));
}

}  // namespace
}  // namespace parallax::testkit
