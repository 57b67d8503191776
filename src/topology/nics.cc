// SPDX-License-Identifier: Apache-2.0
// libibverbs behind nics.h. Every failure means "nothing to see", since most machines have no RDMA
// device, containers often hide it, and libibverbs need not be installed. Any thread; blocks for
// milliseconds per device.
#include "topology/nics.h"

#include <dlfcn.h>
#include <infiniband/verbs.h>

#include <algorithm>
#include <iterator>
#include <memory>

#include "base/log.h"

namespace parallax {
namespace {

// The functions of libibverbs, which is loaded, not linked: most machines do without it. Stays
// loaded, as its providers do.
struct Verbs {
  decltype(&ibv_get_device_list) get_device_list = nullptr;
  decltype(&ibv_free_device_list) free_device_list = nullptr;
  decltype(&ibv_get_device_name) get_device_name = nullptr;
  decltype(&ibv_open_device) open_device = nullptr;
  decltype(&ibv_close_device) close_device = nullptr;
  decltype(&ibv_query_device) query_device = nullptr;
  // ibv_query_port is a macro too; the function fills in what the struct held in its first version.
  int (*query_port)(ibv_context*, uint8_t, ibv_port_attr*) = nullptr;
};

template <typename Function>
bool find(void* library, const char* name, Function* function) {
  *function = reinterpret_cast<Function>(dlsym(library, name));
  return *function != nullptr;
}

// Null: not installed, or not what we know.
const Verbs* load_verbs() {
  static const Verbs* const loaded = []() -> const Verbs* {
    void* library = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    static Verbs verbs;
    if (library != nullptr && find(library, "ibv_get_device_list", &verbs.get_device_list) &&
        find(library, "ibv_free_device_list", &verbs.free_device_list) &&
        find(library, "ibv_get_device_name", &verbs.get_device_name) &&
        find(library, "ibv_open_device", &verbs.open_device) &&
        find(library, "ibv_close_device", &verbs.close_device) &&
        find(library, "ibv_query_device", &verbs.query_device) &&
        find(library, "ibv_query_port", &verbs.query_port)) {
      return &verbs;
    }
    const char* why = dlerror();
    PARALLAX_LOG(
        kInfo, kNet,
        std::string("ports of RDMA devices cannot be told: libibverbs cannot be loaded: ") +
            (why == nullptr ? "no reason given" : why) +
            "; install it where there are such devices (Debian package libibverbs1)");
    return nullptr;
  }();
  return loaded;
}

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

std::vector<NicPort> ports_of(const Verbs& verbs, ibv_device* device) {
  std::vector<NicPort> ports;
  const std::unique_ptr<ibv_context, decltype(verbs.close_device)> context(
      verbs.open_device(device), verbs.close_device);
  if (!context) return ports;
  ibv_device_attr attributes = {};
  if (verbs.query_device(context.get(), &attributes) != 0) return ports;
  for (uint32_t number = 1; number <= attributes.phys_port_cnt; ++number) {
    ibv_port_attr port = {};
    if (verbs.query_port(context.get(), static_cast<uint8_t>(number), &port) != 0) continue;
    ports.push_back({.number = number,
                     .state = state_name(port.state),
                     .link_layer = link_layer_name(port.link_layer)});
  }
  return ports;
}

}  // namespace

void add_verbs_devices(std::vector<Nic>* nics) {
  const Verbs* verbs = load_verbs();
  if (verbs == nullptr) return;
  int count = 0;
  const std::unique_ptr<ibv_device*, decltype(verbs->free_device_list)> devices(
      verbs->get_device_list(&count), verbs->free_device_list);
  if (!devices) return;
  for (int i = 0; i < count; ++i) {
    ibv_device* device = devices.get()[i];
    const std::string name = verbs->get_device_name(device);
    auto nic = std::find_if(nics->begin(), nics->end(),
                            [&](const Nic& other) { return other.name == name; });
    if (nic == nics->end()) {
      nics->push_back({.name = name, .pci_bus_id = "", .numa_node = kNoNumaNode, .ports = {}});
      nic = std::prev(nics->end());
    }
    nic->ports = ports_of(*verbs, device);
  }
}

}  // namespace parallax
