// SPDX-License-Identifier: Apache-2.0
// NetworkTransport: a Transport between hosts that lives in a module of its own. Its ranks find
// each other by addresses, which the rendezvous carries. Threads and blocking as in transport.h;
// the methods added here belong to the owner too, and none of them waits for a peer.
#ifndef PARALLAX_TRANSPORT_MODULE_NETWORK_TRANSPORT_H_
#define PARALLAX_TRANSPORT_MODULE_NETWORK_TRANSPORT_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "transport/transport.h"

namespace parallax {

// Devices that one rank may use at once, its rails.
inline constexpr size_t kRailsMax = 8;

struct NetworkOptions {
  uint32_t rank = 0;
  uint32_t world = 0;
  std::string net_device = {};  // "lo", "eth0", "mlx5_0:1"; empty: the network library's own choice
  // More devices, for what peers place in each other's memory (remote_writes.h) alone; rail i of a
  // rank reaches rail i of another. At most kRailsMax - 1.
  std::vector<std::string> more_devices = {};
  bool more_devices_asked = false;  // create() fails where one does not open; else it does without
  std::string transports = {};      // the library's names, "tcp"; empty: by the device
  size_t message_bytes_max = 0;     // 0: the transport's default; the same on every rank
  // Of this rank's memory, what may be registered with RDMA devices so that peers place pieces
  // there; 0: none do.
  uint64_t registered_bytes_max = 0;
};

struct NetworkStats {
  uint64_t strangers_dropped = 0;  // messages that no rank of this job can have meant for us
  uint64_t late_dropped = 0;       // messages of ranks that were lost or forgotten before
  uint64_t credits_sent = 0;       // acknowledgements, which are messages on the wire too
  uint64_t endpoints_opened = 0;
};

// By what a rank is reached, for reports.
struct NetworkWay {
  std::string text = {};   // "rc_verbs/mlx5_0:1 to mlx5_1:1": own transport and device, the peer's
  std::string lacks = {};  // clauses: what it does less well than was hoped for; empty: nothing

  bool operator==(const NetworkWay&) const = default;
};

class NetworkTransport : public Transport {
 public:
  // What the other ranks need to reach this one: opaque bytes, fixed for its life. It also proves
  // to this rank that a sender was given it, so it is for the rendezvous alone, never for a log.
  virtual std::string address() const = 0;

  // Records how to reach `rank`; the connection itself is made by the first message in either
  // direction. Messages of ranks that were not recorded are strangers'. Once per rank. INVALID.
  virtual Status connect(uint32_t rank, const std::string& address) = 0;

  // Connects to those ranks, each of which calls this for this one too, so that no connection is in
  // the making when it returns: a peer that dies then is one most libraries cannot bear. Nobody
  // sends meanwhile. Blocks up to the deadline. PEER_LOST and TIMEOUT: a clause about *missing, the
  // first rank that was not reached.
  virtual Status wire(std::span<const uint32_t> ranks, int64_t deadline_ns, uint32_t* missing) = 0;

  // "tcp on lo": for reports. What a network library may choose from, where it chooses by itself.
  virtual std::string description() const = 0;

  // What was chosen for that rank; an empty text: nothing else than what description() says, or
  // there is no connection yet.
  virtual NetworkWay way_to(uint32_t /*rank*/) { return {}; }

  virtual NetworkStats stats() const = 0;
};

}  // namespace parallax

#endif  // PARALLAX_TRANSPORT_MODULE_NETWORK_TRANSPORT_H_
