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
