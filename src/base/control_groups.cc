// SPDX-License-Identifier: Apache-2.0
// /proc/self/cgroup. See control_groups.h.
#include "base/control_groups.h"

#include <fstream>

namespace parallax {

namespace {

// A group and all above it, `mount` being the controller's.
void add(const std::string& mount, std::string group, bool version_2,
         std::vector<ControlGroup>* groups) {
  while (true) {
    groups->push_back({mount + (group == "/" ? "" : group), version_2});
    if (group.empty() || group == "/") return;
    group.resize(group.rfind('/') == std::string::npos ? 0 : group.rfind('/'));
  }
}

}  // namespace

// A line of /proc/self/cgroup is NUMBER:CONTROLLERS:PATH; version 2 has number 0 and no
// controllers. In a container the path may be that of the host, and the mount begins at the
// container's own group: the mount's top is read in any case. Controllers of version 1 that share a
// mount have it by each of their names too.
std::vector<ControlGroup> control_groups(std::string_view controller, const std::string& root) {
  std::vector<ControlGroup> groups;
  std::ifstream file(root + "/proc/self/cgroup");
  std::string line;
  while (std::getline(file, line)) {
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const std::string group = line.substr(second + 1);
    const std::string name(controller);
    if (controllers == ",,") {
      add("/sys/fs/cgroup", group, true, &groups);
      add("/sys/fs/cgroup/unified", group, true, &groups);
    } else if (controllers.find("," + name + ",") != std::string::npos) {
      add("/sys/fs/cgroup/" + name, group, false, &groups);
    }
  }
  return groups;
}

}  // namespace parallax
