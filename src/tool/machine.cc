// SPDX-License-Identifier: Apache-2.0
// Interfaces and the UCX module of this machine. See machine.h.
#include "tool/machine.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <memory>

#include "base/interface.h"
#include "base/unique_fd.h"
#include "transport/module/loader.h"

namespace parallax::tool {

namespace {

struct FreeInterfaces {
  void operator()(ifaddrs* list) const { freeifaddrs(list); }
};

// "" for what a peer could not use.
std::string numeric(const sockaddr* address) {
  if (address == nullptr) return "";
  socklen_t bytes = 0;
  if (address->sa_family == AF_INET) {
    bytes = sizeof(sockaddr_in);
  } else if (address->sa_family == AF_INET6) {
    if (IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr)) {
      return "";
    }
    bytes = sizeof(sockaddr_in6);
  } else {
    return "";
  }
  char text[NI_MAXHOST] = "";
  const int failed = getnameinfo(address, bytes, text, sizeof text, nullptr, 0, NI_NUMERICHOST);
  return failed == 0 ? text : "";
}

uint32_t mtu_of(const char* interface) {
  const UniqueFd socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ifreq request = {};
  std::snprintf(request.ifr_name, sizeof request.ifr_name, "%s", interface);
  if (!socket.valid() || ioctl(socket.get(), SIOCGIFMTU, &request) != 0) return 0;
  return request.ifr_mtu > 0 ? static_cast<uint32_t>(request.ifr_mtu) : 0;
}

}  // namespace

std::vector<Interface> interfaces() {
  ifaddrs* raw = nullptr;
  if (getifaddrs(&raw) != 0) return {};
  const std::unique_ptr<ifaddrs, FreeInterfaces> list(raw);
  std::vector<Interface> found;
  for (const ifaddrs* at = raw; at != nullptr; at = at->ifa_next) {
    auto same = std::find_if(found.begin(), found.end(),
                             [&](const Interface& each) { return each.name == at->ifa_name; });
    if (same == found.end()) {
      found.push_back({.name = at->ifa_name,
                       .up = (at->ifa_flags & IFF_UP) != 0 && (at->ifa_flags & IFF_RUNNING) != 0,
                       .loopback = (at->ifa_flags & IFF_LOOPBACK) != 0,
                       .mtu_bytes = mtu_of(at->ifa_name),
                       .addresses = {}});
      same = std::prev(found.end());
    }
    if (std::string address = numeric(at->ifa_addr); !address.empty()) {
      same->addresses.push_back(std::move(address));
    }
  }
  return found;
}

std::vector<std::string> listen_addresses(const std::string& device, bool one_machine,
                                          size_t most) {
  if (one_machine) return {"127.0.0.1"};
  std::vector<std::string> addresses;
  for (const Interface& each : interfaces()) {
    const bool chosen = each.name == device;
    if (!each.up || (each.loopback && !chosen)) continue;
    if (!device.empty() && !is_rdma_device(device) && !chosen) continue;
    addresses.insert(addresses.end(), each.addresses.begin(), each.addresses.end());
  }
  if (addresses.size() > most) addresses.resize(most);
  return addresses;
}

Status try_ucx(const std::string& module_dir, const std::string& net_device, std::string* library,
               std::string* path, std::string* description) {
  const ParallaxTransportModule* module = nullptr;
  ModuleReport report;
  PARALLAX_RETURN_IF_ERROR(load_ucx_module(module_dir, &module, &report));
  *library = report.library;
  *path = report.path;
  NetworkOptions options;
  options.world = 2;
  options.net_device = net_device;
  std::unique_ptr<NetworkTransport> transport;
  PARALLAX_RETURN_IF_ERROR(module->create(options, &transport));
  *description = transport->description();
  return {};
}

}  // namespace parallax::tool
