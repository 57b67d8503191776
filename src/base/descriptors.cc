// SPDX-License-Identifier: Apache-2.0
// Counting what is left of the descriptors, by opening them. See descriptors.h.
#include "base/descriptors.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

namespace parallax {

Status check_descriptors(uint32_t count, const char* what) {
  std::vector<int> opened;
  opened.reserve(count);
  int reason = 0;
  while (opened.size() < count && reason == 0) {
    const int descriptor = ::eventfd(0, EFD_CLOEXEC);
    if (descriptor < 0) {
      reason = errno;
    } else {
      opened.push_back(descriptor);
    }
  }
  for (const int descriptor : opened) ::close(descriptor);
  if (reason == 0) return {};
  return limit(std::string(what) + " needs " + std::to_string(count) + " file descriptors, only " +
               std::to_string(opened.size()) + " can be opened (" + std::strerror(reason) +
               "); raise ulimit -n");
}

}  // namespace parallax
