// SPDX-License-Identifier: Apache-2.0
// WakePoll: a poll() that another thread can end. One thread sleeps; any thread wakes it, also
// before it sleeps: that sleep then ends at once. wake() does not block.
#ifndef PARALLAX_RENDEZVOUS_WAKE_POLL_H_
#define PARALLAX_RENDEZVOUS_WAKE_POLL_H_

#include <poll.h>

#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "base/unique_fd.h"

namespace parallax {

class WakePoll {
 public:
  WakePoll();

  // LIMIT if the system gave no descriptor.
  Status made() const { return made_; }
  void wake() const;
  // Until one of `fds` is ready, wake() is called or due_ns has come; a second at most. The order
  // of `fds` is lost.
  void sleep(std::vector<pollfd>* fds, const Clock& clock, int64_t due_ns) const;

 private:
  UniqueFd event_;
  Status made_;
};

}  // namespace parallax

#endif  // PARALLAX_RENDEZVOUS_WAKE_POLL_H_
