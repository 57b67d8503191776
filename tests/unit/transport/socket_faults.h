// SPDX-License-Identifier: Apache-2.0
// SocketFaults: what a kernel may do to sendmsg() and recv() at any time and on loopback seldom
// does: take or give less than it was asked for, have no room or nothing there, be interrupted. The
// test program is linked so that the library's calls of these two come here (--wrap); while there
// is no SocketFaults they are the kernel's. Tests only, one at a time in a process; ranks may be
// threads.
#ifndef PARALLAX_TESTS_UNIT_TRANSPORT_SOCKET_FAULTS_H_
#define PARALLAX_TESTS_UNIT_TRANSPORT_SOCKET_FAULTS_H_

#include <cstdint>

namespace parallax {

class SocketFaults {
 public:
  // How often each came since the first of them.
  struct Counts {
    uint64_t short_sends = 0;  // of which the kernel was given a part
    uint64_t short_receives = 0;
    uint64_t refused = 0;  // EAGAIN
    uint64_t interrupted = 0;
  };

  explicit SocketFaults(uint64_t seed);
  ~SocketFaults();
  SocketFaults(const SocketFaults&) = delete;
  SocketFaults& operator=(const SocketFaults&) = delete;

  static Counts counts();
};

}  // namespace parallax

#endif  // PARALLAX_TESTS_UNIT_TRANSPORT_SOCKET_FAULTS_H_
