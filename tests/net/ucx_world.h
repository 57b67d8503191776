// SPDX-License-Identifier: Apache-2.0
// Makes UCX transports in this process through the module, as the library does. Tests only; one
// thread makes them, they may then be used by one thread each.
#ifndef PARALLAX_TESTS_NET_UCX_WORLD_H_
#define PARALLAX_TESTS_NET_UCX_WORLD_H_

#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "transport/module/loader.h"

namespace parallax::net {

inline int64_t elapsed_ms(std::chrono::steady_clock::time_point since) {
  const auto elapsed = std::chrono::steady_clock::now() - since;
  return std::chrono::duration_cast<std::chrono::milliseconds>(elapsed).count();
}

inline std::string setting_of_test(const char* name, const char* standard) {
  const char* value = std::getenv(name);
  return value == nullptr ? standard : value;
}

inline const ParallaxTransportModule* ucx_module() {
  const ParallaxTransportModule* module = nullptr;
  ModuleReport report;
  const Status status = load_ucx_module("", &module, &report);
  EXPECT_TRUE(status.ok()) << status.message();
  return module;
}

inline std::unique_ptr<NetworkTransport> make_ucx(uint32_t rank, uint32_t world) {
  std::unique_ptr<NetworkTransport> transport;
  const ParallaxTransportModule* module = ucx_module();
  if (module == nullptr) return nullptr;
  NetworkOptions options;
  options.rank = rank;
  options.world = world;
  // tests/rdma runs the conformance suite on a device of its own.
  options.net_device = setting_of_test("PARALLAX_TEST_NET_DEVICE", "lo");
  options.transports = setting_of_test("PARALLAX_TEST_NET", "");
  const Status status = module->create(options, &transport);
  EXPECT_TRUE(status.ok()) << status.message();
  return transport;
}

// All ranks of a world in this process, each knowing all others.
inline std::vector<std::unique_ptr<NetworkTransport>> make_ucx_ranks(uint32_t world) {
  std::vector<std::unique_ptr<NetworkTransport>> ranks;
  for (uint32_t rank = 0; rank < world; ++rank) ranks.push_back(make_ucx(rank, world));
  for (uint32_t rank = 0; rank < world; ++rank) {
    for (uint32_t peer = 0; peer < world; ++peer) {
      if (peer == rank) continue;
      const Status status = ranks[rank]->connect(peer, ranks[peer]->address());
      EXPECT_TRUE(status.ok()) << status.message();
    }
  }
  return ranks;
}

}  // namespace parallax::net

#endif  // PARALLAX_TESTS_NET_UCX_WORLD_H_
