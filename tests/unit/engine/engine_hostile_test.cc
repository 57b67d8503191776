// SPDX-License-Identifier: Apache-2.0
// A member that keeps to the protocol where that serves it, and takes nothing, asks for too much or
// speaks out of turn where it can: nobody reads what is freed, nobody else waits for it, and the
// sentence names it.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "group/vote.h"
#include "support/engine_world.h"
#include "support/stranger.h"

namespace parallax::testkit {
namespace {

constexpr uint32_t kForever = UINT32_MAX;  // polls without a credit
constexpr uint32_t kHostile = 1;

using Message = std::vector<std::byte>;

Message joined(std::span<const Segment> segments) {
  Message message;
  for (const Segment& segment : segments) {
    const auto* bytes = static_cast<const std::byte*>(segment.data);
    message.insert(message.end(), bytes, bytes + segment.bytes);
  }
  return message;
}

bool has_kind(const Message& message, SectionKind kind) {
  SectionReader reader(message);
  Section section;
  while (reader.next(&section)) {
    if (section.header.kind == kind) return true;
  }
  return false;
}

std::vector<std::byte> ask_of(uint64_t step, uint64_t row_count, uint32_t arrays) {
  const struct {
    uint64_t step, first_row, row_count;
    uint32_t arrays, listed;
  } ask = {step, 0, row_count, arrays, 0};
  const auto bytes = std::as_bytes(std::span(&ask, 1));
  return {bytes.begin(), bytes.end()};
}

SectionHeader header_of(SectionKind kind, uint32_t tag, uint64_t step) {
  SectionHeader header;
  header.kind = kind;
  header.tag = tag;
  header.step = step;
  return header;
}

void expect_blamed(EngineWorld& world, uint32_t rank) {
  const Status& failure = world.engine(0).failure();
  EXPECT_EQ(failure.code(), PARALLAX_INTERNAL) << failure.message();
  EXPECT_NE(failure.message().find("rank " + std::to_string(rank) + " (host"), std::string::npos)
      << failure.message();
}

// ---- memory that goes with a change of plan

// A variable with row ids that rank 0 gives as a whole in step 1: it is sharded in steps 1 and 2,
// and mirrored from step 3 on.
class Moving {
 public:
  static constexpr uint64_t kRows = 2000;

  Moving() : world({.hosts = {0, 1}, .message_bytes_max = 4096}) {
    std::vector<parallax_variable_t> all = {
        sparse_variable("moving", kRows, 2, kRows, PARALLAX_RULE_SGD)};
    for (const Status& status : world.commit(all)) EXPECT_TRUE(status.ok()) << status.message();
    world.settle();
  }

  Request* start_step(uint32_t rank) {
    Engine& engine = world.engine(rank);
    uint64_t step = 0;
    EXPECT_TRUE(engine.step_calls().begin(&step).ok());
    Request* push = nullptr;
    Request* end = nullptr;
    const parallax_slice_t slice = dense_slice(0, values_.data());
    if (rank == 0) {
      EXPECT_TRUE(engine.step_calls().push(step, {&slice, 1}, &push).ok());
    }
    EXPECT_TRUE(engine.step_calls().end(step, {}, &end).ok());
    return end;
  }

  EngineWorld world;

