// SPDX-License-Identifier: Apache-2.0
// An allgather as a caller's would be, between threads. Tests only.
#ifndef PARALLAX_TESTS_SUPPORT_CALLER_EXCHANGE_H_
#define PARALLAX_TESTS_SUPPORT_CALLER_EXCHANGE_H_

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <vector>

namespace parallax::testkit {

struct CallerExchange {
  static constexpr std::chrono::seconds kPatience{60};  // for a rank that never comes

  explicit CallerExchange(uint32_t world) : world(world) {}
  struct Context {
    CallerExchange* exchange;
    uint32_t rank;
  };

  static int run(void* context, const void* send, void* recv, size_t bytes) {
    const auto* self = static_cast<Context*>(context);
    CallerExchange& exchange = *self->exchange;
    std::unique_lock lock(exchange.mutex);
    exchange.cells.resize(exchange.world * bytes);
    std::memcpy(exchange.cells.data() + self->rank * bytes, send, bytes);
    const uint64_t turn = exchange.turn;
    if (++exchange.arrived == exchange.world) {
      exchange.arrived = 0;
      ++exchange.turn;
      exchange.result = exchange.cells;
      exchange.changed.notify_all();
    }
    if (!exchange.changed.wait_for(lock, kPatience, [&] { return exchange.turn != turn; }))
      return -1;
    std::memcpy(recv, exchange.result.data(), exchange.result.size());
    return exchange.failure;
  }

  const uint32_t world;
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<char> cells;
  std::vector<char> result;
  uint32_t arrived = 0;
  uint64_t turn = 0;
  int failure = 0;
};

}  // namespace parallax::testkit

#endif  // PARALLAX_TESTS_SUPPORT_CALLER_EXCHANGE_H_
