// SPDX-License-Identifier: Apache-2.0
// Machines as `lstopo --of xml` writes them, of any size, for tests on small ones. Each of the
// opening declarations stands on its line and every set is a bit mask: hwloc without its libxml
// plugin reads no other form.
#ifndef PARALLAX_TESTS_SUPPORT_XML_MACHINE_H_
#define PARALLAX_TESTS_SUPPORT_XML_MACHINE_H_

#include <array>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

namespace parallax::testkit {

struct XmlDevice {
  std::string bus_id;              // "0000:3b:00.0"
  std::string type;                // "0302 [10de:2330]": class, vendor, device
  std::string model = {};          // what hwloc would know as PCIDevice
  std::string openfabrics = {};    // "mlx5_0"; "" for none
  std::string port_states = "41";  // of openfabrics, one digit a port
};

// A host bridge, or what hangs under one.
struct XmlBridge {
  std::vector<XmlDevice> devices = {};
  std::vector<XmlBridge> below = {};
};

struct XmlMachine {
  uint32_t packages = 2;
  uint32_t nodes_per_package = 1;
  uint32_t pus_per_node = 2;                     // a core each
  uint32_t caches_per_node = 1;                  // of the last level
  std::vector<uint32_t> allowed = {};            // PUs; none: all
  std::vector<std::vector<XmlBridge>> pci = {};  // by NUMA node; may be shorter
  uint64_t memory_per_node = 8589934592;
  bool with_hbm = false;  // beside each node, numbered after all of them, one of HBM
};

class XmlWriter {
 public:
  static std::string write(const XmlMachine& machine) { return XmlWriter(machine).whole(); }

 private:
  using Text = std::string;

  explicit XmlWriter(const XmlMachine& machine) : machine_(machine) {}

  uint32_t nodes() const { return machine_.packages * machine_.nodes_per_package; }
  uint32_t pus() const { return nodes() * machine_.pus_per_node; }

  // Words of 32 bits, the highest first.
  static Text mask(const std::vector<uint32_t>& bits) {
    std::vector<uint32_t> words(1);
    for (const uint32_t bit : bits) {
      if (words.size() <= bit / 32) words.resize(bit / 32 + 1);
      words[bit / 32] |= 1u << bit % 32;
    }
    Text text;
    for (size_t i = words.size(); i-- > 0;) {
      std::array<char, 16> word;
      std::snprintf(word.data(), word.size(), "0x%08x", words[i]);
      text += (text.empty() ? "" : ",") + Text(word.data());
    }
    return text;
  }

  static std::vector<uint32_t> run(uint32_t first, uint32_t count) {
    std::vector<uint32_t> bits;
    for (uint32_t i = 0; i < count; ++i) bits.push_back(first + i);
    return bits;
  }

  std::vector<uint32_t> memory_of(uint32_t first, uint32_t count) const {
    std::vector<uint32_t> bits = run(first, count);
    if (machine_.with_hbm) {
      for (const uint32_t bit : run(nodes() + first, count)) bits.push_back(bit);
    }
    return bits;
  }

  Text open(const Text& type) {
    return "<object type=\"" + type + "\" gp_index=\"" + std::to_string(++objects_) + "\" ";
  }

  static Text sets(const std::vector<uint32_t>& pus, const std::vector<uint32_t>& nodes) {
    const Text pu_mask = mask(pus), node_mask = mask(nodes);
    return "cpuset=\"" + pu_mask + "\" complete_cpuset=\"" + pu_mask + "\" nodeset=\"" + node_mask +
           "\" complete_nodeset=\"" + node_mask + "\"";
  }

  static Text number(uint32_t index) { return "os_index=\"" + std::to_string(index) + "\" "; }

  Text core(uint32_t pu, uint32_t node) {
    const Text where = sets({pu}, memory_of(node, 1));
    return open("L1Cache") +
           "cache_size=\"32768\" depth=\"1\" cache_linesize=\"64\" cache_associativity=\"0\" "
           "cache_type=\"1\" " +
           where + ">" + open("Core") + number(pu) + where + ">" + open("PU") + number(pu) + where +
           "/></object></object>";
  }

  Text openfabrics(const XmlDevice& device) {
    Text text = open("OSDev") + "name=\"" + device.openfabrics + "\" osdev_type=\"3\">";
    for (size_t port = 0; port < device.port_states.size(); ++port) {
      text += "<info name=\"Port" + std::to_string(port + 1) + "State\" value=\"" +
              device.port_states[port] + "\"/>";
    }
    return text + "</object>";
  }

  Text device(const XmlDevice& device) {
    Text text = open("PCIDev") + "pci_busid=\"" + device.bus_id +
                "\" pci_link_speed=\"0.0\" pci_type=\"" + device.type + " [0000:0000] 00\">";
    if (!device.model.empty()) {
      text += "<info name=\"PCIDevice\" value=\"" + device.model + "\"/>";
    }
    if (!device.openfabrics.empty()) text += openfabrics(device);
    return text + "</object>";
  }

