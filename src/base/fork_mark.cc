// SPDX-License-Identifier: Apache-2.0
// The page that a child finds empty. See fork_mark.h.
#include "base/fork_mark.h"

#include <sys/mman.h>

#include <new>

#ifndef MADV_WIPEONFORK
#define PARALLAX_MADV_WIPEONFORK 18
#else
#define PARALLAX_MADV_WIPEONFORK MADV_WIPEONFORK
#endif

namespace parallax {

ForkMark::ForkMark() : process_(getpid()) {
  void* const page = mmap(nullptr, sizeof(Word), PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);  // rounded up to a page
  if (page == MAP_FAILED) return;
  if (madvise(page, sizeof(Word), PARALLAX_MADV_WIPEONFORK) != 0) {
    munmap(page, sizeof(Word));
    return;
  }
  page_ = new (page) Word(1);
}

ForkMark::~ForkMark() {
  if (page_ != nullptr) munmap(page_, sizeof(Word));
}

}  // namespace parallax
