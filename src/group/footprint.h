// SPDX-License-Identifier: Apache-2.0
// Footprint: what a variable may come to touch of a rank's memory, and the sentences about it: that
// it is more than the machine has, or than may be reserved. Pure; plain values.
#ifndef PARALLAX_GROUP_FOOTPRINT_H_
#define PARALLAX_GROUP_FOOTPRINT_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/machine_memory.h"

namespace parallax {

// What commit does where variables may touch more memory than there is (setting memory_check).
enum class MemoryCheck : uint8_t { kWarn, kRefuse, kOff };  // in the order of the setting's choices

struct Footprint {
  std::string name = {};
  uint64_t table_bytes = 0;   // values and the rule's state
  uint64_t buffer_bytes = 0;  // for gradients and pulls under way
  bool ids_declared = false;
  // Whole, and pinned so, for by itself no plan begins with it.
  bool made_dense = false;

  uint64_t bytes() const { return table_bytes + buffer_bytes; }
};

uint64_t total_bytes(std::span<const Footprint> variables);

// "12 GiB", "1536 B": whole, in the largest unit that leaves two digits or more.
std::string shown_bytes(uint64_t bytes);

// What makes a variable smaller: by its table or by its buffers, whichever takes more.
std::string smaller_remedy(const Footprint& variable);

// "'table' (1 TiB values and state, 12 MiB buffers), ...": the largest, the largest first.
std::string largest_variables(std::vector<Footprint> variables);

// The sentence of a host whose ranks, `ranks` alike, may touch more than the machine or a control
// group gives them; "" if it is enough, or not known.
std::string memory_shortage(const std::vector<Footprint>& variables, uint32_t ranks,
                            const std::string& host, const MachineMemory& machine);

}  // namespace parallax

#endif  // PARALLAX_GROUP_FOOTPRINT_H_
