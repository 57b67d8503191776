// SPDX-License-Identifier: Apache-2.0
// discover(): hwloc's tree folded into the plain struct of topology.h. Blocks for tens of
// milliseconds; any thread, one at a time; each call has an hwloc topology of its own and frees it.
#include <hwloc.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <fstream>
#include <memory>
#include <mutex>
#include <string>
#include <system_error>
#include <tuple>
#include <utility>

#include "topology/nics.h"
#include "topology/topology.h"

namespace parallax {
namespace {

struct DestroyTopology {
  void operator()(hwloc_topology* tree) const { hwloc_topology_destroy(tree); }
};
using Tree = std::unique_ptr<hwloc_topology, DestroyTopology>;

struct FreeBitmap {
  void operator()(hwloc_bitmap_s* bitmap) const { hwloc_bitmap_free(bitmap); }
};
using Bitmap = std::unique_ptr<hwloc_bitmap_s, FreeBitmap>;

// The kernel's one-line files end in a newline.
std::string first_line(const char* path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::string host_name() {
  std::array<char, HOST_NAME_MAX + 1> name = {};
  if (gethostname(name.data(), name.size() - 1) != 0) return "";
  return name.data();
}

uint32_t count_of(hwloc_topology_t tree, hwloc_obj_type_t type) {
  const int count = hwloc_get_nbobjs_by_type(tree, type);
  return count > 0 ? static_cast<uint32_t>(count) : 0;  // -1: at several depths, -2: unknown
}

uint32_t weight(hwloc_const_bitmap_t set) {
  const int bits = set == nullptr ? 0 : hwloc_bitmap_weight(set);
  return bits > 0 ? static_cast<uint32_t>(bits) : 0;
}

// What cgroups allow and what this process is bound to. A tree from a file has no process.
uint32_t allowed_pus(hwloc_topology_t tree) {
  const Bitmap allowed(hwloc_bitmap_dup(hwloc_topology_get_allowed_cpuset(tree)));
  const Bitmap bound(hwloc_bitmap_alloc());
  if (!allowed || !bound) return 0;
  if (hwloc_topology_is_thissystem(tree) &&
      hwloc_get_cpubind(tree, bound.get(), HWLOC_CPUBIND_PROCESS) == 0) {
    hwloc_bitmap_and(allowed.get(), allowed.get(), bound.get());
  }
  return weight(allowed.get());
}

std::vector<NumaNode> numa_nodes(hwloc_topology_t tree) {
  std::vector<NumaNode> nodes;
  hwloc_obj_t node = nullptr;
  while ((node = hwloc_get_next_obj_by_type(tree, HWLOC_OBJ_NUMANODE, node)) != nullptr) {
    nodes.push_back({.index = node->os_index,
                     .memory_bytes = node->attr->numanode.local_memory,
                     .pus = weight(node->cpuset)});
  }
  return nodes;
}

std::string cache_kind(hwloc_obj_cache_type_t type) {
  if (type == HWLOC_OBJ_CACHE_DATA) return "data";
  return type == HWLOC_OBJ_CACHE_INSTRUCTION ? "instruction" : "unified";
}

std::vector<Cache> caches(hwloc_topology_t tree) {
  std::vector<Cache> found;
  const int depth_count = hwloc_topology_get_depth(tree);
  for (int depth = 0; depth < depth_count; ++depth) {
    const hwloc_obj_type_t type = hwloc_get_depth_type(tree, depth);
    if (!hwloc_obj_type_is_cache(type) && !hwloc_obj_type_is_icache(type)) continue;
    hwloc_obj_t object = nullptr;
    while ((object = hwloc_get_next_obj_by_depth(tree, depth, object)) != nullptr) {
      const auto& attributes = object->attr->cache;
      const Cache cache = {.level = attributes.depth,
                           .kind = cache_kind(attributes.type),
                           .size_bytes = attributes.size,
                           .line_bytes = attributes.linesize,
                           .count = 1,
                           .pus_sharing = weight(object->cpuset)};
      const auto alike = std::find_if(found.begin(), found.end(), [&](Cache other) {
        other.count = 1;
        return other == cache;
      });
      if (alike == found.end()) {
        found.push_back(cache);
      } else {
        ++alike->count;
      }
    }
  }
  std::sort(found.begin(), found.end(), [](const Cache& a, const Cache& b) {
    return std::tie(a.level, a.kind, a.size_bytes) < std::tie(b.level, b.kind, b.size_bytes);
  });
  return found;
}

// The NUMA node that a device hangs off; none when it is as near to several.
int32_t numa_node_of(hwloc_topology_t tree, hwloc_obj_t device) {
  const hwloc_obj_t ancestor = hwloc_get_non_io_ancestor_obj(tree, device);
  if (ancestor == nullptr || ancestor->nodeset == nullptr) return kNoNumaNode;
  if (hwloc_bitmap_weight(ancestor->nodeset) != 1) return kNoNumaNode;
  return hwloc_bitmap_first(ancestor->nodeset);
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

std::vector<Nic> openfabrics_nics(hwloc_topology_t tree) {
  std::vector<Nic> nics;
  hwloc_obj_t device = nullptr;
  while ((device = hwloc_get_next_osdev(tree, device)) != nullptr) {
    if (device->attr->osdev.type != HWLOC_OBJ_OSDEV_OPENFABRICS || device->name == nullptr)
      continue;
    nics.push_back(
        {.name = device->name, .numa_node = numa_node_of(tree, device), .ports = ports_in(device)});
  }
  return nics;
}

Status hwloc_failed(const char* call) {
  return io_error(std::string("hwloc: ") + call + " failed (" +
                  std::system_category().message(errno) +
                  "); `lstopo` shows whether hwloc works on this machine");
}

Status bad_xml() {
  return invalid("hwloc cannot read the XML; `lstopo --of xml` writes what it reads");
}

// Plugins of hwloc to do without; one that is not installed is no error here. Those for GPUs start
// each vendor's runtime, CUDA's too, which costs seconds and must not happen in a process that may
// yet fork. "pci" goes through libpciaccess, which leaks at every call; without it hwloc reads the
// same devices from sysfs.
void leave_out_plugins([[maybe_unused]] hwloc_topology_t tree) {
#if HWLOC_API_VERSION >= 0x00020100
  for (const char* plugin : {"cuda", "nvml", "opencl", "rsmi", "levelzero", "gl", "pci"}) {
    (void)hwloc_topology_set_components(tree, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, plugin);
  }
#endif
}

Status load(const DiscoverOptions& options, Tree* loaded) {
  hwloc_topology_t raw = nullptr;
  if (hwloc_topology_init(&raw) != 0) return hwloc_failed("hwloc_topology_init");
  Tree tree(raw);
  if (!options.hwloc_xml.empty()) {
    // The length that hwloc wants counts the NUL, and it is an int.
    if (options.hwloc_xml.size() >= INT_MAX) return invalid("the hwloc XML is 2 GiB or longer");
    const int bytes = static_cast<int>(options.hwloc_xml.size() + 1);
    if (hwloc_topology_set_xmlbuffer(raw, options.hwloc_xml.c_str(), bytes) != 0) {
      return bad_xml();
    }
  }
  leave_out_plugins(raw);
  // Disallowed PUs stay in the tree, so that both counts can be told.
  if (hwloc_topology_set_flags(raw, HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED) != 0) {
    return hwloc_failed("hwloc_topology_set_flags");
  }
  const hwloc_type_filter_e io =
      options.nics ? HWLOC_TYPE_FILTER_KEEP_IMPORTANT : HWLOC_TYPE_FILTER_KEEP_NONE;
  if (hwloc_topology_set_io_types_filter(raw, io) != 0) {
    return hwloc_failed("hwloc_topology_set_io_types_filter");
  }
  if (hwloc_topology_load(raw) != 0) {
    return options.hwloc_xml.empty() ? hwloc_failed("hwloc_topology_load") : bad_xml();
  }
  *loaded = std::move(tree);
  return {};
}

}  // namespace

Status discover(const DiscoverOptions& options, Topology* topology) {
  // hwloc asks libudev, and libudev seeds a global of its own without a lock.
  static std::mutex one_at_a_time;
  const std::lock_guard<std::mutex> lock(one_at_a_time);
  *topology = {};
  const bool live = options.hwloc_xml.empty();
  if (live) {
    topology->host = host_name();
    topology->machine_id = first_line("/etc/machine-id");
    topology->boot_id = first_line("/proc/sys/kernel/random/boot_id");
  }
  Tree tree;
  Status status = load(options, &tree);
  if (status.ok()) {
    topology->packages = count_of(tree.get(), HWLOC_OBJ_PACKAGE);
    topology->cores = count_of(tree.get(), HWLOC_OBJ_CORE);
    topology->pus = count_of(tree.get(), HWLOC_OBJ_PU);
    topology->pus_allowed = allowed_pus(tree.get());
    topology->memory_bytes = hwloc_get_root_obj(tree.get())->total_memory;
    topology->numa_nodes = numa_nodes(tree.get());
    topology->caches = caches(tree.get());
    if (options.nics) topology->nics = openfabrics_nics(tree.get());
  }
  if (live && options.nics) add_verbs_devices(&topology->nics);
  std::sort(topology->nics.begin(), topology->nics.end(),
            [](const Nic& a, const Nic& b) { return a.name < b.name; });
  return status;
}

}  // namespace parallax
