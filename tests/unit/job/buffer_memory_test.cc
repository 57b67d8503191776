// SPDX-License-Identifier: Apache-2.0
// The pages of a buffer: zero, whole, cheap until touched, and what is refused by name.
#include "job/buffer_memory.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <utility>

#include "support/words.h"
#include "topology/topology.h"

namespace parallax {
namespace {

using testkit::has;

constexpr uint64_t kMiB = 1 << 20;

parallax_buffer_options_t plain() {
  parallax_buffer_options_t options = {};
  options.size = sizeof options;
  return options;
}

Status make(uint64_t bytes, const parallax_buffer_options_t& options, BufferMemory* memory) {
  Binding none;
  return BufferMemory::make(bytes, options, none, memory);
}

// Given any size, expect zeroed memory at a page's beginning, the last byte of it usable.
TEST(BufferMemory, IsZeroAndWhole) {
  for (const uint64_t bytes : {uint64_t{1}, uint64_t{4096}, kMiB + 17}) {
    BufferMemory memory;
    const Status made = make(bytes, plain(), &memory);
    ASSERT_TRUE(made.ok()) << made.message();
    EXPECT_EQ(memory.range().first % static_cast<uintptr_t>(sysconf(_SC_PAGESIZE)), 0u);
    EXPECT_EQ(memory.range().bytes, bytes);
    auto* const all = static_cast<unsigned char*>(memory.base());
    EXPECT_EQ(all[0] + all[bytes - 1], 0);
    std::memset(all, 7, bytes);
    const BufferMemory moved = std::move(memory);
    EXPECT_EQ(memory.base(), nullptr);
    EXPECT_EQ(static_cast<unsigned char*>(moved.base())[bytes - 1], 7);
  }
}

// Given who holds the descriptor of a buffer, expect that it can be read and written through it,
// and not cut or made longer.
TEST(BufferMemory, IsSharedWithWhoHasItsDescriptor) {
  BufferMemory memory;
  ASSERT_TRUE(make(1, plain(), &memory).ok());
  const SharedMemory shared = memory.shared();
  EXPECT_EQ(shared.base, memory.base());
  EXPECT_EQ(shared.bytes, static_cast<uint64_t>(sysconf(_SC_PAGESIZE)));
  EXPECT_EQ(shared.used_bytes, 1u);
  void* const seen =
      ::mmap(nullptr, shared.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, shared.fd, 0);
  ASSERT_NE(seen, MAP_FAILED);
  *static_cast<char*>(memory.base()) = 'y';
  EXPECT_EQ(*static_cast<const volatile char*>(seen), 'y');
  *static_cast<char*>(seen) = 'z';
  EXPECT_EQ(*static_cast<const volatile char*>(memory.base()), 'z');
  EXPECT_NE(::ftruncate(shared.fd, 0), 0);
  EXPECT_NE(::ftruncate(shared.fd, static_cast<off_t>(2 * shared.bytes)), 0);
  ::munmap(seen, shared.bytes);
}

// Given more than the machine has, expect that only what is touched costs memory.
TEST(BufferMemory, CostsWhatIsTouched) {
  BufferMemory memory;
  const Status made = make(uint64_t{1} << 40, plain(), &memory);
  ASSERT_TRUE(made.ok()) << made.message();
  EXPECT_EQ(memory.touched_bytes(), 0u);
  static_cast<char*>(memory.base())[kMiB] = 1;
  EXPECT_GT(memory.touched_bytes(), 0u);
  EXPECT_LE(memory.touched_bytes(), 4 * kMiB) << "one page, be it a huge one";
}

// Given each option, expect it taken where the machine can, and refused by name where it cannot.
TEST(BufferMemory, OptionsAreTakenOrNamed) {
  BufferMemory memory;
  parallax_buffer_options_t options = plain();
  options.huge_pages = 1;
  ASSERT_TRUE(make(4 * kMiB, options, &memory).ok());
  static_cast<char*>(memory.base())[4 * kMiB - 1] = 1;

  const std::vector<uint32_t> nodes = online_numa_nodes();
  options = plain();
  options.numa_node = PARALLAX_NUMA_NODE(nodes.empty() ? 0 : nodes.back());
  EXPECT_TRUE(make(kMiB, options, &memory).ok());
  static_cast<char*>(memory.base())[0] = 1;
  for (const uint32_t beyond : {1024u, UINT32_MAX - 1}) {
    options.numa_node = PARALLAX_NUMA_NODE(beyond);
    const Status refused = make(kMiB, options, &memory);
    EXPECT_EQ(refused.code(), PARALLAX_INVALID);
    EXPECT_TRUE(has(refused, "numa_node is PARALLAX_NUMA_NODE(" + std::to_string(beyond) + ")"))
        << refused.message();
    EXPECT_EQ(refused.facts().field, "numa_node");
  }
  options = plain();
  options.huge_pages = 2;
  EXPECT_TRUE(has(make(kMiB, options, &memory), "huge_pages is 2"));
  options = plain();
  options.device = 1;
  EXPECT_TRUE(has(make(kMiB, options, &memory), "device is given"));
  EXPECT_EQ(make(0, plain(), &memory).code(), PARALLAX_INVALID);
  EXPECT_EQ(static_cast<char*>(memory.base())[0], 1) << "a refusal changes nothing";
}

// Given the job's own nodes, expect the placing to go by them and to be counted.
TEST(BufferMemory, IsPlacedByTheBinding) {
  const std::vector<uint32_t> nodes = online_numa_nodes();
  Binding binding({}, {nodes.empty() ? 0 : nodes.front()});
  BufferMemory memory;
  ASSERT_TRUE(BufferMemory::make(kMiB, plain(), binding, &memory).ok());
  EXPECT_EQ(binding.memory().areas + binding.memory().refused, 1u);
  static_cast<char*>(memory.base())[0] = 1;
}

void expect_limit(uint64_t bytes) {
  BufferMemory memory;
  const Status refused = make(bytes, plain(), &memory);
  EXPECT_EQ(refused.code(), PARALLAX_LIMIT) << refused.message();
  EXPECT_TRUE(has(refused, std::to_string(bytes) + " bytes")) << refused.message();
  EXPECT_EQ(memory.base(), nullptr);
}

// Given more than can be addressed, no descriptor, or a limit on files, expect LIMIT with the
// number of bytes, and the process to live.
TEST(BufferMemory, WhatThereIsNoRoomForIsALimit) {
  expect_limit(UINT64_MAX);
  expect_limit(INT64_MAX);
  expect_limit(uint64_t{1} << 62);

  rlimit files = {};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &files), 0);
  rlimit none = files;
  none.rlim_cur = 0;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  expect_limit(4096);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &files), 0);

  rlimit sizes = {};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &sizes), 0);
  rlimit small = sizes;
  small.rlim_cur = kMiB;
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  expect_limit(2 * kMiB);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &sizes), 0);
}

}  // namespace
}  // namespace parallax
