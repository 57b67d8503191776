// SPDX-License-Identifier: Apache-2.0
// Reading the process's variables. See environment.h.
#include "base/environment.h"

#include <sys/auxv.h>
#include <unistd.h>

#include <cstdlib>
#include <string_view>

namespace parallax {

bool caller_is_distrusted() { return getauxval(AT_SECURE) != 0; }

const char* variable(const char* name) {
  return caller_is_distrusted() ? nullptr : std::getenv(name);
}

std::string process_variable(const char* name) {
  const char* value = variable(name);
  return value == nullptr ? "" : value;
}

std::vector<std::string> process_environment() {
  std::vector<std::string> all;
  if (caller_is_distrusted()) return all;
  for (char** at = environ; at != nullptr && *at != nullptr; ++at) all.emplace_back(*at);
  return all;
}

void drop_foreign_variables() {
  if (!caller_is_distrusted()) return;
  std::vector<std::string> dropped;
  for (char** at = environ; at != nullptr && *at != nullptr; ++at) {
    const std::string_view entry = *at;
    for (const char* prefix : {"HWLOC_", "IBV_", "RDMAV_"}) {
      if (entry.starts_with(prefix)) dropped.emplace_back(entry.substr(0, entry.find('=')));
    }
  }
  for (const std::string& name : dropped) unsetenv(name.c_str());
}

}  // namespace parallax
