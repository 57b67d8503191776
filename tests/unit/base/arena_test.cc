// SPDX-License-Identifier: Apache-2.0
#include "base/arena.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <set>
#include <tuple>

#include "base/check.h"

namespace parallax {
namespace {

TEST(Arena, MeasuresBeforeItIsReserved) {
  Arena arena;
  EXPECT_EQ(arena.take<float>(1).data(), nullptr);
  EXPECT_EQ(arena.take<uint64_t>(9).size(), 9u) << "sizes are told, memory is not there";
  EXPECT_EQ(arena.take<std::byte>(0).data(), nullptr);
  EXPECT_EQ(arena.used_bytes(), 64u + 128u);
}

TEST(Arena, WhatWasMeasuredFits) {
  const auto lay_out = [](Arena& arena) {
    const auto a = arena.take<uint32_t>(100);
    const auto b = arena.take<uint8_t>(1);
    const auto c = arena.take<double>(33);
    return std::tuple(a, b, c);
  };
  Arena measure;
  lay_out(measure);
  Arena arena;
  ASSERT_TRUE(arena.reserve(measure.used_bytes()).ok());
  const auto [a, b, c] = lay_out(arena);
  EXPECT_EQ(arena.used_bytes(), measure.used_bytes());
  for (const auto address :
       {reinterpret_cast<uintptr_t>(a.data()), reinterpret_cast<uintptr_t>(b.data()),
        reinterpret_cast<uintptr_t>(c.data())}) {
    EXPECT_EQ(address % kArenaAlignmentBytes, 0u);
  }
  EXPECT_GE(reinterpret_cast<uintptr_t>(b.data()), reinterpret_cast<uintptr_t>(a.data() + 100));
  EXPECT_GE(reinterpret_cast<uintptr_t>(c.data()), reinterpret_cast<uintptr_t>(b.data() + 1));
  EXPECT_TRUE(std::all_of(a.begin(), a.end(), [](uint32_t value) { return value == 0; }));
  std::fill(a.begin(), a.end(), 7u);
  std::fill(c.begin(), c.end(), 7.0);
  EXPECT_EQ(b[0], 0) << "parts do not overlap";
}

// Given many small arenas, expect them to begin all over a page, so that they do not share the few
// sets of a cache that the start of a page falls into; each aligned, zeroed and its own.
TEST(Arena, SmallOnesDoNotAllBeginAtAPage) {
  constexpr size_t kArenas = 64;
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  std::array<Arena, kArenas> arenas;
  std::set<size_t> begins;
  for (Arena& arena : arenas) {
    ASSERT_TRUE(arena.reserve(Arena::bytes_for<std::byte>(1000)).ok());
    const auto bytes = arena.take<std::byte>(1000);
    EXPECT_TRUE(
        std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == std::byte(); }));
    std::fill(bytes.begin(), bytes.end(), std::byte{7});
    const auto address = reinterpret_cast<uintptr_t>(bytes.data());
    EXPECT_EQ(address % kArenaAlignmentBytes, 0u);
    begins.insert(address % page);
    EXPECT_GE(arena.touched_bytes(), 1000u);
  }
  EXPECT_GE(begins.size(), 8u);
}

TEST(Arena, TouchedIsWhatCostsMemory) {
  Arena arena;
  EXPECT_EQ(arena.touched_bytes(), 0u);
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const size_t bytes = 10000 * page + 1;  // more than the kernel is asked about at once
  ASSERT_TRUE(arena.reserve(bytes).ok());
  EXPECT_EQ(arena.touched_bytes(), 0u);
  const auto all = arena.take<std::byte>(bytes - kArenaAlignmentBytes);
  all[9000 * page] = std::byte{1};
  EXPECT_GE(arena.touched_bytes(), page);
  EXPECT_LT(arena.touched_bytes(), bytes) << "the rest is reserved only";
  std::fill(all.begin(), all.end(), std::byte{2});
  EXPECT_GE(arena.touched_bytes(), all.size());
  EXPECT_LE(arena.touched_bytes(), bytes);
}

TEST(Arena, MoreThanReservedIsOurOwnError) {
  Arena arena;
  ASSERT_TRUE(arena.reserve(128).ok());
  EXPECT_EQ(arena.take<std::byte>(65).size(), 65u);
  EXPECT_THROW((void)arena.take<std::byte>(1), InternalError);
  EXPECT_THROW((void)arena.reserve(128), InternalError) << "once only";
}

TEST(Arena, NothingToReserveIsFine) {
  Arena arena;
  EXPECT_TRUE(arena.reserve(0).ok());
  EXPECT_EQ(arena.take<float>(0).size(), 0u);
}

TEST(Arena, TheKernelsRefusalIsALimit) {
  Arena arena;
  const Status status = arena.reserve(size_t{1} << 62);
  EXPECT_EQ(status.code(), PARALLAX_LIMIT);
  EXPECT_NE(status.message().find("address space"), std::string::npos) << status.message();
}

// Memory that other processes may be let map is used like any other; and so is a part of another's.
TEST(Arena, LiesInSealedPagesOrInAnother) {
  Arena sealed;
  ASSERT_TRUE(sealed.reserve_sealed(1 << 20).ok());
  ASSERT_NE(sealed.sealed(), nullptr);
  EXPECT_EQ(sealed.sealed()->base(), sealed.take<std::byte>(1).data());
  EXPECT_EQ(sealed.left_bytes(), (size_t{1} << 20) - kArenaAlignmentBytes);
  EXPECT_THROW((void)sealed.take<std::byte>(1 << 20), InternalError);
  Arena part, next;
  part.reserve_in(sealed, 1000);
  next.reserve_in(sealed, 1000);
  EXPECT_EQ(part.sealed(), nullptr);
  EXPECT_EQ(part.touched_bytes(), part.reserved_bytes());
  const auto floats = part.take<float>(250);
  EXPECT_EQ(floats.data() + 256, next.take<float>(1).data());
  std::fill(floats.begin(), floats.end(), 3.0f);
  EXPECT_THROW((void)part.take<std::byte>(100), InternalError);
  EXPECT_EQ(Arena().sealed(), nullptr);
}

}  // namespace
}  // namespace parallax
