// SPDX-License-Identifier: Apache-2.0
// Ranks against cores. See spin_choice.h.
#include "job/spin_choice.h"

#include <algorithm>
#include <map>
#include <string_view>

namespace parallax {

namespace {

constexpr int64_t kNsPerUs = 1000;

// What containers of one machine have alike of shm_machine_id(); "" where it is hidden.
std::string_view boot_of(const Endpoint& endpoint) {
  return std::string_view(endpoint.machine).substr(0, endpoint.machine.find('/'));
}

void add(std::string* mask, const std::string& more) {
  mask->resize(std::max(mask->size(), more.size()), '\0');
  for (size_t i = 0; i < more.size(); ++i) (*mask)[i] = static_cast<char>((*mask)[i] | more[i]);
}

bool within(const std::string& mask, const std::string& other) {
  std::string both = other;
  add(&both, mask);
  return core_count(both) == core_count(other);
}

// "1 rank", "2 cores".
std::string counted(uint64_t count, const std::string& noun) {
  return std::to_string(count) + " " + noun + (count == 1 ? "" : "s");
}

// What these ranks may use at any time, in thousandths of a core, by affinity and by quotas.
uint64_t usable_thousandths(std::span<const UsableCores> ranks) {
  std::map<uint64_t, uint64_t> quotas;  // by group
  std::string all, unbounded;
  for (const UsableCores& each : ranks) {
    add(&all, each.mask);
    if (each.quota_thousandths == 0) {
      add(&unbounded, each.mask);
    } else {
      quotas[each.quota_group] = each.quota_thousandths;
    }
  }
  uint64_t sum = uint64_t{1000} * core_count(unbounded);
  for (const auto& [group, thousandths] : quotas) sum += thousandths;
  return std::min(sum, uint64_t{1000} * core_count(all));
}

const char* yield_name(SpinYield yield) {
  switch (yield) {
    case SpinYield::kAlways:
      return "on";
    case SpinYield::kNever:
      return "off";
    case SpinYield::kAuto:
      return "auto";
  }
  return "auto";
}

}  // namespace

SpinOptions spin_options(const Settings& settings, bool one_host) {
  return {.spin_ns = static_cast<int64_t>(settings.value("spin_us").number) * kNsPerUs,
          .yield = static_cast<SpinYield>(settings.value("spin_yield").number),
          .longer = one_host};
}

std::vector<UsableCores> cores_on_machine(std::span<const Endpoint> all,
                                          std::span<const uint32_t> host_of, uint32_t rank) {
  std::vector<UsableCores> cores = {all[rank].cores};
  const std::string_view boot = boot_of(all[rank]);
  for (uint32_t other = 0; other < all.size(); ++other) {
    if (other == rank) continue;
    const bool beside =
        boot.empty() ? host_of[other] == host_of[rank] : boot_of(all[other]) == boot;
    if (beside) cores.push_back(all[other].cores);
  }
  return cores;
}

SpinChoice choose_spin(const SpinOptions& asked, std::span<const UsableCores> ranks) {
  SpinChoice choice;
  choice.options = asked;
  choice.ranks = static_cast<uint32_t>(ranks.size());
  const std::string& own = ranks.front().mask;
  std::string all;
  uint32_t confined = 0;  // ranks that may run nowhere but where this one may
  for (const UsableCores& each : ranks) {
    add(&all, each.mask);
    confined += within(each.mask, own) ? 1 : 0;
  }
  choice.cores = core_count(all);
  const uint64_t usable = usable_thousandths(ranks);
  const bool short_of_time = usable < uint64_t{1000} * choice.cores;
  if (short_of_time) choice.quota_thousandths = usable;
  // To look costs time of a quota that a rank may need.
  choice.options.longer = asked.longer && ranks.size() > 1 && !short_of_time;
  const std::string of_machine =
      counted(ranks.size(), "rank") + " of this machine, " + counted(choice.cores, "core");
  if (asked.yield != SpinYield::kAuto) {
    choice.why = std::string("spin_yield is ") + yield_name(asked.yield);
    return choice;
  }
  if (uint64_t{1000} * ranks.size() > std::max<uint64_t>(1000, usable)) {
    choice.options.yield = SpinYield::kAlways;
    choice.why = of_machine;
    if (short_of_time) {
      choice.why += ", of which control groups leave them " + core_quota_text(usable);
    }
  } else if (confined > std::max(1u, core_count(own))) {
    choice.options.yield = SpinYield::kAlways;
    choice.why = counted(confined, "rank") + " bound to " + counted(core_count(own), "core") +
                 " of this rank";
  } else {
    choice.why = of_machine;
  }
  return choice;
}

nlohmann::json spin_report(const SpinChoice& choice) {
  nlohmann::json report = {{"spin_us", choice.options.spin_ns / kNsPerUs},
                           {"spin_us_max", SpinTime(choice.options).most_ns() / kNsPerUs},
                           {"spin_yield", yield_name(choice.options.yield)},
                           {"ranks", choice.ranks},
                           {"cores", choice.cores},
                           {"cores_quota", nullptr},
                           {"why", choice.why}};
  if (choice.quota_thousandths != 0) {
    report["cores_quota"] = static_cast<double>(choice.quota_thousandths) / 1000;
  }
  return report;
}

}  // namespace parallax
