// SPDX-License-Identifier: Apache-2.0
// The file of hosts that `parallax run --hosts` reads: Parallax's lines `host: gpu,gpu`, one rank
// for each GPU; `host` alone is one rank. # opens a comment. Pure, but for reading the file.
#ifndef PARALLAX_TOOL_HOSTS_FILE_H_
#define PARALLAX_TOOL_HOSTS_FILE_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace parallax::tool {

struct HostLine {
  std::string name;
  std::vector<uint32_t> gpus;  // empty: the line named none
  uint32_t ranks() const { return gpus.empty() ? 1 : static_cast<uint32_t>(gpus.size()); }
};

// INVALID names file and line; IO the file.
Status parse_hosts(std::string_view text, const std::string& file, std::vector<HostLine>* hosts);
Status read_hosts(const std::string& file, std::vector<HostLine>* hosts);

// This machine, by whatever name: then no ssh is needed.
bool is_this_machine(const std::string& host);

}  // namespace parallax::tool

#endif  // PARALLAX_TOOL_HOSTS_FILE_H_
