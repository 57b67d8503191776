// SPDX-License-Identifier: Apache-2.0
// Devices of an hwloc tree: RDMA devices and GPUs, where they hang and who is near whom. Inside the
// topology layer only, since it speaks hwloc's types. Any thread; nothing blocks.
#ifndef PARALLAX_TOPOLOGY_DEVICES_H_
#define PARALLAX_TOPOLOGY_DEVICES_H_

#include <hwloc.h>

#include <vector>

#include "topology/topology.h"

namespace parallax {

// *nics as the tree has them, *gpus by PCI bus id; of *nodes, which are there, the nearest NICs.
void find_devices(hwloc_topology_t tree, std::vector<NumaNode>* nodes, std::vector<Nic>* nics,
                  std::vector<Gpu>* gpus);

}  // namespace parallax

#endif  // PARALLAX_TOPOLOGY_DEVICES_H_
