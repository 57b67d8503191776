// SPDX-License-Identifier: Apache-2.0
// The ports of simulated ranks and hosts, and how long each is taken.
#include "transport/sim/sim_ports.h"

#include <algorithm>

namespace parallax {

SimPorts::SimPorts(const SimOptions& options, const std::vector<uint32_t>& host_of)
    : options_(options), host_of_(host_of), rank_send_free_ns_(host_of.size(), 0) {
  const uint32_t hosts = *std::max_element(host_of.begin(), host_of.end()) + 1;
  host_send_free_ns_.assign(hosts, 0);
  host_take_free_ns_.assign(hosts, 0);
  bus_free_ns_.assign(hosts, 0);
}

const LinkModel& SimPorts::model(uint32_t from, uint32_t to) const {
  return same_host(from, to) ? options_.intra_host : options_.inter_host;
}

int64_t SimPorts::wire_ns(const LinkModel& model, size_t bytes) {
  return static_cast<int64_t>(static_cast<double>(bytes) * 1e9 / model.bytes_per_second);
}

int64_t SimPorts::send(uint32_t from, uint32_t to, size_t bytes, int64_t ready_ns) {
  const LinkModel& wire = model(from, to);
  int64_t& free_ns =
      same_host(from, to) ? rank_send_free_ns_[from] : host_send_free_ns_[host_of_[from]];
  const int64_t start_ns = std::max(ready_ns, free_ns);
  free_ns = start_ns + wire.gap_ns + wire_ns(wire, bytes);
  return start_ns;
}

int64_t SimPorts::cross(uint32_t from, uint32_t to, size_t bytes, int64_t start_ns) {
  const std::vector<uint32_t>& domain_of = options_.domain_of;
  if (domain_of.empty() || !same_host(from, to) || domain_of[from] == domain_of[to]) {
    return start_ns;
  }
  across_bytes_ += bytes;
  int64_t& free_ns = bus_free_ns_[host_of_[from]];
  free_ns = std::max(free_ns, start_ns) +
            static_cast<int64_t>(static_cast<double>(bytes) * 1e9 / options_.bus_bytes_per_second);
  return free_ns;
}

int64_t SimPorts::take_in(uint32_t from, uint32_t to, size_t bytes, int64_t now_ns) {
  int64_t& free_ns = host_take_free_ns_[host_of_[to]];
  int64_t taking_ns = wire_ns(model(from, to), bytes);
  if (free_ns > now_ns) {
    taking_ns += static_cast<int64_t>(static_cast<double>(taking_ns) * options_.incast_penalty);
  }
  return free_ns = std::max(free_ns, now_ns) + taking_ns;
}

}  // namespace parallax
