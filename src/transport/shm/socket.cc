// SPDX-License-Identifier: Apache-2.0
// Abstract sockets: see the header.
#include "transport/shm/socket.h"

#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>

namespace parallax {

namespace {

constexpr int kSocketType = SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK;

// The name without its leading NUL.
socklen_t fill_address(const std::string& name, sockaddr_un* address) {
  std::memset(address, 0, sizeof *address);
  address->sun_family = AF_UNIX;
  const size_t bytes = std::min(name.size(), sizeof address->sun_path - 1);
  std::memcpy(address->sun_path + 1, name.data(), bytes);
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + bytes);
}

SocketNews by_errno() {
  switch (errno) {
    case EAGAIN:
    case EINTR:
    case ENOBUFS:
      return SocketNews::kAgain;
    case EMFILE:
    case ENFILE:
    case ETOOMANYREFS:  // descriptors on their way count too
      return SocketNews::kNoDescriptors;
    case ECONNREFUSED:
    case ECONNRESET:
    case EPIPE:
      return SocketNews::kRefused;
    default:
      return SocketNews::kFailed;
  }
}

bool credentials(const UniqueFd& socket, ucred* peer) {
  socklen_t bytes = sizeof *peer;
  return ::getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, peer, &bytes) == 0 &&
         bytes == sizeof *peer;
}

}  // namespace

Status listen_abstract(UniqueFd* listener, std::string* name) {
  unsigned char random[16];
  if (::getrandom(random, sizeof random, 0) != sizeof random) {
    return io_error(std::string("getrandom failed: ") + std::strerror(errno));
  }
  *name = "parallax-";
  for (const unsigned char byte : random) {
    *name += "0123456789abcdef"[byte >> 4];
    *name += "0123456789abcdef"[byte & 15];
  }
  listener->reset(::socket(AF_UNIX, kSocketType, 0));
  if (!listener->valid()) {
    return limit(std::string("no socket for shared memory: ") + std::strerror(errno) +
                 "; raise ulimit -n");
  }
  sockaddr_un address;
  const socklen_t bytes = fill_address(*name, &address);
  if (::bind(listener->get(), reinterpret_cast<const sockaddr*>(&address), bytes) != 0 ||
      ::listen(listener->get(), SOMAXCONN) != 0) {
    return io_error(std::string("an abstract unix socket cannot be bound: ") +
                    std::strerror(errno));
  }
  return {};
}

SocketNews connect_abstract(const std::string& name, UniqueFd* socket) {
  UniqueFd made(::socket(AF_UNIX, kSocketType, 0));
  if (!made.valid()) return by_errno();
  sockaddr_un address;
  const socklen_t bytes = fill_address(name, &address);
  if (::connect(made.get(), reinterpret_cast<const sockaddr*>(&address), bytes) != 0) {
    return by_errno();
  }
  ucred listener{};  // as they were when it began to listen
  if (!credentials(made, &listener) || listener.uid != ::geteuid()) return SocketNews::kOtherUser;
  *socket = std::move(made);
  return SocketNews::kOk;
}

SocketNews accept_same_user(const UniqueFd& listener, UniqueFd* socket, pid_t* pid) {
  UniqueFd made(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!made.valid()) return errno == ECONNABORTED ? SocketNews::kAgain : by_errno();
  ucred peer{};
  if (!credentials(made, &peer) || peer.uid != ::geteuid()) return SocketNews::kAgain;
  *pid = peer.pid;
  *socket = std::move(made);
  return SocketNews::kOk;
}

SocketNews send_packet(const UniqueFd& socket, std::span<const std::byte> packet,
                       std::span<const int> fds) {
  iovec part{const_cast<std::byte*>(packet.data()), packet.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(kFdsInPacketMax * sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (!fds.empty()) {
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(fds.size_bytes());
    cmsghdr* rights = CMSG_FIRSTHDR(&message);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(fds.size_bytes());
    std::memcpy(CMSG_DATA(rights), fds.data(), fds.size_bytes());
  }
  if (::sendmsg(socket.get(), &message, MSG_NOSIGNAL) < 0) return by_errno();
  return SocketNews::kOk;
}

SocketNews receive_packet(const UniqueFd& socket, std::span<std::byte> packet, size_t* bytes,
                          std::span<UniqueFd, kFdsInPacketMax> fds, size_t* fd_count) {
  iovec part{packet.data(), packet.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(kFdsInPacketMax * sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  ssize_t got = ::recvmsg(socket.get(), &message, MSG_CMSG_CLOEXEC);
  if (got == 0) {
    // Linux looks for a packet, finds none, and then looks for the end: which may have come with a
    // packet before it in between. What is there now is all that comes.
    message.msg_controllen = sizeof control;
    got = ::recvmsg(socket.get(), &message, MSG_CMSG_CLOEXEC);
  }
  if (got < 0) return by_errno();
  *bytes = static_cast<size_t>(got);
  *fd_count = 0;
  for (cmsghdr* rights = CMSG_FIRSTHDR(&message); rights != nullptr;
       rights = CMSG_NXTHDR(&message, rights)) {
    if (rights->cmsg_level != SOL_SOCKET || rights->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (rights->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(rights) + i * sizeof(int), sizeof fd);
      UniqueFd owned(fd);  // closed again if there are more than we take
      if (*fd_count < kFdsInPacketMax) fds[(*fd_count)++] = std::move(owned);
    }
  }
  // The kernel drops descriptors for which this process has no room.
  if ((message.msg_flags & MSG_CTRUNC) != 0) return SocketNews::kNoDescriptors;
  return SocketNews::kOk;
}

}  // namespace parallax
