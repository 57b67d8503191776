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
#include <string>
#include <system_error>
#include <tuple>
#include <utility>

#include "base/environment.h"
#include "base/machine_memory.h"
#include "base/mutex.h"
#include "topology/devices.h"
#include "topology/nics.h"
#include "topology/pu_list.h"
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

std::vector<uint32_t> indices_of(hwloc_const_bitmap_t set) {
  std::vector<uint32_t> indices;
  if (set == nullptr || hwloc_bitmap_weight(set) < 0) return indices;  // -1: infinite
  for (int i = hwloc_bitmap_first(set); i >= 0; i = hwloc_bitmap_next(set, i)) {
    indices.push_back(static_cast<uint32_t>(i));
  }
  return indices;
}

// What cgroups allow and what this process, all its threads together, is bound to. A tree from a
// file has no process. Null: no memory.
Bitmap allowed_pus(hwloc_topology_t tree, bool* is_bound) {
  Bitmap allowed(hwloc_bitmap_dup(hwloc_topology_get_allowed_cpuset(tree)));
  const Bitmap bound(hwloc_bitmap_alloc());
  *is_bound = false;
  if (!allowed || !bound) return nullptr;
  if (hwloc_topology_is_thissystem(tree) &&
      hwloc_get_cpubind(tree, bound.get(), HWLOC_CPUBIND_PROCESS) == 0) {
    *is_bound = hwloc_bitmap_isincluded(allowed.get(), bound.get()) == 0;
    hwloc_bitmap_and(allowed.get(), allowed.get(), bound.get());
  }
  return allowed;
}

std::vector<NumaNode> numa_nodes(hwloc_topology_t tree, hwloc_const_bitmap_t allowed) {
  std::vector<NumaNode> nodes;
  const Bitmap both(hwloc_bitmap_alloc());
  if (!both) return nodes;
  hwloc_obj_t node = nullptr;
  while ((node = hwloc_get_next_obj_by_type(tree, HWLOC_OBJ_NUMANODE, node)) != nullptr) {
    hwloc_bitmap_and(both.get(), node->cpuset, allowed);
    nodes.push_back({.index = node->os_index,
                     .memory_bytes = node->attr->numanode.local_memory,
                     .pus = weight(node->cpuset),
                     .pu_indices = indices_of(node->cpuset),
                     .allowed = indices_of(both.get())});
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

// None where PUs have no such cache to share.
std::vector<std::vector<uint32_t>> last_caches(hwloc_topology_t tree) {
  std::vector<std::vector<uint32_t>> pus;
  for (const hwloc_obj_type_t type : {HWLOC_OBJ_L4CACHE, HWLOC_OBJ_L3CACHE}) {
    hwloc_obj_t cache = nullptr;
    while ((cache = hwloc_get_next_obj_by_type(tree, type, cache)) != nullptr) {
      pus.push_back(indices_of(cache->cpuset));
    }
    if (!pus.empty()) break;
  }
  return pus;
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
      options.devices ? HWLOC_TYPE_FILTER_KEEP_IMPORTANT : HWLOC_TYPE_FILTER_KEEP_NONE;
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
  static Mutex one_at_a_time;
  const MutexLock lock(one_at_a_time);
  *topology = {};
  drop_foreign_variables();  // HWLOC_PLUGINS_PATH names folders whose libraries hwloc loads
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
    const Bitmap allowed = allowed_pus(tree.get(), &topology->bound);
    topology->pus_allowed = weight(allowed.get());
    topology->pu_indices = indices_of(hwloc_topology_get_topology_cpuset(tree.get()));
    topology->memory_bytes = hwloc_get_root_obj(tree.get())->total_memory;
    // The kernel's files of a node leave out memory that was plugged in while the machine ran.
    if (live) topology->memory_bytes = std::max(topology->memory_bytes, installed_memory_bytes());
    topology->numa_nodes = numa_nodes(tree.get(), allowed.get());
    if (live && topology->numa_nodes.size() == 1) {
      topology->numa_nodes[0].memory_bytes = topology->memory_bytes;
    }
    topology->caches = caches(tree.get());
    topology->last_caches = last_caches(tree.get());
    if (options.devices) {
      find_devices(tree.get(), &topology->numa_nodes, &topology->nics, &topology->gpus);
    }
  }
  if (live && options.devices) add_verbs_devices(&topology->nics, &topology->no_nics_why);
  std::sort(topology->nics.begin(), topology->nics.end(),
            [](const Nic& a, const Nic& b) { return a.name < b.name; });
  return status;
}

bool one_last_cache() {
  std::vector<uint32_t> sharing, online;
  const bool known =
      parse_pu_list(first_line("/sys/devices/system/cpu/cpu0/cache/index3/shared_cpu_list"),
                    &sharing) &&
      parse_pu_list(first_line("/sys/devices/system/cpu/online"), &online);
  return !known || sharing.size() >= online.size();
}

std::vector<uint32_t> online_numa_nodes() {
  std::vector<uint32_t> nodes;
  // What is no such list leaves them empty.
  [[maybe_unused]] const bool parsed =
      parse_pu_list(first_line("/sys/devices/system/node/online"), &nodes);
  return nodes;
}

}  // namespace parallax
