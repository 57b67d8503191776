// SPDX-License-Identifier: Apache-2.0
// Non-blocking tcp sockets. No call blocks. Any thread, one at a time per
// socket.
#ifndef PARALLAX_BASE_TCP_SOCKET_H_
#define PARALLAX_BASE_TCP_SOCKET_H_

#include <cstddef>
#include <string>

#include "base/socket_address.h"
#include "base/status.h"
#include "base/unique_fd.h"

namespace parallax {

// Bound to this address alone and listening. errno's number, or 0.
int tcp_listen_at(const SocketAddress& address, UniqueFd* listener);
// The address a socket is bound to.
Status tcp_name(const UniqueFd& socket, SocketAddress* address);

// For peers that speak first: one that says nothing is accepted a second later only.
void tcp_defer_accept(const UniqueFd& listener);

enum class Accepted { kOne, kNone, kNoDescriptor, kNoMemory };
Accepted tcp_accept(const UniqueFd& listener, UniqueFd* socket, SocketAddress* from);

// Begins to connect, from `source` where it is given, whose port does not count; the socket becomes
// writable when that has succeeded or failed. errno's number, or 0.
int tcp_connect(const SocketAddress& address, UniqueFd* socket,
                const SocketAddress* source = nullptr);
// 0: connected; else errno's number. A socket may connect to itself: a port of the ephemeral range
// without a listener can be the very one that the kernel chose for this socket. That counts as
// refused.
int tcp_connected(const UniqueFd& socket);

// Both return false when the connection is at its end or broken.
// Appends what has arrived, up to `bytes_max`.
bool tcp_receive(const UniqueFd& socket, size_t bytes_max, std::string* in);
// Sends as much as the socket takes and removes it from the front of *out.
bool tcp_send(const UniqueFd& socket, std::string* out);

}  // namespace parallax

#endif  // PARALLAX_BASE_TCP_SOCKET_H_
