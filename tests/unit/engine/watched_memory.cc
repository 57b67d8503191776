// SPDX-License-Identifier: Apache-2.0
// The malloc of the unit tests' program. See watched_memory.h.
#include "unit/engine/watched_memory.h"

#include <cerrno>
#include <cstdlib>

#include "support/engine_world.h"

namespace parallax::testkit {
namespace {

constinit thread_local MemoryWatch watch;

// Notes an allocation; true if it is refused.
[[maybe_unused]] bool refuses(size_t bytes) {
  if (watch.counting && !inside_transport) ++watch.allocations;
  const uint64_t number = watch.seen++;
  const bool refused = bytes >= watch.refused_from ||
                       (number >= watch.first_refused && number <= watch.last_refused);
  if (refused) ++watch.refused;
  return refused;
}

}  // namespace

MemoryWatch& memory_watch() { return watch; }

}  // namespace parallax::testkit

#if PARALLAX_TEST_WATCHES_MEMORY
// glibc's own, under the names that stay when a program defines malloc.
extern "C" {
void* __libc_malloc(size_t bytes);
void* __libc_calloc(size_t items, size_t bytes);
void* __libc_realloc(void* old, size_t bytes);
void* __libc_memalign(size_t alignment, size_t bytes);

void* malloc(size_t bytes) {
  return parallax::testkit::refuses(bytes) ? nullptr : __libc_malloc(bytes);
}
void* calloc(size_t items, size_t bytes) {
  return parallax::testkit::refuses(0) ? nullptr : __libc_calloc(items, bytes);
}
void* realloc(void* old, size_t bytes) {
  return parallax::testkit::refuses(0) ? nullptr : __libc_realloc(old, bytes);
}
void* memalign(size_t alignment, size_t bytes) {
  return parallax::testkit::refuses(0) ? nullptr : __libc_memalign(alignment, bytes);
}
void* aligned_alloc(size_t alignment, size_t bytes) { return memalign(alignment, bytes); }
int posix_memalign(void** out, size_t alignment, size_t bytes) {
  *out = memalign(alignment, bytes);
  return *out == nullptr ? ENOMEM : 0;
}
}
#endif
