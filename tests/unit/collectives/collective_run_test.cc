// SPDX-License-Identifier: Apache-2.0
// The way of many numbers, without reports: every kind on several layouts against one process,
// ranks that start late, and sections that no rank may send.
#include "collectives/collective_run.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "support/collective_case.h"
#include "support/host_map_of.h"
#include "support/outbox_world.h"

namespace parallax::testkit::runs {
namespace {

// One rank's part of one collective.
struct Part {
  Part(const HostMap& hosts, const CollectiveCase& of, uint32_t rank, Outbox& outbox, bool ordered)
      : columns(hosts, rank),
        buffers(of, rank),
        what(buffers.collective(5)),
        algorithms(hosts),
        run(columns, outbox, what, algorithms, ordered) {
    EXPECT_TRUE(run.reserve(&pending).ok());
  }
  bool on_section(uint32_t from, const Section& section) { return run.on_section(from, section); }

  Columns columns;
  CollectiveBuffers buffers;
  Collective what;
  uint32_t pending = 0;
  AlgorithmChoice algorithms;
  CollectiveRun run;
};

TEST(CollectiveRun, EveryKindWithRanksThatStartLate) {
  const std::vector<std::vector<uint32_t>> layouts = {
      {0}, {0, 0, 0}, {0, 1}, {0, 1, 0, 1, 2}, {0, 0, 0, 0, 1, 1, 1, 1}};
  SeededRandom random(1);
  for (const auto& layout : layouts) {
    const HostMap hosts = host_map(layout);
    const auto world_size = static_cast<uint32_t>(layout.size());
    for (uint32_t kind = PARALLAX_ALLREDUCE; kind <= PARALLAX_GATHER; ++kind) {
      for (int trial = 0; trial < 12; ++trial) {
        CollectiveCase of = CollectiveCase::draw(random.fork(random.next()), world_size);
        of.kind = kind;
        if (!of.takes_op()) of.op = PARALLAX_OP_SUM;
        of.draw_counts(of.count / world_size);
        OutboxWorld<Part> world(world_size, [&](uint32_t rank, Outbox& outbox) {
          return std::make_unique<Part>(hosts, of, rank, outbox, trial % 2 == 0);
        });
        const auto late = static_cast<uint32_t>(random.below(world_size));
        for (uint32_t rank = 0; rank < world_size; ++rank) {
          if (rank != late) world.at(rank).run.start();
        }
        world.settle();
        world.at(late).run.start();
        world.settle();
        for (uint32_t rank = 0; rank < world_size; ++rank) {
          Part& part = world.at(rank);
          ASSERT_TRUE(part.run.moved()) << of.describe() << " rank " << rank;
          ASSERT_EQ(part.pending, 0u);
          ASSERT_TRUE(part.run.missing().empty());
          ASSERT_TRUE(part.run.give());
          ASSERT_EQ(part.buffers.check(), "");
        }
      }
    }
  }
}

// Of large results that do not come together where they are wanted a piece at a time is rounded, so
// that leases are kept meanwhile.
TEST(CollectiveRun, ResultsAreGivenInPieces) {
  for (const uint32_t dtype : {PARALLAX_F32, PARALLAX_BF16}) {
    const HostMap hosts = host_map({0, 1});
    const CollectiveCase of = {.world = 2,
                               .kind = PARALLAX_REDUCE_SCATTER,
                               .dtype = dtype,
                               .op = PARALLAX_OP_MEAN,
                               .count = CollectiveRun::kGiveNumbers + 3};
    OutboxWorld<Part> world(2, [&](uint32_t rank, Outbox& outbox) {
      return std::make_unique<Part>(hosts, of, rank, outbox, false);
    });
    for (uint32_t rank = 0; rank < 2; ++rank) world.at(rank).run.start();
    world.settle();
    for (uint32_t rank = 0; rank < 2; ++rank) {
      ASSERT_TRUE(world.at(rank).run.moved());
      EXPECT_FALSE(world.at(rank).run.give());
      EXPECT_TRUE(world.at(rank).run.give());
      EXPECT_TRUE(world.at(rank).run.give()) << "nothing is left";
      EXPECT_EQ(world.at(rank).buffers.check(), "");
    }
  }
}

// The sums of an exchange may go only when nothing of them is left to be packed: more than credits
// allow at a time.
TEST(CollectiveRun, PendingCountsSendsOfItsSums) {
  constexpr uint64_t kCount = 1 << 21;
  const HostMap hosts = host_map({0, 1});
  // Rank 0 gets nothing back, so that it has moved all before all is packed.
  const CollectiveCase of = {
      .world = 2, .kind = PARALLAX_REDUCE, .dtype = PARALLAX_BF16, .root = 1, .count = kCount};
  OutboxWorld<Part> world(2, [&](uint32_t rank, Outbox& outbox) {
    return std::make_unique<Part>(hosts, of, rank, outbox, false);
  });
  for (uint32_t rank = 0; rank < 2; ++rank) world.at(rank).run.start();
  bool seen = false;  // all moved, not all packed
  for (int pass = 0; pass < 1000; ++pass) {
    world.pass(1);
    world.pass(0);
    Part& part = world.at(0);
    if (!part.run.moved()) continue;
    // Its share of the one half, and the sums of the other, which go ahead of it.
    const uint64_t packed = world.packed(0, SectionKind::kCollectiveReduce).payload_bytes +
                            world.packed(0, SectionKind::kCollectiveGather).payload_bytes;
    EXPECT_EQ(part.pending == 0, packed == kCount * bytes_of_dtype(PARALLAX_BF16));
    if (part.pending == 0) break;
    seen = true;
  }
  EXPECT_TRUE(seen);
  EXPECT_EQ(world.at(0).pending, 0u);
}

TEST(CollectiveRun, WhatDoesNotFitIsRefused) {
  const HostMap hosts = host_map({0, 1, 2});
  CollectiveCase of = {.world = 3, .kind = PARALLAX_ALLGATHER, .dtype = PARALLAX_F16, .count = 600};
  OutboxWorld<Part> world(3, [&](uint32_t rank, Outbox& outbox) {
    return std::make_unique<Part>(hosts, of, rank, outbox, false);
  });
  Part& part = world.at(0);
  const std::vector<std::byte> bytes(2 * 600 + 2);
  const auto take = [&](uint32_t from, uint64_t first, uint32_t count, SectionKind kind,
                        uint8_t flags = 0) {
    const SectionHeader header = {.kind = kind,
                                  .encoding = Encoding::kDense,
                                  .flags = flags,
                                  .step = 5,
                                  .first = first,
                                  .count = count,
                                  .payload_bytes = count * 2};
    return part.on_section(from, {header, std::span(bytes).first(count * 2)});
  };
  EXPECT_FALSE(take(1, 600, 600, SectionKind::kDenseGather));
  EXPECT_FALSE(take(1, 600, 600, SectionKind::kCollectiveReduce));
  EXPECT_FALSE(take(1, 0, 600, SectionKind::kCollectiveGather)) << "this rank's own";
  EXPECT_FALSE(take(2, 600, 600, SectionKind::kCollectiveGather)) << "of another rank";
  EXPECT_FALSE(take(1, 601, 10, SectionKind::kCollectiveGather)) << "not the next";
  EXPECT_FALSE(take(1, 600, 601, SectionKind::kCollectiveGather)) << "more than there is";
  EXPECT_FALSE(take(1, 600, 0, SectionKind::kCollectiveGather, kSectionLast)) << "nothing";
  EXPECT_TRUE(take(1, 600, 256, SectionKind::kCollectiveGather));
  EXPECT_FALSE(take(1, 600, 256, SectionKind::kCollectiveGather)) << "again";
  EXPECT_TRUE(take(1, 856, 344, SectionKind::kCollectiveGather));
  EXPECT_EQ(part.run.missing().to_return, (std::vector<uint32_t>{2}));
}

}  // namespace
}  // namespace parallax::testkit::runs
