// SPDX-License-Identifier: Apache-2.0
// WaitSet: what one thread sleeps on in the kernel: the transport's descriptor and a bell of its
// own, which any thread rings. The progress thread and the waiter that drives have one each, so
// that a bell wakes only the one it is for, and what the transport has to say only who drives.
//
// Threads: ring() by any; sleep functions by one at a time; watch() and mute() by one at a time,
// also while another sleeps.
#ifndef PARALLAX_JOB_WAIT_SET_H_
#define PARALLAX_JOB_WAIT_SET_H_

#include <cstdint>

#include "base/status.h"
#include "base/unique_fd.h"

namespace parallax {

class WaitSet {
 public:
  // `transport_fd` outlives it; -1: there is none. LIMIT: no descriptor left.
  Status open(int transport_fd);

  // Until the bell, the transport, a signal, or so long.
  void sleep(int64_t time_ns);
  // The transport does not wake it, not even one that was ready before; with null until the bell.
  void sleep_by_bell(const int64_t* time_ns);
  // Ends a sleep, or else the next one. A system call.
  void ring();

  // Whether the transport wakes it: as it is opened, it does.
  void watch() { set_watched(true); }
  void mute() { set_watched(false); }

 private:
  void set_watched(bool watched);
  void clear_bell();

  UniqueFd epoll_, bell_;
  int transport_fd_ = -1;
  bool watched_ = true;
};

}  // namespace parallax

#endif  // PARALLAX_JOB_WAIT_SET_H_
