// SPDX-License-Identifier: Apache-2.0
// The secret, and who may do without one. See tcp_network.h.
#include "job/tcp_network.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "base/environment.h"
#include "base/interface.h"
#include "base/log.h"
#include "rendezvous/secret.h"
#include "rendezvous/unique_id.h"
#include "transport/tcp/tcp_congestion.h"
#include "transport/tcp/tcp_rails.h"
#include "transport/tcp/tcp_transport.h"

namespace parallax {

namespace {

// Empty where there is none.
Status find_job_secret(const parallax_options_t& options, std::string* secret) {
  if (options.unique_id == nullptr) {
    return find_secret(options.secret_file, process_variable, secret);
  }
  UniqueId id;
  PARALLAX_RETURN_IF_ERROR(decode_unique_id(*options.unique_id, &id));
  secret->assign(id.key.view());
  return {};
}

Status check_tcp_reach(const TcpOptions& options, bool has_secret) {
  SocketAddress address;
  PARALLAX_RETURN_IF_ERROR(choose_own_address(options, &address));
  if (has_secret || is_loopback(address)) return {};
  return invalid(
             "open: transport tcp would listen at " + to_text(address) +
             ", which other machines reach, and there is no secret. Give every rank the same one, "
             "in a file of mode 0600 that PARALLAX_SECRET_FILE or options.secret_file names (made "
             "by: openssl rand -hex 32), or in PARALLAX_SECRET; or meet by a unique id. Where the "
             "job's machines alone reach that network, transport \"rdma\" (over RDMA devices) or "
             "\"ucx\" takes none, and protects nothing")
      .about_field("secret_file");
}

}  // namespace

Status parse_tcp_ports(std::string_view text, TcpPorts* ports) {
  *ports = {};
  if (text.empty()) return {};
  const char* const end = text.data() + text.size();
  const auto first = std::from_chars(text.data(), end, ports->first);
  if (first.ec == std::errc() && first.ptr != end && *first.ptr == '-') {
    const auto last = std::from_chars(first.ptr + 1, end, ports->last);
    if (last.ec == std::errc() && last.ptr == end && ports->first > 0 &&
        ports->first <= ports->last) {
      return {};
    }
  }
  return invalid("open: tcp_ports is '" + std::string(text.substr(0, 32)) +
                 "'; give FIRST-LAST, such as 31000-31999")
      .about_field("tcp_ports");
}

Status parse_tcp_rails(std::string_view text, std::vector<std::string>* devices) {
  devices->clear();
  while (!text.empty()) {
    const size_t end = std::min(text.find(','), text.size());
    devices->emplace_back(text.substr(0, end));
    const bool ends = end == text.size();
    text.remove_prefix(ends ? end : end + 1);
    if (devices->back().empty() || devices->size() >= kRailsMax || (text.empty() && !ends)) {
      return invalid("open: tcp_rails names one to " + std::to_string(kRailsMax - 1) +
                     " interfaces with commas, such as eth1,eth2")
          .about_field("tcp_rails");
    }
  }
  return {};
}

namespace {

// Of each rail before any listens.
Status check_reach_of_all(TcpOptions options, const std::vector<std::string>& more_devices,
                          bool has_secret) {
  PARALLAX_RETURN_IF_ERROR(check_tcp_reach(options, has_secret));
  options.own_address.clear();
  for (const std::string& device : more_devices) {
    options.net_device = device;
    const Status reached = check_tcp_reach(options, has_secret);
    if (!reached.ok()) return reached.prefixed("open: tcp_rails: ");
  }
  return {};
}

}  // namespace

Status make_tcp_network(const TcpNetworkRequest& request,
                        std::unique_ptr<NetworkTransport>* network) {
  const Settings& settings = *request.settings;
  TcpOptions options;
  PARALLAX_RETURN_IF_ERROR(parse_tcp_ports(settings.value("tcp_ports").text, &options.ports));
  std::string secret;
  PARALLAX_RETURN_IF_ERROR(find_job_secret(*request.options, &secret));
  options.rank = request.options->rank;
  options.world = request.world;
  options.net_device = request.device;
  options.own_address = settings.value("tcp_address").text;
  options.busy_poll_us = static_cast<uint32_t>(settings.value("tcp_busy_poll_us").number);
  options.congestion = settings.value("tcp_congestion").text;
  PARALLAX_RETURN_IF_ERROR(check_tcp_congestion(options.congestion));
  std::vector<std::string> more_devices;
  PARALLAX_RETURN_IF_ERROR(parse_tcp_rails(settings.value("tcp_rails").text, &more_devices));
  PARALLAX_RETURN_IF_ERROR(check_reach_of_all(options, more_devices, !secret.empty()));
  options.security = static_cast<TcpSecurity>(settings.value("security").number);
  options.job_key = tcp_job_key(secret, request.job);
  wipe(&secret);
  options.job = request.job;
  options.epoch = request.epoch;
  options.lease_ns = request.lease_ns;
  if (options.security == TcpSecurity::kHandshake) {
    log_write_once(LogLevel::kWarn, LogSubsystem::kNet,
                   "security is 'handshake', from " + settings.value("security").where +
                       ": what ranks of other hosts send each other is neither encrypted nor "
                       "authenticated");
  }
  if (more_devices.empty()) {
    std::unique_ptr<TcpTransport> one;
    PARALLAX_RETURN_IF_ERROR(TcpTransport::create(options, &one));
    *network = std::move(one);
    return {};
  }
  std::unique_ptr<TcpRails> several;
  PARALLAX_RETURN_IF_ERROR(TcpRails::create(options, more_devices, &several));
  *network = std::move(several);
  return {};
}

}  // namespace parallax
