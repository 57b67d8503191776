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
  const auto of_any = [&] { return ::mmap(nullptr, bytes, protection, flags, fd, 0); };
  if (page == 0 || bytes < page || bytes > SIZE_MAX - page - small) return of_any();
  // Addresses alone, of which those not needed go back.
  const size_t whole = (bytes + small - 1) / small * small, taken = whole + page;
  void* const addresses =
      ::mmap(nullptr, taken, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (addresses == MAP_FAILED) return of_any();
  auto* const first = static_cast<std::byte*>(addresses);
  const size_t before = (page - reinterpret_cast<uintptr_t>(first) % page) % page;
  void* const base = ::mmap(first + before, bytes, protection, flags | MAP_FIXED, fd, 0);
  if (base == MAP_FAILED) {
    const int error = errno;
    ::munmap(addresses, taken);
    errno = error;
    return MAP_FAILED;
  }
  if (before > 0) ::munmap(first, before);
  ::munmap(first + before + whole, page - before);
  return base;
}

bool have_huge_pages(const ByteRange& written, const ByteRange& mapped) {
  const uint64_t page = bytes_of_huge_page();
  if (page == 0 || written.bytes == 0) return page != 0;
  const uintptr_t end = written.first + written.bytes;
  uintptr_t first = written.first / page * page;
  if (first < mapped.first) first += page;
  const uintptr_t stop =
      std::min((end + page - 1) / page * page, (mapped.first + mapped.bytes) / page * page);
  if (first >= stop) return true;
  // The kernel gathers what is there, so of each something has to be.
  for (uintptr_t at = first; at < stop; at += page) {
    *reinterpret_cast<volatile unsigned char*>(std::max(at, written.first)) = 0;
  }
  return ::madvise(reinterpret_cast<void*>(first), stop - first, kCollapse) == 0;
}

}  // namespace parallax
