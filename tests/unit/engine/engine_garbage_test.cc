// SPDX-License-Identifier: Apache-2.0
// A peer that sends anything: the engine neither crashes nor reads beyond, and if it cannot use a
// section, it ends the job with a sentence that names the sender. For the sanitizers above all.
#include <gtest/gtest.h>

#include <cstring>
#include <numeric>

#include "support/engine_world.h"
#include "support/stranger.h"

namespace parallax::testkit {
namespace {

const std::vector<parallax_variable_t>& garbled_variables() {
  static const std::vector<parallax_variable_t> all = {
      sparse_variable("embedding", 20, 2, 6, PARALLAX_RULE_ADAGRAD),
      dense_variable("dense", 10, 60, PARALLAX_RULE_SGD), sparse_variable("held_rows", 9, 1, 4),
      dense_variable("held", 300, 1)};
  return all;
}

SectionHeader draw_header(SeededRandom& random) {
  SectionHeader header;
  header.kind = static_cast<SectionKind>(random.between(4, 21));
  header.encoding = static_cast<Encoding>(random.below(5));
  header.flags = static_cast<uint8_t>(random.below(4));
  header.part = static_cast<uint8_t>(random.chance(80) ? random.below(2) : random.next());
  header.tag = static_cast<uint32_t>(random.chance(90) ? random.below(6) : random.next());
  header.step = random.chance(90) ? random.below(4) : random.next();
  header.first = random.chance(60) ? 0 : random.chance(80) ? random.below(700) : random.next();
  return header;
}

TEST(EngineGarbage, NoSectionHarms) {
  uint32_t named = 0;
  for (uint64_t seed = 1; seed <= 1500; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    SeededRandom random(seed);
    const parallax_plan_mode_t modes[] = {PARALLAX_PLAN_HYBRID, PARALLAX_PLAN_PS, PARALLAX_PLAN_AR};
    EngineWorld world({.hosts = random.chance(50) ? std::vector<uint32_t>{0, 0, 1}
                                                  : std::vector<uint32_t>{0, 1, 1},
                       .plan_mode = modes[random.below(3)],
                       .deterministic = random.chance(50),
                       .seed = seed});
    ASSERT_TRUE(world.commit(garbled_variables())[0].ok());
    uint64_t step = 0;
    ASSERT_TRUE(world.engine(0).step_calls().begin(&step).ok());
    const std::vector<int64_t> ids = {1, 2, 3};
    std::vector<float> out(6);
    const parallax_slice_t slice = rows_slice(0, ids, out.data());
    Request* request = nullptr;
    ASSERT_TRUE(world.engine(0).step_calls().pull(step, {&slice, 1}, &request).ok());
    ASSERT_TRUE(random.chance(50) || world.engine(0).step_calls().end(step, {}, &request).ok());
    world.settle();
    const auto stranger_rank = static_cast<uint32_t>(random.between(1, 2));
    Stranger stranger(world.take_over(stranger_rank));
    for (int message = 0; message < 6 && world.engine(0).failure().ok(); ++message) {
      stranger.begin();
      for (uint64_t i = random.below(4); i > 0; --i) {
        SectionHeader header = draw_header(random);
        std::vector<std::byte> payload(random.chance(30) ? 0 : 4 * random.below(300));
        for (std::byte& byte : payload) {
          byte = random.chance(70) ? std::byte{} : static_cast<std::byte>(random.below(24));
        }
        header.payload_bytes = static_cast<uint32_t>(payload.size());
        const uint32_t counts[] = {header.payload_bytes, header.payload_bytes / 4,
                                   header.payload_bytes / 8, header.payload_bytes / 12,
                                   static_cast<uint32_t>(random.next())};
        header.count = counts[random.below(5)];
        stranger.add(header, payload);
      }
      stranger.send(0);
      world.engine(0).run();
    }
    const Status& failure = world.engine(0).failure();
    if (failure.ok()) continue;
    // Votes and broadcasts of nonsense may also look like ranks that disagree.
    if (failure.code() == PARALLAX_MISMATCH) continue;
    ASSERT_EQ(failure.code(), PARALLAX_INTERNAL) << failure.message();
    named += failure.message().find("rank " + std::to_string(stranger_rank)) != std::string::npos;
  }
  EXPECT_GT(named, 1000u);
}

// Rows of a variable that has none, in answer to a pull of another.
TEST(EngineGarbage, ValuesComeAsTheirVariableIs) {
  for (const auto& [variable, encoding] :
       {std::pair{0u, Encoding::kDense}, {0u, Encoding::kBytes}, {1u, Encoding::kValues}}) {
    EngineWorld world({.hosts = {0, 1}, .plan_mode = PARALLAX_PLAN_PS});
    ASSERT_TRUE(world.commit(garbled_variables())[0].ok());
    uint64_t step = 0;
    ASSERT_TRUE(world.engine(0).step_calls().begin(&step).ok());
    std::vector<int64_t> ids(6);
    std::iota(ids.begin(), ids.end(), 0);
    std::vector<float> out(600);
    const parallax_slice_t slice = rows_slice(0, ids, out.data());
    Request* request = nullptr;
    ASSERT_TRUE(world.engine(0).step_calls().pull(step, {&slice, 1}, &request).ok());
    Stranger stranger(world.take_over(1));
    world.settle();
    ASSERT_FALSE(request->done()) << "nothing was asked of rank 1";
    SectionHeader header;
    header.kind = SectionKind::kValuesHost;
    header.encoding = encoding;
    header.tag = variable;
    header.step = step;
    stranger.begin();
    stranger.add(header, {});
    stranger.send(0);
    world.engine(0).run();
    EXPECT_EQ(world.engine(0).failure().code(), PARALLAX_INTERNAL) << variable;
    EXPECT_NE(world.engine(0).failure().message().find("rank 1"), std::string::npos);
  }
}

TEST(EngineGarbage, OtherEpochsAndRepeatsAreDropped) {
  EngineWorld world({.hosts = {0, 1}});
  ASSERT_TRUE(world.commit(garbled_variables())[0].ok());
  world.settle();
  Stranger stranger(world.take_over(1));
  SectionHeader abort;
  abort.kind = SectionKind::kAbort;
  stranger.header.epoch = 99;  // another job's
  stranger.begin();
  stranger.add(abort, {});
  stranger.send(0);
  world.engine(0).run();
  EXPECT_TRUE(world.engine(0).failure().ok());
  stranger.header = {.epoch = 1, .sequence = 1};  // a repeat
  stranger.begin();
  stranger.add(abort, {});
  stranger.send(0);
  world.engine(0).run();
  EXPECT_TRUE(world.engine(0).failure().ok());
  EXPECT_NE(world.engine(0).reports().stats_json().find("\"dropped_messages\":2"),
            std::string::npos)
      << world.engine(0).reports().stats_json();
  stranger.header = {.epoch = 1, .sequence = 500};
  stranger.begin();
  stranger.add(abort, {});
  stranger.send(0);
  world.engine(0).run();
  EXPECT_EQ(world.engine(0).failure().code(), PARALLAX_ABORTED);
}

// The number of a message is 32 bits wide and comes round.
TEST(EngineGarbage, SequenceNumbersComeRound) {
  EngineWorld world({.hosts = {0, 1}});
  ASSERT_TRUE(world.commit({})[0].ok());
  world.settle();
  Stranger stranger(world.take_over(1));
  for (const uint32_t sequence : {0x7fff0000u, 0xfffe0000u, 0xffffffffu, 0u, 1u}) {
    stranger.header = {.epoch = 1, .sequence = sequence};
    stranger.begin();
    stranger.send(0);
    world.engine(0).run();
    EXPECT_NE(world.engine(0).reports().stats_json().find("\"dropped_messages\":0"),
              std::string::npos)
        << "at " << sequence;
  }
}

TEST(EngineGarbage, AMalformedMessageNamesItsSender) {
  EngineWorld world({.hosts = {0, 1}});
  ASSERT_TRUE(world.commit({})[0].ok());
  world.settle();
  Stranger stranger(world.take_over(1));
  stranger.begin();
  stranger.bytes.push_back(std::byte{1});
  stranger.send(0);
  world.engine(0).run();
  EXPECT_EQ(world.engine(0).failure().code(), PARALLAX_INTERNAL);
  EXPECT_NE(world.engine(0).failure().message().find("rank 1"), std::string::npos);
  EXPECT_NE(world.engine(0).failure().message().find("malformed"), std::string::npos);
}

// Given a member whose last words would drive a terminal, expect to read them, escaped.
TEST(EngineGarbage, WordsOfAMemberAreNoOrdersToATerminal) {
  for (const SectionKind kind : {SectionKind::kLost, SectionKind::kAbort}) {
    EngineWorld world({.hosts = {0, 1}});
    ASSERT_TRUE(world.commit(garbled_variables())[0].ok());
    world.settle();
    Stranger stranger(world.take_over(1));
    const std::string words = "rank 7 \x1b]0;owned\x07\x1b[2J went\naway";
    SectionHeader header;
    header.kind = kind;
    header.payload_bytes = static_cast<uint32_t>(words.size());
    stranger.begin();
    stranger.add(header, std::as_bytes(std::span(words)));
    stranger.send(0);
    world.engine(0).run();
    EXPECT_EQ(
        world.engine(0).failure().message().find("rank 7 \\x1b]0;owned\\x07\\x1b[2J went away"), 0u)
        << world.engine(0).failure().message();
  }
}

}  // namespace
}  // namespace parallax::testkit
