// SPDX-License-Identifier: Apache-2.0
// The choice of a device, and the words for it. See network_choice.h.
#include "job/network_choice.h"

#include <algorithm>
#include <array>
#include <sstream>
#include <string_view>

#include "base/environment.h"
#include "base/interface.h"
#include "base/log.h"
#include "topology/nic_ports.h"
#include "topology/rails.h"
#include "transport/module/network_transport.h"

namespace parallax {

namespace {

constexpr const char* kRefused = "open: transport is \"rdma\", ";

// A rail costs memory that UCX locks, and a look in every poll.
constexpr size_t kRailsByDefault = 4;

struct Port {
  const Nic* nic = nullptr;
  const NicPort* port = nullptr;
  std::string name() const { return nic->name + ":" + std::to_string(port->number); }
};

bool is_usable(const NicPort& port) { return port_trouble(port).empty(); }

size_t usable_ports(const std::vector<Nic>& nics) {
  size_t count = 0;
  for (const Nic& nic : nics) count += std::count_if(nic.ports.begin(), nic.ports.end(), is_usable);
  return count;
}

Status refused(const std::string& why, const char* field) {
  return invalid(kRefused + why).about_field(field);
}

std::vector<std::string> words_of(const std::string& list) {
  std::vector<std::string> words;
  std::istringstream rest(list);
  for (std::string word; std::getline(rest, word, ',');) {
    if (!word.empty()) words.push_back(word);
  }
  return words;
}

// "mlx5_0 port 1 is down, mlx5_1 could not be opened": every port, for sentences.
std::string states_of(const std::vector<Nic>& nics) {
  std::string states;
  const auto add = [&states](const std::string& each) {
    states += (states.empty() ? "" : ", ") + each;
  };
  for (const Nic& nic : nics) {
    if (nic.ports.empty()) add(nic.name + " could not be opened");
    for (const NicPort& port : nic.ports) {
      add(nic.name + " port " + std::to_string(port.number) + " is " + port.state);
    }
  }
  return states;
}

constexpr const char* kNotActive =
    "; a port becomes active with its link: see ibv_devinfo, for RoCE that its interface is up (ip "
    "link), for InfiniBand that a subnet manager runs";

Status check_usable(const std::vector<Nic>& nics) {
  if (nics.empty()) {
    return io_error(std::string(kRefused) +
                    "but this machine has no RDMA device that libibverbs can see: load its driver; "
                    "in a container pass /dev/infiniband in")
        .about_field("transport");
  }
  const bool opened =
      std::any_of(nics.begin(), nics.end(), [](const Nic& nic) { return !nic.ports.empty(); });
  if (opened) return {};
  return io_error(kRefused + std::string("but ") + states_of(nics) +
                  ": is /dev/infiniband there and open to this user, with libibverbs1 and "
                  "ibverbs-providers installed?")
      .about_field("transport");
}

// UCX would take Ethernet or shared memory if the user's list of transports lets it.
Status check_ucx_transports(const std::string& list) {
  constexpr std::array kKnown = {"rc", "dc", "ud", "ib", "self", "cuda", "gdr_copy", "rocm"};
  for (const std::string& word : words_of(list)) {
    const bool known = std::any_of(kKnown.begin(), kKnown.end(), [&word](const char* name) {
      return std::string_view(word).starts_with(name);
    });
    if (known) continue;
    return refused("but UCX_TLS=" + list + " allows " + word +
                       ", which is none of rc, dc and ud; unset it or name those",
                   "transport");
  }
  return {};
}

// A name without a port is the device's first active one, or its first.
Status find_named(const std::string& name, const std::string& where, const std::vector<Nic>& nics,
                  Port* found) {
  const size_t colon = name.find(':');
  const std::string device = name.substr(0, colon);
  const auto nic = std::find_if(nics.begin(), nics.end(),
                                [&device](const Nic& each) { return each.name == device; });
  const std::string named = "but '" + name + "' (" + where + ") is ";
  if (nic == nics.end()) {
    return refused(named + "no RDMA device; there are: " + states_of(nics), "net_device");
  }
  for (const NicPort& port : nic->ports) {
    if (colon != std::string::npos && name.substr(colon + 1) != std::to_string(port.number)) {
      continue;
    }
    if (found->port == nullptr || !is_usable(*found->port)) *found = {&*nic, &port};
  }
  if (found->port == nullptr) {
    return refused(named + "no port of it; there are: " + states_of(nics), "net_device");
  }
  const std::string trouble = port_trouble(*found->port);
  if (trouble.empty()) return {};
  return io_error(kRefused + std::string("but of '") + name + "' (" + where + ") " + trouble +
                  kNotActive)
      .about_field("net_device");
}

UcxVariables ucx_variables() {
  return {.transports = process_variable("UCX_TLS"),
          .net_devices = process_variable("UCX_NET_DEVICES")};
}

// How many the setting allows; 0: it is a list of names, or nonsense.
size_t rails_wanted(const std::string& rails) {
  if (rails.empty() || rails == "auto") return kRailsByDefault;
  for (size_t count = 1; count <= kRailsMax; ++count) {
    if (rails == std::to_string(count)) return count;
  }
  return 0;
}

// The ports that the setting names.
Status choose_named_rails(const NetworkRequest& request, const UcxVariables& ucx,
                          const std::vector<Nic>& nics, NetworkChoice* choice) {
  const std::vector<std::string> names = words_of(request.rails);
  const std::string setting = "but rails is '" + request.rails + "'";
  const char* other = request.options->net_device != nullptr ? "net_device"
                      : !ucx.net_devices.empty()             ? "UCX_NET_DEVICES"
                                                             : nullptr;
  if (other != nullptr) {
    return refused(setting + " and " + other + " names devices too: give one of them", "rails");
  }
  const bool is_number = request.rails.find_first_not_of("0123456789") == std::string::npos;
  if (names.empty() || names.size() > kRailsMax || is_number) {
    return refused(setting + ": it must be auto, 1 to " + std::to_string(kRailsMax) +
                       ", or as many names of ports, as mlx5_0:1,mlx5_1:1",
                   "rails");
  }
  std::vector<std::string> devices;
  for (const std::string& name : names) {
    Port found;
    PARALLAX_RETURN_IF_ERROR(find_named(name, "rails", nics, &found));
    if (std::find(devices.begin(), devices.end(), found.name()) != devices.end()) {
      return refused(setting + ", which names " + found.name() + " twice", "rails");
    }
    devices.push_back(found.name());
  }
  choice->device = devices[0];
  choice->more_devices.assign(devices.begin() + 1, devices.end());
  choice->more_devices_asked = true;
  choice->why = "named by rails";
  return {};
}

// By what discovery knows: near to the rank's GPU, or to its NUMA nodes, shared among its host's.
Status choose_nearest(const NetworkRequest& request, const Topology& topology,
                      NetworkChoice* choice) {
  std::vector<RankRails> ranks;
  const Status planned = plan_rails(
      topology,
      {.local_ranks = request.local_ranks, .local_rank = request.local_rank, .cuda = request.cuda},
      &ranks);
  if (!planned.ok()) {
    return io_error(kRefused + std::string("but ") + planned.message() + kNotActive)
        .about_field("transport");
  }
  const RankRails& own = ranks[request.local_rank];
  choice->device = rail_name(own.rails.front());
  const size_t count = std::min(own.rails.size(), rails_wanted(request.rails));
  for (size_t i = 1; i < count; ++i) choice->more_devices.push_back(rail_name(own.rails[i]));
  const size_t usable = usable_ports(topology.nics);
  choice->why = "the only RDMA device that is active";
  if (usable > 1) {
    choice->why =
        "of " + std::to_string(usable) + " active ports of this host: " + own.why + own.assumed;
  }
  return {};
}

Status choose_port(const NetworkRequest& request, const UcxVariables& ucx, const Topology& topology,
                   NetworkChoice* choice) {
  const std::vector<Nic>& nics = topology.nics;
  PARALLAX_RETURN_IF_ERROR(check_ucx_transports(ucx.transports));
  PARALLAX_RETURN_IF_ERROR(check_usable(nics));
  choice->transports = kVerbsTransports;
  if (rails_wanted(request.rails) == 0) return choose_named_rails(request, ucx, nics, choice);
  if (!ucx.net_devices.empty()) {
    for (const std::string& name : words_of(ucx.net_devices)) {
      Port found;
      PARALLAX_RETURN_IF_ERROR(find_named(name, "UCX_NET_DEVICES", nics, &found));
    }
    choice->device = ucx.net_devices;
    choice->why = "UCX_NET_DEVICES";
    return {};
  }
  if (request.options->net_device != nullptr) {
    Port found;
    PARALLAX_RETURN_IF_ERROR(
        find_named(request.options->net_device, request.net_device_where, nics, &found));
    choice->device = found.name();
    choice->why = "net_device, from " + request.net_device_where;
    return {};
  }
  return choose_nearest(request, topology, choice);
}

}  // namespace

CarrierChoice choose_carrier(const char* transport, const std::string& where, bool device_is_rdma) {
  const std::string_view named = transport == nullptr ? "" : transport;
  const std::string why = "transport, from " + where;
  if (named == "ucx") return {NetworkCarrier::kUcx, why};
  if (named == "rdma") return {NetworkCarrier::kRdma, why};
  if (!named.empty()) return {NetworkCarrier::kTcp, why};
  if (device_is_rdma) return {NetworkCarrier::kRdma, "net_device names an RDMA device"};
  return {NetworkCarrier::kTcp, "the default"};
}

CarrierChoice choose_carrier(const parallax_options_t& options, const std::string& where) {
  const bool device_is_rdma = options.net_device != nullptr && is_rdma_device(options.net_device);
  return choose_carrier(options.transport, where, device_is_rdma);
}

std::string ucx_left_out(const NetworkRequest& request, const UcxVariables& ucx) {
  const bool told = !ucx.transports.empty() || !ucx.net_devices.empty();
  const bool named = request.options->transport != nullptr && *request.options->transport != '\0';
  if (!told || named || request.carrier != NetworkCarrier::kTcp) return "";
  return std::string(ucx.transports.empty() ? "UCX_NET_DEVICES=" + ucx.net_devices
                                            : "UCX_TLS=" + ucx.transports) +
         " says nothing to transport \"tcp\", the default between hosts, which takes Ethernet; set "
         "transport to \"rdma\" for RDMA devices, to \"ucx\" for whatever UCX finds, or to "
         "\"tcp\"";
}

Status choose_network(const NetworkRequest& request, NetworkChoice* choice) {
  const std::string left_out = ucx_left_out(request, ucx_variables());
  if (!left_out.empty()) log_write_once(LogLevel::kWarn, LogSubsystem::kNet, left_out);
  if (request.carrier == NetworkCarrier::kRdma) {
    Topology live;
    // Its RDMA devices are there even where hwloc fails.
    static_cast<void>(discover({}, &live));
    NetworkRequest asked = request;
    asked.cuda = cuda_variables();
    return choose_rdma(asked, ucx_variables(), live, choice);
  }
  if (request.options->net_device != nullptr) {
    *choice = {.device = request.options->net_device,
               .why = "net_device, from " + request.net_device_where};
  } else if (!request.tcp_address_where.empty() && request.carrier == NetworkCarrier::kTcp) {
    *choice = {.why = "tcp_address, from " + request.tcp_address_where};
  } else if (request.one_machine) {
    *choice = {.device = "lo", .why = "every rank is on this machine"};
  } else {
    *choice = {.why = request.carrier == NetworkCarrier::kTcp
                          ? "of the default route, as net_device is not set"
                          : "the network library's own choice, as net_device is not set"};
  }
  return {};
}

Status choose_rdma(const NetworkRequest& request, const UcxVariables& ucx, const Topology& topology,
                   NetworkChoice* choice) {
  const Status chosen = choose_port(request, ucx, topology, choice);
  const bool named = request.options->transport != nullptr;
  if (chosen.ok() || named || request.options->net_device == nullptr) return chosen;
  return chosen.reworded(chosen.message() + " (\"rdma\" since net_device is '" +
                         request.options->net_device + "', from " + request.net_device_where + ")");
}

NetworkOptions ucx_network(const NetworkChoice& choice, uint32_t rank, uint32_t world,
                           uint64_t registered_bytes_max) {
  NetworkOptions options = {.rank = rank,
                            .world = world,
                            .net_device = choice.device,
                            .transports = choice.transports,
                            .registered_bytes_max = registered_bytes_max};
  // Without memory to be written to there is nothing for more rails to carry.
  if (registered_bytes_max > 0) {
    options.more_devices = choice.more_devices;
    options.more_devices_asked = choice.more_devices_asked;
  }
  return options;
}

}  // namespace parallax
