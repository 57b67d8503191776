// SPDX-License-Identifier: Apache-2.0
// start_thread: std::thread with a Status in place of an exception.
#ifndef PARALLAX_BASE_THREADS_H_
#define PARALLAX_BASE_THREADS_H_

#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "base/status.h"

namespace parallax {

// LIMIT when the system gives no thread.
template <typename Body>
Status start_thread(std::thread* thread, Body body) {
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
