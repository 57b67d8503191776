// SPDX-License-Identifier: Apache-2.0
// Interference: what disturbs simulated wires without breaking them: silences of one direction of a
// connection, partitions of the hosts, and spikes of latency. It says what is silent and how late a
// message is; the network holds back and delays. One thread; never blocks.
#ifndef PARALLAX_TRANSPORT_SIM_INTERFERENCE_H_
#define PARALLAX_TRANSPORT_SIM_INTERFERENCE_H_

#include <cstdint>
#include <vector>

#include "base/seeded_random.h"
#include "transport/sim/event_queue.h"
#include "transport/sim/sim_connections.h"
#include "transport/sim/sim_machines.h"

namespace parallax {

class Interference {
 public:
  // What it is made of outlives it. `host_of` is by rank. `random` is the network's.
  Interference(EventQueue& queue, SimMachines& machines, SeededRandom& random,
               const std::vector<uint32_t>& host_of)
      : queue_(queue),
        machines_(machines),
        random_(random),
        host_of_(host_of),
        spikes_(host_of.size()) {}

  // Until `until_ns`, when SimEventKind::kHeal comes; kNever: for good.
  void silence(SimLink& link, int64_t until_ns, int fault);
  void partition(std::vector<bool> side_of_host, int64_t until_ns, int fault);
  void delay_from(uint32_t rank, int64_t spike_ns_max, int64_t until_ns, int fault);

  // The fault that silences the link now, or kNoFault.
  int silencing(const SimLink& link) const;
  // How much later than its wire says a message of this rank arrives.
  int64_t spike_ns(uint32_t from);
  // Drops the partitions that are over.
  void forget_past();

 private:
  struct Partition {
    std::vector<bool> side_of_host;
    int64_t until_ns = 0;
    int fault = kNoFault;
  };
  struct Spike {
    int64_t spike_ns_max = 0;
    int64_t until_ns = 0;
    int fault = kNoFault;
  };

  EventQueue& queue_;
  SimMachines& machines_;
  SeededRandom& random_;
  const std::vector<uint32_t>& host_of_;
  std::vector<Partition> partitions_;
  std::vector<Spike> spikes_;  // by rank
};

}  // namespace parallax

#endif  // PARALLAX_TRANSPORT_SIM_INTERFERENCE_H_
