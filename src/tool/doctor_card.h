// SPDX-License-Identifier: Apache-2.0
// Card: what a rank tells the others under `parallax doctor`, as text for the rendezvous. Values;
// any thread. A card is a peer's, and is checked as it is read.
#ifndef PARALLAX_TOOL_DOCTOR_CARD_H_
#define PARALLAX_TOOL_DOCTOR_CARD_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "tool/doctor_rdma.h"
#include "tool/reach.h"

namespace parallax::tool {

struct Card {
  std::string version, git, host, machine, shm_address;
  std::vector<TcpEndpoint> endpoints;
  std::vector<uint32_t> mtus_bytes;   // of the interface of each endpoint; 0: unknown
  std::vector<uint16_t> other_ports;  // at which it listens, too, at each of their addresses
  uint32_t rails = 0;  // the first so many endpoints are each a rail's; see ListenPlan
  RdmaCard rdma;
  std::string rdma_address;  // as RdmaReach gives it
  uint64_t secret = 0;
  std::string secret_mark;  // of the job's secret; see doctor_paths.h
  bool failed = false;
};

std::string encode(const Card& card);

// INVALID.
Status decode(const std::string& blob, Card* card);

}  // namespace parallax::tool

#endif  // PARALLAX_TOOL_DOCTOR_CARD_H_
