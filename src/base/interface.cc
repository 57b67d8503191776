// SPDX-License-Identifier: Apache-2.0
// Choosing an address of this machine: see the header.
#include "base/interface.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <set>
#include <vector>

#include "base/tcp_socket.h"
#include "base/text.h"
#include "base/unique_fd.h"

namespace parallax {

namespace {

constexpr size_t kAddressTextMax = 64;

struct Candidate {
  std::string device;
  SocketAddress address;
  bool running = false;  // a bridge without ports is up, and reaches nobody
};

// Link-local addresses need a scope, which another machine cannot know.
bool is_link_local(const SocketAddress& address) {
  if (address.storage.ss_family == AF_INET) {
    sockaddr_in four;
    std::memcpy(&four, &address.storage, sizeof four);
    return ntohl(four.sin_addr.s_addr) >> 16 == 0xa9fe;  // 169.254/16
  }
  sockaddr_in6 six;
  std::memcpy(&six, &address.storage, sizeof six);
  return IN6_IS_ADDR_LINKLOCAL(&six.sin6_addr);
}

// Of every interface that is up; IPv4 first.
Status list_addresses(std::vector<Candidate>* candidates) {
  ifaddrs* raw = nullptr;
  if (::getifaddrs(&raw) != 0) return io_error(std::string("getifaddrs: ") + std::strerror(errno));
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> list(raw, ::freeifaddrs);
  for (const int family : {AF_INET, AF_INET6}) {
    for (const ifaddrs* each = list.get(); each != nullptr; each = each->ifa_next) {
      if (each->ifa_addr == nullptr || each->ifa_addr->sa_family != family ||
          (each->ifa_flags & IFF_UP) == 0) {
        continue;
      }
      Candidate candidate{
          .device = each->ifa_name, .address = {}, .running = (each->ifa_flags & IFF_RUNNING) != 0};
      candidate.address.bytes = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
      std::memcpy(&candidate.address.storage, each->ifa_addr, candidate.address.bytes);
      if (!is_link_local(candidate.address)) candidates->push_back(candidate);
    }
  }
  return {};
}

// Connecting a datagram socket sends nothing, but makes the kernel choose the route and with it the
// local address. The peer is an address reserved for documentation (RFC 5737, RFC 3849).
bool route_address(int family, SocketAddress* address) {
  const std::string four("\xc0\x00\x02\x01", 4),
      six("\x20\x01\x0d\xb8\0\0\0\0\0\0\0\0\0\0\0\x01", 16);
  const SocketAddress far = make_address(family == AF_INET ? four : six, 9);
  const UniqueFd socket(::socket(family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  return socket.valid() &&
         ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&far.storage), far.bytes) == 0 &&
         tcp_name(socket, address).ok() && !is_link_local(*address);
}

void set_port_0(SocketAddress* address) {
  sockaddr_in four;  // the port lies at the same place in both families
  std::memcpy(&four, &address->storage, sizeof four);
  four.sin_port = 0;
  std::memcpy(&address->storage, &four, sizeof four);
}

}  // namespace

Status choose_address(const std::string& device, SocketAddress* address) {
  std::vector<Candidate> candidates;
  PARALLAX_RETURN_IF_ERROR(list_addresses(&candidates));
  if (device.empty()) {
    if (route_address(AF_INET, address) || route_address(AF_INET6, address)) {
      set_port_0(address);
      return {};
    }
    *address = make_address(std::string("\x7f\x00\x00\x01", 4), 0);
    for (const Candidate& candidate : candidates) {
      if (is_loopback(candidate.address) || !candidate.running) continue;
      *address = candidate.address;
      break;
    }
    return {};
  }
  std::set<std::string> names;
  for (const Candidate& candidate : candidates) {
    names.insert(candidate.device);
    if (candidate.device != device) continue;
    *address = candidate.address;
    return {};
  }
  std::string known;
  for (const std::string& name : names) known += (known.empty() ? "" : ", ") + name;
  return invalid("net_device is '" + device +
                 "', which is no interface of this machine that is up and has an address; there "
                 "are: " +
                 known);
}

Status find_address(const std::string& text, const std::string& device, SocketAddress* address) {
  in6_addr bytes;  // of either family
  std::string wanted;
  for (const int family : {AF_INET, AF_INET6}) {
    if (::inet_pton(family, text.c_str(), &bytes) != 1) continue;
    wanted.assign(reinterpret_cast<const char*>(&bytes), family == AF_INET ? 4 : 16);
  }
  if (wanted.empty()) {
    return invalid("'" + printable(text.substr(0, kAddressTextMax)) +
                   "' is no address; give one as 10.0.0.1 or fd00::1");
  }
  std::vector<Candidate> candidates;
  PARALLAX_RETURN_IF_ERROR(list_addresses(&candidates));
  std::string known;
  for (const Candidate& candidate : candidates) {
    if (!device.empty() && candidate.device != device) continue;
    if (address_bytes(candidate.address) == wanted) {
      *address = candidate.address;
      return {};
    }
    known += (known.empty() ? "" : ", ") + to_text(candidate.address) + " on " + candidate.device;
  }
  return invalid("'" + text + "' is no address of " +
                 (device.empty() ? "this machine" : "interface '" + device + "'") +
                 " that is up; there are (with their ports): " + (known.empty() ? "none" : known));
}

bool is_network_device(const std::string& device) {
  return ::if_nametoindex(device.c_str()) != 0 || is_rdma_device(device);
}

bool is_rdma_device(const std::string& device) {
  const std::string name = device.substr(0, device.find(':'));
  return !name.empty() && name.find('/') == std::string::npos &&
         ::access(("/sys/class/infiniband/" + name).c_str(), F_OK) == 0;
}

std::string interface_of(const SocketAddress& address) {
  std::vector<Candidate> candidates;
  if (!list_addresses(&candidates).ok()) return "";
  for (const Candidate& candidate : candidates) {
    if (address_bytes(candidate.address) == address_bytes(address)) return candidate.device;
  }
  return "";
}

}  // namespace parallax
