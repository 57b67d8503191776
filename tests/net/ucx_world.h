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
#include <thread>
#include <vector>

#include "base/clock.h"
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

inline std::unique_ptr<NetworkTransport> make_ucx(
    uint32_t rank, uint32_t world, const std::vector<std::string>& more_devices = {}) {
  std::unique_ptr<NetworkTransport> transport;
  const ParallaxTransportModule* module = ucx_module();
  if (module == nullptr) return nullptr;
  NetworkOptions options;
  options.rank = rank;
  options.world = world;
  // tests/rdma runs the conformance suite on a device of its own.
  options.net_device = setting_of_test("PARALLAX_TEST_NET_DEVICE", "lo");
  options.transports = setting_of_test("PARALLAX_TEST_NET", "");
  options.more_devices = more_devices;
  options.more_devices_asked = true;
  const Status status = module->create(options, &transport);
  EXPECT_TRUE(status.ok()) << status.message();
  return transport;
}

inline void connect_all(const std::vector<std::unique_ptr<NetworkTransport>>& ranks) {
  for (uint32_t rank = 0; rank < ranks.size(); ++rank) {
    for (uint32_t peer = 0; peer < ranks.size(); ++peer) {
      if (peer == rank) continue;
      const Status status = ranks[rank]->connect(peer, ranks[peer]->address());
      EXPECT_TRUE(status.ok()) << status.message();
    }
  }
}

// Every rank wires every other.
inline void wire_all(const std::vector<std::unique_ptr<NetworkTransport>>& ranks) {
  std::vector<std::thread> threads;
  for (uint32_t rank = 0; rank < ranks.size(); ++rank) {
    threads.emplace_back([&, rank] {
      std::vector<uint32_t> others;
      for (uint32_t peer = 0; peer < ranks.size(); ++peer) {
        if (peer != rank) others.push_back(peer);
      }
      uint32_t missing = 0;
      const int64_t deadline_ns = SteadyClock().now_ns() + 30000 * kNanosecondsPerMillisecond;
      const Status wired = ranks[rank]->wire(others, deadline_ns, &missing);
      EXPECT_TRUE(wired.ok()) << missing << ": " << wired.message();
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// All ranks of a world in this process, each knowing all others.
inline std::vector<std::unique_ptr<NetworkTransport>> make_ucx_ranks(
    uint32_t world, const std::vector<std::string>& more_devices = {}) {
  std::vector<std::unique_ptr<NetworkTransport>> ranks;
  for (uint32_t rank = 0; rank < world; ++rank) {
    ranks.push_back(make_ucx(rank, world, more_devices));
  }
  connect_all(ranks);
  return ranks;
}

}  // namespace parallax::net

#endif  // PARALLAX_TESTS_NET_UCX_WORLD_H_
