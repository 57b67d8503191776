// SPDX-License-Identifier: Apache-2.0
// Who would be exposed, and the word that it takes. See exposure.h.
#include "transport/exposure.h"

#include <unistd.h>

#include <algorithm>
#include <string_view>

#include "transport/endpoint.h"

namespace parallax {

namespace {

// UCX's list of transports: names and aliases with commas between, ^ before it for all others. What
// is not sure to be without tcp may have it.
bool may_have_tcp(std::string_view list) {
  const bool all_others = list.starts_with('^');
  if (all_others) list.remove_prefix(1);
  bool named = list.empty();
  while (!list.empty()) {
    const std::string_view each = list.substr(0, list.find(','));
    named = named || each == "tcp" || (!all_others && each == "all");
    list.remove_prefix(std::min(each.size() + 1, list.size()));
  }
  return named != all_others;
}

bool is_exposed(const Endpoint& endpoint, bool one_machine) {
  return endpoint.reach == NetworkReach::kOpen ||
         (endpoint.reach == NetworkReach::kByChoice && !one_machine);
}

}  // namespace

NetworkReach reach_of(const NetworkWish& wish) {
  const bool tcp = wish.ucx_transports.empty() ? !wish.is_rdma : may_have_tcp(wish.ucx_transports);
  const std::string& device = wish.ucx_net_devices.empty() ? wish.net_device : wish.ucx_net_devices;
  if (!tcp || device == "lo") return NetworkReach::kClosed;
  return device.empty() ? NetworkReach::kByChoice : NetworkReach::kOpen;
}

Status check_exposure(std::span<const Endpoint> all) {
  const bool one_machine = std::all_of(all.begin(), all.end(), [&](const Endpoint& endpoint) {
    return endpoint.machine == all[0].machine;
  });
  for (const Endpoint& endpoint : all) {
    if (endpoint.carrier == NetworkCarrier::kTcp || endpoint.says_ucx ||
        !is_exposed(endpoint, one_machine)) {
      continue;
    }
    return unsupported(
        "open: between hosts there is UCX over tcp alone, which neither authenticates nor "
        "encrypts: "
        "a stranger who reaches its ports can run code in a rank. Where the job's machines alone "
        "reach that network, say so on every rank: transport \"ucx\", or PARALLAX_TRANSPORT=ucx; "
        "rank " +
        std::to_string(endpoint.rank) + " (host " + endpoint.host +
        ") does not. Transport \"tcp\" authenticates and encrypts; RDMA devices have no such "
        "ports: "
        "transport \"rdma\"");
  }
  return {};
}

bool is_rdma_device(const std::string& device) {
  const std::string name = device.substr(0, device.find(':'));
  return !name.empty() && name.find('/') == std::string::npos &&
         access(("/sys/class/infiniband/" + name).c_str(), F_OK) == 0;
}

}  // namespace parallax
