// SPDX-License-Identifier: Apache-2.0
// The kernel's files of memory. See machine_memory.h.
#include "base/machine_memory.h"

#include <charconv>
#include <fstream>
#include <string_view>

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

// The limits of a group and of all above it, `folder` being the controller's mount.
void lower_by(const std::string& root, const std::string& folder, std::string group,
              const char* name, MachineMemory* memory) {
  while (true) {
    const std::string path = folder + (group == "/" ? "" : group) + "/" + name;
    std::ifstream file(root + path);
    std::string line;
    uint64_t limit = 0;
    const uint64_t most = memory->most_bytes();
    if (std::getline(file, line) && number_of(line, &limit) && limit > 0 &&
        (most == 0 || limit < most)) {
      memory->limit_bytes = limit;
      memory->limit_file = path;
    }
    if (group.empty() || group == "/") return;
    group.resize(group.rfind('/') == std::string::npos ? 0 : group.rfind('/'));
  }
}

}  // namespace

uint64_t installed_memory_bytes(const std::string& root) { return meminfo_bytes(root, "MemTotal"); }

// A line of /proc/self/cgroup is NUMBER:CONTROLLERS:PATH; version 2 has number 0 and no
// controllers. In a container the path may be that of the host, and the mount begins at the
// container's own group: the mount's top is read in any case.
MachineMemory machine_memory(const std::string& root) {
  MachineMemory memory;
  memory.total_bytes = installed_memory_bytes(root);
  if (memory.total_bytes > 0) memory.total_bytes += meminfo_bytes(root, "SwapTotal");
  std::ifstream file(root + "/proc/self/cgroup");
  std::string line;
  while (std::getline(file, line)) {
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const std::string group = line.substr(second + 1);
    if (controllers == ",,") {
      lower_by(root, "/sys/fs/cgroup", group, "memory.max", &memory);
      lower_by(root, "/sys/fs/cgroup/unified", group, "memory.max", &memory);
    } else if (controllers.find(",memory,") != std::string::npos) {
      lower_by(root, "/sys/fs/cgroup/memory", group, "memory.limit_in_bytes", &memory);
    }
  }
  return memory;
}

}  // namespace parallax
