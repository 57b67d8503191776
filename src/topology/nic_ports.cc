// SPDX-License-Identifier: Apache-2.0
// Tables of numbers and names, the order in which UCX prefers addresses, and the JSON of port
// tables, read with every field checked. See nic_ports.h.
#include "topology/nic_ports.h"

#include <arpa/inet.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <nlohmann/json.hpp>
#include <tuple>

namespace parallax {
namespace {

using Record = nlohmann::json;

constexpr size_t kNicsReadMax = 256;  // of a file
constexpr size_t kGidsReadMax = 1024;
constexpr size_t kPortsReadMax = 64;

template <size_t kCount>
std::string name_at(const char* const (&names)[kCount], uint32_t number) {
  return number < kCount ? names[number] : "unknown";
}

NicGid read_gid(const Record& record) {
  NicGid gid;
  gid.index = record.at("index");
  gid.address = record.at("address");
  gid.type = record.at("type");
  gid.net_device = record.at("net_device");
  gid.net_mtu_bytes = record.at("net_mtu_bytes");
  return gid;
}

NicPort read_port(const Record& record) {
  NicPort port;
  port.number = record.at("number");
  port.state = record.at("state");
  port.link_layer = record.at("link_layer");
  port.physical_state = record.at("physical_state");
  port.rate_mbit_s = record.at("rate_mbit_s");
  port.mtu_bytes = record.at("mtu_bytes");
  port.mtu_bytes_max = record.at("mtu_bytes_max");
  port.lid = record.at("lid");
  for (const Record& each : record.at("gids")) {
    if (port.gids.size() < kGidsReadMax) port.gids.push_back(read_gid(each));
  }
  return port;
}

Nic read_nic(const Record& record) {
  Nic nic;
  nic.name = record.at("name");
  nic.pci_bus_id = record.at("pci_bus_id");
  const Record& node = record.at("numa_node");
  nic.numa_node = node.is_null() ? kNoNumaNode : node.get<int32_t>();
  for (const Record& each : record.at("ports")) {
    if (nic.ports.size() < kPortsReadMax) nic.ports.push_back(read_port(each));
  }
  nic.firmware = record.at("firmware");
  nic.error = record.at("error");
  return nic;
}

}  // namespace

std::string port_state_name(uint32_t state) {
  static constexpr const char* kNames[] = {"unknown", "down",   "init",
                                           "armed",   "active", "active_defer"};
  return name_at(kNames, state);
}

std::string physical_state_name(uint32_t state) {
  static constexpr const char* kNames[] = {"unknown",  "sleep",   "polling",  "disabled",
                                           "training", "link_up", "recovery", "test"};
  return name_at(kNames, state);
}

std::string gid_type_name(uint32_t type) {
  static constexpr const char* kNames[] = {"ib", "roce_v1", "roce_v2"};
  return name_at(kNames, type);
}

uint32_t mtu_bytes_of(uint32_t mtu) { return mtu >= 1 && mtu <= 5 ? 128u << mtu : 0; }

uint32_t rate_mbit_s_of(uint32_t width, uint32_t speed) {
  uint32_t lanes = 0, lane_mbit_s = 0;
  for (const auto& [code, count] : {std::pair{1u, 1u}, {2u, 4u}, {4u, 8u}, {8u, 12u}, {16u, 2u}}) {
    if (width == code) lanes = count;
  }
  for (const auto& [code, rate] : {std::pair{1u, 2500u},
                                   {2u, 5000u},
                                   {4u, 10000u},
                                   {8u, 10000u},
                                   {16u, 14000u},
                                   {32u, 25000u},
                                   {64u, 50000u},
                                   {128u, 100000u},
                                   {256u, 200000u}}) {
    if (speed == code) lane_mbit_s = rate;
  }
  return lanes * lane_mbit_s;
}

std::string gid_address(std::span<const uint8_t, 16> raw) {
  std::array<char, INET6_ADDRSTRLEN> text = {};
  inet_ntop(AF_INET6, raw.data(), text.data(), text.size());
  return text.data();
}

std::string canonical_address(const std::string& text) {
  std::array<uint8_t, 16> raw = {};
  return inet_pton(AF_INET6, text.c_str(), raw.data()) == 1 ? gid_address(raw) : "";
}

GidFamily family_of(const NicGid& gid) {
  in6_addr raw = {};
  if (inet_pton(AF_INET6, gid.address.c_str(), &raw) != 1) return GidFamily::kIpv6;
  if (IN6_IS_ADDR_V4MAPPED(&raw)) return GidFamily::kIpv4;
  return IN6_IS_ADDR_LINKLOCAL(&raw) ? GidFamily::kLinkLocal : GidFamily::kIpv6;
}

std::string describe(const NicGid& gid) {
  static constexpr const char* kFamilies[] = {"IPv4", "IPv6", "link-local"};
  const std::string type = gid.type == "ib"        ? "InfiniBand"
                           : gid.type == "roce_v1" ? "RoCE v1"
                           : gid.type == "roce_v2" ? "RoCE v2"
                                                   : "type unknown";
  const std::string family =
      gid.type == "ib" ? "" : std::string(", ") + kFamilies[static_cast<size_t>(family_of(gid))];
  return gid.address + " (" + type + family +
         (gid.net_device.empty() ? "" : ", " + gid.net_device) + ")";
}

const NicGid* chosen_gid(const NicPort& port) {
  const auto place = [](const NicGid& gid) {
    return std::tuple(gid.type != "roce_v2", family_of(gid) != GidFamily::kIpv4, gid.index);
  };
  const NicGid* chosen = nullptr;
  for (const NicGid& gid : port.gids) {
    if (gid.type != "roce_v1" && gid.type != "roce_v2") continue;
    if (chosen == nullptr || place(gid) < place(*chosen)) chosen = &gid;
  }
  return chosen;
}

// The kernel's iboe_get_mtu: headers of RoCE v2 over IPv6, with an atomic's, take 96 bytes.
uint32_t roce_mtu_bytes(uint32_t net_mtu_bytes) {
  constexpr uint32_t kHeaderBytes = 40 + 8 + 12 + 4 + 28 + 4;
  for (const uint32_t mtu : {4096u, 2048u, 1024u, 512u, 256u}) {
    if (net_mtu_bytes >= mtu + kHeaderBytes) return mtu;
  }
  return 0;
}

std::string port_trouble(const NicPort& port) {
  if (port.state != "active") {
    return "it is " + port.state + " (physical state " + port.physical_state + ")";
  }
  if (port.link_layer == "ethernet" && chosen_gid(port) == nullptr) {
    return "it has no RoCE address (its GID table is empty here)";
  }
  return "";
}

Status read_nics_json(const std::string& text, std::vector<Nic>* nics) {
  try {
    const Record whole = Record::parse(text);
    const Record* list = &whole;
    if (list->is_object() && list->contains("topology")) list = &list->at("topology");
    if (list->is_object()) list = &list->at("nics");
    if (!list->is_array() || list->size() > kNicsReadMax) {
      return invalid("it must hold a list of at most " + std::to_string(kNicsReadMax) + " devices");
    }
    std::vector<Nic> read;
    for (const Record& each : *list) read.push_back(read_nic(each));
    *nics = std::move(read);
    return {};
  } catch (const Record::exception& error) {
    return invalid(std::string("it is not what `parallax info --json -t` writes: ") + error.what());
  }
}

void merge_nics(const std::vector<Nic>& known, std::vector<Nic>* nics) {
  for (const Nic& each : known) {
    auto nic = std::find_if(nics->begin(), nics->end(),
                            [&](const Nic& other) { return other.name == each.name; });
    if (nic == nics->end()) {
      nics->push_back(each);
      continue;
    }
    if (!each.ports.empty()) nic->ports = each.ports;
    nic->firmware = each.firmware;
    nic->error = each.error;
  }
  std::sort(nics->begin(), nics->end(), [](const Nic& a, const Nic& b) { return a.name < b.name; });
}

}  // namespace parallax
