// SPDX-License-Identifier: Apache-2.0
// SimOptions: the machine that the simulator pretends to be. Plain values, copied by SimWorld.
// The link model is LogGP (Alexandrov et al. 1995: latency, overhead, gap, gap per byte) with ports
// shared by the ranks of a host, so that incast shows.
#ifndef PARALLAX_TRANSPORT_SIM_SIM_OPTIONS_H_
#define PARALLAX_TRANSPORT_SIM_SIM_OPTIONS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

namespace parallax {

struct LinkModel {
  int64_t latency_ns = 0;         // first byte out to first byte in
  int64_t overhead_ns = 0;        // of the CPU, per message, on the sender and on the receiver
  int64_t gap_ns = 0;             // least time between two messages out of one port
  double bytes_per_second = 1e9;  // of the port, in each direction
  int64_t jitter_ns = 0;          // 0..jitter_ns is added to each message's latency
};

struct SimOptions {
  uint32_t world = 1;
  std::vector<uint32_t> host_of = {};    // host index of each rank; empty: one host
  std::vector<uint32_t> domain_of = {};  // of memory on its host, of each rank; empty: one a host
  uint64_t seed = 1;

  LinkModel intra_host{300, 100, 20, 12e9, 0};      // memory; a port per rank
  double bus_bytes_per_second = 40e9;               // between domains; one for a host
  LinkModel inter_host{2'000, 300, 50, 12.5e9, 0};  // 100 Gbit/s; a port per host

  bool incast = true;         // a host's port takes in one message at a time
  double incast_penalty = 0;  // extra part of a message's time when it had to wait for the port
  double compute_ns_per_byte = 0.1;
  int64_t run_overhead_ns = 200;  // of one run of an actor; keeps virtual time moving

  size_t message_bytes_max = 64 * 1024;

  // Uses every freedom that the transport's contract leaves: odd addresses, a message's memory
  // overwritten after the call, messages dropped or not by forget(), completions before or after
  // the loss. Also checks that senders leave borrowed segments alone.
  bool adversarial = true;

  uint64_t events_max = UINT64_MAX;  // a bound on run_until, against actors that never rest
};

}  // namespace parallax

#endif  // PARALLAX_TRANSPORT_SIM_SIM_OPTIONS_H_
