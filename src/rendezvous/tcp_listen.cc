// SPDX-License-Identifier: Apache-2.0
// The words for a port that cannot be had. See tcp_listen.h.
#include "rendezvous/tcp_listen.h"

#include <cerrno>
#include <cstring>
#include <string>

namespace parallax {

Status tcp_listen(const SocketAddress& address, UniqueFd* listener) {
  const int reason = tcp_listen_at(address, listener);
  if (reason == 0) return {};
  if (reason == EMFILE || reason == ENFILE || reason == ENOBUFS || reason == ENOMEM) {
    return limit(std::string("options.rendezvous: no socket for the rendezvous: ") +
                 std::strerror(reason) + "; raise ulimit -n");
  }
  std::string remedy;
  if (reason == EADDRINUSE) remedy = "; another job or program has the port, give another";
  if (reason == EADDRNOTAVAIL) remedy = "; give an address of the machine of rank 0";
  if (reason == EACCES) remedy = "; give a port above 1023";
  return io_error("options.rendezvous: rank 0 cannot listen at " + to_text(address) + ": " +
                  std::strerror(reason) + remedy);
}

}  // namespace parallax