  Text bridge(const XmlBridge& bridge, uint32_t depth) {
    std::array<char, 128> bus;
    std::snprintf(bus.data(), bus.size(), "bridge_pci=\"0000:[%02x-%02x]\"", bridges_,
                  bridges_ + 63);
    Text text = open("Bridge") + "depth=\"" + std::to_string(depth) + "\" " + bus.data();
    if (depth == 0) {
      text += " bridge_type=\"0-1\">";
    } else {
      std::snprintf(bus.data(), bus.size(), " pci_busid=\"0001:%02x:00.0\"", ++bridges_);
      text += Text(" bridge_type=\"1-1\"") + bus.data() +
              " pci_type=\"0604 [10b5:c030] [0000:0000] b0\" pci_link_speed=\"0.0\">";
    }
    for (const XmlDevice& each : bridge.devices) text += device(each);
    for (const XmlBridge& each : bridge.below) text += this->bridge(each, depth + 1);
    return text + "</object>";
  }

  Text memory(uint32_t index, uint64_t bytes, uint32_t node) {
    return open("NUMANode") + "local_memory=\"" + std::to_string(bytes) + "\" " + number(index) +
           sets(run(node * machine_.pus_per_node, machine_.pus_per_node), {index}) + "/>";
  }

  Text cache() {
    return open("L3Cache") +
           "cache_size=\"16777216\" depth=\"3\" cache_linesize=\"64\" "
           "cache_associativity=\"0\" cache_type=\"0\" ";
  }

  Text node(uint32_t index) {
    const uint32_t first = index * machine_.pus_per_node;
    // Memory lies beside what has all of the node's PUs: its cache, or a group of several.
    const bool grouped = machine_.caches_per_node > 1;
    const Text where = sets(run(first, machine_.pus_per_node), memory_of(index, 1)) + ">";
    Text text = grouped ? open("Group") + where : cache() + where;
    text += memory(index, machine_.memory_per_node, index);
    if (machine_.with_hbm) text += memory(nodes() + index, machine_.memory_per_node / 4, index);
    const uint32_t sharing = machine_.pus_per_node / machine_.caches_per_node;
    for (uint32_t i = 0; i < machine_.pus_per_node; ++i) {
      if (grouped && i % sharing == 0) {
        text += cache() + sets(run(first + i, sharing), memory_of(index, 1)) + ">";
      }
      text += core(first + i, index);
      if (grouped && i % sharing == sharing - 1) text += "</object>";
    }
    if (index < machine_.pci.size()) {
      for (const XmlBridge& each : machine_.pci[index]) text += bridge(each, 0);
    }
    return text + "</object>";
  }

  Text whole() {
    Text text =
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
        "<!DOCTYPE topology SYSTEM \"hwloc2.dtd\">\n"
        "<topology version=\"2.0\">" +
        open("Machine") + number(0) + "allowed_cpuset=\"" +
        mask(machine_.allowed.empty() ? run(0, pus()) : machine_.allowed) +
        "\" allowed_nodeset=\"" + mask(memory_of(0, nodes())) + "\" " +
        sets(run(0, pus()), memory_of(0, nodes())) + ">";
    for (uint32_t package = 0; package < machine_.packages; ++package) {
      const uint32_t first = package * machine_.nodes_per_package;
      text += open("Package") + number(package) +
              sets(run(first * machine_.pus_per_node,
                       machine_.nodes_per_package * machine_.pus_per_node),
                   memory_of(first, machine_.nodes_per_package)) +
              ">";
      for (uint32_t i = 0; i < machine_.nodes_per_package; ++i) text += node(first + i);
      text += "</object>";
    }
    return text + "</object></topology>";
  }

  const XmlMachine& machine_;
  uint32_t objects_ = 0;
  uint32_t bridges_ = 0;
};

// 2 packages, 4 PCI switches: switch s has GPUs 2s and 2s+1 and the NICs mlx5_<2s>, mlx5_<2s+1>;
// switches 0 and 1 hang off package 0. Each host bridge has its switch; package 0 also has the
// management controller's display and a NIC of its own, mlx5_8 (for storage).
inline XmlMachine eight_gpus(uint32_t pus_per_node = 4) {
  const auto device_id = [](uint32_t bus) {
    std::array<char, 32> text;
    std::snprintf(text.data(), text.size(), "0000:%02x:00.0", bus);
    return std::string(text.data());
  };
  XmlMachine machine;
  machine.pus_per_node = pus_per_node;
  machine.pci.resize(2);
  for (uint32_t s = 0; s < 4; ++s) {
    XmlBridge pci_switch;
    for (uint32_t i = 2 * s; i < 2 * s + 2; ++i) {
      pci_switch.devices.push_back({.bus_id = device_id(0x20 + i), .type = "0302 [10de:2330]"});
      pci_switch.devices.push_back({.bus_id = device_id(0x40 + i),
                                    .type = "0207 [15b3:1021]",
                                    .openfabrics = "mlx5_" + std::to_string(i)});
    }
    machine.pci[s / 2].push_back({.below = {pci_switch}});
  }
  machine.pci[0].push_back(
      {.devices = {
           {.bus_id = "0000:02:00.0", .type = "0300 [1a03:2000]"},
           {.bus_id = "0000:03:00.0", .type = "0207 [15b3:101b]", .openfabrics = "mlx5_8"}}});
  return machine;
}

}  // namespace parallax::testkit

#endif  // PARALLAX_TESTS_SUPPORT_XML_MACHINE_H_
