// SPDX-License-Identifier: Apache-2.0
// Nics: the RDMA devices that libibverbs can see. Inside the topology layer only. Opens each device
// for a moment to ask for its ports, so it may block for milliseconds; any thread.
#ifndef PARALLAX_TOPOLOGY_NICS_H_
#define PARALLAX_TOPOLOGY_NICS_H_

#include <vector>

#include "topology/topology.h"

namespace parallax {

// Fills in the ports of the devices listed, by name, and adds those that are not. Leaves *nics
// alone where there is no /dev/infiniband, no driver or no permission.
void add_verbs_devices(std::vector<Nic>* nics);

}  // namespace parallax

#endif  // PARALLAX_TOPOLOGY_NICS_H_
