// SPDX-License-Identifier: Apache-2.0
// Affinity and control groups. See usable_cores.h.
#include "base/usable_cores.h"

#include <sched.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <bit>
#include <fstream>

#include "base/control_groups.h"

namespace parallax {

namespace {

constexpr uint64_t kQuotaThousandthsMax = 1000 * 8 * kCoreMaskBytesMax;

std::string own_mask() {
  std::array<cpu_set_t, kCoreMaskBytesMax / sizeof(cpu_set_t)> sets;
  if (sched_getaffinity(0, sizeof sets, sets.data()) != 0) return "";
  std::string mask(kCoreMaskBytesMax, '\0');
  size_t bytes = 0;
  for (size_t core = 0; core < 8 * kCoreMaskBytesMax; ++core) {
    if (!CPU_ISSET_S(core, sizeof sets, sets.data())) continue;
    mask[core / 8] = static_cast<char>(static_cast<uint8_t>(mask[core / 8]) | 1u << core % 8);
    bytes = core / 8 + 1;
  }
  mask.resize(bytes);
  return mask;
}

// Of one group; 0: none. "max 100000", and -1 of version 1, are none.
uint64_t quota_thousandths(const std::string& folder, bool version_2, std::string* name) {
  int64_t quota_us = 0, period_us = 0;
  if (version_2) {
    *name = "/cpu.max";
    std::ifstream(folder + *name) >> quota_us >> period_us;
  } else {
    *name = "/cpu.cfs_quota_us";
    std::ifstream(folder + *name) >> quota_us;
    std::ifstream(folder + "/cpu.cfs_period_us") >> period_us;
  }
  if (quota_us <= 0 || period_us <= 0) return 0;
  const double cores = static_cast<double>(quota_us) / static_cast<double>(period_us);
  if (cores * 1000 >= kQuotaThousandthsMax) return kQuotaThousandthsMax;
  return std::max<uint64_t>(1, static_cast<uint64_t>(cores * 1000));
}

}  // namespace

UsableCores usable_cores(const std::string& root) {
  UsableCores cores;
  cores.mask = own_mask();
  for (const ControlGroup& group : control_groups("cpu", root)) {
    std::string name;
    const uint64_t quota = quota_thousandths(root + group.folder, group.version_2, &name);
    if (quota == 0 || (cores.quota_thousandths != 0 && quota >= cores.quota_thousandths)) continue;
    struct stat folder = {};
    const bool told = stat((root + group.folder).c_str(), &folder) == 0;
    cores.quota_thousandths = static_cast<uint32_t>(quota);
    // A control group's, the same for all who see it: paths differ between containers.
    cores.quota_group = told ? folder.st_ino : 0;
    cores.quota_file = group.folder + name;
  }
  return cores;
}

uint32_t core_count(const std::string& mask) {
  uint32_t count = 0;
  for (const char each : mask) count += std::popcount(static_cast<uint8_t>(each));
  return count;
}

std::string core_quota_text(uint64_t thousandths) {
  std::string text = std::to_string(thousandths / 1000);
  if (thousandths % 1000 == 0) return text;
  text += "." + std::to_string(1000 + thousandths % 1000).substr(1);
  text.resize(text.find_last_not_of('0') + 1);
  return text;
}

}  // namespace parallax
