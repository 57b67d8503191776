// SPDX-License-Identifier: Apache-2.0
// MachineMemory: how much memory there is for this process and those beside it: the machine's, and
// what control groups leave of it. Read from the kernel's files, once, by whoever asks; nothing is
// kept. Any thread.
#ifndef PARALLAX_BASE_MACHINE_MEMORY_H_
#define PARALLAX_BASE_MACHINE_MEMORY_H_

#include <cstdint>
#include <string>

namespace parallax {

struct MachineMemory {
  uint64_t total_bytes = 0;     // MemTotal and swap; 0: not told
  uint64_t limit_bytes = 0;     // the least of the control groups' limits; 0: none below the total
  std::string limit_file = {};  // that says so

  // What may be used in all; 0: not told.
  uint64_t most_bytes() const { return limit_bytes != 0 ? limit_bytes : total_bytes; }
};

// Of the machine whose files lie under `root`: /proc/meminfo, /proc/self/cgroup, and the memory
// controller's limits there and in all groups above, of version 2 (memory.max) and of version 1
// (memory.limit_in_bytes). What cannot be read is no limit.
MachineMemory machine_memory(const std::string& root = "");

// MemTotal alone; 0: not told.
uint64_t installed_memory_bytes(const std::string& root = "");

}  // namespace parallax

#endif  // PARALLAX_BASE_MACHINE_MEMORY_H_