 private:
  std::vector<float> values_ = std::vector<float>(kRows * 2, 1.0f);
};

// What an honest rank sends rank 0 in each step.
std::vector<std::vector<Message>> record(int steps) {
  Moving honest;
  std::vector<std::vector<Message>> sent(static_cast<size_t>(steps));
  for (std::vector<Message>& in_step : sent) {
    honest.world.transport(kHostile).tap([&](uint32_t to, std::span<const Segment> segments) {
      if (to == 0) in_step.push_back(joined(segments));
    });
    Request* ends[] = {honest.start_step(0), honest.start_step(kHostile)};
    EXPECT_TRUE(honest.world.run_until_done(ends));
    honest.world.settle();
  }
  return sent;
}

// Numbers are asked for while the variable moves, and not taken before it is gone from where they
// are read.
void ask_and_take_later(const SectionHeader& header, std::span<const std::byte> payload) {
  const std::vector<std::vector<Message>> sent = record(2);
  Moving moving;
  EngineWorld& world = moving.world;
  Engine& engine = world.engine(0);
  Stranger stranger(world.take_over(kHostile));
  const auto settle = [&] {
    for (int i = 0; i < 50; ++i) {
      engine.run();
      stranger.poll();
    }
  };
  Request* end = moving.start_step(0);
  for (const Message& message : sent[0]) {
    stranger.replay(0, message);
    settle();
  }
  ASSERT_TRUE(end->done() && end->status.ok());
  end = moving.start_step(0);
  std::vector<Message> moves;
  for (const Message& message : sent[1]) {
    if (has_kind(message, SectionKind::kMigrate)) {
      moves.push_back(message);
      continue;
    }
    stranger.replay(0, message);
    settle();
  }
  ASSERT_FALSE(moves.empty());
  ASSERT_FALSE(end->done());
  world.transport(0).hold(kHostile, kForever);
  stranger.send_one(0, header, payload);
  settle();
  for (const Message& message : moves) {
    stranger.replay(0, message);
    settle();
  }
  ASSERT_TRUE(engine.failure().ok()) << engine.failure().message();
  EXPECT_FALSE(end->done()) << "what is to be sent lies in what the end of the step frees";
  EXPECT_NE(engine.reports().missing(*end).message().find("rank 1 (host host1) to take"),
            std::string::npos)
      << engine.reports().missing(*end).message();
  world.transport(0).hold(kHostile, 0);
  settle();
  ASSERT_TRUE(engine.failure().ok()) << engine.failure().message();
  EXPECT_TRUE(end->done() && end->status.ok() && end->info.plan_changed == 1);
}

TEST(EngineHostile, RowsAreAskedForAndTakenAfterTheMove) {
  ask_and_take_later(header_of(SectionKind::kRowsAsk, 0, 1), ask_of(0, Moving::kRows, 1));
}

TEST(EngineHostile, PullsAreAskedForAndTakenAfterTheMove) {
  const Partition partition(Moving::kRows, 2, true, SlotMap::of_ranks(2, kSlotsPerOwner), 0);
  SectionHeader header = header_of(SectionKind::kPullHost, 0, 2);
  header.encoding = Encoding::kIds;
  header.part = 7;
  std::vector<uint32_t> row_keys;
  for (uint64_t row = 0; row < 500; ++row) row_keys.push_back(partition.row_key_at(0, row));
  header.count = static_cast<uint32_t>(row_keys.size());
  ask_and_take_later(header, std::as_bytes(std::span(row_keys)));
}

// ---- plans

// What rank 0 sends in an empty step of two ranks with these variables.
std::vector<Message> said_by_rank_0(std::span<const parallax_variable_t> variables) {
  std::vector<Message> honest;
  EngineWorld world({.hosts = {0, 1}});
  EXPECT_TRUE(world.commit(variables)[0].ok());
  world.settle();
  world.transport(0).tap(
      [&](uint32_t, std::span<const Segment> segments) { honest.push_back(joined(segments)); });
  std::vector<Request*> ends(2);
  for (uint32_t rank = 0; rank < 2; ++rank) {
    uint64_t step = 0;
    EXPECT_TRUE(world.engine(rank).step_calls().begin(&step).ok());
    EXPECT_TRUE(world.engine(rank).step_calls().end(step, {}, &ends[rank]).ok());
  }
  EXPECT_TRUE(world.run_until_done(ends));
  return honest;
}

// Rank 0 decides plans: one that fits no such variable would move what is not there.
TEST(EngineHostile, PlansThatFitNoSuchVariable) {
  const VariablePlan sharded = {Placement::kSharded, Method::kPushPull};
  const std::vector<parallax_variable_t> all = {
      sparse_variable("a_rows", 20, 2, 6, PARALLAX_RULE_SGD),
      dense_variable("b_dense", 20, 2, PARALLAX_RULE_SGD), sparse_variable("c_held", 20, 2, 6)};
  const PlanEntry wrong[] = {{0, {Placement::kMirrored, Method::kAllreduce}, 1, 1, 1},
                             {0, {Placement::kSharded, Method::kReduceRows}, 1, 1, 1},
                             {0, {Placement::kMirrored, Method::kPushPull}, 1, 1, 1},
                             {0, {Placement::kMirrored, Method::kReduceRows}, NAN, 1, 1},
                             {1, sharded, 1, 1, 1},
                             {2, sharded, 1, 1, 1},
                             {3, sharded, 1, 1, 1},
                             {UINT32_MAX, sharded, 1, 1, 1}};
  const std::vector<Message> honest = said_by_rank_0(all);
  ASSERT_FALSE(honest.empty());
  for (size_t i = 0; i <= std::size(wrong) + 1; ++i) {
    Decision decision;
    decision.outcome = Outcome::kCommit;
    if (i < std::size(wrong)) {
      decision.entries[decision.entry_count++] = wrong[i];
    } else {
      decision.dense_variable = i == std::size(wrong) ? 1 : 3;
    }
    EngineWorld world({.hosts = {0, 1}});
    ASSERT_TRUE(world.commit(all)[0].ok());
    world.settle();
    Stranger stranger(world.take_over(0));
    Engine& engine = world.engine(1);
    uint64_t step = 0;
    Request* end = nullptr;
    ASSERT_TRUE(engine.step_calls().begin(&step).ok());
    ASSERT_TRUE(engine.step_calls().end(step, {}, &end).ok());
    // The other part of the reductions, as an honest rank sends it.
    for (const Message& message : honest) {
      SectionReader reader(message);
      Section section;
      while (reader.next(&section)) {
        if (section.header.kind == SectionKind::kTreeDown) continue;
        stranger.send_one(1, section.header, section.payload);
        world.settle();
      }
    }
    ASSERT_TRUE(engine.failure().ok()) << engine.failure().message();
    std::array<std::byte, kVoteBytesMax> bytes;
    const size_t used = encode_decision(decision, bytes);
    stranger.send_one(
        1, header_of(SectionKind::kTreeDown, static_cast<uint32_t>(TreeKind::kVote), step),
        std::span(bytes).first(used));
    world.settle();
    EXPECT_EQ(engine.failure().code(), PARALLAX_INTERNAL) << i;
    EXPECT_NE(engine.failure().message().find("rank 0 (host host0) sent"), std::string::npos)
        << i << ": " << engine.failure().message();
  }
}

// ---- too many rows

TEST(EngineHostile, RowsBeyondTheBoundNameTheirSender) {
  for (const bool deterministic : {false, true}) {
    EngineWorld world(
        {.hosts = {0, 0}, .plan_mode = PARALLAX_PLAN_PS, .deterministic = deterministic});
    const std::vector<parallax_variable_t> all = {
        sparse_variable("rows", 100, 2, 6, PARALLAX_RULE_SGD)};
    ASSERT_TRUE(world.commit(all)[0].ok());
    world.settle();
    Stranger stranger(world.take_over(kHostile));
    // Of the column of rank 0, twelve rows by one rank: room for all there is, but six are its own.
    const Partition partition(100, 2, true, SlotMap::of_ranks(2, kSlotsPerOwner), 0);
    std::vector<std::byte> payload(12 * (sizeof(uint32_t) + 2 * sizeof(float)));
    for (uint32_t i = 0; i < 12; ++i) {
      const uint32_t row_key = partition.row_key_at(0, 20 + i);
      std::memcpy(&payload[i * sizeof row_key], &row_key, sizeof row_key);
    }
    SectionHeader header = header_of(SectionKind::kLocalReduce, 0, 1);
    header.encoding = Encoding::kRows;
    header.count = 12;
    stranger.send_one(0, header, payload);
    uint64_t step = 0;
    ASSERT_TRUE(world.engine(0).step_calls().begin(&step).ok());
    std::vector<int64_t> ids;
    for (uint32_t i = 0; i < 6; ++i) {
      ids.push_back(static_cast<int64_t>(partition.row_of(partition.row_key_at(0, i))));
    }
    std::vector<float> values(12);
    const parallax_slice_t slice = rows_slice(0, ids, values.data());
    Request* push = nullptr;
    Request* end = nullptr;
    ASSERT_TRUE(world.engine(0).step_calls().push(step, {&slice, 1}, &push).ok());
    ASSERT_TRUE(world.engine(0).step_calls().end(step, {}, &end).ok());
    world.settle();
    expect_blamed(world, kHostile);
  }
}

// A block of a dense slice comes once, and does not take the room of another rank's.
TEST(EngineHostile, BlocksBeyondTheBoundNameTheirSender) {
  for (const bool deterministic : {false, true}) {
    EngineWorld world(
        {.hosts = {0, 0, 0}, .plan_mode = PARALLAX_PLAN_AR, .deterministic = deterministic});
    const std::vector<parallax_variable_t> all = {dense_variable("dense", 3000, 1)};
    ASSERT_TRUE(world.commit(all)[0].ok());
    world.settle();
    Stranger stranger(world.take_over(kHostile));
    const Partition partition(3000, 1, false, SlotMap::of_ranks(3, kSlotsPerOwner), 0);
    const Range range = partition.range_of(0);
    ASSERT_GT(range.count, 0u);
    SectionHeader header = header_of(SectionKind::kDenseReduce, 0, 1);
    header.encoding = Encoding::kDense;
    header.first = range.first;
    header.count = static_cast<uint32_t>(range.count);
    const std::vector<std::byte> payload(range.count * sizeof(float));
    stranger.send_one(0, header, payload);
    world.settle();
    EXPECT_TRUE(world.engine(0).failure().ok()) << world.engine(0).failure().message();
    stranger.send_one(0, header, payload);
    world.settle();
    expect_blamed(world, kHostile);
  }
}

// ---- broadcasts

TEST(EngineHostile, WhoIsNoChildIsNotReady) {
  constexpr uint64_t kBytes = 8;
  for (const uint8_t part : {0, 1}) {
    EngineWorld world({.hosts = {0, 1, 1}});
    ASSERT_TRUE(world.commit({})[0].ok());
    world.settle();
    Stranger stranger(world.take_over(2));  // whose parent is rank 1
    std::vector<std::byte> buffer(kBytes);
    Request* requests[2] = {};
    ASSERT_TRUE(
        world.engine(0).collective_calls().broadcast(buffer.data(), kBytes, 0, &requests[0]).ok());
    world.settle();
    SectionHeader header = header_of(SectionKind::kBroadcastReady, 0, 1);
    header.part = part;
    header.count = kBytes;
    stranger.send_one(0, header, std::as_bytes(std::span(&kBytes, 1)));
    world.settle();
    expect_blamed(world, 2);
  }
}

TEST(EngineHostile, AChildIsReadyOnce) {
  constexpr uint64_t kBytes = 8;
  for (const bool early : {false, true}) {
    EngineWorld world({.hosts = {0, 1, 2}});
    ASSERT_TRUE(world.commit({})[0].ok());
    world.settle();
    Stranger stranger(world.take_over(kHostile));
    std::vector<std::byte> buffer(kBytes);
    Request* request = nullptr;
    SectionHeader header = header_of(SectionKind::kBroadcastReady, 0, 1);
    header.count = kBytes;
    for (int i = 0; i < 2; ++i) {
      if (i == (early ? 1 : 0)) {
        ASSERT_TRUE(
            world.engine(0).collective_calls().broadcast(buffer.data(), kBytes, 0, &request).ok());
        world.settle();
      }
      EXPECT_TRUE(world.engine(0).failure().ok()) << world.engine(0).failure().message();
      stranger.send_one(0, header, std::as_bytes(std::span(&kBytes, 1)));
      world.settle();
    }
    expect_blamed(world, kHostile);
  }
}

// ---- asks

// Rank 2 evaluates rows of rank 0, which the hostile rank has asked before: for a step that never
// comes, or without taking the answer.
TEST(EngineHostile, NoAskWaitsForAnother) {
  constexpr uint64_t kRows = 9000;  // several portions
  for (const bool never : {false, true}) {
    EngineWorld world(
        {.hosts = {0, 1, 2}, .plan_mode = PARALLAX_PLAN_PS, .message_bytes_max = 4096});
    const std::vector<parallax_variable_t> all = {
        sparse_variable("rows", kRows, 2, 1000, PARALLAX_RULE_SGD)};
    ASSERT_TRUE(world.commit(all)[0].ok());
    world.settle();
    Stranger stranger(world.take_over(kHostile));
    if (!never) world.transport(0).hold(kHostile, kForever);
    stranger.send_one(0, header_of(SectionKind::kRowsAsk, 0, 1),
                      ask_of(never ? 1000000 : 0, kRows, 1));
    world.settle();
    const Partition partition(kRows, 2, true, SlotMap::of_ranks(3, kSlotsPerOwner), 0);
    std::vector<int64_t> ids;
    for (uint64_t i = 0; i < 1000; ++i) {
      ids.push_back(static_cast<int64_t>(partition.row_of(partition.row_key_at(0, i))));
    }
    std::vector<float> values(2 * ids.size(), -1.0f);
    const parallax_slice_t slice = rows_slice(0, ids, values.data());
    Request* request = nullptr;
    ASSERT_TRUE(world.engine(2).step_calls().pull(0, {&slice, 1}, &request).ok());
    ASSERT_TRUE(world.run_until_done({&request, 1}))
        << world.engine(2).reports().missing(*request).message();
    EXPECT_TRUE(request->status.ok()) << request->status.message();
    EXPECT_EQ(values, std::vector<float>(2 * ids.size()));
    // A second one before the answer to the first is none that a rank could make.
    stranger.send_one(0, header_of(SectionKind::kRowsAsk, 0, 2), ask_of(0, kRows, 1));
    world.settle();
    expect_blamed(world, kHostile);
  }
}

}  // namespace
}  // namespace parallax::testkit
