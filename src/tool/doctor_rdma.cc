// SPDX-License-Identifier: Apache-2.0
// The checks of ports, addresses, MTUs and what hinders RDMA as a whole, each with its remedy; and
// ports of ranks compared. See doctor_rdma.h.
#include "tool/doctor_rdma.h"

#include <algorithm>
#include <charconv>

#include "tool/topology_tree.h"
#include "topology/nic_ports.h"
#include "topology/rails.h"

namespace parallax::tool {

namespace {

struct NamedPort {
  std::string name;  // "mlx5_0:1"
  const NicPort* port;
};

// Those that the settings leave.
std::vector<NamedPort> ports_of(const RdmaFacts& facts) {
  std::vector<NamedPort> ports;
  for (const Nic& nic : facts.topology.nics) {
    for (const NicPort& port : nic.ports) {
      const std::string name = nic.name + ":" + std::to_string(port.number);
      const bool meant = facts.device.empty() || facts.device == nic.name || facts.device == name;
      if (meant) ports.push_back({name, &port});
    }
  }
  return ports;
}

// What hinders RDMA fails where RDMA was asked for.
void hinder(bool is_wanted, const std::string& check, const std::string& text,
            const std::string& remedy, Findings* findings) {
  if (is_wanted) {
    findings->fail(check, text, remedy);
  } else {
    findings->warn(check, text, remedy);
  }
}

bool is_ethernet(const NicPort& port) { return port.link_layer == "ethernet"; }

std::string net_device_of(const NicPort& port) {
  for (const NicGid& gid : port.gids) {
    if (!gid.net_device.empty()) return gid.net_device;
  }
  return "DEVICE";
}

std::string remedy_of_port(const NicPort& port) {
  if (port.physical_state == "disabled") {
    return is_ethernet(port) ? "ip link set " + net_device_of(port) + " up"
                             : "enable the port (ibportstate -D 0 PORT enable)";
  }
  if (port.physical_state == "link_up" && !is_ethernet(port)) {
    return "start a subnet manager (opensm), or ask who runs the fabric's: the cable is good, but "
           "nobody has given the port its address";
  }
  if (port.physical_state == "polling") {
    return "check cable and switch: nothing answers at the other end";
  }
  return is_ethernet(port) ? "ip link set " + net_device_of(port) + " up; check cable and switch"
                           : "check cable, switch and subnet manager (ibstat, iblinkinfo)";
}

// Ports that are down, beside others that work, are often meant so.
void check_ports_of(const RdmaFacts& facts, const std::vector<NamedPort>& ports,
                    Findings* findings) {
  const bool any_works = std::any_of(ports.begin(), ports.end(), [](const NamedPort& each) {
    return port_trouble(*each.port).empty();
  });
  for (const auto& [name, port] : ports) {
    if (port->state == "active") {
      findings->ok("rdma_port", name + ": " + port_text(*port));
      continue;
    }
    hinder(facts.is_wanted && !any_works, "rdma_port", name + ": " + port_text(*port),
           remedy_of_port(*port), findings);
  }
}

std::string give_address(const NicPort& port) {
  const std::string device = net_device_of(port);
  return "give " + device + " an IPv4 address (ip addr add A.B.C.D/N dev " + device +
         "), from which the NIC makes one for RoCE v2";
}

// What UCX_IB_GID_INDEX asks for, against what UCX would take by itself.
void check_index(const RdmaFacts& facts, const std::string& name, const NicPort& port,
                 const NicGid& chosen, Findings* findings) {
  const std::string& text = facts.gid_index;
  if (text.empty() || text == "auto") return;
  const std::string set = name + ": UCX_IB_GID_INDEX is " + text;
  const std::string remedy = "unset UCX_IB_GID_INDEX; UCX then takes " +
                             std::to_string(chosen.index) + ", " + describe(chosen);
  uint32_t index = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), index);
  if (error != std::errc() || end != text.data() + text.size()) {
    return hinder(facts.is_wanted, "rdma_gid", set + ", which is no number", remedy, findings);
  }
  const auto gid = std::find_if(port.gids.begin(), port.gids.end(),
                                [&](const NicGid& each) { return each.index == index; });
  if (gid == port.gids.end()) {
    return hinder(facts.is_wanted, "rdma_gid", set + ", and the port's table has nothing there",
                  remedy, findings);
  }
  if (gid->index != chosen.index) {
    findings->warn("rdma_gid", set + ", " + describe(*gid) + ", not what UCX takes by itself",
                   remedy);
  }
}

