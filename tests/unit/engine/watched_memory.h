// SPDX-License-Identifier: Apache-2.0
// What this thread asks malloc for: counted, or refused. By standing in for malloc, in all of the
// unit tests' program (watched_memory.cc); not under a sanitizer, which owns malloc itself.
#ifndef PARALLAX_TESTS_UNIT_ENGINE_WATCHED_MEMORY_H_
#define PARALLAX_TESTS_UNIT_ENGINE_WATCHED_MEMORY_H_

#include <cstddef>
#include <cstdint>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define PARALLAX_TEST_WATCHES_MEMORY 0
#else
#define PARALLAX_TEST_WATCHES_MEMORY 1
#endif

namespace parallax::testkit {

struct MemoryWatch {
  bool counting = false;
  uint64_t allocations = 0;        // counted, outside of the transport
  size_t refused_from = SIZE_MAX;  // bytes of one allocation
  // Of the allocations from now on, those from the first to the last refused one; none: none.
  uint64_t seen = 0, first_refused = UINT64_MAX, last_refused = 0;
  uint64_t refused = 0;
};
// Of this thread.
MemoryWatch& memory_watch();

// Counts as long as it lives.
class CountedMemory {
 public:
  CountedMemory() { memory_watch().counting = true; }
  ~CountedMemory() { memory_watch().counting = false; }
  CountedMemory(const CountedMemory&) = delete;
  CountedMemory& operator=(const CountedMemory&) = delete;
};

// As long as it lives, refuses the allocation that comes after `passed` others, and with `all` each
// behind it.
class RefusedMemory {
 public:
  explicit RefusedMemory(uint64_t passed, bool all = false) {
    MemoryWatch& watch = memory_watch();
    watch.seen = watch.refused = 0;
    watch.first_refused = passed;
    watch.last_refused = all ? UINT64_MAX : passed;
  }
  ~RefusedMemory() { end(); }
  RefusedMemory(const RefusedMemory&) = delete;
  RefusedMemory& operator=(const RefusedMemory&) = delete;
  // True if there was one to refuse. Ends it.
  bool end() {
    memory_watch().first_refused = UINT64_MAX;
    return memory_watch().refused > 0;
  }
};

}  // namespace parallax::testkit

#endif  // PARALLAX_TESTS_UNIT_ENGINE_WATCHED_MEMORY_H_
