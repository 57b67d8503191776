// SPDX-License-Identifier: Apache-2.0
// See socket_faults.h.
#include "unit/transport/socket_faults.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>

namespace parallax {

namespace {

constexpr size_t kPiecesMax = 64;  // of a gathering send

std::atomic<bool> disturbed{false};
std::atomic<uint64_t> draws{0};
std::atomic<uint64_t> short_sends{0}, short_receives{0}, refused{0}, interrupted{0};

// The next of the numbers that a seed begins (splitmix64).
uint64_t draw() {
  uint64_t mixed = draws.fetch_add(0x9e3779b97f4a7c15, std::memory_order_relaxed);
  mixed = (mixed ^ mixed >> 30) * 0xbf58476d1ce4e5b9;
  mixed = (mixed ^ mixed >> 27) * 0x94d049bb133111eb;
  return mixed ^ mixed >> 31;
}

// Whether the call fails, by *luck*.
bool fails(uint64_t luck) {
  if (luck % 8 > 1) return false;
  errno = luck % 8 == 0 ? EAGAIN : EINTR;
  ++(luck % 8 == 0 ? refused : interrupted);
  return true;
}

// Of `bytes`: one, a few, many or all.
size_t part_of(size_t bytes, uint64_t luck) {
  constexpr std::array<size_t, 4> kMost = {1, 100, 10000, SIZE_MAX};
  const size_t most = std::min(bytes, kMost[luck / 8 % kMost.size()]);
  return most == bytes || most == 0 ? most : 1 + luck / 32 % most;
}

}  // namespace

SocketFaults::SocketFaults(uint64_t seed) {
  draws = seed;
  disturbed = true;
}

SocketFaults::~SocketFaults() { disturbed = false; }

SocketFaults::Counts SocketFaults::counts() {
  return {short_sends, short_receives, refused, interrupted};
}

extern "C" {

ssize_t __real_recv(int socket, void* buffer, size_t bytes, int flags);
ssize_t __real_sendmsg(int socket, const msghdr* message, int flags);
ssize_t __wrap_recv(int socket, void* buffer, size_t bytes, int flags);
ssize_t __wrap_sendmsg(int socket, const msghdr* message, int flags);

ssize_t __wrap_recv(int socket, void* buffer, size_t bytes, int flags) {
  if (!disturbed) return __real_recv(socket, buffer, bytes, flags);
  const uint64_t luck = draw();
  if (fails(luck)) return -1;
  const size_t part = part_of(bytes, luck);
  if (part < bytes) ++short_receives;
  return __real_recv(socket, buffer, part, flags);
}

ssize_t __wrap_sendmsg(int socket, const msghdr* message, int flags) {
  if (!disturbed || message->msg_iovlen > kPiecesMax) {
    return __real_sendmsg(socket, message, flags);
  }
  const uint64_t luck = draw();
  if (fails(luck)) return -1;
  std::array<iovec, kPiecesMax> pieces;
  size_t bytes = 0, count = 0;
  for (; count < message->msg_iovlen; ++count) {
    pieces[count] = message->msg_iov[count];
    bytes += pieces[count].iov_len;
  }
  size_t rest = part_of(bytes, luck);
  if (rest < bytes) ++short_sends;
  for (count = 0; rest > 0; ++count) {
    pieces[count].iov_len = std::min(pieces[count].iov_len, rest);
    rest -= pieces[count].iov_len;
  }
  msghdr less = *message;
  less.msg_iov = pieces.data();
  less.msg_iovlen = count;
  return __real_sendmsg(socket, &less, flags);
}

}  // extern "C"

}  // namespace parallax
