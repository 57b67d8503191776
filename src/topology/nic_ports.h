// SPDX-License-Identifier: Apache-2.0
// What the numbers of a port's table mean: names, rates, which of its addresses serves, and whether
// a port can be used at all. Pure, so that it is tested on tables of machines that are not at hand;
// any thread.
#ifndef PARALLAX_TOPOLOGY_NIC_PORTS_H_
#define PARALLAX_TOPOLOGY_NIC_PORTS_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "topology/topology.h"

namespace parallax {

// As InfiniBand's specification numbers them (and enum ibv_port_state, ibv_mtu, ... of libibverbs);
// "unknown" and 0 for numbers that it does not have.
std::string port_state_name(uint32_t state);
std::string physical_state_name(uint32_t state);
std::string gid_type_name(uint32_t type);
uint32_t mtu_bytes_of(uint32_t mtu);
// Nominal, as `ibstat` and the kernel tell it: 4 lanes of EDR are 100 Gbit/s.
uint32_t rate_mbit_s_of(uint32_t width, uint32_t speed);
std::string gid_address(std::span<const uint8_t, 16> raw);
std::string canonical_address(const std::string& text);  // "fe80:0000:...": "fe80::1"; "": is none

// What a RoCE address is made of.
enum class GidFamily : uint8_t { kIpv4, kIpv6, kLinkLocal };
GidFamily family_of(const NicGid& gid);
std::string describe(const NicGid& gid);  // "::ffff:10.0.0.1 (RoCE v2, IPv4, eth0)"

// The address that UCX takes for RoCE: version 2 before 1, IPv4 before IPv6 (a link-local one
// counts as such), then the lowest index (uct_ib_device_select_gid of UCX 1.13). Null: none.
const NicGid* chosen_gid(const NicPort& port);

// The largest packets of RoCE that fit a network device's: 1500 gives 1024, 4200 and more 4096.
uint32_t roce_mtu_bytes(uint32_t net_mtu_bytes);

// Why no data can go through the port; "": it can.
std::string port_trouble(const NicPort& port);

// The text of `parallax info --json -t`, or its part `nics`: the devices of another machine.
// INVALID.
Status read_nics_json(const std::string& text, std::vector<Nic>* nics);

// Ports, firmware and errors of `known` go to the NICs of the same names; NICs that are not there
// are added.
void merge_nics(const std::vector<Nic>& known, std::vector<Nic>* nics);

}  // namespace parallax

#endif  // PARALLAX_TOPOLOGY_NIC_PORTS_H_
