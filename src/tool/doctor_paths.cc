// SPDX-License-Identifier: Apache-2.0
// TCP between hosts as the doctor tries it. See doctor_paths.h.
#include "tool/doctor_paths.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "base/crypto.h"
#include "base/environment.h"
#include "base/interface.h"
#include "job/tcp_network.h"
#include "rendezvous/secret.h"
#include "tool/machine.h"
#include "transport/tcp/tcp_transport.h"

namespace parallax::tool {

namespace {

constexpr int64_t kClockAheadMaxMs = 500;
constexpr size_t kAddressesMax = 32;  // a card holds as many
// Ports beside the first are tried where that leaves each rank of the host enough to listen at.
constexpr uint32_t kPortsPerRankMin = 16;
constexpr size_t kMarkBytes = 8;
constexpr size_t kLongBytesMin = 16 << 10;
constexpr uint32_t kMtuBytesMin = 1500;  // where it is not known

// Whether a job of these settings talks by transport tcp between hosts.
bool takes_tcp(const Settings& settings) {
  const std::string& transport = settings.value("transport").text;
  return transport == "tcp" ||
         (transport.empty() && !is_rdma_device(settings.value("net_device").text));
}

std::string text_of(const SocketAddress& address) {
  const std::string text = to_text(address);  // "10.0.0.1:0", "[::1]:0"
  const std::string host = text.substr(0, text.rfind(':'));
  return host.front() == '[' ? host.substr(1, host.size() - 2) : host;
}

std::string gigabytes_a_second(const Carried& carried) {
  char text[32];
  const double ns = static_cast<double>(std::max<int64_t>(1, carried.there_and_back_ns));
  std::snprintf(text, sizeof text, "%.3f GB/s", 2 * static_cast<double>(carried.bytes) / ns);
  return text;
}

}  // namespace

Status plan_listening(const Settings& settings, bool one_machine, size_t local_ranks,
                      ListenPlan* plan) {
  const std::string& device = settings.value("net_device").text;
  plan->addresses = listen_addresses(device, one_machine, kAddressesMax);
  if (takes_tcp(settings)) {
    PARALLAX_RETURN_IF_ERROR(parse_tcp_ports(settings.value("tcp_ports").text, &plan->ports));
    std::vector<std::string> devices;
    PARALLAX_RETURN_IF_ERROR(parse_tcp_rails(settings.value("tcp_rails").text, &devices));
    TcpOptions options;
    options.own_address = settings.value("tcp_address").text;
    if (!one_machine && (!devices.empty() || !options.own_address.empty())) {
      devices.insert(devices.begin(), device);
      plan->addresses.clear();
      for (const std::string& each : devices) {
        SocketAddress address;
        options.net_device = each;
        PARALLAX_RETURN_IF_ERROR(choose_own_address(options, &address));
        plan->addresses.push_back(text_of(address));
        options.own_address.clear();  // it is the first rail's
      }
      plan->rails = static_cast<uint32_t>(devices.size());
    }
  }
  const uint32_t count = plan->ports.last - plan->ports.first + 1u;
  if (plan->ports.first == 0 || count >= kPortsPerRankMin * local_ranks) {
    plan->other_ports = ports_across(plan->ports);
  }
  return {};
}

Status secret_mark(const Settings& settings, uint64_t card_secret, std::string* mark) {
  const std::string& file = settings.value("secret_file").text;
  std::string secret;
  PARALLAX_RETURN_IF_ERROR(
      find_secret(file.empty() ? nullptr : file.c_str(), process_variable, &secret));
  mark->clear();
  if (secret.empty()) return {};
  const std::string whole = hmac(secret, "parallax doctor ", std::to_string(card_secret));
  for (const char byte : whole.substr(0, kMarkBytes)) {
    char digits[3];
    std::snprintf(digits, sizeof digits, "%02x", static_cast<unsigned char>(byte));
    *mark += digits;
  }
  wipe(&secret);
  return {};
}

// Whether the ranks have one secret is asked of the cards: TLS would only say that it failed.
void PathChecks::check_secret(const std::string& name, const Card& card,
                              const Settings& settings) const {
  std::string expected;
  const Status found = secret_mark(settings, card.secret, &expected);
  if (!takes_tcp(settings) || !found.ok() || expected == card.secret_mark) return;
  const std::string what = expected.empty()           ? "has a secret, this rank has none"
                           : card.secret_mark.empty() ? "has no secret, this rank has one"
                                                      : "has another secret than this rank";
  findings.fail("secret", name + " " + what,
                "give every rank the same, by PARALLAX_SECRET_FILE or PARALLAX_SECRET");
}

void PathChecks::check(const std::string& name, const Card& card, bool measures) const {
  if (card.rails != plan.rails && (card.rails > 1 || plan.rails > 1)) {
    findings.fail("reach",
                  name + " has " + std::to_string(std::max(1u, card.rails)) +
                      " rails, this rank has " + std::to_string(std::max(1u, plan.rails)),
                  "give every rank as many interfaces in tcp_rails");
    return;
  }
  std::string why;
  size_t reached = 0;
  for (size_t i = 0; i < card.endpoints.size() && (card.rails > 0 || reached == 0); ++i) {
    reached += try_endpoint(name, card, i, measures, &why) ? 1 : 0;
  }
  if (card.endpoints.empty()) why = "it has no address to listen at";
  if (reached > 0 && (card.rails == 0 || reached == card.endpoints.size())) return;
  findings.fail(
      "reach", name + " cannot be reached over TCP: " + why,
      "check route and firewall between the hosts (all TCP ports of the job's network, or "
      "tcp_ports), or name the interface that joins them in PARALLAX_NET_DEVICE");
}

TcpEndpoint PathChecks::path_to(const Card& card, size_t endpoint) const {
  TcpEndpoint to = card.endpoints[endpoint];
  const size_t rail = plan.rails > 1 ? endpoint : 0;
  if (plan.rails > 0 && rail < own.endpoints.size()) to.from = own.endpoints[rail].address;
  return to;
}

bool PathChecks::try_endpoint(const std::string& name, const Card& card, size_t i, bool measures,
                              std::string* why) const {
  const TcpEndpoint endpoint = path_to(card, i);
  const auto failed = [why](const std::string& reason) {
    *why += (why->empty() ? "" : "; ") + reason;
    return false;
  };
  if (!time_is_left()) return failed("no time was left for " + describe(endpoint));
  Probe probe;
  const Status status = probe_peer(endpoint, card.secret, kProbeTimeoutMs, &probe, until_ns);
  if (!status.ok()) return failed(status.message());
  findings.ok("reach", name + " at " + describe(endpoint) +
                           (card.rails > 1 ? ", rail " + std::to_string(i) : "") + ", " +
                           std::to_string(probe.round_trip_ns / 1000) + " us there and back" +
                           (why->empty() ? "" : " (but not " + *why + ")"));
  if (i == 0 || card.rails == 0) {
    check_clock(name, probe);
    check_ports(name, card, endpoint);
  }
  if (check_mtu(name, card, i, probe.local_address) && measures) measure(name, card, i);
  return true;
}

void PathChecks::check_clock(const std::string& name, const Probe& probe) const {
  const int64_t ahead_ms = probe.clock_ahead_ns / kNanosecondsPerMillisecond;
  const int64_t doubt_ms = probe.round_trip_ns / kNanosecondsPerMillisecond;
  const std::string skew = "the clock of " + name + " is " + std::to_string(std::abs(ahead_ms)) +
                           " ms " + (ahead_ms < 0 ? "behind" : "ahead");
  if (std::abs(ahead_ms) <= kClockAheadMaxMs + doubt_ms) return findings.ok("clock skew", skew);
  findings.warn("clock skew", skew + "; training is not affected, logs cannot be compared",
                "synchronise the clocks (chrony, NTP)");
}

// At the other ports of an address that was reached.
void PathChecks::check_ports(const std::string& name, const Card& card,
                             const TcpEndpoint& reached) const {
  std::string blocked;
  size_t tried = 0;
  for (const uint16_t port : card.other_ports) {
    if (!time_is_left()) break;
    Probe probe;
    const TcpEndpoint other = {.address = reached.address, .port = port, .from = reached.from};
    const Status status = probe_peer(other, card.secret, kProbeTimeoutMs, &probe, until_ns);
    if (!status.ok() && !time_is_left()) break;  // that says nothing of the port
    ++tried;
    if (!status.ok()) blocked += (blocked.empty() ? "" : "; ") + status.message();
  }
  if (blocked.empty() && tried < card.other_ports.size()) return;
  const bool narrowed = plan.ports.first != 0;
  const std::string range = narrowed ? "tcp_ports" : "the range";
  if (blocked.empty()) {
    const std::string all = std::to_string(1 + tried);
    return findings.ok("firewall", "ports across " + range + " of " + name +
                                       " can be reached: " + all + " of " + all + " tried");
  }
  findings.fail(
      "firewall",
      name + " can be reached at " + describe(reached) + ", but not at other ports: " + blocked,
      narrowed ? "open to the job's hosts all TCP ports of tcp_ports"
               : "open to the job's hosts all TCP ports that the kernel gives out (sysctl "
                 "net.ipv4.ip_local_port_range), or narrow the job's to those that are open, by "
                 "tcp_ports");
}

// `local_address`: by which this rank reached it. False: packets of full length are lost, they come
// through slowly, or there was no time to tell.
bool PathChecks::check_mtu(const std::string& name, const Card& card, size_t endpoint,
                           const std::string& local_address) const {
  const uint32_t mtu_bytes = endpoint < card.mtus_bytes.size() ? card.mtus_bytes[endpoint] : 0;
  uint32_t own_bytes = 0;
  for (size_t i = 0; i < own.endpoints.size(); ++i) {
    if (own.endpoints[i].address == local_address) own_bytes = own.mtus_bytes[i];
  }
  if (!time_is_left()) return false;
  Carried carried;
  const size_t long_bytes =
      std::max<size_t>(kLongBytesMin, size_t{2} * std::max(mtu_bytes, own_bytes));
  const Status passed =
      carry_to_peer(path_to(card, endpoint), card.secret, long_bytes, &carried, until_ns);
  if (!passed.ok()) {
    if (!time_is_left()) return false;
    // Who swallows long packets lets none of them back.
    if (carried.back_bytes >= std::max({kMtuBytesMin, mtu_bytes, own_bytes})) {
      findings.warn("path", "the path to " + name + " is slow: " + passed.message(),
                    "see whether the network is busy, or loses packets (ip -s link)");
      return false;
    }
    findings.fail(
        "mtu",
        "long packets to " + name + " or from it are lost, short ones are not: " + passed.message(),
        "give the interfaces, and what lies between, one MTU (ip link set DEVICE mtu "
        "1400), or let ICMP's \"fragmentation needed\" through the firewall");
    return false;
  }
  if (mtu_bytes == 0 || own_bytes == 0) return true;
  const std::string text = name + " has " + std::to_string(mtu_bytes) + ", this rank " +
                           std::to_string(own_bytes) + " (" + local_address + ")";
  if (mtu_bytes == own_bytes) {
    findings.ok("mtu", text + "; packets of that length pass");
    return true;
  }
  findings.warn("mtu",
                "MTUs of the interfaces differ: " + text +
                    "; where nothing says so on the way, large packets are lost",
                "give both, and the switches between, one MTU: ip link set DEVICE mtu " +
                    std::to_string(std::min(mtu_bytes, own_bytes)));
  return true;
}

void PathChecks::measure(const std::string& name, const Card& card, size_t endpoint) const {
  if (!time_is_left()) return;
  Carried carried;
  const Status status =
      carry_to_peer(path_to(card, endpoint), card.secret, kCarriedBytesMax, &carried, until_ns);
  if (!status.ok()) {
    return findings.warn(
        "path", "what the path to " + name + " carries was not measured: " + status.message(),
        "see whether the network is busy, or loses packets (ip -s link)");
  }
  findings.ok("path", gigabytes_a_second(carried) + " to " + name + " and back, of " +
                          std::to_string(carried.bytes >> 10) +
                          " KiB over one connection, while other ranks did the same");
}

}  // namespace parallax::tool
