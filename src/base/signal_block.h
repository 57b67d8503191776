// SPDX-License-Identifier: Apache-2.0
// SignalBlock: while it lives, one signal that a system call of ours may raise on this thread is
// kept from the host process, and what the call raised is taken away at the end; the call's errno
// tells. For SIGXFSZ (a file beyond ulimit -f) and SIGPIPE, whose default ends the process.
//
// Holds this thread's mask: made and destroyed on one thread. Three system calls, one more if the
// signal was raised. errno stays as it is.
#ifndef PARALLAX_BASE_SIGNAL_BLOCK_H_
#define PARALLAX_BASE_SIGNAL_BLOCK_H_

#include <pthread.h>

#include <cerrno>
#include <csignal>
#include <ctime>

namespace parallax {

class SignalBlock {
 public:
  explicit SignalBlock(int number) {
    sigemptyset(&blocked_);
    sigaddset(&blocked_, number);
    sigset_t pending;
    sigpending(&pending);
    was_pending_ = sigismember(&pending, number) == 1;  // another's: it is left alone
    pthread_sigmask(SIG_BLOCK, &blocked_, &before_);
  }
  ~SignalBlock() {
    const int error = errno;
    constexpr timespec kAtOnce = {};
    if (!was_pending_) sigtimedwait(&blocked_, nullptr, &kAtOnce);
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
    errno = error;
  }
  SignalBlock(const SignalBlock&) = delete;
  SignalBlock& operator=(const SignalBlock&) = delete;

 private:
  sigset_t blocked_ = {};
  sigset_t before_ = {};
  bool was_pending_ = false;
};

}  // namespace parallax

#endif  // PARALLAX_BASE_SIGNAL_BLOCK_H_
