// SPDX-License-Identifier: Apache-2.0
// The system calls behind binding.h: affinity, and mbind, which the C library does not wrap.
#include "base/binding.h"

#include <linux/mempolicy.h>
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <memory>

namespace parallax {

namespace {

constexpr int kModePreferredMany = 5;  // MPOL_PREFERRED_MANY, which headers before Linux 5.15 lack
constexpr uint32_t kPusMax =
    1 << 16;  // room for the kernel's answer; CONFIG_NR_CPUS is at most 8192

struct FreeCpuSet {
  void operator()(cpu_set_t* set) const { CPU_FREE(set); }
};
using CpuSet = std::unique_ptr<cpu_set_t, FreeCpuSet>;

std::string refused(const char* call, int error) {
  return std::string(call) + ": " + std::strerror(error);
}

// "" or the refusal.
std::string send_to(pthread_t thread, const std::vector<uint32_t>& pus) {
  const uint32_t bits = pus.back() + 1;
  const size_t bytes = CPU_ALLOC_SIZE(bits);
  const CpuSet set(CPU_ALLOC(bits));
  if (set == nullptr) return refused("pthread_setaffinity_np", ENOMEM);
  CPU_ZERO_S(bytes, set.get());
  for (const uint32_t pu : pus) CPU_SET_S(pu, bytes, set.get());
  const int error = pthread_setaffinity_np(thread, bytes, set.get());
  return error == 0 ? "" : refused("pthread_setaffinity_np", error);
}

std::vector<uint32_t> allowed_to(pthread_t thread) {
  std::vector<uint32_t> pus;
  const size_t bytes = CPU_ALLOC_SIZE(kPusMax);
  const CpuSet set(CPU_ALLOC(kPusMax));
  if (set == nullptr) return pus;
  CPU_ZERO_S(bytes, set.get());
  if (pthread_getaffinity_np(thread, bytes, set.get()) != 0) return pus;
  for (uint32_t pu = 0; pu < kPusMax; ++pu) {
    if (CPU_ISSET_S(pu, bytes, set.get())) pus.push_back(pu);
  }
  return pus;
}

}  // namespace

constinit thread_local Binding* Binding::current_ = nullptr;

void Binding::adopt(std::thread& thread, const char* name) {
  const pthread_t handle = thread.native_handle();
  // For people who look at the process: nothing depends on it.
  [[maybe_unused]] const int unnamed = pthread_setname_np(handle, name);
  Thread entry;
  entry.name = name;
  if (!pus_.empty()) {
    entry.error = send_to(handle, pus_);
    entry.pus = allowed_to(handle);
  }
  const MutexLock lock(mutex_);
  threads_.push_back(std::move(entry));
}

void Binding::place_memory(void* base, size_t bytes) {
  if (nodes_.empty()) return;
  constexpr size_t kWordBits = sizeof(unsigned long) * CHAR_BIT;
  std::vector<unsigned long> mask(nodes_.back() / kWordBits + 1);
  for (const uint32_t node : nodes_) mask[node / kWordBits] |= 1UL << (node % kWordBits);
  const int mode = nodes_.size() == 1 ? MPOL_PREFERRED : kModePreferredMany;
  // The kernel reads one bit less than it is told.
  const long failed =
      syscall(SYS_mbind, base, bytes, mode, mask.data(), mask.size() * kWordBits + 1, 0U);
  const std::string error = failed == 0 ? "" : refused("mbind", errno);
  const MutexLock lock(mutex_);
  if (failed == 0) {
    ++memory_.areas;
    memory_.bytes += bytes;
    return;
  }
  ++memory_.refused;
  if (memory_.error.empty()) memory_.error = error;
}

std::vector<Binding::Thread> Binding::threads() const {
  std::vector<Thread> threads;
  {
    const MutexLock lock(mutex_);
    threads = threads_;
  }
  std::stable_sort(threads.begin(), threads.end(),
                   [](const Thread& a, const Thread& b) { return a.name < b.name; });
  return threads;
}

Binding::Memory Binding::memory() const {
  const MutexLock lock(mutex_);
  return memory_;
}

}  // namespace parallax
