// SPDX-License-Identifier: Apache-2.0
// SimConnections: who talks to whom on the simulated wires, and which processes are gone. One
// thread; never blocks.
//
// A connection is two SimLinks, one per direction, made on first use. A link belongs to its sender:
// link(a, b) holds what a knows of b (credits, whether b is lost), and carries a's messages, a's
// acknowledgements of b's messages, and a's reset, all in order.
#ifndef PARALLAX_TRANSPORT_SIM_SIM_CONNECTIONS_H_
#define PARALLAX_TRANSPORT_SIM_SIM_CONNECTIONS_H_

#include <cstdint>
#include <deque>
#include <unordered_map>
#include <vector>

#include "transport/sim/sim_machines.h"
#include "transport/sim/sim_message.h"

namespace parallax {

struct SimLink {
  uint32_t from = 0;
  uint32_t to = 0;
  uint32_t in_flight = 0;
  bool broken = false;  // from's side of the connection is gone; from is being told
  bool closed = false;  // from knows, or forgot the peer
  int fault = kNoFault;
  int64_t silent_until_ns = 0;  // by that fault
  int64_t arrive_floor_ns = 0;  // FIFO: no message overtakes another
  int64_t deliver_floor_ns = 0;
  SimMessage* pending_head = nullptr;  // sends that are not complete, in order
  SimMessage* pending_tail = nullptr;
  std::vector<SimMessage*> held;  // by a silence, in order

  void add_pending(SimMessage* message);
  void remove_pending(SimMessage* message);
};

struct SimProcess {
  bool gone = false;
  bool seen = false;            // whoever sends to it is answered with a reset
  std::vector<uint32_t> peers;  // in order of first contact
};

class SimConnections {
 public:
  explicit SimConnections(uint32_t world) : processes_(world) {}

  // References to links stay.
  SimLink& link(uint32_t from, uint32_t to);
  const SimLink* find(uint32_t from, uint32_t to) const;  // null: not made yet
  SimProcess& process(uint32_t rank) { return processes_[rank]; }

  bool connected(uint32_t a, uint32_t b) const;
  uint32_t nth_peer(uint32_t rank, uint64_t n) const;  // rank itself if it has no peer yet

 private:
  static uint64_t key(uint32_t from, uint32_t to) { return uint64_t{from} << 32 | to; }

  std::deque<SimLink> links_;
  std::unordered_map<uint64_t, uint32_t> link_index_;
  std::vector<SimProcess> processes_;
};

}  // namespace parallax

#endif  // PARALLAX_TRANSPORT_SIM_SIM_CONNECTIONS_H_
