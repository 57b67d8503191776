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

DeviceTerms DeviceAgreement::terms() {
  DeviceTerms terms;
  for (const Variable* variable : parts_.registry.newest()) {
    if (variable->memory == PARALLAX_MEMORY_HOST) continue;
    terms.wanted = terms.wanted || why_not(*variable).empty();
  }
  if (!terms.wanted) return terms;
  DeviceShare share;
  Status status;
  if (!parts_.allowed) {
    status = unsupported("the setting nccl is off");
  } else {
    status = parts_.devices ? parts_.devices(&share) : unsupported("it has no way to a device");
  }
  if (status.ok()) {
    devices_ = share.devices;
    support_ = devices_->collectives();
    terms.library_version = support_.library_version;
    terms.driver_version = support_.driver_version;
    status = support_.there ? check_ordered() : unsupported(support_.why);
  }
  terms.able = status.ok();
  if (!terms.able) terms.why = parts_.group.name() + ": " + status.message();
  return terms;
}

Status DeviceAgreement::make_id(CommunicatorId* id) { return devices_->make_id(id); }

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

void DeviceAgreement::carry(const DeviceTerms& agreed, uint64_t finished) {
  const Columns& columns = parts_.group.columns();
  const bool direct = agreed.able && (agreed.has_id || parts_.launches.begun());
  if (direct && !parts_.launches.begun()) {
    const uint32_t devices = std::max(1u, support_.devices);
    CommunicatorOptions options = {.id = agreed.id,
                                   .device = columns.local() % devices,
                                   .rank = columns.rank(),
                                   .ranks = columns.world()};
    if (parts_.deterministic) number_in_order(columns, &options);
    parts_.launches.begin(*devices_, options);
  }
  std::vector<DeviceLaunches::Entry> entries;
  for (const Variable* variable : parts_.registry.newest()) {
    if (variable->memory == PARALLAX_MEMORY_HOST) continue;
    const uint32_t number = parts_.registry.number_of(variable->id);
    std::string why = why_not(*variable);
    if (why.empty() && !direct) why = agreed.why;
    VariableFacts& facts = parts_.group.runtime(number).facts;
    facts.carrier_why = why;
    if (!why.empty()) continue;
    facts.carrier = agreed.versions();
    parts_.registry.set_direct(number);
    parts_.group.set_exchange(
        number, std::make_unique<DeviceExchange>(number, columns.rank(), variable->elements(),
                                                 parts_.launches));
    entries.push_back({.variable = number,
                       .like = {.count = variable->elements(),
                                .dtype = variable->dtype,
                                .average = variable->reduction == PARALLAX_MEAN_WORLD}});
  }
  if (!entries.empty()) parts_.launches.add(entries, finished);
}

}  // namespace parallax
