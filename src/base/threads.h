// SPDX-License-Identifier: Apache-2.0
// start_thread: std::thread with a Status in place of an exception.
#ifndef PARALLAX_BASE_THREADS_H_
#define PARALLAX_BASE_THREADS_H_

#include <pthread.h>

#include <csignal>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "base/status.h"

namespace parallax {

// While it lives, threads that this thread starts take no signal of the host process, whose
// handlers and masks know only its own threads. Faults of a thread itself stay its own.
class SignalsHeldBack {
 public:
  SignalsHeldBack() {
    sigset_t all;
    sigfillset(&all);
    for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP, SIGSYS}) {
      sigdelset(&all, fault);
    }
    pthread_sigmask(SIG_BLOCK, &all, &before_);
  }
  ~SignalsHeldBack() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsHeldBack(const SignalsHeldBack&) = delete;
  SignalsHeldBack& operator=(const SignalsHeldBack&) = delete;

 private:
  sigset_t before_ = {};
};

// LIMIT when the system gives no thread.
template <typename Body>
Status start_thread(std::thread* thread, Body body) {
  const SignalsHeldBack held_back;
  try {
    *thread = std::thread(std::move(body));
    return {};
  } catch (const std::system_error& error) {
    return limit(std::string("cannot start a thread: ") + error.what() +
                 "; raise ulimit -u or ulimit -v, or lower compute_threads");
  }
}

}  // namespace parallax

#endif  // PARALLAX_BASE_THREADS_H_
