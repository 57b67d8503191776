// SPDX-License-Identifier: Apache-2.0
// Where memory for huge pages is mapped, and what stays as it is while they are had.
#include "base/huge_pages.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "base/arena.h"
#include "base/sealed_memory.h"

namespace parallax {
namespace {

constexpr int kAccess = PROT_READ | PROT_WRITE;
constexpr int kPrivate = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;

class HugePages : public testing::Test {
 protected:
  void SetUp() override {
    if (page_ == 0) GTEST_SKIP() << "this machine has no huge pages that are of use";
  }
  // Some bytes more than two huge pages, zero.
  struct Mapping {
    explicit Mapping(int flags = kPrivate, int fd = -1)
        : base(static_cast<unsigned char*>(map_for_huge_pages(kBytes, kAccess, flags, fd))) {}
    ~Mapping() { ::munmap(base, kBytes); }
    Mapping(Mapping&&) = delete;
    ByteRange all() const { return ByteRange::at(base, kBytes); }
    ByteRange part(uint64_t first, uint64_t bytes) const {
      return ByteRange::at(base + first, bytes);
    }
    unsigned char* const base;
  };
  static constexpr size_t kBytes = 2 * kHugePageBytesMax + 5000;
  const uint64_t page_ = bytes_of_huge_page();
};

TEST_F(HugePages, MemoryBeginsWhereOneCan) {
  for (const size_t bytes : {page_, page_ + 1, 3 * page_ - 1, 3 * page_}) {
    void* const base = map_for_huge_pages(bytes, kAccess, kPrivate, -1);
    ASSERT_NE(base, MAP_FAILED);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(base) % page_, 0u) << bytes;
    std::memset(base, 1, bytes);
    ::munmap(base, bytes);
  }
  void* const small = map_for_huge_pages(page_ - 1, kAccess, kPrivate, -1);
  ASSERT_NE(small, MAP_FAILED) << "is mapped as ever";
  std::memset(small, 1, page_ - 1);
  ::munmap(small, page_ - 1);
}

// Addresses behind it, and before, are not kept.
TEST_F(HugePages, NoAddressesAreLost) {
  const auto lines = [] {
    std::vector<char> text(1 << 20);
    FILE* const maps = std::fopen("/proc/self/maps", "re");
    const size_t count = std::fread(text.data(), 1, text.size(), maps);
    std::fclose(maps);
    return std::count(text.begin(), text.begin() + static_cast<ptrdiff_t>(count), '\n');
  };
  const auto before = lines();
  constexpr int kTimes = 50;
  for (int i = 0; i < kTimes; ++i) {
    ::munmap(map_for_huge_pages(kBytes + i * 4096, kAccess, kPrivate, -1), kBytes + i * 4096);
  }
  EXPECT_LT(lines(), before + kTimes / 2);
}

TEST_F(HugePages, WhatIsNotMappedIsRefused) {
  EXPECT_EQ(map_for_huge_pages(kBytes, kAccess, MAP_SHARED, -1), MAP_FAILED);
  EXPECT_EQ(errno, EBADF);
  EXPECT_EQ(map_for_huge_pages(SIZE_MAX - 5, kAccess, kPrivate, -1), MAP_FAILED);
}

// Given a part that is about to be written, in memory of the process or shared: expect all other
// bytes, also of the same huge pages and behind the last, to stay as they are; and all of it to be
// written and read as ever, by whoever maps it.
TEST_F(HugePages, OtherBytesStay) {
  for (const bool shared : {false, true}) {
    SealedMemory sealed;
    ASSERT_TRUE(SealedMemory::make(kBytes, &sealed, SealedMemory::Writers::kAll).ok());
    const Mapping memory(shared ? MAP_SHARED : kPrivate, shared ? sealed.fd() : -1);
    ASSERT_NE(memory.base, MAP_FAILED);
    std::memset(memory.base, 5, kBytes);
    const ByteRange part = memory.part(page_ / 2 + 3, page_);
    ByteRange had;
    (void)have_huge_pages(part, memory.all(), &had);  // a kernel without stays right
    for (size_t i = 0; i < kBytes; ++i) {
      const uintptr_t at = reinterpret_cast<uintptr_t>(memory.base + i);
      if (at >= part.first && at < part.first + part.bytes) continue;
      ASSERT_EQ(memory.base[i], 5) << i;
    }
    std::memset(memory.base, 9, kBytes);
    EXPECT_EQ(std::count(memory.base, memory.base + kBytes, 9), static_cast<ptrdiff_t>(kBytes));
    if (!shared) continue;
    const auto* const there = static_cast<const unsigned char*>(sealed.base());
    EXPECT_EQ(std::count(there, there + kBytes, 9), static_cast<ptrdiff_t>(kBytes));
  }
}

TEST_F(HugePages, NothingToHaveIsNoRefusal) {
  const Mapping memory;
  ByteRange had;
  EXPECT_TRUE(have_huge_pages(memory.part(0, 0), memory.all(), &had));
  EXPECT_TRUE(have_huge_pages(memory.part(2 * kHugePageBytesMax, 5000), memory.all(), &had))
      << "the last one does not lie in what is mapped";
  EXPECT_EQ(had.bytes, 0u) << "nothing was asked for";
}

// Given parts of the same huge page, one after the other: expect it to be asked for once.
TEST_F(HugePages, AreAskedForOnce) {
  const Mapping memory;
  ByteRange had;
  (void)have_huge_pages(memory.part(0, 100), memory.all(), &had);
  EXPECT_EQ(had.first, memory.all().first);
  EXPECT_EQ(had.bytes, page_);
  memory.base[100] = 7;
  (void)have_huge_pages(memory.part(100, 100), memory.all(), &had);
  EXPECT_EQ(memory.base[100], 7) << "nothing is written where nothing is asked for";
  (void)have_huge_pages(memory.part(200, page_), memory.all(), &had);
  EXPECT_EQ(had.first, memory.all().first + page_) << "the one behind alone";
  EXPECT_EQ(had.bytes, page_);
  // In front of those that were had last, too.
  ByteRange behind = {memory.all().first + page_, page_};
  (void)have_huge_pages(memory.part(page_ - 5, 10), memory.all(), &behind);
  EXPECT_EQ(behind.first, memory.all().first);
  EXPECT_EQ(behind.bytes, page_);
}

// Given fresh memory of which a huge page and a bit are about to be written, on a kernel that has
// them (Linux 6.1): expect two to be there at once. It may have none at a moment.
TEST_F(HugePages, AreThereAtOnce) {
  const Mapping probe;
  ByteRange had;
  if (!have_huge_pages(probe.all(), probe.all(), &had)) GTEST_SKIP() << "the kernel gives none";
  constexpr int kTries = 20;
  for (const bool shared : {false, true}) {
    size_t touched = 0;
    for (int i = 0; i < kTries && touched < 2 * page_; ++i) {
      Arena arena;
      ASSERT_TRUE((shared ? arena.reserve_sealed(kBytes) : arena.reserve(kBytes, true)).ok());
      const auto bytes = arena.take<std::byte>(page_ + 1);
      EXPECT_LT(arena.touched_bytes(), page_);
      arena.will_be_written(bytes);
      touched = arena.touched_bytes();
      EXPECT_TRUE(std::all_of(bytes.begin(), bytes.end(),
                              [](std::byte each) { return each == std::byte{0}; }));
    }
    EXPECT_GE(touched, 2 * page_) << (shared ? "shared" : "of the process");
  }
}

}  // namespace
}  // namespace parallax
