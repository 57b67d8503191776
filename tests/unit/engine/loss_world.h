// SPDX-License-Identifier: Apache-2.0
// LossWorld: rank 0 of a job of `world` hosts, its leases and its failure, without an engine. What
// it sends to the others is noted; its transport knows whom to forget.
#ifndef PARALLAX_TESTS_UNIT_ENGINE_LOSS_WORLD_H_
#define PARALLAX_TESTS_UNIT_ENGINE_LOSS_WORLD_H_

#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include "engine/first_failure.h"
#include "engine/goodbye.h"
#include "engine/loss_watch.h"
#include "unit/server/layouts.h"
#include "unit/server/section_network.h"

namespace parallax::testkit {

class ForgettingTransport final : public Transport {
 public:
  std::string_view name() const override { return "forgetting"; }
  size_t message_bytes_max() const override { return bytes_max; }
  bool writable(uint32_t) const override { return false; }
  Status send(uint32_t, std::span<const Segment>, uint64_t) override { return {}; }
  bool poll(Receiver&) override { return false; }
  int wait_fd() const override { return -1; }
  bool arm() override { return true; }
  void forget(uint32_t rank) override { forgotten.push_back(rank); }

  std::vector<uint32_t> forgotten;
  size_t bytes_max = 1;  // of a message
};

class MovedClock final : public Clock {
 public:
  int64_t now_ns() const override { return now; }
  int64_t now = 0;
};

struct LossWorld {
  static constexpr int64_t kLeaseNs = 1000 * kNanosecondsPerMillisecond;
  struct Sent {
    uint32_t to;
    SectionHeader header;
    std::string text;
  };

  explicit LossWorld(uint32_t world) : LossWorld(world, others(world)) {}
  // Rank 0 watches only those, and is connected to all.
  LossWorld(uint32_t world, std::vector<uint32_t> watched)
      : hosts(host_map(numbers(world))),
        network(world, 1),
        columns(hosts, 0),
        membership(std::move(watched), kLeaseNs, 0) {
    network.on_section([this](uint32_t to, uint32_t, const Section& section) {
      sent.push_back(
          {to,
           section.header,
           {reinterpret_cast<const char*>(section.payload.data()), section.payload.size()}});
      return true;
    });
  }

  static std::vector<uint32_t> numbers(uint32_t world) {
    std::vector<uint32_t> all(world);
    std::iota(all.begin(), all.end(), 0);
    return all;
  }
  static std::vector<uint32_t> others(uint32_t world) {
    std::vector<uint32_t> all = numbers(world);
    all.erase(all.begin());
    return all;
  }
  Outbox& outbox() { return network.outbox(0); }

  const HostMap hosts;
  SectionNetwork network;
  const Columns columns;
  MovedClock clock;
  StepWindow window;
  Membership membership;
  ForgettingTransport transport;
  Trees trees{columns.map(), 0, outbox()};
  Goodbye goodbye{0, trees};
  Registry registry;
  FirstFailure failure{{.columns = columns,
                        .clock = clock,
                        .window = window,
                        .membership = membership,
                        .transport = transport,
                        .outbox = outbox(),
                        .registry = registry}};
  LossWatch watch{{.world = columns.world(),
                   .clock = clock,
                   .membership = membership,
                   .goodbye = goodbye,
                   .failure = failure,
                   .transport = transport,
                   .outbox = outbox()}};
  std::vector<Sent> sent;
};

}  // namespace parallax::testkit

#endif  // PARALLAX_TESTS_UNIT_ENGINE_LOSS_WORLD_H_
