// SPDX-License-Identifier: Apache-2.0
// Numbers by which the ranks of one host tell each other how far they are, in memory that all have
// mapped: what waits looks for a while, yields where there are more ranks than processors, and then
// sleeps.
#ifndef PARALLAX_BENCH_PEERS_FLAGS_H_
#define PARALLAX_BENCH_PEERS_FLAGS_H_

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>

#include "contender.h"

namespace parallax::peers {

inline constexpr int64_t kSpinNs = 20'000;

struct alignas(64) Flag {
  std::atomic<uint32_t> value;
  std::atomic<uint32_t> sleeps;
};

inline void post(Flag& flag, uint32_t value) {
  flag.value.store(value);
  if (flag.sleeps.exchange(0) != 0) {
    syscall(SYS_futex, &flag.value, FUTEX_WAKE, INT32_MAX, nullptr, nullptr, 0);
  }
}

inline void await(Flag& flag, uint32_t value, bool crowded) {
  const auto there = [&] {
    return static_cast<int32_t>(flag.value.load(std::memory_order_acquire) - value) >= 0;
  };
  if (there()) return;
  const int64_t start_ns = now_ns();
  while (true) {
    for (int i = 0; i < 64; ++i) {
      if (there()) return;
      __asm__ __volatile__("" ::: "memory");
    }
    if (crowded) sched_yield();
    if (now_ns() - start_ns < kSpinNs) continue;
    flag.sleeps.store(1);
    const uint32_t seen = flag.value.load();
    if (there()) return;
    syscall(SYS_futex, &flag.value, FUTEX_WAIT, seen, nullptr, nullptr, 0);
  }
}

}  // namespace parallax::peers

#endif  // PARALLAX_BENCH_PEERS_FLAGS_H_
