// SPDX-License-Identifier: Apache-2.0
// Router: conformance over a single part and over two, and routes.
#include "transport/router.h"

#include <gtest/gtest.h>

#include "net/ucx_world.h"
#include "transport/inproc/inproc_transport.h"
#include "unit/transport/conformance.h"

namespace parallax::net {
namespace {

using conformance::Recorder;

std::unique_ptr<Transport> make_inproc(const std::shared_ptr<InprocHub>& hub, uint32_t rank) {
  std::unique_ptr<InprocTransport> transport;
  const Status status = InprocTransport::create(hub, rank, &transport);
  EXPECT_TRUE(status.ok()) << status.message();
  return transport;
}

std::unique_ptr<Router> make_router(uint32_t world, std::vector<Router::Part> parts) {
  std::unique_ptr<Router> router;
  const Status status = Router::create(world, std::move(parts), &router);
  EXPECT_TRUE(status.ok()) << status.message();
  return router;
}

// Ranks 2k and 2k + 1 are a host: inproc between the two, UCX to the others.
std::vector<std::unique_ptr<Router>> make_hosts_of_two(uint32_t world) {
  auto hub = std::make_shared<InprocHub>(world);
  auto network = make_ucx_ranks(world);
  std::vector<std::unique_ptr<Router>> routers;
  for (uint32_t rank = 0; rank < world; ++rank) {
    std::vector<uint32_t> near;
    std::vector<uint32_t> far;
    for (uint32_t peer = 0; peer < world; ++peer) {
      if (peer != rank) (peer / 2 == rank / 2 ? near : far).push_back(peer);
    }
    std::vector<Router::Part> parts;
    parts.push_back({make_inproc(hub, rank), near});
    parts.push_back({std::move(network[rank]), far});
    routers.push_back(make_router(world, std::move(parts)));
  }
  return routers;
}

std::unique_ptr<conformance::World> make_mixed_world(uint32_t world) {
  std::vector<std::unique_ptr<Transport>> transports;
  for (auto& router : make_hosts_of_two(world)) transports.push_back(std::move(router));
  return std::make_unique<conformance::PlainWorld>(std::move(transports));
}

std::unique_ptr<conformance::World> make_single_part_world(uint32_t world) {
  auto hub = std::make_shared<InprocHub>(world);
  std::vector<std::unique_ptr<Transport>> transports;
  for (uint32_t rank = 0; rank < world; ++rank) {
    std::vector<uint32_t> others;
    for (uint32_t peer = 0; peer < world; ++peer) {
      if (peer != rank) others.push_back(peer);
    }
    std::vector<Router::Part> parts;
    parts.push_back({make_inproc(hub, rank), others});
    transports.push_back(make_router(world, std::move(parts)));
  }
  return std::make_unique<conformance::PlainWorld>(std::move(transports));
}

CONFORM(router_of_one, make_single_part_world)
CONFORM(router_of_two, make_mixed_world)

// Given two hosts of two, expect each message at its rank once, by whichever part.
TEST(Router, delivers_by_route) {
  auto ranks = make_hosts_of_two(4);
  std::vector<Recorder> recorders(4);
  const auto message = conformance::make_message(0, 0, 1000);
  const Segment segments[] = {{message.data(), 400}, {message.data() + 400, 600}};
  for (const uint32_t to : {1u, 2u, 3u}) {
    ASSERT_TRUE(ranks[0]->writable(to));
    ASSERT_TRUE(ranks[0]->send(to, segments, to).ok());
  }
  const auto give_up = std::chrono::steady_clock::now() + conformance::kPatience;
  const auto arrived = [&] {
    return recorders[1].received[0] + recorders[2].received[0] + recorders[3].received[0];
  };
  while (arrived() < 3 && std::chrono::steady_clock::now() < give_up) {
    for (uint32_t rank = 0; rank < 4; ++rank) ranks[rank]->poll(recorders[rank]);
  }
  for (const uint32_t to : {1u, 2u, 3u}) EXPECT_EQ(recorders[to].received[0], 1u) << "rank " << to;
}

// Given routes, expect the name behind each, none to oneself, and the least message_bytes_max.
TEST(Router, routes_by_rank) {
  auto ranks = make_hosts_of_two(4);
  EXPECT_EQ(ranks[1]->route(0)->name(), "inproc");
  EXPECT_EQ(ranks[1]->route(2)->name(), "ucx");
  EXPECT_EQ(ranks[1]->route(1), nullptr);
  EXPECT_EQ(ranks[1]->route(4), nullptr);
  EXPECT_FALSE(ranks[1]->writable(1));
  EXPECT_FALSE(ranks[1]->writable(4));
  ranks[1]->forget(1);
  EXPECT_EQ(ranks[1]->message_bytes_max(), std::min(ranks[1]->route(0)->message_bytes_max(),
                                                    ranks[1]->route(2)->message_bytes_max()));
}

// Given a rank in two parts or beyond the world, or no transport, expect to be refused.
TEST(Router, refuses_wrong_routes) {
  auto hub = std::make_shared<InprocHub>(3);
  std::unique_ptr<Router> router;
  std::vector<Router::Part> twice;
  twice.push_back({make_inproc(hub, 0), {1, 2}});
  twice.push_back({make_inproc(hub, 1), {2}});
  EXPECT_EQ(Router::create(3, std::move(twice), &router).code(), PARALLAX_INVALID);
  std::vector<Router::Part> beyond;
  beyond.push_back({make_inproc(hub, 2), {3}});
  EXPECT_EQ(Router::create(3, std::move(beyond), &router).code(), PARALLAX_INVALID);
  std::vector<Router::Part> nothing;
  nothing.push_back({nullptr, {1}});
  EXPECT_EQ(Router::create(3, std::move(nothing), &router).code(), PARALLAX_INVALID);
}

// Given no part at all (a world of one), expect a transport that does nothing.
TEST(Router, of_no_parts) {
  auto router = make_router(1, {});
  Recorder recorder;
  EXPECT_FALSE(router->poll(recorder));
  EXPECT_TRUE(router->arm());
  EXPECT_EQ(router->wait_fd(), -1);
  EXPECT_GE(router->message_bytes_max(), kMessageBytesMin);
}

}  // namespace
}  // namespace parallax::net
