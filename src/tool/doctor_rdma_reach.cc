// SPDX-License-Identifier: Apache-2.0
// See doctor_rdma_reach.h.
#include "tool/doctor_rdma_reach.h"

#include "base/clock.h"
#include "job/network_choice.h"
#include "tool/hex.h"
#include "transport/module/loader.h"

namespace parallax::tool {

namespace {

constexpr const char* kCheck = "rdma_reach";
constexpr size_t kAddressBytesMax = 400;  // a card has room for as many

}  // namespace

void RdmaReach::open(const Settings& settings, const RdmaCard& own, uint32_t rank, uint32_t world) {
  port_ = own.port;
  is_ethernet_ = own.link_layer == "ethernet";
  if (port_.empty()) return;
  const ParallaxTransportModule* module = nullptr;
  ModuleReport report;
  opened_ = load_ucx_module(settings.value("module_dir").text, &module, &report);
  if (!opened_.ok()) return;
  opened_ = module->create(
      {.rank = rank, .world = world, .net_device = port_, .transports = kVerbsTransports},
      &transport_);
  if (!opened_.ok()) return;
  if (transport_->address().size() > kAddressBytesMax) {
    opened_ = limit("the address that UCX gives is longer than can be told");
    return;
  }
  address_ = hex_of(transport_->address());
}

Status RdmaReach::reach(const std::vector<Peer>& peers, std::string* reached) {
  std::vector<uint32_t> ranks;
  const auto name_of = [&peers](uint32_t rank) {
    for (const Peer& peer : peers) {
      if (peer.rank == rank) return peer.name + " at " + peer.port;
    }
    return std::string();
  };
  for (const Peer& peer : peers) {
    std::string address;
    if (peer.address.empty()) continue;  // it says why
    if (!bytes_of(peer.address, &address)) return invalid(peer.name + " gave no address of UCX");
    PARALLAX_RETURN_IF_ERROR(transport_->connect(peer.rank, address));
    ranks.push_back(peer.rank);
  }
  const int64_t deadline_ns = SteadyClock().now_ns() + kReachMs * kNanosecondsPerMillisecond;
  uint32_t missing = 0;
  const Status wired = transport_->wire(ranks, deadline_ns, &missing);
  if (!wired.ok()) return wired.prefixed(name_of(missing) + ": ");
  for (const uint32_t rank : ranks) {
    *reached +=
        (reached->empty() ? "" : "; ") + name_of(rank) + ", by " + transport_->way_to(rank).text;
  }
  return {};
}

void RdmaReach::check(const std::vector<Peer>& peers, bool is_wanted, Findings* findings) {
  if (port_.empty() || peers.empty()) return;  // said already
  std::string text, remedy = "see what UCX said", reached;
  if (!opened_.ok()) {
    text = port_ + " was not tried: " + opened_.message();
  } else if (const Status tried = reach(peers, &reached); !tried.ok()) {
    text = "packets of " + port_ + " do not pass between this rank and " + tried.message();
    remedy =
        is_ethernet_
            ? "let UDP port 4791 (RoCE v2) through the firewalls of both hosts and of what is "
              "between them (nft list ruleset), and look at the addresses that rdma_gid shows: "
              "ping from one to the other"
            : "see that both ports are of one subnet and partition (ibstat, iblinkinfo, "
              "/sys/class/infiniband/*/ports/*/pkeys)";
  } else if (reached.empty()) {
    text = "no other host has an RDMA port that could be tried from " + port_;
    remedy = "see what those ranks found";
  }
  if (text.empty()) {
    findings->ok(kCheck, reached);
  } else if (is_wanted) {
    findings->fail(kCheck, text, remedy);
  } else {
    findings->warn(kCheck, text, remedy);
  }
}

}  // namespace parallax::tool
