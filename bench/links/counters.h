// SPDX-License-Identifier: Apache-2.0
// What an interface of this process's host has carried so far, as the kernel counts it.
#ifndef PARALLAX_BENCH_LINKS_COUNTERS_H_
#define PARALLAX_BENCH_LINKS_COUNTERS_H_

#include <cstdint>
#include <fstream>
#include <string>

namespace parallax::links {

struct Bytes {
  uint64_t sent = 0, received = 0;
};

// Of no interface: zeros.
inline Bytes counters(const std::string& device) {
  const auto read = [&](const char* which) {
    uint64_t bytes = 0;
    std::ifstream("/sys/class/net/" + device + "/statistics/" + which) >> bytes;
    return bytes;
  };
  if (device.empty()) return {};
  return {read("tx_bytes"), read("rx_bytes")};
}

}  // namespace parallax::links

#endif  // PARALLAX_BENCH_LINKS_COUNTERS_H_
