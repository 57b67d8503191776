// SPDX-License-Identifier: Apache-2.0
// Huge pages for memory that is about to be written whole, so that they cost no memory that would
// not be had anyway. Rows that are looked up here and there miss the TLB less, nobody who maps
// shared ones takes a fault for each small page, and to have them takes a tenth of the time.
//
// Asked for by MADV_COLLAPSE (Linux 6.1), which gives them to shared memory too, whatever the
// administrator has set for memory that nobody asks for (transparent_hugepage/enabled,
// shmem_enabled). Where the kernel gives none, pages stay as they are. Any thread; a huge page
// takes a tenth of a millisecond, and more where the kernel has to gather one.
#ifndef PARALLAX_BASE_HUGE_PAGES_H_
#define PARALLAX_BASE_HUGE_PAGES_H_

#include <cstddef>
#include <cstdint>

#include "base/byte_range.h"

namespace parallax {

// Of this machine; 0: it has none, or of more than kHugePageBytesMax, of which much would be vain.
uint64_t bytes_of_huge_page();
inline constexpr uint64_t kHugePageBytesMax = uint64_t{2} << 20;

// mmap at an address that is a multiple of a huge page, where `bytes` are as many and no other
// thread takes it meanwhile: whoever maps the same memory so can have the same huge pages. Else at
// any. MAP_FAILED as mmap has it.
void* map_for_huge_pages(size_t bytes, int protection, int flags, int fd);

// `written` lies in `mapped`, and is about to be written whole: what it holds now may be lost. The
// huge pages that it touches are had, as far as they lie in `mapped`; other bytes of them stay as
// they are. Those in *had are not asked for again; what was asked for is there behind. False: the
// kernel has none; of one that just now has not all this is not said.
bool have_huge_pages(const ByteRange& written, const ByteRange& mapped, ByteRange* had);

}  // namespace parallax

#endif  // PARALLAX_BASE_HUGE_PAGES_H_
