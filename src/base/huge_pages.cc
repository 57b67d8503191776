// SPDX-License-Identifier: Apache-2.0
// The system calls behind huge pages. See huge_pages.h.
#include "base/huge_pages.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <fstream>

#include "base/sealed_memory.h"

namespace parallax {

namespace {

constexpr int kCollapse = 25;  // MADV_COLLAPSE, of which an older header knows nothing

uint64_t read_bytes_of_huge_page() {
  uint64_t bytes = 0;
  std::ifstream("/sys/kernel/mm/transparent_hugepage/hpage_pmd_size") >> bytes;
  const bool usable = bytes <= kHugePageBytesMax && (bytes & (bytes - 1)) == 0;
  return usable ? bytes : 0;
}

}  // namespace

uint64_t bytes_of_huge_page() {
  static const uint64_t bytes = read_bytes_of_huge_page();
  return bytes;
}

void* map_for_huge_pages(size_t bytes, int protection, int flags, int fd) {
  const uint64_t page = bytes_of_huge_page(), small = bytes_of_page();
  const auto of_any = [&](void* hint) { return ::mmap(hint, bytes, protection, flags, fd, 0); };
  if (page == 0 || bytes < page || bytes > SIZE_MAX - page - small) {
    return of_any(nullptr);
  }
  // Addresses that are free, given back, and asked for again: if another thread has taken them
  // meanwhile, the memory lies elsewhere.
  const size_t taken = (bytes + small - 1) / small * small + page;
  void* const addresses =
      ::mmap(nullptr, taken, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (addresses == MAP_FAILED) return of_any(nullptr);
  ::munmap(addresses, taken);
  const size_t before = (page - reinterpret_cast<uintptr_t>(addresses) % page) % page;
  return of_any(static_cast<std::byte*>(addresses) + before);
}

bool have_huge_pages(const ByteRange& written, const ByteRange& mapped, ByteRange* had) {
  const uint64_t page = bytes_of_huge_page();
  if (page == 0 || written.bytes == 0) return page != 0;
  const uintptr_t end = written.first + written.bytes;
  uintptr_t first = written.first / page * page;
  if (first < mapped.first) first += page;
  uintptr_t stop =
      std::min((end + page - 1) / page * page, (mapped.first + mapped.bytes) / page * page);
  const uintptr_t had_end = had->first + had->bytes;
  if (first >= had->first && first < had_end) first = had_end;
  if (stop > had->first && stop <= had_end) stop = had->first;
  if (first >= stop) return true;
  *had = {first, stop - first};
  // The kernel gathers what is there, so of each something has to be.
  for (uintptr_t at = first; at < stop; at += page) {
    *reinterpret_cast<volatile unsigned char*>(std::max(at, written.first)) = 0;
  }
  return ::madvise(reinterpret_cast<void*>(first), stop - first, kCollapse) == 0 ||
         (errno != EINVAL && errno != ENOMEM);
}

}  // namespace parallax
