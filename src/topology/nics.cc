// SPDX-License-Identifier: Apache-2.0
// libibverbs behind nics.h. Every failure means "nothing to see", since most machines have no RDMA
// device and containers often hide it. Any thread; blocks for milliseconds per device.
#include "topology/nics.h"

#include <infiniband/verbs.h>

#include <algorithm>
#include <iterator>
#include <memory>

namespace parallax {
namespace {

struct CloseDevice {
  void operator()(ibv_context* context) const { ibv_close_device(context); }
};
struct FreeDeviceList {
  void operator()(ibv_device** list) const { ibv_free_device_list(list); }
};

std::string state_name(ibv_port_state state) {
  switch (state) {
    case IBV_PORT_DOWN:
      return "down";
    case IBV_PORT_INIT:
      return "init";
    case IBV_PORT_ARMED:
      return "armed";
    case IBV_PORT_ACTIVE:
      return "active";
    case IBV_PORT_ACTIVE_DEFER:
      return "active_defer";
    default:
      return "unknown";
  }
}

std::string link_layer_name(uint8_t link_layer) {
  switch (link_layer) {
    case IBV_LINK_LAYER_INFINIBAND:
      return "infiniband";
    case IBV_LINK_LAYER_ETHERNET:
      return "ethernet";
    default:
      return "unknown";
  }
}

std::vector<NicPort> ports_of(ibv_device* device) {
  std::vector<NicPort> ports;
  const std::unique_ptr<ibv_context, CloseDevice> context(ibv_open_device(device));
  if (!context) return ports;
  ibv_device_attr attributes = {};
  if (ibv_query_device(context.get(), &attributes) != 0) return ports;
  for (uint32_t number = 1; number <= attributes.phys_port_cnt; ++number) {
    ibv_port_attr port = {};
    if (ibv_query_port(context.get(), static_cast<uint8_t>(number), &port) != 0) continue;
    ports.push_back({.number = number,
                     .state = state_name(port.state),
                     .link_layer = link_layer_name(port.link_layer)});
  }
  return ports;
}

}  // namespace

void add_verbs_devices(std::vector<Nic>* nics) {
  int count = 0;
  const std::unique_ptr<ibv_device*, FreeDeviceList> devices(ibv_get_device_list(&count));
  if (!devices) return;
  for (int i = 0; i < count; ++i) {
    ibv_device* device = devices.get()[i];
    const std::string name = ibv_get_device_name(device);
    auto nic = std::find_if(nics->begin(), nics->end(),
                            [&](const Nic& other) { return other.name == name; });
    if (nic == nics->end()) {
      nics->push_back({.name = name, .pci_bus_id = "", .numa_node = kNoNumaNode, .ports = {}});
      nic = std::prev(nics->end());
    }
    nic->ports = ports_of(device);
  }
}

}  // namespace parallax
