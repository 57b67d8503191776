// SPDX-License-Identifier: Apache-2.0
// Nics: the RDMA devices that libibverbs can see. Inside the topology layer only. Opens each device
// for a moment to ask for its ports, so it may block for milliseconds; any thread.
#ifndef PARALLAX_TOPOLOGY_NICS_H_
#define PARALLAX_TOPOLOGY_NICS_H_

#include <string>
#include <vector>

#include "topology/topology.h"

namespace parallax {

// Fills in the ports of the devices listed, by name, and adds those that are not; of one that
// cannot be asked, why. *no_nics_why: where there is none in the end.
void add_verbs_devices(std::vector<Nic>* nics, std::string* no_nics_why);

// Why this machine has no RDMA device, from its files below `root` ("" is the machine itself) and
// what the loader said of libibverbs ("": it was loaded).
std::string why_no_nics(const std::string& root, const std::string& library_why);

// The addresses of a port as the kernel's files below the device's folder tell them, by index:
// where libibverbs is too old to tell them with their types.
std::vector<NicGid> gids_in_files(const std::string& device_folder, uint32_t port);

// Why a device that is there could not be opened, with what to do.
std::string why_not_open(int error);

}  // namespace parallax

#endif  // PARALLAX_TOPOLOGY_NICS_H_
