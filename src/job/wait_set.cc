// SPDX-License-Identifier: Apache-2.0
// An epoll and an eventfd. See wait_set.h.
#include "job/wait_set.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <ctime>
#include <string>

#include "base/clock.h"

namespace parallax {

Status WaitSet::open(int transport_fd) {
  transport_fd_ = transport_fd;
  epoll_.reset(epoll_create1(EPOLL_CLOEXEC));
  bell_.reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  bool ready = epoll_.valid() && bell_.valid();
  for (const int fd : {bell_.get(), transport_fd}) {
    if (!ready || fd < 0) continue;
    epoll_event event = {};
    event.events = EPOLLIN;
    event.data.fd = fd;
    ready = epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0;
  }
  if (ready) return {};
  return limit(std::string("cannot open the descriptors to wait on: ") + std::strerror(errno) +
               "; raise ulimit -n");
}

void WaitSet::sleep(int64_t time_ns) {
  const int timeout_ms =
      static_cast<int>((time_ns + kNanosecondsPerMillisecond - 1) / kNanosecondsPerMillisecond);
  epoll_event events[2];
  const int count = epoll_wait(epoll_.get(), events, 2, timeout_ms);
  for (int i = 0; i < count; ++i) {
    // The transport's descriptor is read by its own next poll.
    if (events[i].data.fd == bell_.get()) clear_bell();
  }
}

void WaitSet::sleep_by_bell(const int64_t* time_ns) {
  constexpr int64_t kSecondNs = 1000 * kNanosecondsPerMillisecond;
  timespec time = {};
  if (time_ns != nullptr) time = {.tv_sec = *time_ns / kSecondNs, .tv_nsec = *time_ns % kSecondNs};
  pollfd entry = {.fd = bell_.get(), .events = POLLIN, .revents = 0};
  if (ppoll(&entry, 1, time_ns == nullptr ? nullptr : &time, nullptr) == 1) clear_bell();
}

void WaitSet::ring() {
  const uint64_t one = 1;
  // It fails only where the count is full, and then the bell is readable anyway.
  [[maybe_unused]] const ssize_t wrote = write(bell_.get(), &one, sizeof one);
}

void WaitSet::clear_bell() {
  uint64_t ignored = 0;
  [[maybe_unused]] const ssize_t got = read(bell_.get(), &ignored, sizeof ignored);
}

// Of an epoll that somebody sleeps on, too: epoll_ctl(2).
void WaitSet::set_watched(bool watched) {
  if (watched == watched_ || transport_fd_ < 0) return;
  watched_ = watched;
  epoll_event event = {};
  if (watched) event.events = EPOLLIN;
  event.data.fd = transport_fd_;
  epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, transport_fd_, &event);
}

}  // namespace parallax
