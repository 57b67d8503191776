// SPDX-License-Identifier: Apache-2.0
// Mapping what another rank hands over: its bytes are read, and nothing is believed.
#include "transport/shm/peer_buffers.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/memfd.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <string>

namespace parallax {
namespace {

uint64_t page() { return static_cast<uint64_t>(::sysconf(_SC_PAGESIZE)); }

UniqueFd make_memory(uint64_t bytes, int seals = F_SEAL_SHRINK | F_SEAL_GROW, unsigned flags = 0) {
  UniqueFd fd(::memfd_create("parallax-buffer", MFD_CLOEXEC | MFD_ALLOW_SEALING | flags));
  EXPECT_TRUE(fd.valid());
  EXPECT_EQ(::ftruncate(fd.get(), static_cast<off_t>(bytes)), 0);
  EXPECT_EQ(::fcntl(fd.get(), F_ADD_SEALS, seals), 0);
  return fd;
}

void write_at(const UniqueFd& fd, uint64_t at, char what) {
  EXPECT_EQ(::pwrite(fd.get(), &what, 1, static_cast<off_t>(at)), 1);
}

// How many mappings of the name this process has.
size_t mappings_of(const std::string& name) {
  std::ifstream maps("/proc/self/maps");
  size_t count = 0;
  for (std::string line; std::getline(maps, line);) count += line.find(name) != std::string::npos;
  return count;
}

TEST(PeerBuffers, SeeWhatIsWrittenBeforeAndAfter) {
  const UniqueFd memory = make_memory(2 * page());
  write_at(memory, page(), 'a');
  PeerBuffers buffers;
  ASSERT_TRUE(buffers.map(7, memory, 2 * page()).ok());
  const std::byte* const seen = buffers.find({7, page()}, 1);
  ASSERT_NE(seen, nullptr);
  EXPECT_EQ(*seen, std::byte{'a'});
  write_at(memory, page(), 'b');
  EXPECT_EQ(std::byte(*static_cast<const volatile std::byte*>(seen)), std::byte{'b'});
  EXPECT_EQ(buffers.count(), 1u);
  EXPECT_EQ(buffers.bytes(), 2 * page());
  EXPECT_EQ(buffers.map(7, memory, 2 * page()).code(), PARALLAX_INVALID);
}

// Given memory with and without a seal that its owner alone writes, expect it to be written only
// without; and to be read either way.
TEST(PeerBuffers, AreWrittenOnlyWhereNoSealForbidsIt) {
  constexpr int kFutureWrite = 0x10;  // F_SEAL_FUTURE_WRITE
  const UniqueFd open = make_memory(page());
  const UniqueFd sealed = make_memory(page());
  PeerBuffers buffers;
  ASSERT_TRUE(buffers.map(1, open, page()).ok());
  std::byte* const there = buffers.find_writable({1, 8}, 8);
  ASSERT_NE(there, nullptr);
  EXPECT_EQ(there, buffers.find({1, 8}, 8));
  *there = std::byte{'w'};
  char seen = 0;
  EXPECT_EQ(::pread(open.get(), &seen, 1, 8), 1);
  EXPECT_EQ(seen, 'w');
  EXPECT_EQ(buffers.find_writable({1, 8}, page()), nullptr);
  const UniqueFd frozen = make_memory(page(), F_SEAL_SHRINK | F_SEAL_WRITE);
  ASSERT_TRUE(buffers.map(2, frozen, page()).ok());
  EXPECT_NE(buffers.find({2, 0}, page()), nullptr);
  EXPECT_EQ(buffers.find_writable({2, 0}, page()), nullptr);
  if (::fcntl(sealed.get(), F_ADD_SEALS, kFutureWrite) != 0) {
    GTEST_SKIP() << "this kernel cannot seal that (Linux 5.1 can)";
  }
  ASSERT_TRUE(buffers.map(3, sealed, page()).ok());
  EXPECT_NE(buffers.find({3, 0}, page()), nullptr);
  EXPECT_EQ(buffers.find_writable({3, 0}, page()), nullptr);
}

TEST(PeerBuffers, GiveNothingBeyondTheirEnds) {
  const UniqueFd memory = make_memory(page());
  PeerBuffers buffers;
  ASSERT_TRUE(buffers.map(7, memory, page()).ok());
  EXPECT_NE(buffers.find({7, 0}, page()), nullptr);
  EXPECT_NE(buffers.find({7, page()}, 0), nullptr);
  EXPECT_EQ(buffers.find({7, 0}, page() + 1), nullptr);
  EXPECT_EQ(buffers.find({7, page() - 1}, 2), nullptr);
  EXPECT_EQ(buffers.find({7, UINT64_MAX}, 2), nullptr);
  EXPECT_EQ(buffers.find({7, 2}, UINT64_MAX), nullptr);
  EXPECT_EQ(buffers.find({8, 0}, 1), nullptr);
}

TEST(PeerBuffers, UnmapWhatIsFreed) {
  const std::string name = "parallax-buffer";
  const size_t before = mappings_of(name);
  PeerBuffers buffers;
  for (uint64_t number = 1; number <= 3; ++number) {
    ASSERT_TRUE(buffers.map(number, make_memory(number * page()), number * page()).ok());
  }
  EXPECT_EQ(mappings_of(name), before + 3);
  EXPECT_TRUE(buffers.unmap(2));
  EXPECT_FALSE(buffers.unmap(2));
  EXPECT_EQ(buffers.find({2, 0}, 1), nullptr);
  EXPECT_EQ(buffers.bytes(), 4 * page());
  EXPECT_EQ(mappings_of(name), before + 2);
  buffers.clear();
  EXPECT_EQ(buffers.bytes(), 0u);
  EXPECT_EQ(mappings_of(name), before);
}

// Given memory that could end a reader by SIGBUS, or that is not memory at all, expect no mapping.
TEST(PeerBuffers, RefuseWhatIsNotAsSaid) {
  PeerBuffers buffers;
  const UniqueFd memory = make_memory(page());
  for (const uint64_t lie :
       {uint64_t{0}, uint64_t{1}, page() - 1, 2 * page(), UINT64_MAX, UINT64_MAX - page() + 1}) {
    EXPECT_FALSE(buffers.map(1, memory, lie).ok()) << lie;
  }
  EXPECT_EQ(buffers.map(1, make_memory(page(), 0), page()).code(), PARALLAX_IO) << "unsealed";
  EXPECT_EQ(buffers.map(1, make_memory(page(), F_SEAL_GROW), page()).code(), PARALLAX_IO);
  EXPECT_EQ(buffers.map(1, UniqueFd(), page()).code(), PARALLAX_IO);
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const UniqueFd in(ends[0]), out(ends[1]);
  EXPECT_EQ(buffers.map(1, in, page()).code(), PARALLAX_IO);
  UniqueFd file(::open("/proc/self/exe", O_RDONLY | O_CLOEXEC));
  EXPECT_EQ(buffers.map(1, file, page()).code(), PARALLAX_IO);
  EXPECT_EQ(buffers.count(), 0u);
}

// Sealed as it should be, and yet a page of it is none once no huge page is left.
TEST(PeerBuffers, RefuseHugePagesThatCanRunOut) {
  constexpr uint64_t kHugeBytes = 2 << 20;
  UniqueFd fd(::memfd_create("parallax-huge",
                             MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_HUGETLB | MFD_HUGE_2MB));
  if (!fd.valid() || ::ftruncate(fd.get(), kHugeBytes) != 0 ||
      ::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK) != 0) {
    GTEST_SKIP() << "no huge pages of 2 MiB here";
  }
  PeerBuffers buffers;
  EXPECT_EQ(buffers.map(1, fd, kHugeBytes).code(), PARALLAX_IO);
}

TEST(PeerBuffers, AreBounded) {
  PeerBuffers few({.buffers = 2, .bytes = 4 * page()});
  ASSERT_TRUE(few.map(1, make_memory(page()), page()).ok());
  EXPECT_EQ(few.map(2, make_memory(4 * page()), 4 * page()).code(), PARALLAX_LIMIT) << "bytes";
  ASSERT_TRUE(few.map(3, make_memory(3 * page()), 3 * page()).ok());
  EXPECT_TRUE(few.unmap(3));
  ASSERT_TRUE(few.map(4, make_memory(page()), page()).ok());
  EXPECT_EQ(few.map(5, make_memory(page()), page()).code(), PARALLAX_LIMIT) << "buffers";
}

// Given a child forked meanwhile, expect it to hold nothing of another rank's memory.
TEST(PeerBuffers, DoNotPassToAForkedChild) {
  PeerBuffers buffers;
  ASSERT_TRUE(buffers.map(1, make_memory(page()), page()).ok());
  const std::byte* const seen = buffers.find({1, 0}, 1);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    unsigned char there = 0;
    void* const base = const_cast<std::byte*>(seen);
    ::_exit(::mincore(base, page(), &there) != 0 && errno == ENOMEM ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace parallax
