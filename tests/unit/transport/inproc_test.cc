// SPDX-License-Identifier: Apache-2.0
// InprocTransport: conformance, growth, names and lives of hubs.
#include "transport/inproc/inproc_transport.h"

#include "unit/transport/conformance.h"

namespace parallax {
namespace {

std::unique_ptr<InprocTransport> make_rank(const std::shared_ptr<InprocHub>& hub, uint32_t rank) {
  std::unique_ptr<InprocTransport> transport;
  const Status status = InprocTransport::create(hub, rank, &transport);
  EXPECT_TRUE(status.ok()) << status.message();
  return transport;
}

std::unique_ptr<conformance::World> make_inproc_world(uint32_t world) {
  auto hub = std::make_shared<InprocHub>(world);
  std::vector<std::unique_ptr<Transport>> transports;
  for (uint32_t rank = 0; rank < world; ++rank) transports.push_back(make_rank(hub, rank));
  return std::make_unique<conformance::PlainWorld>(std::move(transports));
}

CONFORM(inproc, make_inproc_world)

// Given traffic of varying sizes after the largest has passed, expect no further allocation.
TEST(Inproc, steady_state_does_not_grow) {
  auto hub = std::make_shared<InprocHub>(2);
  auto a = make_rank(hub, 0);
  auto b = make_rank(hub, 1);
  conformance::Recorder at_a;
  conformance::Recorder at_b;
  std::vector<std::byte> message;
  uint64_t sequence = 0;
  const auto exchange = [&](size_t bytes) {
    message = conformance::make_message(0, sequence, bytes);
    const Segment segment{message.data(), bytes};
    ASSERT_TRUE(a->writable(1));
    ASSERT_TRUE(a->send(1, {&segment, 1}, sequence++).ok());
    b->poll(at_b);
    a->poll(at_a);
  };
  exchange(kInprocMessageBytesMax);
  for (uint32_t i = 0; i < kSendsInFlightMax; ++i) exchange(10);
  const uint64_t grown = a->growth_count();
  EXPECT_GT(grown, 0u);
  for (size_t bytes = 1; bytes < 3000; bytes += 7) exchange(bytes);
  for (int i = 0; i < 20; ++i) exchange(kInprocMessageBytesMax);
  EXPECT_EQ(a->growth_count(), grown);
  EXPECT_EQ(at_b.received[0], sequence);
}

// Given messages sent just before closing, expect them to be delivered before the loss.
TEST(Inproc, last_words_arrive_before_the_loss) {
  auto hub = std::make_shared<InprocHub>(2);
  auto a = make_rank(hub, 0);
  auto b = make_rank(hub, 1);
  for (uint64_t i = 0; i < 5; ++i) {
    const auto message = conformance::make_message(1, i, 100);
    const Segment segment{message.data(), message.size()};
    ASSERT_TRUE(b->send(0, {&segment, 1}, i).ok());
  }
  b.reset();
  conformance::Recorder at_a;
  a->poll(at_a);
  EXPECT_EQ(at_a.received[1], 5u);
  EXPECT_EQ(at_a.losses[1], 1u);
}

// Given a rank that came and went before another came, expect the latter to hear of it; a send to
// a peer that has just closed says so and completes nothing.
TEST(Inproc, late_ranks_hear_of_the_lost) {
  auto hub = std::make_shared<InprocHub>(3);
  auto a = make_rank(hub, 0);
  make_rank(hub, 2).reset();
  auto b = make_rank(hub, 1);
  conformance::Recorder at_a;
  conformance::Recorder at_b;
  const Segment segment{"x", 1};
  ASSERT_TRUE(a->writable(2));
  EXPECT_EQ(a->send(2, {&segment, 1}, 1).code(), PARALLAX_PEER_LOST);
  a->poll(at_a);
  b->poll(at_b);
  EXPECT_EQ(at_a.losses[2], 1u);
  EXPECT_EQ(at_b.losses[2], 1u);
  EXPECT_EQ(at_a.sent_count, 0u);
}

// Given a message sent before its receiver opened, expect it to wait.
TEST(Inproc, messages_wait_for_a_late_rank) {
  auto hub = std::make_shared<InprocHub>(2);
  auto a = make_rank(hub, 0);
  const auto message = conformance::make_message(0, 0, 33);
  const Segment segment{message.data(), message.size()};
  ASSERT_TRUE(a->send(1, {&segment, 1}, 1).ok());
  auto b = make_rank(hub, 1);
  conformance::Recorder at_b;
  EXPECT_FALSE(b->arm());
  b->poll(at_b);
  EXPECT_EQ(at_b.received[0], 1u);
}

}  // namespace
}  // namespace parallax
