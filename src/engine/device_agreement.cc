// SPDX-License-Identifier: Apache-2.0
// Asking for what is there, and laying out. See device_agreement.h.
#include "engine/device_agreement.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "base/check.h"
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
          .factor = variable.reduction == PARALLAX_MEAN_WORLD ? 1.0 / world : 1.0,
          .priority = variable.priority};
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
  DeviceTerms& terms = terms_ = {};
  std::vector<const Variable*> summed;
  for (const Variable* variable : parts_.registry.newest()) {
    if (variable->memory == PARALLAX_MEMORY_HOST) continue;
    if (why_not(*variable).empty()) summed.push_back(variable);
  }
  const auto all = parts_.registry.numbered();
  buffers_ = PlacedBuffers(summed, all.first(all.size() - parts_.registry.newest().size()));
  terms.wanted = !summed.empty();
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
  const Columns& columns = parts_.group.columns();
  const uint32_t device = parts_.launches.device(own_device());
  terms.buffers = buffers_.terms(columns.rank(), device);
  if (status.ok() && !support_.places.empty()) {
    terms.places = {{.host = columns.map().host_of[columns.rank()],
                     .rank = columns.rank(),
                     .device = support_.places[device % support_.places.size()]}};
    if (!terms.places.front().fits()) {
      terms.places.clear();
      status = unsupported("device " + std::to_string(device) + " says by more than " +
                           std::to_string(DevicePlace::kTextMax) +
                           " bytes which one it is, and ranks compare no more");
    }
  }
  terms.able = status.ok();
  if (!terms.able) terms.why = parts_.group.name() + ": " + status.message();
  if (terms.able && needs_id() && parts_.job.launches != nullptr) {
    say_out_of_job(OutOfJob::kCould, why_not_out_of_job());
  }
  return terms;
}

// Of a rank that has not given a slice: where the commit's variables have their place; else in a
// part the job's, else its place on the job's host.
uint32_t DeviceAgreement::own_device() const {
  const Columns& columns = parts_.group.columns();
  const uint32_t count = std::max(1u, support_.devices);
  if (parts_.job.launches == nullptr) return buffers_.device(columns.local() % count);
  const uint32_t rank = job_rank(columns.map(), columns.rank());
  return buffers_.device(parts_.job.launches->device(parts_.job.hosts->local_of[rank] % count));
}

// ---- windows

// What holds for all of the commit's variables, in the words of every rank; "": nothing does.
std::string DeviceAgreement::why_no_windows(const DeviceTerms& agreed) const {
  if (agreed.by_host) return "the setting nccl is host";
  if (parts_.deterministic) {
    return "deterministic is 1, and what ranks give is gathered into memory of the library's own";
  }
  return agreed.windows ? "" : "not every rank's NCCL has windows, which are of 2.27";
}

// The first slice will be there, and so is this rank's device.
std::vector<ByteRange> DeviceAgreement::windows(const DeviceTerms& agreed) {
  if (!why_no_windows(agreed).empty()) return {};
  std::vector<ByteRange> windows = buffers_.windows(agreed.buffers);
  uint32_t settled = parts_.launches.device(own_device());
  if (!windows.empty()) PARALLAX_CHECK(parts_.launches.fits_device(settled, &settled));
  return windows;
}

// ---- out of the job's communicator

namespace {

// What the job calls the ranks of a communicator, by their numbers there. Where sums have an order:
// host by host, the ranks of each ascending.
std::vector<uint32_t> numbered(const HostMap& hosts, bool in_order) {
  std::vector<uint32_t> ranks;
  for (uint32_t rank = 0; !in_order && rank < hosts.host_of.size(); ++rank) {
    ranks.push_back(job_rank(hosts, rank));
  }
  for (uint32_t host = 0; in_order && host < hosts.ranks_of.size(); ++host) {
    for (const uint32_t rank : hosts.ranks_of[host]) ranks.push_back(job_rank(hosts, rank));
  }
  return ranks;
}

// Of the job's numbers, those whose ranks are in the part, or are not.
std::vector<uint32_t> numbers_of(const std::vector<uint32_t>& job, const HostMap& part, bool in) {
  const std::vector<uint32_t> ranks = numbered(part, false);
  std::vector<uint32_t> numbers;
  for (uint32_t number = 0; number < job.size(); ++number) {
    const bool there = std::find(ranks.begin(), ranks.end(), job[number]) != ranks.end();
    if (there == in) numbers.push_back(number);
  }
  return numbers;
}

}  // namespace

// NCCL keeps the order of the job's numbers, which must not matter, or be the part's.
std::string DeviceAgreement::why_not_out_of_job() const {
  if (!support_.splits) return support_.why_no_splits;
  if (!parts_.job.launches->there()) return parts_.job.launches->why_not_lent();
  const uint32_t device = parts_.job.launches->device(0);  // which is settled
  if (buffers_.device(device) != device) {
    return "its variables have their place on device " + std::to_string(buffers_.device(device)) +
           ", and the job's communicator is on device " + std::to_string(device);
  }
  if (!parts_.deterministic) return "";
  const HostMap& part = parts_.group.columns().map();
  const std::vector<uint32_t> job = numbered(*parts_.job.hosts, true);
  std::vector<uint32_t> ranks;
  for (const uint32_t number : numbers_of(job, part, true)) ranks.push_back(job[number]);
  if (ranks == numbered(part, true)) return "";
  return "deterministic is 1, and the part adds its ranks in another order than the job";
}

