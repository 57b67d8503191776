// SPDX-License-Identifier: Apache-2.0
// Which memory a job knows of: what is refused by name, and what stays while it is borrowed.
#include "job/buffers.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <nlohmann/json.hpp>
#include <thread>
#include <vector>

#include "support/words.h"

namespace parallax {
namespace {

using testkit::has;

const Buffers::Borrower kNobody = [](const ByteRange&) { return Status(); };

struct Known : Buffers {
  void* take(uint64_t bytes) {
    parallax_buffer_options_t options = {};
    options.size = sizeof options;
    void* pointer = nullptr;
    const Status status = allocate(bytes, options, {binding, {}}, &pointer);
    EXPECT_TRUE(status.ok()) << status.message();
    return pointer;
  }
  nlohmann::json counts() const { return nlohmann::json::parse(json()); }

  Binding binding;
};

void expect_refused(const Status& status, parallax_status_t code, const std::string& words) {
  EXPECT_EQ(status.code(), code) << status.message();
  EXPECT_TRUE(has(status, words)) << "'" << words << "' in: " << status.message();
  EXPECT_FALSE(status.facts().field.empty()) << status.message();
}

// Given a host's other ranks, expect them to be told of a buffer before its pointer is given away,
// and of its end while its memory is still there.
TEST(Buffers, AreSharedWhileTheyAreThere) {
  Known known;
  std::vector<const void*> shared;
  known.share_with({[&](const SharedMemory& memory) {
                      EXPECT_GE(memory.fd, 0);
                      EXPECT_EQ(memory.bytes % static_cast<uint64_t>(sysconf(_SC_PAGESIZE)), 0u);
                      EXPECT_EQ(known.counts()["allocated"], shared.size());
                      shared.push_back(memory.base);
                    },
                    [&](const void* base) {
                      ASSERT_FALSE(shared.empty());
                      EXPECT_EQ(shared.back(), base);
                      EXPECT_EQ(*static_cast<const char*>(base), 5);
                      shared.pop_back();
                    }});
  auto* const first = static_cast<char*>(known.take(1));
  auto* const second = static_cast<char*>(known.take(10000));
  EXPECT_EQ(shared, (std::vector<const void*>{first, second}));
  *first = *second = 5;
  EXPECT_FALSE(known.free(second + 1, kNobody).ok());
  const auto borrowed = [](const ByteRange&) { return bad_state("a pending request"); };
  EXPECT_FALSE(known.free(second, borrowed).ok());
  EXPECT_EQ(shared.size(), 2u);
  EXPECT_TRUE(known.free(second, kNobody).ok());
  EXPECT_TRUE(known.free(first, kNobody).ok());
  EXPECT_TRUE(shared.empty());
  const auto counts = nlohmann::json::parse(
      known.json({.shared = 1, .mapped = 2, .mapped_bytes = 3, .refused = 4, .refused_us = 5}));
  EXPECT_EQ(counts["shared"], 1);
  EXPECT_EQ(counts["mapped"], 2);
  EXPECT_EQ(counts["mapped_bytes"], 3);
  EXPECT_EQ(counts["refused"], 4);
  EXPECT_EQ(counts["refused_by_others"], 5);
}

TEST(Buffers, AreFreedOnceAndByTheirBeginning) {
  Known known;
  auto* const first = static_cast<char*>(known.take(10000));
  void* const second = known.take(1);
  first[9999] = 1;
  expect_refused(known.free(first + 9999, kNobody), PARALLAX_INVALID,
                 "9999 bytes into a buffer of 10000 bytes");
  expect_refused(known.remove(first, kNobody), PARALLAX_INVALID, "buffer_free frees it");
  EXPECT_EQ(known.counts()["allocated"], 2);
  EXPECT_EQ(known.counts()["allocated_bytes"], 10001);
  EXPECT_GT(known.counts()["touched_bytes"], 0);
  EXPECT_TRUE(known.free(first, kNobody).ok());
  expect_refused(known.free(first, kNobody), PARALLAX_INVALID, "was freed");
  expect_refused(known.free(nullptr, kNobody), PARALLAX_INVALID, "no buffer");
  int other = 0;
  expect_refused(known.free(&other, kNobody), PARALLAX_INVALID, "not of buffer_alloc");
  EXPECT_TRUE(known.free(second, kNobody).ok());
  EXPECT_EQ(known.counts()["allocated_bytes"], 0);
}

TEST(Buffers, WhatIsRegisteredIsTheCallersAndKnownOnce) {
  Known known;
  std::array<char, 1000> own = {};
  char* const at = own.data();
  expect_refused(known.add(nullptr, 8), PARALLAX_INVALID, "null");
  expect_refused(known.add(at, 0), PARALLAX_INVALID, "bytes is 0");
  expect_refused(known.add(at, UINT64_MAX), PARALLAX_INVALID, "past the last address");
  EXPECT_TRUE(known.add(at + 100, 200).ok());
  expect_refused(known.add(at + 100, 200), PARALLAX_INVALID, "are registered");
  expect_refused(known.add(at + 299, 1), PARALLAX_INVALID, "are registered");
  expect_refused(known.add(at, 101), PARALLAX_INVALID, "are registered");
  expect_refused(known.add(at, 1000), PARALLAX_INVALID, "are registered");
  // What only touches it is another's.
  EXPECT_TRUE(known.add(at, 100).ok());
  EXPECT_TRUE(known.add(at + 300, 700).ok());
  EXPECT_EQ(known.counts()["registered"], 3);
  EXPECT_EQ(known.counts()["registered_bytes"], 1000);
  expect_refused(known.free(at + 100, kNobody), PARALLAX_INVALID, "buffer_unregister");
  expect_refused(known.remove(at + 101, kNobody), PARALLAX_INVALID, "1 bytes into");
  EXPECT_TRUE(known.remove(at + 100, kNobody).ok());
  expect_refused(known.remove(at + 100, kNobody), PARALLAX_INVALID, "was unregistered");
  expect_refused(known.remove(nullptr, kNobody), PARALLAX_INVALID, "nothing is registered");
  EXPECT_TRUE(known.add(at + 100, 200).ok());
}

TEST(Buffers, WhatIsNotMappedOrTheJobsIsNotRegistered) {
  Known known;
  const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  auto* const mapped = static_cast<char*>(
      mmap(nullptr, 3 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  ASSERT_NE(mapped, MAP_FAILED);
  EXPECT_TRUE(known.add(mapped + 1, 3 * page - 1).ok());
  EXPECT_TRUE(known.remove(mapped + 1, kNobody).ok());
  ASSERT_EQ(munmap(mapped + page, page), 0);
  expect_refused(known.add(mapped, 3 * page), PARALLAX_INVALID, "not mapped");
  expect_refused(known.add(mapped + page, 1), PARALLAX_INVALID, "not mapped");
  EXPECT_TRUE(known.add(mapped, page).ok());
  munmap(mapped, page);
  munmap(mapped + 2 * page, page);
  auto* const ours = static_cast<char*>(known.take(2 * page));
  expect_refused(known.add(ours + 1, 1), PARALLAX_INVALID, "of buffer_alloc");
}

TEST(Buffers, WhatALibraryDoesNotLetGoOfStays) {
  Known known;
  void* const ours = known.take(4096);
  const Buffers::Borrower refuses = [](const ByteRange&) { return io_error("NCCL keeps it"); };
  const Buffers::Borrower is_late = [](const ByteRange&) { return timed_out("NCCL has it"); };
  expect_refused(known.free(ours, refuses), PARALLAX_IO, "stay: NCCL keeps");
  expect_refused(known.free(ours, is_late), PARALLAX_TIMEOUT,
                 "stay, and may be tried again: NCCL has");
  EXPECT_EQ(known.counts()["allocated"], 1);
  EXPECT_TRUE(known.free(ours, kNobody).ok());
}

TEST(Buffers, WhatIsBorrowedStays) {
  Known known;
  auto* const ours = static_cast<char*>(known.take(4096));
  std::array<char, 64> own = {};
  ASSERT_TRUE(known.add(own.data(), own.size()).ok());
  ByteRange asked;
  const Buffers::Borrower borrower = [&asked](const ByteRange& bytes) {
    asked = bytes;
    return bad_state("a pending push of step 3");
  };
  expect_refused(known.free(ours, borrower), PARALLAX_STATE, "push of step 3 borrows");
  EXPECT_EQ(asked.first, reinterpret_cast<uintptr_t>(ours));
  EXPECT_EQ(asked.bytes, 4096u);
  ours[4095] = 1;
  expect_refused(known.remove(own.data(), borrower), PARALLAX_STATE, "push of step 3 borrows");
  EXPECT_EQ(asked.bytes, own.size());
  EXPECT_EQ(known.counts()["allocated"], 1);
  EXPECT_EQ(known.counts()["registered"], 1);
  EXPECT_TRUE(known.free(ours, kNobody).ok());
  EXPECT_TRUE(known.remove(own.data(), kNobody).ok());
}

// Given threads that allocate and free, expect what is theirs to be apart; and of those that free
// one buffer, while none allocates what could take its place, one to have freed it.
TEST(Buffers, OfSeveralThreads) {
  Known known;
  constexpr int kRounds = 50;
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&, i] {
      std::array<char, 64> own = {};
      for (int round = 0; round < kRounds; ++round) {
        auto* const mine = static_cast<char*>(known.take(4096));
        EXPECT_EQ(mine[0], 0);
        mine[0] = static_cast<char>(i + 1);
        EXPECT_TRUE(known.add(own.data(), own.size()).ok());
        EXPECT_FALSE(known.json().empty());
        EXPECT_EQ(mine[0], i + 1);
        EXPECT_TRUE(known.remove(own.data(), kNobody).ok());
        EXPECT_TRUE(known.free(mine, kNobody).ok());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  void* const shared = known.take(1);
  std::atomic<int> freed = 0;
  threads.clear();
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&] { freed += known.free(shared, kNobody).ok() ? 1 : 0; });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(freed, 1);
}

}  // namespace
}  // namespace parallax