void check_gids(const RdmaFacts& facts, const std::string& name, const NicPort& port,
                Findings* findings) {
  if (!is_ethernet(port) || port.state != "active") return;
  const NicGid* chosen = chosen_gid(port);
  const auto ill = [&](const std::string& text) {
    hinder(facts.is_wanted, "rdma_gid", name + ": " + text, give_address(port), findings);
  };
  if (chosen == nullptr) {
    return ill(
        "it has no RoCE address; its net device has none, or belongs to another network "
        "namespace");
  }
  if (chosen->type == "roce_v1") {
    findings->warn("rdma_gid",
                   name +
                       ": it has addresses of RoCE v1 alone, which no router passes; UCX takes " +
                       std::to_string(chosen->index) + ", " + describe(*chosen),
                   "set the NIC to RoCE v2 (cma_roce_mode -d NIC -p PORT -m 2), or update its "
                   "driver");
  } else if (family_of(*chosen) == GidFamily::kLinkLocal) {
    ill("the address that UCX takes is link-local, " + describe(*chosen) +
        ": it reaches no other subnet, and no IPv4 address is there");
  } else if (family_of(*chosen) != GidFamily::kIpv4) {
    findings->ok("rdma_gid", name + ": UCX takes " + std::to_string(chosen->index) + ", " +
                                 describe(*chosen) + "; no IPv4 address is there");
  } else {
    findings->ok("rdma_gid",
                 name + ": UCX takes " + std::to_string(chosen->index) + ", " + describe(*chosen));
  }
  check_index(facts, name, port, *chosen, findings);
}

void check_mtu(const std::string& name, const NicPort& port, Findings* findings) {
  if (port.state != "active" || port.mtu_bytes == 0) return;
  const NicGid* chosen = is_ethernet(port) ? chosen_gid(port) : nullptr;
  const std::string has = name + ": MTU " + std::to_string(port.mtu_bytes);
  if (!is_ethernet(port)) {
    return findings->ok("rdma_mtu", has + " of " + std::to_string(port.mtu_bytes_max));
  }
  if (chosen == nullptr || chosen->net_mtu_bytes == 0) {
    return findings->warn("rdma_mtu", has + "; that of its net device is not known here",
                          "compare it with ip link, in the namespace that has the device");
  }
  const uint32_t fits = std::min(roce_mtu_bytes(chosen->net_mtu_bytes),
                                 port.mtu_bytes_max == 0 ? UINT32_MAX : port.mtu_bytes_max);
  const std::string beside = chosen->net_device + " has " + std::to_string(chosen->net_mtu_bytes);
  const std::string remedy =
      "ip link set " + chosen->net_device +
      " mtu 9000 on every host, and on the switches; then take the port down "
      "and up";
  if (port.mtu_bytes > fits) {
    findings->fail("rdma_mtu",
                   has + ", but " + beside + ", into which at most " + std::to_string(fits) +
                       " fit: full packets are lost",
                   remedy);
  } else if (port.mtu_bytes < fits) {
    findings->warn("rdma_mtu",
                   has + ", though " + beside + ", which allows " + std::to_string(fits), remedy);
  } else {
    findings->ok("rdma_mtu", has + ", as " + beside);
  }
}

void check_flow_control(const std::vector<NamedPort>& ports, Findings* findings) {
  std::string names, device;
  for (const auto& [name, port] : ports) {
    if (!is_ethernet(*port) || port->state != "active") continue;
    names += (names.empty() ? "" : ", ") + name;
    if (device.empty()) device = net_device_of(*port);
  }
  if (names.empty()) return;
  findings->warn("rdma_pfc_ecn",
                 names +
                     ": whether PFC or ECN keep RoCE from losing packets is unknown: NIC and "
                     "switches each have their part, and none tells the others",
                 "look at the NIC (mlnx_qos -i " + device + "; dcb pfc show dev " + device +
                     "; /sys/class/net/" + device +
                     "/ecn), at its counters (rdma statistic; ethtool -S " + device +
                     " | grep -e pause -e discard), and at the switches");
}

// True: there are devices to look at.
bool check_presence(const RdmaFacts& facts, Findings* findings) {
  const std::vector<Nic>& nics = facts.topology.nics;
  if (nics.empty()) {
    const std::string text = "no RDMA device: " + facts.topology.no_nics_why;
    if (facts.is_wanted) {
      findings->fail("rdma", text,
                     "as said; or let the ranks use Ethernet: unset "
                     "PARALLAX_TRANSPORT and PARALLAX_NET_DEVICE");
    } else {
      findings->ok("rdma", text + "; ranks use Ethernet");
    }
    return false;
  }
  std::vector<RankRails> rails;
  const Status planned = plan_rails(
      facts.topology, {.local_ranks = 1, .cuda = facts.cuda, .device = facts.device}, &rails);
  if (planned.ok()) {
    std::string names;
    for (const Rail& rail : rails[0].rails) {
      names +=
          (names.empty() ? "" : ", ") + rail_name(rail) + " (" + rate_text(rail.rate_mbit_s) + ")";
    }
    findings->ok("rdma", "a rank alone on this host would use " + names + ": " + rails[0].why +
                             rails[0].assumed);
  } else {
    hinder(facts.is_wanted, "rdma", planned.message(), "see the findings about its ports",
           findings);
  }
  return true;
}

}  // namespace

