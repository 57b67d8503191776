// SPDX-License-Identifier: Apache-2.0
// Silences, partitions and spikes on the simulated wires.
#include "transport/sim/interference.h"

#include <utility>

namespace parallax {

void Interference::silence(SimLink& link, int64_t until_ns, int fault) {
  if (until_ns > link.silent_until_ns) {  // else within a longer one, and never felt
    link.silent_until_ns = until_ns;
    link.fault = fault;
  }
  if (until_ns != kNever) queue_.push(until_ns, SimEventKind::kHeal, link.from);
}

void Interference::partition(std::vector<bool> side_of_host, int64_t until_ns, int fault) {
  partitions_.push_back({std::move(side_of_host), until_ns, fault});
  if (until_ns != kNever) queue_.push(until_ns, SimEventKind::kHeal, 0);
}

void Interference::delay_from(uint32_t rank, int64_t spike_ns_max, int64_t until_ns, int fault) {
  spikes_[rank] = {spike_ns_max, until_ns, fault};
}

int Interference::silencing(const SimLink& link) const {
  const int64_t now_ns = queue_.now_ns();
  if (link.silent_until_ns > now_ns) return link.fault;
  for (const Partition& partition : partitions_) {
    if (partition.until_ns > now_ns &&
        partition.side_of_host[host_of_[link.from]] != partition.side_of_host[host_of_[link.to]]) {
      return partition.fault;
    }
  }
  return kNoFault;
}

// Most messages are late by a little, some by much: that is what moves one rank's messages past
// another's.
int64_t Interference::spike_ns(uint32_t from) {
  const Spike& spike = spikes_[from];
  if (spike.until_ns <= queue_.now_ns()) return 0;
  machines_.on_fault_felt(spike.fault, from);
  const int64_t most_ns = random_.chance(20) ? spike.spike_ns_max : spike.spike_ns_max / 50;
  return random_.between(0, most_ns);
}

void Interference::forget_past() {
  const int64_t now_ns = queue_.now_ns();
  std::erase_if(partitions_, [now_ns](const Partition& p) { return p.until_ns <= now_ns; });
}

}  // namespace parallax
