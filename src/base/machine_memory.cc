// SPDX-License-Identifier: Apache-2.0
// The kernel's files of memory. See machine_memory.h.
#include "base/machine_memory.h"

#include <charconv>
#include <fstream>
#include <string_view>

#include "base/control_groups.h"

namespace parallax {

namespace {

// A number at the beginning of a text; false for "max" and for nonsense.
bool number_of(std::string_view text, uint64_t* number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *number);
  return error == std::errc() && end != text.data();
}

uint64_t meminfo_bytes(const std::string& root, std::string_view name) {
  std::ifstream file(root + "/proc/meminfo");
  std::string line;
  while (std::getline(file, line)) {
    if (!line.starts_with(name) || line.size() <= name.size() || line[name.size()] != ':') continue;
    const size_t digit = line.find_first_of("0123456789");
    uint64_t kibibytes = 0;
    if (digit == std::string::npos || !number_of(std::string_view(line).substr(digit), &kibibytes))
      return 0;
    return kibibytes << 10;
  }
  return 0;
}

}  // namespace

uint64_t installed_memory_bytes(const std::string& root) { return meminfo_bytes(root, "MemTotal"); }

MachineMemory machine_memory(const std::string& root) {
  MachineMemory memory;
  memory.total_bytes = installed_memory_bytes(root);
  if (memory.total_bytes > 0) memory.total_bytes += meminfo_bytes(root, "SwapTotal");
  for (const ControlGroup& group : control_groups("memory", root)) {
    const std::string path =
        group.folder + (group.version_2 ? "/memory.max" : "/memory.limit_in_bytes");
    std::ifstream file(root + path);
    std::string line;
    uint64_t limit = 0;
    const uint64_t most = memory.most_bytes();
    if (std::getline(file, line) && number_of(line, &limit) && limit > 0 &&
        (most == 0 || limit < most)) {
      memory.limit_bytes = limit;
      memory.limit_file = path;
    }
  }
  return memory;
}

}  // namespace parallax
