// SPDX-License-Identifier: Apache-2.0
// Boards of other ranks: what is not memory as they have it is refused.
#include "transport/shm/board_mapping.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <utility>

#include "base/sealed_memory.h"

namespace parallax {
namespace {

UniqueFd memory_of(size_t bytes, int seals) {
  UniqueFd fd(::memfd_create("board", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  EXPECT_EQ(::ftruncate(fd.get(), static_cast<off_t>(bytes)), 0);
  EXPECT_EQ(::fcntl(fd.get(), F_ADD_SEALS, seals), 0);
  return fd;
}

TEST(BoardMapping, ShowsWhatItsOwnerWrites) {
  SealedMemory board;
  ASSERT_TRUE(SealedMemory::make(kBoardBytes, &board).ok());
  const UniqueFd fd(::dup(board.fd()));
  BoardMapping first;
  ASSERT_TRUE(BoardMapping::attach(fd, &first).ok());
  BoardMapping mapping(std::move(first));
  auto* const base = static_cast<std::byte*>(board.base());
  reinterpret_cast<BoardHead*>(base)->posts = 7;
  std::memcpy(base + kBoardHeadBytes, "said", 4);
  EXPECT_EQ(mapping.head()->posts, 7u);
  EXPECT_EQ(std::memcmp(mapping.bytes(), "said", 4), 0);
}

TEST(BoardMapping, RefusesWhatIsNotAsSaid) {
  BoardMapping mapping;
  EXPECT_EQ(BoardMapping::attach(memory_of(kBoardBytes - 4096, F_SEAL_SHRINK), &mapping).code(),
            PARALLAX_IO);
  EXPECT_EQ(BoardMapping::attach(memory_of(kBoardBytes + 4096, F_SEAL_SHRINK), &mapping).code(),
            PARALLAX_IO);
  EXPECT_EQ(BoardMapping::attach(memory_of(kBoardBytes, F_SEAL_GROW), &mapping).code(),
            PARALLAX_IO);
  EXPECT_EQ(BoardMapping::attach(UniqueFd(), &mapping).code(), PARALLAX_IO);
  EXPECT_TRUE(BoardMapping::attach(memory_of(kBoardBytes, F_SEAL_SHRINK), &mapping).ok());
}

}  // namespace
}  // namespace parallax
