// SPDX-License-Identifier: Apache-2.0
// Draws NICs, GPUs and who is near whom, as `parallax info` shows it. Pure text from plain values.
#ifndef PARALLAX_TOOL_TOPOLOGY_TREE_H_
#define PARALLAX_TOOL_TOPOLOGY_TREE_H_

#include <string>

#include "topology/topology.h"

namespace parallax::tool {

// "100 Gbit/s", "2.5 Gbit/s"; "rate unknown".
std::string rate_text(uint32_t rate_mbit_s);

// "active, Ethernet, 100 Gbit/s, MTU 4096 of 4096"
std::string port_text(const NicPort& port);

// Under each NUMA node its GPUs and NICs with their ports and addresses; then which ports serve
// which local ranks, of as many ranks as there are GPUs, else NUMA nodes. Lines end in newlines.
std::string topology_tree(const Topology& topology);

}  // namespace parallax::tool

#endif  // PARALLAX_TOOL_TOPOLOGY_TREE_H_
