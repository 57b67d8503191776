// SPDX-License-Identifier: Apache-2.0
// What the kernel says of threads and pages after binding.h has been at work.
#include "base/binding.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <array>
#include <atomic>
#include <fstream>
#include <future>
#include <set>
#include <sstream>

#include "base/arena.h"
#include "base/compute.h"

namespace parallax {
namespace {

std::set<uint32_t> allowed_here() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::set<uint32_t> pus;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return pus;
  for (uint32_t pu = 0; pu < CPU_SETSIZE; ++pu) {
    if (CPU_ISSET(pu, &set)) pus.insert(pu);
  }
  return pus;
}

// A thread that lives until told otherwise, and says where it may run.
class Idle {
 public:
  Idle() : thread_([this] { body(); }) {}
  ~Idle() {
    if (thread_.joinable()) finish();
  }
  std::thread& thread() { return thread_; }
  std::set<uint32_t> finish() {
    go_.set_value();
    thread_.join();
    return pus_;
  }
  std::string name() const { return name_; }

 private:
  void body() {
    go_.get_future().wait();
    pus_ = allowed_here();
    std::array<char, 16> name;
    if (pthread_getname_np(pthread_self(), name.data(), name.size()) == 0) name_ = name.data();
  }

  std::promise<void> go_;
  std::set<uint32_t> pus_;
  std::string name_;
  std::thread thread_;
};

// The policy of the mapping that begins at `base`: "default", "prefer:0", ...
std::string policy_at(const void* base) {
  std::ifstream maps("/proc/self/numa_maps");
  for (std::string line; std::getline(maps, line);) {
    std::istringstream words(line);
    uint64_t address = 0;
    std::string policy;
    words >> std::hex >> address >> policy;
    if (address == reinterpret_cast<uint64_t>(base)) return policy;
  }
  return "";
}

TEST(Binding, AThreadGoesWhereItIsSent) {
  const std::set<uint32_t> before = allowed_here();
  const uint32_t last = *before.rbegin();
  Binding binding({last}, {});
  Idle idle;
  binding.adopt(idle.thread(), "test-bound");
  EXPECT_EQ(idle.finish(), std::set<uint32_t>{last});
  EXPECT_EQ(idle.name(), "test-bound");
  EXPECT_EQ(allowed_here(), before) << "the caller's thread is left alone";
  const std::vector<Binding::Thread> threads = binding.threads();
  ASSERT_EQ(threads.size(), 1u);
  EXPECT_EQ(threads[0].name, "test-bound");
  EXPECT_EQ(threads[0].pus, std::vector<uint32_t>{last});
  EXPECT_EQ(threads[0].error, "");
}

TEST(Binding, WithoutPusAThreadOnlyGetsItsName) {
  Binding binding;
  Idle idle;
  binding.adopt(idle.thread(), "test-free");
  EXPECT_EQ(idle.finish(), allowed_here());
  EXPECT_EQ(idle.name(), "test-free");
  ASSERT_EQ(binding.threads().size(), 1u);
  EXPECT_TRUE(binding.threads()[0].pus.empty());
}

TEST(Binding, ARefusalIsKeptNotFatal) {
  const std::set<uint32_t> before = allowed_here();
  Binding binding({60000}, {});
  Idle idle;
  binding.adopt(idle.thread(), "test-refused");
  EXPECT_EQ(idle.finish(), before);
  const Binding::Thread thread = binding.threads().at(0);
  EXPECT_EQ(thread.error, "pthread_setaffinity_np: Invalid argument");
  EXPECT_EQ(std::set<uint32_t>(thread.pus.begin(), thread.pus.end()), before);
}

TEST(Binding, ThreadsAreListedByName) {
  Binding binding;
  Idle first, second;
  binding.adopt(first.thread(), "b");
  binding.adopt(second.thread(), "a");
  ASSERT_EQ(binding.threads().size(), 2u);
  EXPECT_EQ(binding.threads()[0].name, "a");
}

constexpr size_t kBytes = 1 << 20;

// Reports are asked for while threads start and arenas grow; the pool hands its threads over.
TEST(Binding, AnyThreadMayAskAtAnyTime) {
  constexpr uint32_t kThreads = 4, kArenas = 20;
  const uint32_t pu = *allowed_here().begin();
  Binding binding({pu}, {0});
  std::atomic<bool> stop{false};
  std::thread reader([&] {
    size_t seen = 0;
    while (!stop) {
      const size_t now = binding.threads().size();
      EXPECT_GE(now, seen);
      seen = now;
      EXPECT_LE(binding.memory().areas, kThreads * kArenas);
    }
  });
  {
    ThreadCompute pool([] {}, [&](std::thread& thread) { binding.adopt(thread, "test-pool"); });
    EXPECT_TRUE(pool.start(kThreads).ok());
    EXPECT_EQ(binding.threads().size(), kThreads) << "known as soon as they are started";
    std::vector<std::thread> owners;
    for (uint32_t i = 0; i < kThreads; ++i) {
      owners.emplace_back([&] {
        const Binding::Scope scope(binding);
        for (uint32_t k = 0; k < kArenas; ++k) EXPECT_TRUE(Arena().reserve(kBytes).ok());
      });
    }
    for (std::thread& owner : owners) owner.join();
  }
  stop = true;
  reader.join();
  for (const Binding::Thread& thread : binding.threads()) {
    EXPECT_EQ(thread.name, "test-pool");
    EXPECT_EQ(thread.pus, std::vector<uint32_t>{pu});
  }
  EXPECT_EQ(binding.memory().areas + binding.memory().refused, kThreads * kArenas);
}

// Node 0 is everywhere. Where a container forbids mbind, that is what must be told.
TEST(Binding, ArenasOfItsScopePreferItsNodes) {
  Binding binding({}, {0});
  Arena before, within, after;
  ASSERT_TRUE(before.reserve(kBytes).ok());
  {
    const Binding::Scope scope(binding);
    ASSERT_TRUE(within.reserve(kBytes).ok());
  }
  ASSERT_TRUE(after.reserve(kBytes).ok());
  const std::byte* base = within.take<std::byte>(kBytes).data();
  const Binding::Memory memory = binding.memory();
  if (memory.refused > 0) {
    EXPECT_EQ(memory.refused, 1u);
    EXPECT_EQ(memory.error.find("mbind: "), 0u) << memory.error;
    return;
  }
  EXPECT_EQ(memory.areas, 1u);
  EXPECT_EQ(memory.bytes, kBytes);
  EXPECT_EQ(memory.error, "");
  EXPECT_EQ(policy_at(base), "prefer:0");
  EXPECT_NE(policy_at(before.take<std::byte>(1).data()), "prefer:0");
  EXPECT_NE(policy_at(after.take<std::byte>(1).data()), "prefer:0");
}

TEST(Binding, ScopesNestAndBelongToTheirThread) {
  Binding outer({}, {0}), inner;
  const Binding::Scope first(outer);
  {
    const Binding::Scope second(inner);
    Arena arena;
    ASSERT_TRUE(arena.reserve(kBytes).ok());
  }
  EXPECT_EQ(outer.memory().areas + outer.memory().refused, 0u) << "the inner one rules";
  std::thread([] {
    Arena arena;
    EXPECT_TRUE(arena.reserve(kBytes).ok());
  }).join();
  EXPECT_EQ(outer.memory().areas + outer.memory().refused, 0u) << "another thread's business";
  Arena arena;
  ASSERT_TRUE(arena.reserve(kBytes).ok());
  EXPECT_EQ(outer.memory().areas + outer.memory().refused, 1u);
}

TEST(Binding, MemoryOnANodeThatIsNotThereIsMemoryAllTheSame) {
  Binding binding({}, {1000});
  const Binding::Scope scope(binding);
  for (uint64_t refused = 1; refused <= 2; ++refused) {
    Arena arena;
    ASSERT_TRUE(arena.reserve(kBytes).ok());
    arena.take<int>(1)[0] = 1;
    EXPECT_EQ(binding.memory().refused, refused);
  }
  EXPECT_EQ(binding.memory().areas, 0u);
  EXPECT_EQ(binding.memory().error.find("mbind: "), 0u) << binding.memory().error;
}

}  // namespace
}  // namespace parallax
