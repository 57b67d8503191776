// SPDX-License-Identifier: Apache-2.0
// Sizes that no 32-bit number holds.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstdint>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "parallax/parallax.hpp"

namespace {

using parallax::Job;
using parallax::sized;

#ifdef __SANITIZE_THREAD__
constexpr uint64_t kMemoryFactor = 15;  // its shadow
#else
constexpr uint64_t kMemoryFactor = 3;
#endif

uint64_t memory_available_bytes() {
  std::ifstream file("/proc/meminfo");
  std::string word;
  uint64_t kibibytes = 0;
  while (file >> word) {
    if (word == "MemAvailable:") file >> kibibytes;
  }
  return kibibytes << 10;
}

// Given a buffer that ends past 2^32 bytes, expect all of it on the other rank.
TEST(Sizes, ABroadcastPastTwoToTheThirtyTwo) {
  constexpr size_t kBytes = (size_t{1} << 32) + 13;
  constexpr size_t kApart = 65521;  // a prime: marks at any place of a message
  if (memory_available_bytes() < kMemoryFactor * kBytes) {
    GTEST_SKIP() << "needs " << kMemoryFactor * 4 << " GiB of memory, and "
                 << (memory_available_bytes() >> 30) << " GiB are available";
  }
  const auto mark = [](size_t at) { return static_cast<uint8_t>(at % 251 + 1); };
  std::vector<std::thread> ranks;
  for (uint32_t rank = 0; rank < 2; ++rank) {
    ranks.emplace_back([&, rank] {
      void* const mapped = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      ASSERT_NE(mapped, MAP_FAILED);
      auto* const bytes = static_cast<uint8_t*>(mapped);
      for (size_t at = 0; rank == 0 && at < kBytes; at += kApart) bytes[at] = mark(at);
      if (rank == 0) bytes[kBytes - 1] = 77;
      auto options = sized<parallax_options_t>();
      options.rank = rank;
      options.world = 2;
      options.rendezvous = "inproc:sizes";
      try {
        Job job(options);
        job.commit();
        job.broadcast(bytes, kBytes, 0).wait();
      } catch (const parallax::Error& error) {
        ADD_FAILURE() << "rank " << rank << ": " << error.what();
      }
      size_t wrong = 0;
      for (size_t at = 0; at < kBytes; at += kApart) wrong += bytes[at] != mark(at) ? 1 : 0;
      EXPECT_EQ(wrong, 0u) << "rank " << rank;
      EXPECT_EQ(bytes[kBytes - 1], 77);
      EXPECT_EQ(bytes[1], 0) << "what lies between";
      munmap(mapped, kBytes);
    });
  }
  for (std::thread& rank : ranks) rank.join();
}

}  // namespace
