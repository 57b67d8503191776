// SPDX-License-Identifier: Apache-2.0
// A poll() with an eventfd among its descriptors: see the header.
#include "rendezvous/wake_poll.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace parallax {

WakePoll::WakePoll() : event_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (event_.valid()) return;
  made_ = limit(std::string("open: no descriptor for the rendezvous: ") + std::strerror(errno) +
                "; raise ulimit -n");
}

void WakePoll::wake() const {
  const uint64_t one = 1;
  (void)!::write(event_.get(), &one, sizeof one);
}

void WakePoll::sleep(std::vector<pollfd>* fds, const Clock& clock, int64_t due_ns) const {
  fds->push_back({event_.get(), POLLIN, 0});
  const int64_t left_ns = std::max<int64_t>(0, due_ns - clock.now_ns());
  const int64_t left_ms = std::min<int64_t>(left_ns / kNanosecondsPerMillisecond + 1, 1000);
  (void)::poll(fds->data(), fds->size(), left_ns == 0 ? 0 : static_cast<int>(left_ms));
  uint64_t count = 0;
  (void)!::read(event_.get(), &count, sizeof count);
}

}  // namespace parallax
