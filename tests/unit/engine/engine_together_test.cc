// SPDX-License-Identifier: Apache-2.0
// What all ranks do together: barriers, broadcasts, disagreement, aborting, losing one, closing.
#include <gtest/gtest.h>

#include <numeric>

#include "support/engine_world.h"
#include "support/words.h"

namespace parallax::testkit {
namespace {

using Hosts = std::vector<uint32_t>;

const Hosts kLayouts[] = {{0},          {0, 0},       {0, 1},          {0, 1, 0},
                          {0, 0, 1, 1}, {0, 1, 1, 1}, {0, 0, 0, 1, 2}, {0, 1, 2, 3, 4, 5, 6, 6, 6}};

WorldOptions world_of(const Hosts& hosts, uint64_t seed) {
  return {.hosts = hosts, .seed = seed, .slow_percent = seed % 2 == 0 ? 20u : 0u};
}

TEST(EngineBarrier, NobodyPassesBeforeTheLastComes) {
  for (const Hosts& hosts : kLayouts) {
    EngineWorld world(world_of(hosts, hosts.size()));
    ASSERT_TRUE(world.commit({})[0].ok());
    std::vector<Request*> requests(world.size());
    for (uint32_t rank = 0; rank + 1 < world.size(); ++rank) {
      ASSERT_TRUE(world.engine(rank).collective_calls().barrier(&requests[rank]).ok());
    }
    world.settle();
    for (uint32_t rank = 0; rank + 1 < world.size(); ++rank) EXPECT_FALSE(requests[rank]->done());
    ASSERT_TRUE(world.engine(world.size() - 1).collective_calls().barrier(&requests.back()).ok());
    EXPECT_TRUE(world.run_until_done(requests));
  }
}

TEST(EngineBarrier, SeveralAtOnceAreMatchedByOrder) {
  EngineWorld world(world_of({0, 0, 1}, 3));
  ASSERT_TRUE(world.commit({})[0].ok());
  std::vector<Request*> requests;
  for (uint32_t rank = 0; rank < world.size(); ++rank) {
    for (int i = 0; i < 5; ++i) {
      requests.push_back(nullptr);
      ASSERT_TRUE(world.engine(rank).collective_calls().barrier(&requests.back()).ok());
    }
  }
  EXPECT_TRUE(world.run_until_done(requests));
}

std::byte byte_at(uint32_t root, size_t index) {
  return static_cast<std::byte>(root * 31 + index * 7 + (index >> 8));
}

TEST(EngineBroadcast, FromEveryRootOfEverySize) {
  for (const Hosts& hosts : kLayouts) {
    EngineWorld world(world_of(hosts, 2 * hosts.size()));
    ASSERT_TRUE(world.commit({})[0].ok());
    for (const size_t bytes : {size_t{0}, size_t{1}, size_t{100'000}}) {
      for (uint32_t root = 0; root < world.size(); ++root) {
        std::vector<std::vector<std::byte>> buffers(world.size(), std::vector<std::byte>(bytes));
        for (size_t i = 0; i < bytes; ++i) buffers[root][i] = byte_at(root, i);
        for (const Status& status : world.everywhere([&](uint32_t rank, Request**request) {
               return world.engine(rank).collective_calls().broadcast(buffers[rank].data(), bytes,
                                                                      root, request);
             })) {
          ASSERT_TRUE(status.ok()) << status.message();
        }
        for (const auto& buffer : buffers) ASSERT_EQ(buffer, buffers[root]);
      }
    }
  }
}

// Given broadcasts from changing roots, of no bytes too, posted all at once, with one rank
// late.
TEST(EngineBroadcast, ManyPostedAtOnceWithALateRank) {
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    SeededRandom random(seed);
    const Hosts& hosts = kLayouts[1 + random.below(std::size(kLayouts) - 1)];
    EngineWorld world(world_of(hosts, seed));
    ASSERT_TRUE(world.commit({})[0].ok());
    constexpr uint32_t kBroadcasts = 8;
    uint32_t roots[kBroadcasts];
    size_t sizes[kBroadcasts];
    for (uint32_t i = 0; i < kBroadcasts; ++i) {
      roots[i] = static_cast<uint32_t>(random.below(world.size()));
      sizes[i] = random.chance(50) ? 0 : random.below(300);
    }
    const auto late = static_cast<uint32_t>(random.below(world.size()));
    std::vector<std::vector<std::vector<std::byte>>> buffers(world.size());
    std::vector<Request*> requests;
    const auto post = [&](uint32_t rank) {
      for (uint32_t i = 0; i < kBroadcasts; ++i) {
        std::vector<std::byte>& buffer = buffers[rank].emplace_back(sizes[i]);
        for (size_t at = 0; rank == roots[i] && at < sizes[i]; ++at) buffer[at] = byte_at(i, at);
      }
      for (uint32_t i = 0; i < kBroadcasts; ++i) {
        requests.push_back(nullptr);
        ASSERT_TRUE(world.engine(rank)
                        .collective_calls()
                        .broadcast(buffers[rank][i].data(), sizes[i], roots[i], &requests.back())
                        .ok());
      }
    };
    for (uint32_t rank = 0; rank < world.size(); ++rank) {
      if (rank != late) post(rank);
    }
    world.settle();
    post(late);
    ASSERT_TRUE(world.run_until_done(requests)) << "seed " << seed;
    for (const Request* request : requests) {
      ASSERT_TRUE(request->status.ok()) << "seed " << seed << ": " << request->status.message();
    }
    for (uint32_t i = 0; i < kBroadcasts; ++i) {
      for (uint32_t rank = 0; rank < world.size(); ++rank) {
        for (size_t at = 0; at < sizes[i]; ++at) ASSERT_EQ(buffers[rank][i][at], byte_at(i, at));
      }
    }
  }
}

// `other` says another size, or another root than the rest: itself, among others.
void expect_broadcast_mismatch(const Hosts& hosts, uint32_t other, uint32_t root, bool root_differs,
                               uint64_t bytes) {
  EngineWorld world(world_of(hosts, other + bytes));
  ASSERT_TRUE(world.commit({})[0].ok());
  std::vector<std::array<std::byte, 16>> buffers(hosts.size());
  const auto statuses = world.everywhere([&](uint32_t rank, Request** request) {
    const bool odd = rank == other;
    return world.engine(rank).collective_calls().broadcast(
        buffers[rank].data(), odd && !root_differs ? bytes + 1 : bytes,
        odd && root_differs ? (root + 1) % world.size() : root, request);
  });
  world.settle();
  for (uint32_t rank = 0; rank < world.size(); ++rank) {
    const Status& failure = world.engine(rank).failure();
    ASSERT_EQ(failure.code(), PARALLAX_MISMATCH)
        << hosts.size() << " ranks, root " << root << ", rank " << other << " differs in "
        << (root_differs ? "root" : "size") << "; rank " << rank << ": " << failure.message()
        << statuses[rank].message();
    EXPECT_TRUE(has(failure, "broadcast 1") && has(failure, "rank " + std::to_string(other)))
        << failure.message();
    // A rank may have had its bytes before the other came.
    EXPECT_TRUE(statuses[rank].ok() || statuses[rank].code() == PARALLAX_MISMATCH);
  }
}

TEST(EngineBroadcast, DifferentSizesOrRootsAreAMismatchEverywhere) {
  for (const Hosts& hosts : kLayouts) {
    const auto world = static_cast<uint32_t>(hosts.size());
    for (uint32_t other = 0; world > 1 && other < world; ++other) {
      for (uint32_t root = 0; root < world; ++root) {
        for (const uint64_t bytes : {uint64_t{0}, uint64_t{8}}) {
          expect_broadcast_mismatch(hosts, other, root, true, bytes);
          expect_broadcast_mismatch(hosts, other, root, false, bytes);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

// ---- disagreement

std::vector<Status> commit_with(EngineWorld& world,
                                const std::function<parallax_variable_t(uint32_t)>& variable_of) {
  for (uint32_t rank = 0; rank < world.size(); ++rank) {
    uint32_t id = 0;
    EXPECT_TRUE(
        world.engine(rank).job_calls().register_variable(dense_variable("same", 2, 2), &id).ok());
    EXPECT_TRUE(world.engine(rank).job_calls().register_variable(variable_of(rank), &id).ok());
  }
  return world.everywhere([&](uint32_t rank, Request** request) {
    return world.engine(rank).job_calls().commit(request);
  });
}

TEST(EngineCommit, DifferentRegistriesNameVariableFieldAndRanks) {
  for (const Hosts& hosts : kLayouts) {
    for (uint32_t other = 0; hosts.size() > 1 && other < hosts.size(); ++other) {
      EngineWorld world(world_of(hosts, other));
      const auto statuses = commit_with(world, [&](uint32_t rank) {
        return dense_variable("layer7.weight", rank == other ? 6 : 5, 3);
      });
      for (const Status& status : statuses) {
        ASSERT_EQ(status.code(), PARALLAX_MISMATCH) << status.message();
        EXPECT_TRUE(has(status, "layer7.weight") && has(status, "field rows") &&
                    has(status, "rank 0"))
            << status.message();
        EXPECT_TRUE(other == 0 || has(status, "rank " + std::to_string(other)));
      }
    }
  }
}

// Whatever they disagree on, each rank is told which field of which variable, and who.
TEST(EngineCommit, EveryRankLearnsTheField) {
  struct Case {
    const char* words;
    std::function<void(parallax_variable_t*)> change;
  };
  const Case cases[] = {
      {"field row_elements", [](auto* v) { v->row_elements = 4; }},
      {"field dtype", [](auto* v) { v->dtype = PARALLAX_BF16; }},
      {"field tag", [](auto* v) { v->tag = PARALLAX_AUTO; }},
      {"field rows_max", [](auto* v) { v->rows_max = 3; }},
      {"field reduction", [](auto* v) { v->reduction = PARALLAX_MEAN_WORLD; }},
      {"field rule", [](auto* v) { v->rule = PARALLAX_RULE_ADAGRAD; }},
      {"'ghost'", [](auto* v) { v->name = "ghost"; }},
  };
  for (const Case& each : cases) {
    for (uint32_t other = 0; other < 4; ++other) {
      EngineWorld world(world_of({0, 0, 1, 2}, other));
      const auto statuses = commit_with(world, [&](uint32_t rank) {
        parallax_variable_t variable = sparse_variable("table", 5, 3, 2, PARALLAX_RULE_SGD);
        if (rank == other) each.change(&variable);
        return variable;
      });
      for (const Status& status : statuses) {
        ASSERT_EQ(status.code(), PARALLAX_MISMATCH) << status.message();
        const bool named = has(status, "variable 'table'") || has(status, "and not on rank");
        EXPECT_TRUE(has(status, each.words) && named && has(status, "rank 0"))
            << each.words << ": " << status.message();
        EXPECT_TRUE(other == 0 || has(status, "rank " + std::to_string(other))) << status.message();
      }
    }
  }
}

// The same two variables in another order: each rank has its own ids.
TEST(EngineCommit, AnyOrderWillDo) {
  for (uint32_t other = 0; other < 3; ++other) {
    EngineWorld world(world_of({0, 1, 1}, other));
    const parallax_variable_t pair[] = {dense_variable("first", 2, 2),
                                        dense_variable("second", 2, 2)};
    for (uint32_t rank = 0; rank < world.size(); ++rank) {
      uint32_t id = 0;
      for (const int i : {0, 1}) {
        const parallax_variable_t& each = pair[rank == other ? 1 - i : i];
        EXPECT_TRUE(world.engine(rank).job_calls().register_variable(each, &id).ok());
        EXPECT_EQ(id, static_cast<uint32_t>(i)) << "by its own order";
      }
    }
    for (const Status& status : world.everywhere([&](uint32_t rank, Request**request) {
           return world.engine(rank).job_calls().commit(request);
         })) {
      ASSERT_TRUE(status.ok()) << status.message();
    }
  }
}

TEST(EngineCommit, DifferentOptionsAreNamed) {
  struct Case {
    const char* name;
    const char* value;
    std::function<void(EngineOptions*)> change;
  };
  const Case cases[] = {
      {"plan_mode", "has ar",
       [](EngineOptions* options) { options->plan_mode = PARALLAX_PLAN_AR; }},
      {"plan_after_steps", "has 99",
       [](EngineOptions* options) { options->plan_after_steps = 99; }},
      {"deterministic", "has 1", [](EngineOptions* options) { options->deterministic = true; }},
      {"staleness", "has 3", [](EngineOptions* options) { options->staleness = 3; }},
      {"staleness", "has PARALLAX_ASYNC",
       [](EngineOptions* options) { options->staleness = StepWindow::kAsync; }},
      {"slots", "has 5",
       [](EngineOptions* options) { options->view.slots = SlotMap::of_ranks(5, 1); }},
  };
  for (const Case& each : cases) {
    for (uint32_t other = 0; other < 5; ++other) {
      WorldOptions options = world_of({0, 0, 0, 1, 2}, other);
      options.adjust = [&](uint32_t rank, EngineOptions* engine) {
        if (rank == other) each.change(engine);
      };
      EngineWorld world(options);
      for (const Status& status : world.commit({})) {
        ASSERT_EQ(status.code(), PARALLAX_MISMATCH) << status.message();
        EXPECT_TRUE(has(status, each.name) && has(status, "rank " + std::to_string(other)) &&
                    has(status, each.value))
            << status.message();
      }
    }
  }
}

TEST(EngineStepEnd, DifferentLearningRatesDiscardTheStepEverywhere) {
  for (const Hosts& hosts : kLayouts) {
    if (hosts.size() == 1) continue;
    const uint32_t other = static_cast<uint32_t>(hosts.size()) / 2;
    EngineWorld world(world_of(hosts, 7));
    const parallax_variable_t variable = dense_variable("v", 2, 2, PARALLAX_RULE_SGD);
    ASSERT_TRUE(world.commit({&variable, 1})[0].ok());
    std::vector<std::vector<float>> gradients(world.size(), std::vector<float>(4, 1.0f));
    const auto step = [&](float rate_of_other) {
      return world.everywhere([&](uint32_t rank, Request** request) -> Status {
        Engine& engine = world.engine(rank);
        uint64_t number = 0;
        PARALLAX_RETURN_IF_ERROR(engine.step_calls().begin(&number));
        Request* push = nullptr;
        const parallax_slice_t slice = dense_slice(0, gradients[rank].data());
        PARALLAX_RETURN_IF_ERROR(engine.step_calls().push(number, {&slice, 1}, &push));
        return engine.step_calls().end(number, end_options(rank == other ? rate_of_other : 0.5f),
                                       request);
      });
    };
    for (const Status& status : step(0.25f)) {
      EXPECT_EQ(status.code(), PARALLAX_MISMATCH) << status.message();
      EXPECT_TRUE(has(status, "learning_rate 0.25") && has(status, "learning_rate 0.5") &&
                  has(status, "rank " + std::to_string(other)))
          << status.message();
    }
    for (const Status& status : step(0.5f)) EXPECT_TRUE(status.ok()) << "the job goes on";
    std::vector<float> pulled(4);
    uint64_t number = 0;
    for (const Status& status : world.everywhere([&](uint32_t rank, Request**request) -> Status {
           PARALLAX_RETURN_IF_ERROR(world.engine(rank).step_calls().begin(&number));
           const parallax_slice_t slice = dense_slice(0, pulled.data());
           return rank == 0 ? world.engine(0).step_calls().pull(number, {&slice, 1}, request)
                            : Status();
         })) {
      EXPECT_TRUE(status.ok()) << status.message();
    }
    EXPECT_EQ(pulled[3], -0.5f * static_cast<float>(world.size()))
        << "one step was applied, not two";
  }
}

// ---- the end

TEST(EngineAbort, ReachesEveryPendingCall) {
  for (const Hosts& hosts : kLayouts) {
    EngineWorld world(world_of(hosts, 5));
    const parallax_variable_t variable = sparse_variable("v", 9, 2, 4, PARALLAX_RULE_SGD);
    ASSERT_TRUE(world.commit({&variable, 1})[0].ok());
    const std::vector<int64_t> ids = {1, 2};
    std::vector<std::vector<float>> values(world.size(), std::vector<float>(4));
    std::vector<Request*> requests;
    const uint32_t last = world.size() - 1;
    for (uint32_t rank = 0; rank < last; ++rank) {
      Engine& engine = world.engine(rank);
      uint64_t number = 0;
      ASSERT_TRUE(engine.step_calls().begin(&number).ok());
      const parallax_slice_t slice = rows_slice(0, ids, values[rank].data());
      requests.insert(requests.end(), 4, nullptr);
      Request** posted = &requests[requests.size() - 4];
      ASSERT_TRUE(engine.step_calls().pull(number, {&slice, 1}, &posted[0]).ok());
      ASSERT_TRUE(engine.collective_calls().barrier(&posted[1]).ok());
      ASSERT_TRUE(
          engine.collective_calls()
              .broadcast(reinterpret_cast<std::byte*>(values[rank].data()), 8, 0, &posted[2])
              .ok());
      ASSERT_TRUE(engine.step_calls().end(number, end_options(1), &posted[3]).ok());
    }
    world.settle();
    world.engine(last).job_calls().abort("the loss is NaN");
    EXPECT_TRUE(world.run_until_done(requests));
    for (const Request* request : requests) {
      if (request->status.ok()) continue;  // done before: a pull of a host that was complete
      EXPECT_EQ(request->status.code(), PARALLAX_ABORTED);
      EXPECT_TRUE(has(request->status, "the loss is NaN") &&
                  has(request->status, "rank " + std::to_string(last)))
          << request->status.message();
    }
    for (uint32_t rank = 0; rank < last; ++rank) {
      EXPECT_FALSE(requests[4 * rank + 3]->status.ok()) << "step_end cannot have ended";
      EXPECT_EQ(world.engine(rank).failure().code(), PARALLAX_ABORTED);
    }
    for (const Status& status : world.everywhere([&](uint32_t rank, Request**request) {
           return world.engine(rank).job_calls().close(request);
         })) {
      EXPECT_EQ(status.code(), PARALLAX_ABORTED) << status.message();
    }
  }
}

TEST(EngineCancel, EndsTheJobEverywhereAndLeavesTheCompleteAlone) {
  EngineWorld world(world_of({0, 0, 1}, 9));
  ASSERT_TRUE(world.commit({})[0].ok());
  Request* barrier = nullptr;
  ASSERT_TRUE(world.engine(1).collective_calls().barrier(&barrier).ok());
  world.settle();
  world.engine(1).cancel(*barrier);
  world.settle();
  EXPECT_TRUE(barrier->done());
  EXPECT_EQ(barrier->status.code(), PARALLAX_CANCELED);
  for (uint32_t rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(world.engine(rank).failure().code(), PARALLAX_CANCELED);
    EXPECT_TRUE(has(world.engine(rank).failure(), "rank 1"));
  }
  EngineWorld other(world_of({0}, 1));
  ASSERT_TRUE(other.commit({})[0].ok());
  ASSERT_TRUE(other.engine(0).collective_calls().barrier(&barrier).ok());
  ASSERT_TRUE(other.run_until_done({&barrier, 1}));
  other.engine(0).cancel(*barrier);
  EXPECT_TRUE(barrier->status.ok());
  EXPECT_TRUE(other.engine(0).failure().ok()) << other.engine(0).failure().message();
}

TEST(EngineLoss, EverySurvivorNamesTheRankAndItsHost) {
  for (const Hosts& hosts : kLayouts) {
    for (uint32_t victim = 0; hosts.size() > 1 && victim < hosts.size(); ++victim) {
      EngineWorld world(world_of(hosts, victim));
      ASSERT_TRUE(world.commit({})[0].ok());
      world.settle();
      world.kill(victim);
      ASSERT_TRUE(world.run_until([&] {
        world.clock().advance(kNanosecondsPerMillisecond);
        for (uint32_t rank = 0; rank < world.size(); ++rank) {
          if (world.alive(rank) && world.engine(rank).failure().ok()) return false;
        }
        return true;
      })) << "victim "
          << victim << " of " << hosts.size();
      for (uint32_t rank = 0; rank < world.size(); ++rank) {
        if (!world.alive(rank)) continue;
        EXPECT_EQ(world.engine(rank).failure().code(), PARALLAX_PEER_LOST);
        EXPECT_TRUE(has(world.engine(rank).failure(), "rank " + std::to_string(victim) + " (host"))
            << world.engine(rank).failure().message();
      }
    }
  }
}

// A rank that is alive for its transport but says nothing.
TEST(EngineLoss, SilenceEndsWithTheLease) {
  WorldOptions options = world_of({0, 0, 1, 1}, 3);
  options.lease_ns = 100 * kNanosecondsPerMillisecond;
  EngineWorld world(options);
  ASSERT_TRUE(world.commit({})[0].ok());
  const uint32_t silent = 3;
  int64_t lost_after_ms = 0;
  for (int ms = 1; ms <= 400; ++ms) {
    world.clock().advance(kNanosecondsPerMillisecond);
    for (int pass = 0; pass < 2; ++pass) {
      for (uint32_t rank = 0; rank < 4; ++rank) {
        if (rank != silent || ms < 150) world.engine(rank).run();
      }
    }
    if (ms < 200) {
      for (uint32_t rank = 0; rank < 4; ++rank) {
        ASSERT_TRUE(world.engine(rank).failure().ok()) << "at " << ms << " ms";
      }
    }
    if (lost_after_ms == 0 && !world.engine(0).failure().ok()) lost_after_ms = ms - 150;
  }
  EXPECT_GE(lost_after_ms, 70);
  EXPECT_LE(lost_after_ms, 110);
  for (uint32_t rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(world.engine(rank).failure().code(), PARALLAX_PEER_LOST);
    EXPECT_TRUE(has(world.engine(rank).failure(), "rank 3 (host host1)"));
    EXPECT_TRUE(has(world.engine(rank).failure(), "lease of 100 ms"));
  }
}

TEST(EngineClose, WaitsForTheLastAndThenEveryoneMayGoInAnyOrder) {
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    SeededRandom random(seed);
    EngineWorld world(world_of(kLayouts[random.below(std::size(kLayouts))], seed));
    ASSERT_TRUE(world.commit({})[0].ok());
    std::vector<Request*> requests(world.size());
    const auto late = static_cast<uint32_t>(random.below(world.size()));
    for (uint32_t rank = 0; rank < world.size(); ++rank) {
      ASSERT_TRUE(rank == late || world.engine(rank).job_calls().close(&requests[rank]).ok());
    }
    world.settle();
    for (uint32_t rank = 0; rank < world.size(); ++rank) {
      ASSERT_TRUE(rank == late || !requests[rank]->done());
    }
    ASSERT_TRUE(world.engine(late).job_calls().close(&requests[late]).ok());
    // A rank whose close is done is destroyed at once, as its process would exit.
    uint32_t left = world.size();
    for (int pass = 0; pass < 100000 && left > 0; ++pass) {
      const auto rank = static_cast<uint32_t>(random.below(world.size()));
      if (!world.alive(rank)) continue;
      world.engine(rank).run();
      if (!requests[rank]->done()) continue;
      ASSERT_TRUE(requests[rank]->status.ok())
          << "seed " << seed << ", rank " << rank << ": " << requests[rank]->status.message();
      world.kill(rank);
      --left;
    }
    ASSERT_EQ(left, 0u) << "seed " << seed;
  }
}

}  // namespace
}  // namespace parallax::testkit
