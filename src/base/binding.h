// SPDX-License-Identifier: Apache-2.0
// Binding: where a job's own threads run and where its arenas lie. Whoever starts a thread of the
// library hands it to adopt(); the caller's threads are never bound. Memory goes by area: within a
// Scope, what this thread reserves for an arena prefers the job's nodes, whichever thread touches
// it first, and now or steps later (mbind). Nothing here fails a job: what the kernel refused is
// kept for the report.
//
// Any thread, until destroyed; nothing blocks. Without PUs and nodes no system call is made but the
// one that names a thread.
#ifndef PARALLAX_BASE_BINDING_H_
#define PARALLAX_BASE_BINDING_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/mutex.h"

namespace parallax {

class Binding {
 public:
  struct Thread {
    std::string name;           // at most 15 bytes, as in /proc/self/task/TID/comm
    std::vector<uint32_t> pus;  // where it may run, as the kernel said afterwards; empty: not bound
    std::string error;          // "" or what the kernel refused
  };
  struct Memory {
    uint64_t areas = 0;  // placed
    uint64_t bytes = 0;  // of address space
    uint64_t refused = 0;
    std::string error;  // the first refusal; "" if there was none
  };

  Binding() = default;  // binds nothing
  // Both by the kernel's numbers, ascending; empty: not bound, and placed by first touch.
  Binding(std::vector<uint32_t> pus, std::vector<uint32_t> nodes)
      : pus_(std::move(pus)), nodes_(std::move(nodes)) {}
  Binding(const Binding&) = delete;
  Binding& operator=(const Binding&) = delete;

  // A thread just started takes the name and goes to the PUs. `name` has at most 15 bytes.
  void adopt(std::thread& thread, const char* name);
  // Pages of [base, base + bytes) that are not there yet will prefer the nodes. Page-aligned.
  void place_memory(void* base, size_t bytes);

  std::vector<Thread> threads() const;  // by name
  Memory memory() const;

  // While it lives, arenas that this thread reserves are placed by `binding`. They nest.
  class Scope {
   public:
    explicit Scope(Binding& binding) : outer_(std::exchange(current_, &binding)) {}
    ~Scope() { current_ = outer_; }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Binding* const outer_;
  };
  // By the binding of the calling thread's Scope; without one nothing is done.
  static void place_reserved(void* base, size_t bytes) {
    if (current_ != nullptr) current_->place_memory(base, bytes);
  }

 private:
  static constinit thread_local Binding* current_;

  const std::vector<uint32_t> pus_ = {};
  const std::vector<uint32_t> nodes_ = {};
  mutable Mutex mutex_;
  std::vector<Thread> threads_ PARALLAX_GUARDED_BY(mutex_);
  Memory memory_ PARALLAX_GUARDED_BY(mutex_);
};

}  // namespace parallax

#endif  // PARALLAX_BASE_BINDING_H_
