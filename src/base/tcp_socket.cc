// SPDX-License-Identifier: Apache-2.0
// Non-blocking tcp sockets: see the header.
#include "base/tcp_socket.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

namespace parallax {

namespace {

constexpr int kBacklog = 4096;  // the kernel's own bound, net.core.somaxconn, is the lower one

sockaddr* as_sockaddr(SocketAddress* address) {
  return reinterpret_cast<sockaddr*>(&address->storage);
}
const sockaddr* as_sockaddr(const SocketAddress& address) {
  return reinterpret_cast<const sockaddr*>(&address.storage);
}

void set_option(const UniqueFd& socket, int level, int name, int value) {
  (void)::setsockopt(socket.get(), level, name, &value, sizeof value);
}

}  // namespace

int tcp_listen_at(const SocketAddress& address, UniqueFd* listener) {
  UniqueFd made(::socket(address.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!made.valid()) return errno;
  set_option(made, SOL_SOCKET, SO_REUSEADDR, 1);
  if (::bind(made.get(), as_sockaddr(address), address.bytes) != 0 ||
      ::listen(made.get(), kBacklog) != 0) {
    return errno;
  }
  *listener = std::move(made);
  return 0;
}

Status tcp_name(const UniqueFd& socket, SocketAddress* address) {
  address->bytes = sizeof address->storage;
  if (::getsockname(socket.get(), as_sockaddr(address), &address->bytes) == 0) return {};
  return io_error(std::string("getsockname: ") + std::strerror(errno));
}

void tcp_defer_accept(const UniqueFd& listener) {
  set_option(listener, IPPROTO_TCP, TCP_DEFER_ACCEPT, 1);
}

Accepted tcp_accept(const UniqueFd& listener, UniqueFd* socket, SocketAddress* from) {
  from->bytes = sizeof from->storage;
  socket->reset(
      ::accept4(listener.get(), as_sockaddr(from), &from->bytes, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (!socket->valid()) {
    if (errno == EMFILE || errno == ENFILE) return Accepted::kNoDescriptor;
    return errno == ENOBUFS || errno == ENOMEM ? Accepted::kNoMemory : Accepted::kNone;
  }
  set_option(*socket, IPPROTO_TCP, TCP_NODELAY, 1);
  return Accepted::kOne;
}

int tcp_connect(const SocketAddress& address, UniqueFd* socket, const SocketAddress* source) {
  socket->reset(::socket(address.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket->valid()) return errno;
  set_option(*socket, IPPROTO_TCP, TCP_NODELAY, 1);
  if (source != nullptr) {
    // The port is chosen by connect(), when the peer is known: there are more of them then.
    set_option(*socket, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1);
    const SocketAddress any_port = make_address(address_bytes(*source), 0);
    if (::bind(socket->get(), as_sockaddr(any_port), any_port.bytes) != 0) return errno;
  }
  if (::connect(socket->get(), as_sockaddr(address), address.bytes) == 0 || errno == EINPROGRESS ||
      errno == EINTR) {
    return 0;
  }
  return errno;
}

int tcp_connected(const UniqueFd& socket) {
  int failure = 0;
  socklen_t bytes = sizeof failure;
  if (::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &failure, &bytes) != 0) return errno;
  if (failure != 0) return failure;
  SocketAddress mine, theirs;
  mine.bytes = theirs.bytes = sizeof mine.storage;
  if (::getsockname(socket.get(), as_sockaddr(&mine), &mine.bytes) != 0 ||
      ::getpeername(socket.get(), as_sockaddr(&theirs), &theirs.bytes) != 0) {
    return errno;
  }
  const bool itself =
      mine.bytes == theirs.bytes && std::memcmp(&mine.storage, &theirs.storage, mine.bytes) == 0;
  return itself ? ECONNREFUSED : 0;
}

bool tcp_receive(const UniqueFd& socket, size_t bytes_max, std::string* in) {
  std::array<char, 16384> buffer;
  while (bytes_max > 0) {
    const size_t room = bytes_max < buffer.size() ? bytes_max : buffer.size();
    const ssize_t bytes = ::recv(socket.get(), buffer.data(), room, 0);
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes < 0) return errno == EAGAIN || errno == EWOULDBLOCK;
    if (bytes == 0) return false;
    in->append(buffer.data(), static_cast<size_t>(bytes));
    bytes_max -= static_cast<size_t>(bytes);
  }
  return true;
}

bool tcp_send(const UniqueFd& socket, std::string* out) {
  while (!out->empty()) {
    const ssize_t bytes = ::send(socket.get(), out->data(), out->size(), MSG_NOSIGNAL);
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes < 0) return errno == EAGAIN || errno == EWOULDBLOCK;
    out->erase(0, static_cast<size_t>(bytes));
  }
  return true;
}

}  // namespace parallax
