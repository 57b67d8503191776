// SPDX-License-Identifier: Apache-2.0
// ShmTransport between threads of this process: conformance, the handshake's refusals.
#include "transport/shm/shm_transport.h"

#include <unistd.h>

#include <array>
#include <deque>
#include <thread>

#include "support/real_time.h"
#include "unit/transport/conformance.h"

namespace parallax {
namespace {

using testkit::in_ms;
using testkit::kClock;

Endpoint endpoint_of(const ShmTransport& transport, uint32_t rank) {
  Endpoint endpoint;
  endpoint.rank = rank;
  endpoint.host = "here";
  endpoint.shm_address = transport.address();
  return endpoint;
}

std::unique_ptr<ShmTransport> make_rank(uint32_t rank, size_t ring_bytes, bool use_pidfd) {
  std::unique_ptr<ShmTransport> transport;
  const Status status = ShmTransport::create({.rank = rank,
                                              .clock = &kClock,
                                              .ring_bytes = ring_bytes,
                                              .use_pidfd = use_pidfd,
                                              .boards = true},
                                             &transport);
  EXPECT_TRUE(status.ok()) << status.message();
  return transport;
}

std::unique_ptr<conformance::World> make_world(uint32_t world, size_t ring_bytes) {
  std::vector<std::unique_ptr<ShmTransport>> made;
  std::vector<Endpoint> endpoints;
  for (uint32_t rank = 0; rank < world; ++rank) {
    made.push_back(make_rank(rank, ring_bytes, true));
    endpoints.push_back(endpoint_of(*made.back(), rank));
  }
  std::vector<std::thread> threads;
  for (uint32_t rank = 0; rank < world; ++rank) {
    threads.emplace_back([&, rank] {
      std::vector<Endpoint> peers = endpoints;
      peers.erase(peers.begin() + rank);
      const Status status = made[rank]->connect_all(peers, 99, in_ms(20000));
      EXPECT_TRUE(status.ok()) << status.message();
    });
  }
  for (auto& thread : threads) thread.join();
  std::vector<std::unique_ptr<Transport>> transports;
  for (auto& transport : made) transports.push_back(std::move(transport));
  return std::make_unique<conformance::PlainWorld>(std::move(transports));
}

std::unique_ptr<conformance::World> make_shm_world(uint32_t world) {
  return make_world(world, kRingBytesDefault);
}

std::unique_ptr<conformance::World> make_small_shm_world(uint32_t world) {
  return make_world(world, kRingBytesMin);
}

CONFORM(shm, make_shm_world)
CONFORM(shm_small_rings, make_small_shm_world)

// Given messages sent just before closing, expect them to be delivered before the loss.
// Given ranks that are to have no boards, expect none to be made or handed over.
TEST(Shm, BoardsAreThereWhereTheyAreAskedFor) {
  std::array<std::unique_ptr<ShmTransport>, 2> ranks;
  for (uint32_t rank = 0; rank < 2; ++rank) {
    ASSERT_TRUE(ShmTransport::create({.rank = rank, .clock = &kClock}, &ranks[rank]).ok());
  }
  std::thread other([&] {
    const Endpoint peer = endpoint_of(*ranks[0], 0);
    EXPECT_TRUE(ranks[1]->connect_all(std::span(&peer, 1), 99, in_ms(20000)).ok());
  });
  const Endpoint peer = endpoint_of(*ranks[1], 1);
  EXPECT_TRUE(ranks[0]->connect_all(std::span(&peer, 1), 99, in_ms(20000)).ok());
  other.join();
  EXPECT_EQ(ranks[0]->boards(), nullptr);
  EXPECT_TRUE(ranks[0]->arm());
  EXPECT_NE(make_rank(0, kRingBytesDefault, true)->boards(), nullptr);
}

TEST(Shm, last_words_arrive_before_the_loss) {
  conformance::Stage stage(make_shm_world, 2);
  for (uint64_t i = 0; i < 16; ++i) stage.send(1, 0, i, 2000, i);
  stage.close(1);
  ASSERT_TRUE(stage.until([&] { return stage.recorders[0].losses[1] == 1; }));
  EXPECT_EQ(stage.recorders[0].received[1], 16u);
}

TEST(Shm, ring_bytes_are_checked) {
  for (const size_t bytes : {size_t{0}, size_t{4096}, size_t{3} << 19, size_t{1} << 40}) {
    std::unique_ptr<ShmTransport> transport;
    EXPECT_EQ(
        ShmTransport::create({.rank = 0, .clock = &kClock, .ring_bytes = bytes}, &transport).code(),
        PARALLAX_INVALID);
  }
}

TEST(Shm, an_address_nobody_listens_at_is_a_lost_peer) {
  auto a = make_rank(0, kRingBytesDefault, true);
  Endpoint gone;
  {
    auto b = make_rank(1, kRingBytesDefault, true);
    gone = endpoint_of(*b, 1);
  }
  const Status status = a->connect_all({&gone, 1}, 1, in_ms(5000));
  EXPECT_EQ(status.code(), PARALLAX_PEER_LOST);
  EXPECT_NE(status.message().find("rank 1 (host here)"), std::string::npos) << status.message();
}

TEST(Shm, a_peer_that_never_answers_is_a_timeout_by_the_deadline) {
  auto a = make_rank(0, kRingBytesDefault, true);
  auto b = make_rank(1, kRingBytesDefault, true);
  const Endpoint peer = endpoint_of(*b, 1);
  const int64_t start_ns = kClock.now_ns();
  const Status status = a->connect_all({&peer, 1}, 1, in_ms(200));
  const int64_t took_ms = (kClock.now_ns() - start_ns) / kNanosecondsPerMillisecond;
  EXPECT_EQ(status.code(), PARALLAX_TIMEOUT);
  EXPECT_NE(status.message().find("rank 1 (host here)"), std::string::npos) << status.message();
  EXPECT_GE(took_ms, 199);
  EXPECT_LT(took_ms, 2000);
}

TEST(Shm, ranks_of_another_job_are_refused) {
  auto a = make_rank(0, kRingBytesDefault, true);
  auto b = make_rank(1, kRingBytesDefault, true);
  const Endpoint to_a = endpoint_of(*a, 0);
  const Endpoint to_b = endpoint_of(*b, 1);
  Status at_b;
  std::thread other([&] { at_b = b->connect_all({&to_a, 1}, 2, in_ms(500)); });
  const Status at_a = a->connect_all({&to_b, 1}, 1, in_ms(500));
  other.join();
  EXPECT_FALSE(at_a.ok());
  EXPECT_FALSE(at_b.ok());
  EXPECT_TRUE(at_a.message().find("another job") != std::string::npos ||
              at_b.message().find("another job") != std::string::npos)
      << at_a.message() << " / " << at_b.message();
}

// Given strangers that connect and say nothing, or nonsense, expect the ranks to attach anyway.
TEST(Shm, strangers_are_let_go) {
  auto a = make_rank(0, kRingBytesDefault, true);
  auto b = make_rank(1, kRingBytesDefault, true);
  const Endpoint to_a = endpoint_of(*a, 0);
  const Endpoint to_b = endpoint_of(*b, 1);
  std::vector<UniqueFd> strangers(100);
  for (size_t i = 0; i < strangers.size(); ++i) {
    ASSERT_EQ(connect_abstract(a->address(), &strangers[i]), SocketNews::kOk);
    const std::vector<std::byte> nonsense(1 + i % 60, std::byte{0x50});
    if (i % 2 == 0) {
      ASSERT_EQ(send_packet(strangers[i], nonsense, {}), SocketNews::kOk);
    }
  }
  Status at_b;
  std::thread other([&] { at_b = b->connect_all({&to_a, 1}, 1, in_ms(10000)); });
  const Status at_a = a->connect_all({&to_b, 1}, 1, in_ms(10000));
  other.join();
  EXPECT_TRUE(at_a.ok()) << at_a.message();
  EXPECT_TRUE(at_b.ok()) << at_b.message();
  EXPECT_TRUE(a->attached(1));
  EXPECT_FALSE(a->attached(7));
}

// Given 10,000 of them while a rank waits for its neighbour, some of which stay, expect the same.
TEST(Shm, ten_thousand_strangers_starve_nobody) {
  constexpr size_t kStrangers = 10000;
  constexpr size_t kStay = 200;
  auto a = make_rank(0, kRingBytesDefault, true);
  auto b = make_rank(1, kRingBytesDefault, true);
  const Endpoint to_a = endpoint_of(*a, 0);
  const Endpoint to_b = endpoint_of(*b, 1);
  Status at_a;
  std::thread first([&] { at_a = a->connect_all({&to_b, 1}, 1, in_ms(60000)); });
  std::deque<UniqueFd> staying;
  for (size_t i = 0; i < kStrangers; ++i) {
    UniqueFd stranger;
    SocketNews news = SocketNews::kAgain;  // until there is room among those not yet accepted
    while ((news = connect_abstract(a->address(), &stranger)) == SocketNews::kAgain) {
      std::this_thread::yield();
    }
    ASSERT_EQ(news, SocketNews::kOk) << "stranger " << i;
    const std::vector<std::byte> nonsense(1 + i % 60, std::byte{0x50});
    if (i % 2 == 0) (void)send_packet(stranger, nonsense, {});
    if (i % 3 == 0) staying.push_back(std::move(stranger));
    if (staying.size() > kStay) staying.pop_front();
  }
  const Status at_b = b->connect_all({&to_a, 1}, 1, in_ms(60000));
  first.join();
  EXPECT_TRUE(at_a.ok()) << at_a.message();
  EXPECT_TRUE(at_b.ok()) << at_b.message();
  EXPECT_TRUE(a->attached(1));
}

// A peer that polls moves its counter; one that sleeps says so.
TEST(Shm, activity_tells_the_stopped_from_the_sleeping) {
  conformance::Stage stage(make_shm_world, 2);
  stage.greet(0, 1);
  auto& a = static_cast<ShmTransport&>(stage.at(0));
  const auto before = a.peer_activity(1);
  stage.linger(50);
  EXPECT_GT(a.peer_activity(1).polls, before.polls);
  EXPECT_FALSE(a.peer_activity(1).sleeping);
  while (!stage.at(1).arm()) stage.poll(1);
  EXPECT_TRUE(a.peer_activity(1).sleeping);
}

// Given a rank whose sleep posts are not to end, expect them not to, and a message to; given that
// it comes to heed them meanwhile, expect the next one to.
TEST(Shm, PostsWakeWhoHeedsThemAlone) {
  conformance::Stage stage(make_shm_world, 2);
  stage.greet(0, 1);
  Transport& sleeper = stage.at(0);
  const auto sleep_unheeding = [&] {
    sleeper.boards()->heed(false);
    while (!sleeper.arm()) stage.poll(0);
  };
  const auto woken = [&] { return conformance::wait_readable(sleeper.wait_fd(), 0); };
  sleep_unheeding();
  stage.at(1).boards()->post();
  EXPECT_FALSE(woken());
  sleeper.boards()->heed(true);
  EXPECT_FALSE(woken()) << "what was posted before is for whoever heeds posts now to look at";
  stage.at(1).boards()->post();
  EXPECT_TRUE(woken());
  stage.poll(0);
  sleep_unheeding();
  stage.at(1).boards()->post();
  EXPECT_FALSE(woken());
  stage.send(1, 0, stage.recorders[0].received[1], 16, 7);
  EXPECT_TRUE(woken());
}

TEST(Shm, machine_id_is_stable) {
  EXPECT_EQ(shm_machine_id(), shm_machine_id());
  EXPECT_GT(shm_machine_id().size(), 36u);
  EXPECT_LT(shm_machine_id().size(), 100u);
}

}  // namespace
}  // namespace parallax
