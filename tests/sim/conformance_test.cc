// SPDX-License-Identifier: Apache-2.0
// The transport's contract, kept by the simulator and by the faulty decorator.
#include <gtest/gtest.h>

#include "sim/scenario.h"
#include "transport/faulty/faulty_transport.h"
#include "transport/sim/sim_world.h"
#include "unit/transport/conformance.h"

namespace parallax {
namespace {

using simtest::kMicrosecond;
using simtest::kMillisecond;

// ---- the transport's contract

class ConformanceSim : public conformance::World {
 public:
  explicit ConformanceSim(uint32_t world) : sim_(SimOptions{.world = world}) {}
  Transport& at(uint32_t rank) override { return sim_.transport(rank); }
  void close(uint32_t rank) override { sim_.leave(rank); }
  void drive() override {
    sim_.run_until([] { return false; }, sim_.now_ns() + 10 * kMicrosecond);
  }

 protected:
  SimWorld sim_;
};

std::unique_ptr<conformance::World> make_sim_world(uint32_t world) {
  return std::make_unique<ConformanceSim>(world);
}

CONFORM(sim, make_sim_world)

// A transport owned by somebody else, for the decorator that wants its own.
class Borrowed final : public Transport {
 public:
  explicit Borrowed(Transport& inner) : inner_(inner) {}
  std::string_view name() const override { return inner_.name(); }
  size_t message_bytes_max() const override { return inner_.message_bytes_max(); }
  bool writable(uint32_t to) const override { return inner_.writable(to); }
  Status send(uint32_t to, std::span<const Segment> segments, uint64_t cookie) override {
    return inner_.send(to, segments, cookie);
  }
  bool poll(Receiver& receiver) override { return inner_.poll(receiver); }
  int wait_fd() const override { return inner_.wait_fd(); }
  bool arm() override { return inner_.arm(); }
  void forget(uint32_t rank) override { inner_.forget(rank); }

 private:
  Transport& inner_;
};

// Late and, for a while, silent: the contract holds all the same.
class FaultySim final : public ConformanceSim {
 public:
  explicit FaultySim(uint32_t world) : ConformanceSim(world) {
    for (uint32_t rank = 0; rank < world; ++rank) {
      FaultyOptions options;
      options.seed = rank;
      options.rules = {
          {.fault = InjectedFault::kDelay, .percent = 5, .amount_ns = 100 * kMicrosecond},
          {.fault = InjectedFault::kSilence, .after_ns = kMillisecond, .for_ns = kMillisecond}};
      transports_.push_back(std::make_unique<FaultyTransport>(
          std::make_unique<Borrowed>(sim_.transport(rank)), sim_.clock(), options));
    }
  }
  Transport& at(uint32_t rank) override { return *transports_[rank]; }

 private:
  std::vector<std::unique_ptr<FaultyTransport>> transports_;
};

std::unique_ptr<conformance::World> make_faulty_world(uint32_t world) {
  return std::make_unique<FaultySim>(world);
}

CONFORM(faulty, make_faulty_world)

// Given a decorator told to break at the third send, expect both sides to learn of it.
TEST(Faulty, closes_at_the_given_send) {
  SimWorld sim(SimOptions{.world = 2});
  FaultyOptions options;
  options.rules = {{.fault = InjectedFault::kClose, .at = 3}};
  FaultyTransport faulty(std::make_unique<Borrowed>(sim.transport(0)), sim.clock(), options);
  conformance::Recorder near, far;
  far.check_pattern = false;
  const uint64_t word = 7;
  const Segment segment{&word, sizeof word};
  EXPECT_TRUE(faulty.send(1, {&segment, 1}, 1).ok());
  EXPECT_TRUE(faulty.send(1, {&segment, 1}, 2).ok());
  EXPECT_EQ(faulty.send(1, {&segment, 1}, 3).code(), PARALLAX_PEER_LOST);
  for (int i = 0; i < 100; ++i) {
    faulty.poll(near);
    sim.transport(1).poll(far);
    sim.run_until([] { return false; }, sim.now_ns() + kMicrosecond);
  }
  EXPECT_EQ(near.losses[1], 1u);
  EXPECT_EQ(near.sent_count, 2u);
  EXPECT_EQ(far.losses[0], 1u);
  EXPECT_FALSE(faulty.writable(1));
}

}  // namespace
}  // namespace parallax
