// SPDX-License-Identifier: Apache-2.0
// Topology: what this machine is made of, for reports, for placing threads and memory, and for
// choosing a NIC.
// Plain values; only std types, so that hwloc and libibverbs stay behind discover().
//
// discover() asks the kernel through hwloc and libibverbs: it blocks for tens of milliseconds, may
// be called from any thread, and is meant for parallax_open and the tools, not for a step. Nothing
// it cannot find is fatal: a machine without NICs, or in a container that hides them, has none.
#ifndef PARALLAX_TOPOLOGY_TOPOLOGY_H_
#define PARALLAX_TOPOLOGY_TOPOLOGY_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/near_memory.h"
#include "base/status.h"

namespace parallax {

inline constexpr int32_t kNoNumaNode = -1;

struct NumaNode {
  uint32_t index = 0;  // the kernel's number
  uint64_t memory_bytes = 0;
  uint32_t pus = 0;
  std::vector<uint32_t> pu_indices;  // their numbers by the kernel, ascending
  std::vector<uint32_t> allowed;     // of them, those that this process may run on
  // Names of the NICs nearest to it: all that share as deep an ancestor in the machine.
  std::vector<std::string> nics = {};

  bool operator==(const NumaNode&) const = default;
};

// Caches alike are one entry.
struct Cache {
  uint32_t level = 0;
  std::string kind;  // "data", "instruction" or "unified"
  uint64_t size_bytes = 0;
  uint32_t line_bytes = 0;  // 0: unknown
  uint32_t count = 0;
  uint32_t pus_sharing = 0;  // each of them

  bool operator==(const Cache&) const = default;
};

// An address of a port, by which peers find it. Over Ethernet (RoCE) a port has several, and which
// one is used decides the version of RoCE and whether routers pass it.
struct NicGid {
  uint32_t index = 0;          // in the port's table, which has gaps
  std::string address;         // as IPv6 is written: "fe80::1", "::ffff:10.0.0.1"
  std::string type;            // "ib", "roce_v1", "roce_v2" or "unknown"
  std::string net_device;      // "eth0"; "": none, or one of another network namespace
  uint32_t net_mtu_bytes = 0;  // of net_device; 0: unknown

  bool operator==(const NicGid&) const = default;
};

struct NicPort {
  uint32_t number = 0;     // from 1
  std::string state;       // "down", "init", "armed", "active", "active_defer" or "unknown"
  std::string link_layer;  // "infiniband", "ethernet" or "unknown"
  // "sleep", "polling", "disabled", "training", "link_up", "recovery", "test" or "unknown"
  std::string physical_state = "unknown";
  uint32_t rate_mbit_s = 0;    // lanes times the speed of one; 0: unknown
  uint32_t mtu_bytes = 0;      // in force; 0: unknown
  uint32_t mtu_bytes_max = 0;  // of the device
  uint32_t lid = 0;            // 0: none, as over Ethernet
  std::vector<NicGid> gids = {};

  bool operator==(const NicPort&) const = default;
};

// An RDMA device: what libibverbs lists, or hwloc where libibverbs may not look.
struct Nic {
  std::string name;        // "mlx5_0"
  std::string pci_bus_id;  // "0000:3b:00.0"; "" for one that hwloc does not see on a PCI bus
  int32_t numa_node = kNoNumaNode;
  std::vector<NicPort> ports;  // empty: the device could not be opened
  std::string firmware = {};   // "28.39.1002"
  std::string error = {};      // why libibverbs could not be asked for its ports; "": it was

  bool operator==(const Nic&) const = default;
};

// A PCI device of NVIDIA, AMD or Intel that displays or accelerates, whatever driver it has: no
// vendor's runtime is asked. The display of a server's management controller is none.
struct Gpu {
  std::string pci_bus_id;  // "0000:3b:00.0"
  std::string vendor;      // "NVIDIA", "AMD" or "Intel"
  std::string model;       // in words where hwloc knows them, else its PCI numbers, "10de:2330"
  int32_t numa_node = kNoNumaNode;
  std::vector<std::string> nics;  // names of those nearest to it: all that share as many buses

  bool operator==(const Gpu&) const = default;
};

struct Topology {
  std::string host;        // gethostname
  std::string machine_id;  // /etc/machine-id; "" if there is none
  std::string boot_id;     // the kernel's, alike in all containers of one machine; "" if hidden
  uint32_t packages = 0;
  uint32_t cores = 0;
  uint32_t pus = 0;          // hardware threads of the machine
  uint32_t pus_allowed = 0;  // of them, those that this process may run on
  // This process was bound (by mpirun, Slurm, taskset): it may run on fewer PUs than its cgroup.
  bool bound = false;
  std::vector<uint32_t> pu_indices;  // the kernel's numbers of all PUs, ascending
  uint64_t memory_bytes = 0;
  std::vector<NumaNode> numa_nodes;
  std::vector<Cache> caches;  // by level
  // Of each cache of the last level, in the machine's order, the kernel's numbers of its PUs.
  std::vector<std::vector<uint32_t>> last_caches;
  std::vector<Nic> nics;    // by name
  std::string no_nics_why;  // where there are none, the reason, with what to do
  std::vector<Gpu> gpus;    // by PCI bus id

  bool operator==(const Topology&) const = default;
};

struct DiscoverOptions {
  // A topology saved by `lstopo --of xml`, for tests and for looking at other machines. Identity
  // and live NIC state are then left out, and the PUs allowed are those that the file says.
  std::string hwloc_xml;
  bool devices = true;  // NICs and GPUs: ask libibverbs and the I/O buses; most of the time
};

// Fills *topology with what was found. IO when hwloc failed, INVALID when hwloc_xml is not one:
// identity and live NICs are filled in all the same, and the counts are 0.
Status discover(const DiscoverOptions& options, Topology* topology);

// The text of a file for hwloc_xml. IO, with the path, what to do, and the name of the setting
// topology_xml that gave it.
Status read_topology_xml(const std::string& path, std::string* xml);

// Where in the machine a process is that runs on these PUs, and in words, why.
NearMemory near_memory(const Topology& topology, const std::vector<uint32_t>& pus,
                       std::string* why);

// Whether all PUs of this machine share a cache of the last level, or the kernel does not say: then
// and with one NUMA node no memory is nearer to some. Costs two small files, not a discovery.
bool one_last_cache();

// The kernel's numbers of this machine's NUMA nodes, ascending; empty where it does not say. Costs
// one small file, not a discovery.
std::vector<uint32_t> online_numa_nodes();

// The struct, field by field, as a JSON object.
std::string topology_json(const Topology& topology);

}  // namespace parallax

#endif  // PARALLAX_TOPOLOGY_TOPOLOGY_H_
