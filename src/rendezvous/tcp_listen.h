// SPDX-License-Identifier: Apache-2.0
// Where rank 0, and the ranks that pass blobs on, listen for the others; and the words for it where
// that fails. Nothing blocks. Any thread.
#ifndef PARALLAX_RENDEZVOUS_TCP_LISTEN_H_
#define PARALLAX_RENDEZVOUS_TCP_LISTEN_H_

#include "base/status.h"
#include "base/tcp_socket.h"

namespace parallax {

// Bound to this address alone and listening. IO names the address, LIMIT: no descriptor.
Status tcp_listen(const SocketAddress& address, UniqueFd* listener);

}  // namespace parallax

#endif  // PARALLAX_RENDEZVOUS_TCP_LISTEN_H_
