// SPDX-License-Identifier: Apache-2.0
// Abstract unix sockets (SOCK_SEQPACKET) that carry small packets and descriptors between processes
// of one host, for the handshake of the shm transport. No file system is involved. Abstract names
// belong to a network namespace: ranks of one host share one. All descriptors are non-blocking and
// close on exec. Any thread; nothing blocks.
#ifndef PARALLAX_TRANSPORT_SHM_SOCKET_H_
#define PARALLAX_TRANSPORT_SHM_SOCKET_H_

#include <sys/types.h>

#include <cstddef>
#include <span>
#include <string>

#include "base/status.h"
#include "base/unique_fd.h"

namespace parallax {

inline constexpr size_t kFdsInPacketMax = 3;

// Listens on a fresh random name.
Status listen_abstract(UniqueFd* listener, std::string* name);

enum class SocketNews { kOk, kAgain, kRefused, kOtherUser, kFailed, kNoDescriptors };

// kRefused: nobody listens there. kOtherUser: a process of another user does, who took the name of
// one that has ended; nothing was said to it. kAgain: its queue is full. errno says more for
// kFailed.
SocketNews connect_abstract(const std::string& name, UniqueFd* socket);

// Accepts one connection of a process of the same user; others are dropped (kAgain). *pid: that
// process, 0 if it lives outside our pid namespace.
SocketNews accept_same_user(const UniqueFd& listener, UniqueFd* socket, pid_t* pid);

SocketNews send_packet(const UniqueFd& socket, std::span<const std::byte> packet,
                       std::span<const int> fds);

// *bytes: its length, at most packet.size(), 0 when the other end has hung up (kOk). Descriptors
// that came along are in fds, in order; *fd_count says how many.
SocketNews receive_packet(const UniqueFd& socket, std::span<std::byte> packet, size_t* bytes,
                          std::span<UniqueFd, kFdsInPacketMax> fds, size_t* fd_count);

}  // namespace parallax

#endif  // PARALLAX_TRANSPORT_SHM_SOCKET_H_
