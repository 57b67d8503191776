// SPDX-License-Identifier: Apache-2.0
// NearMemory: where in its machine a rank runs, as far as memory is nearer to some ranks than to
// others. Told to all ranks. A plain value.
#ifndef PARALLAX_BASE_NEAR_MEMORY_H_
#define PARALLAX_BASE_NEAR_MEMORY_H_

#include <cstdint>

namespace parallax {

struct NearMemory {
  static constexpr uint32_t kUnknown = UINT32_MAX;  // or it may run on several

  uint32_t node = kUnknown;   // the kernel's number of the NUMA node
  uint32_t cache = kUnknown;  // which cache of the last level, in the machine's order

  bool operator==(const NearMemory&) const = default;
};

}  // namespace parallax

#endif  // PARALLAX_BASE_NEAR_MEMORY_H_
