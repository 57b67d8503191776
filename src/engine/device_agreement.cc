// SPDX-License-Identifier: Apache-2.0
// Asking for what is there, and laying out. See device_agreement.h.
#include "engine/device_agreement.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "collectives/device_exchange.h"

namespace parallax {

std::string DeviceAgreement::why_not(const Variable& variable) {
  if (variable.managed())
    return "it has an update rule, and the gradients of such variables are summed there";
  if (variable.ids_declared()) return "it has row ids";
  if (variable.accumulate) return "it takes micro-batches (accumulate), which are summed there";
  if (variable.refuse_nonfinite) return "its numbers are looked at first (refuse_nonfinite)";
  if (variable.reduction == PARALLAX_MEAN_CONTRIBUTORS) {
    return "its mean is over the ranks that contribute, which are counted there";
  }
  if (variable.reduction != PARALLAX_SUM && !is_floating(variable.dtype)) {
    return "the mean of integers is taken there";
  }
  return "";
}

// Sums in order take kernels, which a library of collectives may come without.
Status DeviceAgreement::check_ordered() const {
  if (!parts_.deterministic) return {};
  const uint32_t most = support_.ordered_ranks_max, ranks = parts_.group.columns().world();
  if (ranks <= most) return {};
  return unsupported("deterministic is 1, and its devices cannot sum in order: " +
                     (most == 0 ? support_.why_not_ordered
                                : "they take at most " + std::to_string(most) +
                                      " ranks, and there are " + std::to_string(ranks)));
}

// Where there is one host its devices are all there are.
bool DeviceAgreement::by_host() const {
  return parts_.among == AmongDevices::kHost && parts_.group.columns().host_count() > 1;
}

Status DeviceAgreement::look_for_devices(DeviceShare* share) {
  if (parts_.among == AmongDevices::kNever) return unsupported("the setting nccl is off");
  return parts_.devices ? parts_.devices(share) : unsupported("it has no way to a device");
}

BetweenHosts::Options DeviceAgreement::between(const Variable& variable) const {
  const uint32_t world = parts_.group.columns().world();
  return {.variable = parts_.registry.number_of(variable.id),
          .elements = variable.elements(),
          .dtype = variable.dtype,
          .sum = variable.sum_type(),
          .factor = variable.reduction == PARALLAX_MEAN_WORLD ? 1.0 / world : 1.0};
}

// What sums within hosts takes beside what any reduction among devices does. The first rank of each
// host makes what the others of that host find it by.
Status DeviceAgreement::check_by_host(const DeviceShare& share) {
  const Columns& columns = parts_.group.columns();
  if (columns.world() == columns.host_count()) {
    return unsupported("the setting nccl is host, and every host has one rank");
  }
  if (parts_.deterministic) {
    return unsupported(
        "the setting nccl is host, and deterministic is 1: sums within a host come between hosts "
        "rounded to the dtype");
  }
  uint64_t pinned = 0;
  for (const Variable* variable : parts_.registry.newest()) {
    if (variable->memory == PARALLAX_MEMORY_HOST || !why_not(*variable).empty()) continue;
    pinned += share.pinned->block_bytes(BetweenHosts::pinned_bytes(columns, between(*variable)));
  }
  if (!share.pinned->has_room(pinned)) {
    return unsupported("the setting nccl is host, which takes " + std::to_string(pinned) +
                       " bytes of pinned memory here, more than pinned_max_bytes leaves");
  }
  if (columns.local() != 0 || parts_.launches.begun()) return {};
  return share.devices->make_id(&host_id_);
}

DeviceTerms DeviceAgreement::terms() {
  DeviceTerms terms;
  for (const Variable* variable : parts_.registry.newest()) {
    if (variable->memory == PARALLAX_MEMORY_HOST) continue;
    terms.wanted = terms.wanted || why_not(*variable).empty();
  }
  if (!terms.wanted) return terms;
  Status status = look_for_devices(&share_);
  if (status.ok()) {
    support_ = share_.devices->collectives();
    terms.library_version = support_.library_version;
    terms.driver_version = support_.driver_version;
    terms.by_host = by_host();
    terms.windows = support_.windows;
    status = support_.there ? check_ordered() : unsupported(support_.why);
    if (status.ok() && terms.by_host) status = check_by_host(share_);
  }
  terms.able = status.ok();
  if (!terms.able) terms.why = parts_.group.name() + ": " + status.message();
  return terms;
}

Status DeviceAgreement::make_id(CommunicatorId* id) { return share_.devices->make_id(id); }

// As sums have it: host by host, the ranks of each ascending.
void DeviceAgreement::number_in_order(const Columns& columns, CommunicatorOptions* options) {
  uint32_t number = 0;
  for (uint32_t host = 0; host < columns.host_count(); ++host) {
    const std::vector<uint32_t>& ranks = columns.map().ranks_of[host];
    options->host_ranks.push_back(static_cast<uint32_t>(ranks.size()));
    for (const uint32_t rank : ranks) {
      if (rank == columns.rank()) options->rank = number;
      ++number;
    }
  }
}

void DeviceAgreement::begin(const DeviceTerms& agreed) {
  const Columns& columns = parts_.group.columns();
  const uint32_t devices = std::max(1u, support_.devices);
  CommunicatorOptions options = {.id = agreed.id,
                                 .device = columns.local() % devices,
                                 .rank = columns.rank(),
                                 .ranks = columns.world(),
                                 .memory_around = parts_.memory_around};
  if (agreed.by_host) {
    options.rank = columns.local();
    options.ranks = static_cast<uint32_t>(columns.locals().size());
    options.shares = columns.count();
    parts_.launches.go_by_host(std::make_unique<HostOrder>(columns, parts_.outbox, host_id_));
  } else if (parts_.deterministic) {
    number_in_order(columns, &options);
    options.windows = agreed.windows;
  }
  parts_.launches.begin(*share_.devices, options);
}

Status DeviceAgreement::carry_direct(const Variable& variable, const DeviceTerms& agreed,
                                     uint64_t finished, DeviceLaunches::Entry* entry) {
  const Columns& columns = parts_.group.columns();
  const uint32_t number = parts_.registry.number_of(variable.id);
  parts_.group.runtime(number).facts.carrier =
      agreed.versions() + (agreed.by_host ? ", within hosts, and messages between them" : "");
  parts_.registry.set_direct(number);
  std::unique_ptr<BetweenHosts> between_hosts;
  if (agreed.by_host) {
    between_hosts =
        std::make_unique<BetweenHosts>(columns, parts_.outbox, *share_.pinned, between(variable));
  }
  *entry = {.variable = number,
            .like = {.count = variable.elements(),
                     .dtype = variable.dtype,
                     .average = !agreed.by_host && variable.reduction == PARALLAX_MEAN_WORLD},
            .between = between_hosts.get()};
  return parts_.group.set_exchange(
      number,
      std::make_unique<DeviceExchange>(number, columns.rank(), variable.elements(), parts_.launches,
                                       std::move(between_hosts)),
      finished);
}

Status DeviceAgreement::carry(const DeviceTerms& agreed, uint64_t finished, bool* another_round) {
  *another_round = false;
  const bool begun = parts_.launches.begun();
  const bool direct = agreed.able && (agreed.has_id || agreed.by_host || begun);
  if (direct && !begun) begin(agreed);
  std::vector<DeviceLaunches::Entry> entries;
  for (const Variable* variable : parts_.registry.newest()) {
    if (variable->memory == PARALLAX_MEMORY_HOST) continue;
    std::string why = why_not(*variable);
    if (why.empty() && !direct) why = agreed.why;
    parts_.group.runtime(parts_.registry.number_of(variable->id)).facts.carrier_why = why;
    if (!why.empty()) continue;
    PARALLAX_RETURN_IF_ERROR(carry_direct(*variable, agreed, finished, &entries.emplace_back()));
  }
  if (entries.empty()) return {};
  parts_.launches.add(entries, finished);
  *another_round = agreed.by_host;
  return {};
}

}  // namespace parallax
