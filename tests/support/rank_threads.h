// SPDX-License-Identifier: Apache-2.0
// Ranks of a job as threads of this process, through parallax.hpp: one thread each, which opens the
// job, and a failure for each that an Error leaves. Both calls block until all threads are over.
#ifndef PARALLAX_TESTS_SUPPORT_RANK_THREADS_H_
#define PARALLAX_TESTS_SUPPORT_RANK_THREADS_H_

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "parallax/parallax.hpp"

namespace parallax::testkit {

// For a body that opens its job itself, by these options: rank, world, and a rendezvous that no
// other job of the process has.
using RankOptionsBody = std::function<void(uint32_t rank, parallax_options_t& options)>;

inline void on_rank_threads(uint32_t world, const RankOptionsBody& body) {
  static std::atomic<uint64_t> jobs{0};
  const std::string rendezvous = "inproc:rank_threads_" + std::to_string(++jobs);
  std::vector<std::thread> ranks;
  for (uint32_t rank = 0; rank < world; ++rank) {
    ranks.emplace_back([&, rank] {
      auto options = sized<parallax_options_t>();
      options.rank = rank;
      options.world = world;
      options.rendezvous = rendezvous.c_str();
      try {
        body(rank, options);
      } catch (const Error& error) {
        ADD_FAILURE() << "rank " << rank << ": " << error.what();
      }
    });
  }
  for (std::thread& rank : ranks) rank.join();
}

// Two hosts, whose ranks take turns.
inline const char* left_or_right(uint32_t rank) { return rank % 2 == 0 ? "left" : "right"; }

// For a body that gets its job open; `choose` sets further options before.
inline void on_ranks(uint32_t world, const std::function<void(uint32_t rank, Job& job)>& body,
                     const RankOptionsBody& choose = nullptr) {
  on_rank_threads(world, [&](uint32_t rank, parallax_options_t& options) {
    if (choose) choose(rank, options);
    Job job(options);
    body(rank, job);
  });
}

}  // namespace parallax::testkit

#endif  // PARALLAX_TESTS_SUPPORT_RANK_THREADS_H_
