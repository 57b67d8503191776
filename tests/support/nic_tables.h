// SPDX-License-Identifier: Apache-2.0
// Port tables as RDMA devices have them, for tests on machines without any.
#ifndef PARALLAX_TESTS_SUPPORT_NIC_TABLES_H_
#define PARALLAX_TESTS_SUPPORT_NIC_TABLES_H_

#include <string>
#include <utility>
#include <vector>

#include "topology/topology.h"

namespace parallax::testkit {

inline NicGid gid_entry(uint32_t index, const std::string& address, const std::string& type,
                        const std::string& net_device = "", uint32_t net_mtu_bytes = 0) {
  return {.index = index,
          .address = address,
          .type = type,
          .net_device = net_device,
          .net_mtu_bytes = net_mtu_bytes};
}

// NDR: one address, the device's own.
inline NicPort infiniband_port(uint32_t lid = 7, uint32_t rate_mbit_s = 400'000) {
  return {.number = 1,
          .state = "active",
          .link_layer = "infiniband",
          .physical_state = "link_up",
          .rate_mbit_s = rate_mbit_s,
          .mtu_bytes = 4096,
          .mtu_bytes_max = 4096,
          .lid = lid,
          .gids = {gid_entry(0, "fe80::a288:c203:f3:1a2b", "ib")}};
}

// As a ConnectX on Ethernet fills its table: both versions of each address of the net device.
inline NicPort roce_port(const std::string& net_device = "eth2", uint32_t net_mtu_bytes = 9000) {
  const auto entry = [&](uint32_t index, const std::string& address, const std::string& type) {
    return gid_entry(index, address, type, net_device, net_mtu_bytes);
  };
  return {.number = 1,
          .state = "active",
          .link_layer = "ethernet",
          .physical_state = "link_up",
          .rate_mbit_s = 100'000,
          .mtu_bytes = 4096,
          .mtu_bytes_max = 4096,
          .lid = 0,
          .gids = {entry(0, "fe80::ba3f:d2ff:fe12:3456", "roce_v1"),
                   entry(1, "fe80::ba3f:d2ff:fe12:3456", "roce_v2"),
                   entry(2, "::ffff:10.1.2.3", "roce_v1"), entry(3, "::ffff:10.1.2.3", "roce_v2")}};
}

inline NicPort down_port() {
  NicPort port = infiniband_port(0, 10'000);
  port.state = "down";
  port.physical_state = "polling";
  return port;
}

inline Nic nic_with(const std::string& name, std::vector<NicPort> ports) {
  return {.name = name,
          .pci_bus_id = "0000:3b:00.0",
          .numa_node = 0,
          .ports = std::move(ports),
          .firmware = "28.39.1002"};
}

}  // namespace parallax::testkit

#endif  // PARALLAX_TESTS_SUPPORT_NIC_TABLES_H_
