// SPDX-License-Identifier: Apache-2.0
// Reach: whether TCP from here to there works, and how far the clocks are apart. A Listener answers
// the time to whoever says its secret, and nothing to anyone else: at most 64 bytes are read of a
// stranger, for at most a second, one at a time. Used by `parallax doctor` alone.
#ifndef PARALLAX_TOOL_REACH_H_
#define PARALLAX_TOOL_REACH_H_

#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "base/status.h"
#include "transport/shm/unique_fd.h"

namespace parallax::tool {

struct TcpEndpoint {
  std::string address;  // numeric
  uint16_t port = 0;
};
std::string describe(const TcpEndpoint& endpoint);  // "10.0.0.1:4711", "[::1]:4711"

class Listener {
 public:
  ~Listener();
  // A port of the kernel's choice on each address. Starts the thread that answers. IO, LIMIT.
  Status start(const std::vector<std::string>& addresses);
  const std::vector<TcpEndpoint>& endpoints() const { return endpoints_; }
  uint64_t secret() const { return secret_; }

 private:
  void serve();
  void answer(int socket) const;

  std::vector<UniqueFd> sockets_;
  std::vector<TcpEndpoint> endpoints_;
  uint64_t secret_ = 0;
  UniqueFd stop_;
  std::thread thread_;
};

struct Probe {
  int64_t round_trip_ns = 0;
  int64_t clock_ahead_ns = 0;  // of the peer's wall clock; right to half the round trip
};

// IO: why it cannot be reached ("no route to host", "refused", "no answer after 2000 ms").
Status probe_peer(const TcpEndpoint& peer, uint64_t secret, int64_t timeout_ms, Probe* probe);

int64_t wall_clock_ns();

}  // namespace parallax::tool

#endif  // PARALLAX_TOOL_REACH_H_
