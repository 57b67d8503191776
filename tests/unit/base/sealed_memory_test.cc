// SPDX-License-Identifier: Apache-2.0
#include "base/sealed_memory.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <utility>

namespace parallax {
namespace {

TEST(SealedMemory, IsZeroPagesThatNeitherShrinkNorGrow) {
  SealedMemory memory;
  ASSERT_TRUE(SealedMemory::make(10'000, &memory).ok());
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  EXPECT_EQ(memory.mapped_bytes(), (10'000 + page - 1) / page * page);
  auto* const bytes = static_cast<unsigned char*>(memory.base());
  for (size_t i = 0; i < memory.mapped_bytes(); ++i) ASSERT_EQ(bytes[i], 0);
  EXPECT_NE(::ftruncate(memory.fd(), 0), 0);
  EXPECT_NE(::ftruncate(memory.fd(), static_cast<off_t>(2 * memory.mapped_bytes())), 0);
  // Who maps it sees what is written here.
  void* const again = ::mmap(nullptr, memory.mapped_bytes(), PROT_READ, MAP_SHARED, memory.fd(), 0);
  ASSERT_NE(again, MAP_FAILED);
  bytes[9'999] = 7;
  EXPECT_EQ(static_cast<unsigned char*>(again)[9'999], 7);
  ::munmap(again, memory.mapped_bytes());
}

// Given who holds the descriptor, expect it to write through it where all may, and, where the owner
// alone may, to read.
TEST(SealedMemory, IsWrittenByWhoMay) {
  constexpr int kFutureWrite = 0x10;  // F_SEAL_FUTURE_WRITE
  const UniqueFd probe(::memfd_create("probe", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  const bool can_seal = ::fcntl(probe.get(), F_ADD_SEALS, kFutureWrite) == 0;  // Linux 5.1
  for (const auto writers : {SealedMemory::Writers::kOwner, SealedMemory::Writers::kAll}) {
    const bool all = writers == SealedMemory::Writers::kAll;
    SealedMemory memory;
    ASSERT_TRUE(SealedMemory::make(1, &memory, writers).ok());
    void* const there =
        ::mmap(nullptr, memory.mapped_bytes(), PROT_READ | PROT_WRITE, MAP_SHARED, memory.fd(), 0);
    if (!all && can_seal) {
      EXPECT_EQ(there, MAP_FAILED);
    }
    if (there == MAP_FAILED) {
      EXPECT_FALSE(all);
      continue;
    }
    *static_cast<volatile char*>(there) = 'z';
    EXPECT_EQ(*static_cast<const volatile char*>(memory.base()), 'z');
    ::munmap(there, memory.mapped_bytes());
  }
}

TEST(SealedMemory, Moves) {
  SealedMemory memory;
  ASSERT_TRUE(SealedMemory::make(1, &memory).ok());
  void* const base = memory.base();
  SealedMemory moved(std::move(memory));
  EXPECT_EQ(moved.base(), base);
  SealedMemory assigned;
  ASSERT_TRUE(SealedMemory::make(1, &assigned).ok());
  assigned = std::move(moved);
  EXPECT_EQ(assigned.base(), base);
  *static_cast<char*>(base) = 1;
}

TEST(SealedMemory, MoreThanAFileMayHoldIsRefused) {
  SealedMemory memory;
  const Status status = SealedMemory::make(UINT64_MAX, &memory);
  EXPECT_EQ(status.code(), PARALLAX_LIMIT);
  EXPECT_NE(status.message().find("as one file"), std::string::npos) << status.message();
  EXPECT_EQ(memory.base(), nullptr);
}

}  // namespace
}  // namespace parallax
