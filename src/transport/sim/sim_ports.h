// SPDX-License-Identifier: Apache-2.0
// SimPorts: when a message leaves its port and when the other port has taken it in, by the link
// model. Between hosts the ranks of a host share its port; within one each rank has its own, and
// all share the bus between domains of memory. One thread; never blocks.
#ifndef PARALLAX_TRANSPORT_SIM_SIM_PORTS_H_
#define PARALLAX_TRANSPORT_SIM_SIM_PORTS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "transport/sim/sim_options.h"

namespace parallax {

class SimPorts {
 public:
  // Both outlive the ports; `host_of` is by rank.
  SimPorts(const SimOptions& options, const std::vector<uint32_t>& host_of);

  bool same_host(uint32_t a, uint32_t b) const { return host_of_[a] == host_of_[b]; }
  const LinkModel& model(uint32_t from, uint32_t to) const;
  // That many bytes at the bandwidth of the wire.
  static int64_t wire_ns(const LinkModel& model, size_t bytes);

  // The sender's port is taken for a message that is ready at `ready_ns`. Returns when it starts.
  int64_t send(uint32_t from, uint32_t to, size_t bytes, int64_t ready_ns);
  // The receiving host's port takes in one message at a time. Returns when it has all of it.
  int64_t take_in(uint32_t from, uint32_t to, size_t bytes, int64_t now_ns);
  // What crosses between domains of a host is through their bus at its earliest, after it was sent
  // at `start_ns`; what does not, at once.
  int64_t cross(uint32_t from, uint32_t to, size_t bytes, int64_t start_ns);
  // So far, through the buses of all hosts.
  uint64_t across_bytes() const { return across_bytes_; }

 private:
  const SimOptions& options_;
  const std::vector<uint32_t>& host_of_;
  std::vector<int64_t> host_send_free_ns_, host_take_free_ns_, rank_send_free_ns_, bus_free_ns_;
  uint64_t across_bytes_ = 0;
};

}  // namespace parallax

#endif  // PARALLAX_TRANSPORT_SIM_SIM_PORTS_H_
