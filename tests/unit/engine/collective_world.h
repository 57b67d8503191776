// SPDX-License-Identifier: Apache-2.0
// Jobs without variables, and the calls of collectives of all their ranks. Tests only.
#ifndef PARALLAX_TESTS_UNIT_ENGINE_COLLECTIVE_WORLD_H_
#define PARALLAX_TESTS_UNIT_ENGINE_COLLECTIVE_WORLD_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "support/collective_case.h"
#include "support/engine_world.h"

namespace parallax::testkit::beside {

using Hosts = std::vector<uint32_t>;

// Of 1 to 9 ranks, and more hosts than a tree of them has children.
inline const Hosts kLayouts[] = {{0},
                                 {0, 0},
                                 {0, 1},
                                 {0, 1, 0},
                                 {0, 0, 1, 1},
                                 {0, 1, 1, 1, 2},
                                 {0, 0, 0, 1, 2, 2},
                                 {0, 1, 2, 3, 4, 5, 6},
                                 {0, 0, 0, 0, 1, 1, 1, 1},
                                 {0, 1, 2, 3, 4, 5, 6, 6, 6},
                                 {0, 1, 2, 3, 4, 5, 6, 7, 8, 9}};

inline WorldOptions world_of(const Hosts& hosts, uint64_t seed) {
  WorldOptions options;
  options.hosts = hosts;
  options.seed = seed;
  options.slow_percent = seed % 2 == 0 ? 20u : 0u;
  options.message_bytes_max = seed % 3 == 0 ? kMessageBytesMin : kInprocMessageBytesMax;
  options.deterministic = seed % 4 == 0;
  return options;
}

inline std::unique_ptr<EngineWorld> committed(const WorldOptions& options) {
  auto world = std::make_unique<EngineWorld>(options);
  EXPECT_TRUE(world->commit({})[0].ok());
  return world;
}

// All ranks' buffers and requests of some collectives.
class Calls {
 public:
  explicit Calls(EngineWorld& world) : world_(world), buffers_(world.size()) {}

  void post(const CollectiveCase& of, uint32_t rank) {
    auto& buffers = buffers_[rank].emplace_back(std::make_unique<CollectiveBuffers>(of, rank));
    const parallax_collective_t call = buffers->call();
    Request* request = nullptr;
    const Status status = world_.engine(rank).collective_calls().collective(call, &request);
    ASSERT_TRUE(status.ok()) << status.message() << ": " << of.describe();
    requests_.push_back(request);
    ranks_.push_back(rank);
  }
  void post(const CollectiveCase& of) {
    for (uint32_t rank = 0; rank < world_.size(); ++rank) post(of, rank);
  }
  void expect_right() {
    ASSERT_TRUE(world_.run_until_done(requests_));
    for (Request* request : requests_)
      ASSERT_TRUE(request->status.ok()) << request->status.message();
    for (const auto& of_rank : buffers_) {
      for (const auto& buffers : of_rank) ASSERT_EQ(buffers->check(), "");
    }
    for (uint32_t rank = 0; rank < world_.size(); ++rank) {
      EXPECT_TRUE(world_.engine(rank).failure().ok());
    }
  }
  const std::vector<Request*>& requests() const { return requests_; }
  uint32_t rank_of(size_t request) const { return ranks_[request]; }
  CollectiveBuffers& buffers(uint32_t rank, size_t i = 0) { return *buffers_[rank][i]; }

 private:
  EngineWorld& world_;
  std::vector<std::vector<std::unique_ptr<CollectiveBuffers>>> buffers_;  // by rank
  std::vector<Request*> requests_;
  std::vector<uint32_t> ranks_;  // by request
};

}  // namespace parallax::testkit::beside

#endif  // PARALLAX_TESTS_UNIT_ENGINE_COLLECTIVE_WORLD_H_
