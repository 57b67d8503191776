// SPDX-License-Identifier: Apache-2.0
// Where the limits of this process's control groups stand. Read from the kernel's files by whoever
// asks; nothing is kept. Any thread.
#ifndef PARALLAX_BASE_CONTROL_GROUPS_H_
#define PARALLAX_BASE_CONTROL_GROUPS_H_

#include <string>
#include <string_view>
#include <vector>

namespace parallax {

struct ControlGroup {
  std::string folder;  // without `root`; may lack a controller's files, or not exist
  bool version_2 = false;
};

// The groups that may hold limits of `controller` ("memory", "cpu"): this process's and all above,
// innermost first, of each mount. Of the machine whose files lie under `root`.
std::vector<ControlGroup> control_groups(std::string_view controller, const std::string& root = "");

}  // namespace parallax

#endif  // PARALLAX_BASE_CONTROL_GROUPS_H_