void DeviceAgreement::say_out_of_job(OutOfJob says, const std::string& why_not) {
  terms_.out_of_job = why_not.empty() ? says : OutOfJob::kNo;
  terms_.why = why_not.empty() ? "" : parts_.group.name() + ": " + why_not;
}

DeviceTerms DeviceAgreement::hold() {
  const std::string why_not = parts_.job.launches->why_not_lent();
  held_ = why_not.empty();
  if (held_) parts_.job.launches->hold(true);
  say_out_of_job(OutOfJob::kHeld, why_not);
  return terms_;
}

void DeviceAgreement::form_out_of_job(CommunicatorOptions* options) const {
  const HostMap& part = parts_.group.columns().map();
  const std::vector<uint32_t> job = numbered(*parts_.job.hosts, parts_.deterministic);
  const std::vector<uint32_t> within = numbers_of(job, part, true);
  const uint32_t own = job_rank(part, parts_.group.columns().rank());
  const auto place =
      std::find_if(within.begin(), within.end(), [&](uint32_t each) { return job[each] == own; });
  options->rank = static_cast<uint32_t>(place - within.begin());
  options->without = numbers_of(job, part, false);
  options->out_of = parts_.job.launches->communicator();
  options->device = parts_.job.launches->device(0);  // which is settled
}

bool DeviceAgreement::forming() {
  if (!held_) return false;
  const Communicator* const own = parts_.launches.communicator();
  if (own == nullptr || !own->ready()) return true;
  held_ = false;
  parts_.job.launches->hold(false);
  return false;
}

Status DeviceAgreement::make_id(CommunicatorId* id) { return share_.devices->make_id(id); }

void DeviceAgreement::begin(const DeviceTerms& agreed) {
  const Columns& columns = parts_.group.columns();
  CommunicatorOptions options = {.id = agreed.id,
                                 .device = own_device(),
                                 .rank = columns.rank(),
                                 .ranks = columns.world(),
                                 .memory_around = parts_.memory_around};
  if (agreed.by_host) {
    options.rank = columns.local();
    options.ranks = static_cast<uint32_t>(columns.locals().size());
    options.shares = columns.count();
    parts_.launches.go_by_host(std::make_unique<HostOrder>(columns, parts_.outbox, host_id_));
  } else if (parts_.deterministic) {
    const std::vector<uint32_t> ranks = numbered(columns.map(), true);
    const uint32_t own = job_rank(columns.map(), columns.rank());
    options.rank =
        static_cast<uint32_t>(std::find(ranks.begin(), ranks.end(), own) - ranks.begin());
    for (uint32_t host = 0; host < columns.host_count(); ++host) {
      options.host_ranks.push_back(static_cast<uint32_t>(columns.map().ranks_of[host].size()));
    }
    options.windows = agreed.windows;
  }
  if (agreed.out_of_job == OutOfJob::kHeld) form_out_of_job(&options);
  if (parts_.job.launches != nullptr && !agreed.by_host) {
    formed_by_ = agreed.out_of_job == OutOfJob::kHeld
                     ? ", in a communicator made out of the job's"
                     : ", in a communicator of its own: " + agreed.why;
  }
  parts_.launches.begin(*share_.devices, options, parts_.timeout_ns);
}

Status DeviceAgreement::carry_direct(const Variable& variable, const DeviceTerms& agreed,
                                     uint64_t finished, DeviceLaunches::Entry* entry) {
  const Columns& columns = parts_.group.columns();
  const uint32_t number = parts_.registry.number_of(variable.id);
  std::string why_no_window = agreed.buffers.any() ? why_no_windows(agreed) : "";
  const size_t ends =
      why_no_window.empty() ? buffers_.ends_in_windows(variable, agreed.buffers) : 0;
  const bool in_windows = ends == Place::kEnds;
  if (why_no_window.empty() && !in_windows) why_no_window = agreed.buffers.why_not(columns.map());
  parts_.group.runtime(number).facts.carrier =
      agreed.versions() + (agreed.by_host ? ", within hosts, and messages between them" : "") +
      formed_by_ + (in_windows ? ", in windows of symmetric memory" : "") +
      (why_no_window.empty() ? "" : ", in no window of symmetric memory: " + why_no_window);
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
            .between = between_hosts.get(),
            .name = variable.name,
            .id = variable.id};
  if (ends > 0) {
    entry->like.from = variable.place.ends[0];
    entry->like.to = variable.place.ends[1];
  }
  return parts_.group.set_exchange(
      number,
      std::make_unique<DeviceExchange>(number, columns.rank(), variable.elements(), parts_.launches,
                                       std::move(between_hosts)),
      finished);
}

Status DeviceAgreement::carry(const DeviceTerms& agreed, uint64_t finished, bool* another_round) {
  *another_round = false;
  // A peer's word: ranks that all hold it are this one, too.
  if (agreed.able && agreed.out_of_job > terms_.out_of_job) {
    return internal("devices are to form a communicator out of the job's, and " +
                    parts_.group.name() +
                    " has not said so; check that all ranks run the same version");
  }
  if (held_ && agreed.out_of_job != OutOfJob::kHeld) {
    held_ = false;
    parts_.job.launches->hold(false);
  }
  const bool begun = parts_.launches.begun();
  const bool found = agreed.has_id || agreed.out_of_job == OutOfJob::kHeld;
  const bool direct = agreed.able && (found || agreed.by_host || begun);
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
  parts_.launches.add(entries, finished, windows(agreed));
  *another_round = agreed.by_host;
  return {};
}

}  // namespace parallax
