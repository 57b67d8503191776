// SPDX-License-Identifier: Apache-2.0
// See devices.h. How near two devices are is read off hwloc's tree, where bridges and switches are
// objects like packages and NUMA nodes: the deeper their first common ancestor, the nearer.
#include "topology/devices.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <string>
#include <utility>

namespace parallax {
namespace {

using Path = std::vector<hwloc_obj_t>;  // from the root down

Path path_to(hwloc_obj_t object) {
  Path path;
  for (; object != nullptr; object = object->parent) path.push_back(object);
  std::reverse(path.begin(), path.end());
  return path;
}

// Ancestors that both hang under.
size_t shared_depth(const Path& a, const Path& b) {
  const auto parting = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
  return static_cast<size_t>(parting.first - a.begin());
}

// The NUMA node that a device hangs off; none when it is as near to several.
int32_t numa_node_of(hwloc_topology_t tree, hwloc_obj_t device) {
  const hwloc_obj_t ancestor = hwloc_get_non_io_ancestor_obj(tree, device);
  if (ancestor == nullptr || ancestor->nodeset == nullptr) return kNoNumaNode;
  if (hwloc_bitmap_weight(ancestor->nodeset) != 1) return kNoNumaNode;
  return hwloc_bitmap_first(ancestor->nodeset);
}

std::string bus_id(const hwloc_obj_attr_u::hwloc_pcidev_attr_s& pci) {
  std::array<char, 32> text = {};
  std::snprintf(text.data(), text.size(), "%04x:%02x:%02x.%01x", pci.domain, pci.bus, pci.dev,
                pci.func);
  return text.data();
}

// Of the PCI device that an OS device belongs to; "" if there is none.
std::string bus_id_above(hwloc_obj_t device) {
  while (device != nullptr && device->type != HWLOC_OBJ_PCI_DEVICE) device = device->parent;
  return device == nullptr ? "" : bus_id(device->attr->pcidev);
}

// hwloc tells the state as the kernel does, "4" or "4: ACTIVE", by its version.
std::vector<NicPort> ports_in(hwloc_obj_t device) {
  static constexpr const char* kStates[] = {"unknown", "down",   "init",
                                            "armed",   "active", "active_defer"};
  std::vector<NicPort> ports;
  for (uint32_t number = 1;; ++number) {
    const std::string key = "Port" + std::to_string(number) + "State";
    const char* state = hwloc_obj_get_info_by_name(device, key.c_str());
    if (state == nullptr) return ports;
    const bool known = state[0] >= '1' && state[0] <= '5';
    ports.push_back(
        {.number = number, .state = kStates[known ? state[0] - '0' : 0], .link_layer = "unknown"});
  }
}

// PCI's class codes: what displays, and what only accelerates.
bool is_gpu_class(uint16_t class_id) {
  return class_id == 0x0300 || class_id == 0x0302 || class_id == 0x0380 || class_id == 0x1200;
}

// Null: one whose devices of these classes are no GPUs to compute with (ASPEED, Matrox).
const char* gpu_vendor(uint16_t vendor_id) {
  switch (vendor_id) {
    case 0x10de:
      return "NVIDIA";
    case 0x1002:
      return "AMD";
    case 0x8086:
      return "Intel";
    default:
      return nullptr;
  }
}

std::string model_of(hwloc_obj_t device) {
  const char* name = hwloc_obj_get_info_by_name(device, "PCIDevice");
  if (name != nullptr && name[0] != '\0') return name;
  std::array<char, 16> numbers = {};
  std::snprintf(numbers.data(), numbers.size(), "%04x:%04x", device->attr->pcidev.vendor_id,
                device->attr->pcidev.device_id);
  return numbers.data();
}

struct PlacedNic {
  std::string name;
  Path path;
};

std::vector<std::string> nearest(const Path& place, const std::vector<PlacedNic>& nics) {
  size_t deepest = 0;
  for (const PlacedNic& nic : nics) deepest = std::max(deepest, shared_depth(place, nic.path));
  std::vector<std::string> names;
  for (const PlacedNic& nic : nics) {
    if (shared_depth(place, nic.path) == deepest) names.push_back(nic.name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace

void find_devices(hwloc_topology_t tree, std::vector<NumaNode>* nodes, std::vector<Nic>* nics,
                  std::vector<Gpu>* gpus) {
  std::vector<PlacedNic> placed;
  hwloc_obj_t device = nullptr;
  while ((device = hwloc_get_next_osdev(tree, device)) != nullptr) {
    if (device->attr->osdev.type != HWLOC_OBJ_OSDEV_OPENFABRICS || device->name == nullptr)
      continue;
    nics->push_back({.name = device->name,
                     .pci_bus_id = bus_id_above(device),
                     .numa_node = numa_node_of(tree, device),
                     .ports = ports_in(device)});
    placed.push_back({.name = device->name, .path = path_to(device)});
  }
  for (NumaNode& node : *nodes) {
    const hwloc_obj_t object = hwloc_get_numanode_obj_by_os_index(tree, node.index);
    // What hangs off the node is its sibling in the tree.
    if (object != nullptr) node.nics = nearest(path_to(object->parent), placed);
  }
  while ((device = hwloc_get_next_pcidev(tree, device)) != nullptr) {
    const auto& pci = device->attr->pcidev;
    const char* vendor = gpu_vendor(pci.vendor_id);
    if (vendor == nullptr || !is_gpu_class(pci.class_id)) continue;
    gpus->push_back({.pci_bus_id = bus_id(pci),
                     .vendor = vendor,
                     .model = model_of(device),
                     .numa_node = numa_node_of(tree, device),
                     .nics = nearest(path_to(device), placed)});
  }
  std::sort(gpus->begin(), gpus->end(),
            [](const Gpu& a, const Gpu& b) { return a.pci_bus_id < b.pci_bus_id; });
}

}  // namespace parallax
