// SPDX-License-Identifier: Apache-2.0
// ForkMark: tells the process that made it from a forked child, at the price of one load.
//
// Design notes. A page that the kernel gives a child as zeros (MADV_WIPEONFORK, Linux 4.14) is
// noticed however the child was made: by fork, by clone without the C library, by a fork that skips
// its handlers. A counter that pthread_atfork moves on is noticed after fork(3) alone, and its
// handler has to go when the library is unloaded; the page is its owner's and goes with it. getpid
// is a system call. It stands in where the kernel has no such page. A child that shares its
// parent's memory (vfork) is not told apart: it may do nothing but exec and exit.
#ifndef PARALLAX_BASE_FORK_MARK_H_
#define PARALLAX_BASE_FORK_MARK_H_

#include <sys/types.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>

namespace parallax {

class ForkMark {
 public:
  ForkMark();
  ~ForkMark();
  ForkMark(const ForkMark&) = delete;
  ForkMark& operator=(const ForkMark&) = delete;

  // Any thread. No system call.
  bool in_child() const {
    if (page_ == nullptr) return getpid() != process_;
    return page_->load(std::memory_order_relaxed) == 0;
  }
  pid_t process() const { return process_; }  // that made it

 private:
  using Word = std::atomic<uint32_t>;
  const pid_t process_;
  Word* page_ = nullptr;  // null: none to be had
};

}  // namespace parallax

#endif  // PARALLAX_BASE_FORK_MARK_H_
