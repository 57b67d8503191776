// SPDX-License-Identifier: Apache-2.0
// Rails: which ports of which NICs serve which ranks of a host. Pure: from a Topology, so that
// machines that are not at hand are tried from files. Any thread; nothing blocks.
//
// A rank takes, of the ports that work, those of the NICs nearest to it: to its GPU where the host
// has one for each rank, else to its NUMA nodes, as `bind = auto` shares them out. Which GPU is
// the rank's nobody says, so it is taken to be the i-th of local rank i: of those that
// CUDA_VISIBLE_DEVICES shows, else of all, by PCI bus id; where it shows one alone, and not as 0,
// that one. Ranks with the same choice share it out: each has one port, or several while there are
// more ports than ranks. On a host all rails have one link layer, that of its fastest port
// (InfiniBand where they tie), since InfiniBand and Ethernet do not reach each other; and of a
// rank's choice only the fastest ports count, since pieces of a message go over all alike.
#ifndef PARALLAX_TOPOLOGY_RAILS_H_
#define PARALLAX_TOPOLOGY_RAILS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "topology/topology.h"
#include "topology/visible_gpus.h"

namespace parallax {

struct Rail {
  std::string nic;
  uint32_t port = 0;
  uint32_t rate_mbit_s = 0;

  bool operator==(const Rail&) const = default;
};

std::string rail_name(const Rail& rail);  // "mlx5_0:1", as UCX_NET_DEVICES has it

struct RankRails {
  std::vector<Rail> rails;   // the first is the one to use where one is enough
  std::string why;           // for people: "nearest to GPU 0000:27:00.0"
  std::string assumed = {};  // behind it: ", taken for that of local rank 3"; "": nothing is

  bool operator==(const RankRails&) const = default;
};

struct RailRequest {
  uint32_t local_ranks = 1;
  // Of the rank that asks: its place among them, and CUDA's variables in its environment. Others
  // that are shown one GPU alone are taken to have the i-th of the host.
  uint32_t local_rank = 0;
  CudaVariables cuda = {};
  std::string device = {};  // "mlx5_0" or "mlx5_0:1": this alone; "": any
};

// Of each local rank, in order. INVALID: `device` is not here. UNSUPPORTED, with the reason of each
// port: none works.
Status plan_rails(const Topology& topology, const RailRequest& request,
                  std::vector<RankRails>* ranks);

}  // namespace parallax

#endif  // PARALLAX_TOPOLOGY_RAILS_H_
