// SPDX-License-Identifier: Apache-2.0
// Barriers and broadcasts of whole jobs over a network of sections, without engines.
#include "engine/collective_calls.h"

#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <vector>

#include "support/words.h"
#include "unit/server/layouts.h"
#include "unit/server/section_network.h"

namespace parallax::testkit {
namespace {

class CollectiveWorld {
 public:
  struct Rank {
    Rank(const HostMap& hosts, uint32_t rank, Outbox& outbox)
        : columns(hosts, rank),
          trees(hosts, rank, outbox),
          broadcast(hosts, rank, outbox),
          calls(columns, false, phase, trees, broadcast, outbox, requests) {
      phase.run();
    }
    const Columns columns;
    Status failure;
    JobPhase phase{failure};
    RequestPool requests{{}};
    Trees trees;
    Broadcast broadcast;
    CollectiveCalls calls;
  };

  explicit CollectiveWorld(const std::vector<uint32_t>& hosts)
      : hosts_(host_map(hosts)), network_(static_cast<uint32_t>(hosts.size()), hosts.size()) {
    for (uint32_t rank = 0; rank < hosts.size(); ++rank) {
      ranks_.push_back(std::make_unique<Rank>(hosts_, rank, network_.outbox(rank)));
    }
    network_.on_section([this](uint32_t to, uint32_t from, const Section& section) {
      const bool fits = take(*ranks_[to], from, section);
      advance(to);
      return fits;
    });
    network_.on_packed([this](uint32_t rank) { advance(rank); });
  }

  uint32_t size() const { return static_cast<uint32_t>(ranks_.size()); }
  Rank& operator[](uint32_t rank) { return *ranks_[rank]; }
  void settle() {
    for (uint32_t rank = 0; rank < size(); ++rank) advance(rank);
    network_.settle();
    EXPECT_TRUE(network_.refusals().empty()) << told(network_.refusals());
  }

 private:
  static bool take(Rank& rank, uint32_t from, const Section& section) {
    if (section.header.kind == SectionKind::kTreeUp) return rank.trees.take_report(from, section);
    if (section.header.kind == SectionKind::kTreeDown) {
      return rank.trees.take_answer(from, section) && rank.calls.on_barrier_answer(section.payload);
    }
    return rank.broadcast.on_section(from, section);
  }
  void advance(uint32_t at) {
    const Status status = ranks_[at]->calls.advance();
    if (!status.ok()) ranks_[at]->failure = status;
  }

  const HostMap hosts_;
  SectionNetwork network_;
  std::vector<std::unique_ptr<Rank>> ranks_;
};

TEST(CollectiveCalls, NobodyPassesABarrierBeforeTheLastComes) {
  for (const auto& hosts : layouts()) {
    CollectiveWorld world(hosts);
    std::vector<std::array<Request*, 2>> requests(world.size());
    const auto post = [&](uint32_t rank, size_t number) {
      ASSERT_TRUE(world[rank].calls.barrier(&requests[rank][number]).ok());
    };
    for (uint32_t rank = 1; rank < world.size(); ++rank) {
      post(rank, 0);
      post(rank, 1);
    }
    world.settle();
    for (uint32_t rank = 1; rank < world.size(); ++rank) EXPECT_FALSE(requests[rank][0]->done());
    post(0, 0);
    world.settle();
    for (uint32_t rank = 0; rank < world.size(); ++rank) {
      EXPECT_TRUE(requests[rank][0]->done()) << "rank " << rank;
      EXPECT_FALSE(rank > 0 && requests[rank][1]->done()) << "one at a time";
    }
    post(0, 1);
    world.settle();
    for (uint32_t rank = 0; rank < world.size(); ++rank) EXPECT_TRUE(requests[rank][1]->done());
  }
}

TEST(CollectiveCalls, BroadcastsGoInTheOrderOfTheCalls) {
  for (const auto& hosts : layouts()) {
    CollectiveWorld world(hosts);
    const uint32_t last = world.size() - 1;
    std::vector<std::array<uint64_t, 2>> numbers(world.size());
    numbers[0][0] = 11;
    numbers[last][1] = 22;
    std::vector<Request*> requests;
    for (uint32_t rank = 0; rank < world.size(); ++rank) {
      for (size_t i = 0; i < 2; ++i) {
        requests.push_back(nullptr);
        auto* bytes = reinterpret_cast<std::byte*>(&numbers[rank][i]);
        ASSERT_TRUE(
            world[rank].calls.broadcast(bytes, 8, i == 0 ? 0 : last, &requests.back()).ok());
      }
    }
    world.settle();
    for (uint32_t rank = 0; rank < world.size(); ++rank) {
      EXPECT_EQ(numbers[rank], (std::array<uint64_t, 2>{11, 22})) << "rank " << rank;
    }
    for (const Request* request : requests) EXPECT_TRUE(request->done() && request->status.ok());
  }
}

TEST(CollectiveCalls, RanksThatDisagreeAboutABroadcastFail) {
  CollectiveWorld world({0, 0, 1});
  std::vector<std::array<std::byte, 16>> buffers(3);
  Request* request = nullptr;
  for (uint32_t rank = 0; rank < 3; ++rank) {
    ASSERT_TRUE(
        world[rank].calls.broadcast(buffers[rank].data(), rank == 1 ? 9 : 8, 0, &request).ok());
  }
  world.settle();
  bool found = false;
  for (uint32_t rank = 0; rank < 3; ++rank) {
    found = found || world[rank].failure.code() == PARALLAX_MISMATCH;
  }
  EXPECT_TRUE(found);
}

TEST(CollectiveCalls, RefusesBroadcastsThatCannotBe) {
  CollectiveWorld world({0, 0});
  std::byte byte = {};
  Request* request = nullptr;
  CollectiveCalls& calls = world[0].calls;
  EXPECT_TRUE(has(calls.broadcast(&byte, 1, 2, &request), "root is 2, the job has 2 ranks"));
  EXPECT_TRUE(has(calls.broadcast(nullptr, 1, 0, &request), "buffer is null"));
  EXPECT_TRUE(has(calls.broadcast(&byte, (1ull << 40) + 1, 0, &request), "2^40"));
  EXPECT_EQ(world[0].requests.outstanding(), 0u);
}

TEST(CollectiveCalls, TheEndOfTheJobCompletesAll) {
  CollectiveWorld world({0, 0});
  Request* barrier = nullptr;
  Request* broadcast = nullptr;
  std::byte byte = {};
  ASSERT_TRUE(world[0].calls.barrier(&barrier).ok());
  ASSERT_TRUE(world[0].calls.broadcast(&byte, 1, 0, &broadcast).ok());
  world[0].calls.finish_all(peer_lost("rank 1 is lost"));
  EXPECT_EQ(barrier->status.code(), PARALLAX_PEER_LOST);
  EXPECT_EQ(broadcast->status.code(), PARALLAX_PEER_LOST);
}

}  // namespace
}  // namespace parallax::testkit
