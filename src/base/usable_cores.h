// SPDX-License-Identifier: Apache-2.0
// UsableCores: the cores that the calling thread may run on, and how much of them its control
// groups leave to it and to those beside it. Read from the kernel by whoever asks; nothing is kept.
// Any thread.
#ifndef PARALLAX_BASE_USABLE_CORES_H_
#define PARALLAX_BASE_USABLE_CORES_H_

#include <cstddef>
#include <cstdint>
#include <string>

namespace parallax {

inline constexpr size_t kCoreMaskBytesMax = 1024;  // as many cores as the kernel can be built for

struct UsableCores {
  // By affinity: a bit for each of the kernel's numbers, the lowest first. Empty: not told.
  std::string mask = {};
  uint32_t quota_thousandths = 0;  // of a core, at any time, in the mean; 0: no quota
  // Tells the groups of a machine apart, also as seen from several containers.
  uint64_t quota_group = 0;
  std::string quota_file = {};  // that says so

  bool operator==(const UsableCores&) const = default;
};

// The least quota of the process's control groups and all above them, under `root`: of version 2
// cpu.max, of version 1 cpu.cfs_quota_us and cpu.cfs_period_us. What cannot be read is no quota.
// The mask is the calling thread's, whatever `root` is.
UsableCores usable_cores(const std::string& root = "");

uint32_t core_count(const std::string& mask);
// "1.5", of 1500.
std::string core_quota_text(uint64_t thousandths);

}  // namespace parallax

#endif  // PARALLAX_BASE_USABLE_CORES_H_
