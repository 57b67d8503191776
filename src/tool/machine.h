// SPDX-License-Identifier: Apache-2.0
// What this machine has to talk through, as `info` shows and `doctor` checks it. Plain values; asks
// the kernel, from one thread.
#ifndef PARALLAX_TOOL_MACHINE_H_
#define PARALLAX_TOOL_MACHINE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"

namespace parallax::tool {

struct Interface {
  std::string name;
  bool up = false;
  bool loopback = false;
  uint32_t mtu_bytes = 0;              // 0: unknown
  std::vector<std::string> addresses;  // numeric; IPv4, and IPv6 but for link-local ones
};

// By name, as getifaddrs has them.
std::vector<Interface> interfaces();

// Where a rank is to listen for the others, at most `most` addresses: loopback where that reaches
// everyone; else the job's interface `device` (setting net_device), or all that are up.
std::vector<std::string> listen_addresses(const std::string& device, bool one_machine, size_t most);

// Loads the UCX module and opens its transport for a moment: "tcp on lo".
Status try_ucx(const std::string& module_dir, const std::string& net_device, std::string* library,
               std::string* path, std::string* description);

}  // namespace parallax::tool

#endif  // PARALLAX_TOOL_MACHINE_H_