void check_rdma(const RdmaFacts& facts, Findings* findings) {
  if (!check_presence(facts, findings)) return;
  if (!facts.no_files.empty()) {
    hinder(facts.is_wanted, "rdma_permission", facts.no_files,
           "chmod 666 /dev/infiniband/uverbs*, as rdma-core's udev rules do; in a container "
           "--device=/dev/infiniband",
           findings);
  } else {
    findings->ok("rdma_permission", "the files of /dev/infiniband can be opened");
  }
  if (!facts.no_verbs.empty()) {
    hinder(facts.is_wanted, "rdma_ucx", facts.no_verbs + "; UCX would use Ethernet without a word",
           "install UCX with verbs (Debian package libucx0 has them; --with-verbs where it is "
           "built), and libibverbs1",
           findings);
  } else {
    findings->ok("rdma_ucx", "UCX has its part for verbs");
  }
  const std::vector<NamedPort> ports = ports_of(facts);
  check_ports_of(facts, ports, findings);
  for (const auto& [name, port] : ports) {
    check_gids(facts, name, *port, findings);
    check_mtu(name, *port, findings);
  }
  check_flow_control(ports, findings);
}

RdmaCard rdma_card(const RdmaFacts& facts, uint32_t local_rank, uint32_t local_ranks) {
  RdmaCard card;
  std::vector<RankRails> rails;
  const Status planned = plan_rails(facts.topology,
                                    {.local_ranks = local_ranks,
                                     .local_rank = local_rank,
                                     .cuda = facts.cuda,
                                     .device = facts.device},
                                    &rails);
  if (!planned.ok()) {
    card.why = planned.message();
    return card;
  }
  const Rail& rail = rails[local_rank].rails[0];
  card.port = rail_name(rail);
  card.rate_mbit_s = rail.rate_mbit_s;
  for (const auto& [name, port] : ports_of(facts)) {
    if (name != card.port) continue;
    card.link_layer = port->link_layer;
    card.mtu_bytes = port->mtu_bytes;
    if (const NicGid* gid = chosen_gid(*port); gid != nullptr) {
      card.gid = gid->type + (family_of(*gid) == GidFamily::kIpv4 ? " IPv4" : " IPv6");
    }
  }
  return card;
}

void compare_rdma(const RdmaCard& own, const std::vector<std::pair<std::string, RdmaCard>>& others,
                  bool is_wanted, Findings* findings) {
  bool alike = true;
  for (const auto& [name, other] : others) {
    if (own.port.empty()) break;  // said already
    const std::string both = name + " has " + other.port + ", this rank " + own.port + ": ";
    const auto differ = [&](bool fails, const std::string& what, const std::string& remedy) {
      alike = false;
      hinder(fails && is_wanted, "rdma_ranks", what, remedy, findings);
    };
    const auto number = [](uint32_t theirs, uint32_t ours) {
      return std::to_string(theirs) + " there, " + std::to_string(ours) + " here";
    };
    if (other.port.empty()) {
      differ(
          true,
          name + " has no port for RDMA that works, this rank has " + own.port + ": " + other.why,
          "see what that rank found");
      continue;
    }
    if (other.link_layer != own.link_layer) {
      differ(true,
             both + other.link_layer + " there, " + own.link_layer + " here, which do not meet",
             "name devices of one fabric in PARALLAX_NET_DEVICE on every host");
      continue;
    }
    if (other.gid != own.gid) {
      differ(true, both + "addresses are " + other.gid + " there, " + own.gid + " here",
             "give the ports of all hosts addresses of one kind, IPv4 for RoCE v2; see rdma_gid");
    }
    if (other.mtu_bytes != own.mtu_bytes) {
      differ(false, both + "MTU " + number(other.mtu_bytes, own.mtu_bytes),
             "give net devices and switches one MTU, 9000 (ip link set DEVICE mtu 9000)");
    }
    if (other.rate_mbit_s != own.rate_mbit_s) {
      differ(false,
             both + "rate " + rate_text(other.rate_mbit_s) + " there, " +
                 rate_text(own.rate_mbit_s) + " here",
             "check cables and ports of the slower one (ibstat), or name ports alike in "
             "PARALLAX_NET_DEVICE");
    }
  }
  if (alike && !own.port.empty() && !others.empty()) {
    findings->ok("rdma_ranks", "ports of other hosts are like " + own.port);
  }
}

}  // namespace parallax::tool
