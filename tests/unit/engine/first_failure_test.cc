// SPDX-License-Identifier: Apache-2.0
#include "engine/first_failure.h"

#include <gtest/gtest.h>

#include <string>

#include "message/told_failure.h"
#include "unit/engine/loss_world.h"

namespace parallax::testkit {
namespace {

TEST(FirstFailure, IsToldToAllAndStays) {
  LossWorld world(3);
  world.window.begin();
  world.window.end(1);
  world.window.decide();
  world.window.finish();
  EXPECT_TRUE(world.failure.job_goes_on());
  world.failure.abort({PARALLAX_ABORTED, "enough\n"});
  world.failure.lose(1, "later");
  EXPECT_FALSE(world.failure.job_goes_on());
  EXPECT_EQ(world.failure.status().code(), PARALLAX_ABORTED);
  const std::string& message = world.failure.status().message();
  EXPECT_EQ(message.find('\n'), std::string::npos) << "it is printable";
  EXPECT_NE(message.find("; last step committed here: 1. Close the job"), std::string::npos)
      << message;
  world.network.settle();
  ASSERT_EQ(world.sent.size(), 2u);
  for (const LossWorld::Sent& each : world.sent) {
    EXPECT_EQ(each.header.kind, SectionKind::kAbort);
    EXPECT_EQ(each.header.tag, 0u) << "the culprit";
    EXPECT_EQ(static_cast<int32_t>(each.header.first), PARALLAX_ABORTED);
    EXPECT_EQ(each.text.find("enough"), 0u);
    EXPECT_EQ(each.text.find("Close the job"), std::string::npos) << "each rank adds its own";
  }
  EXPECT_TRUE(world.transport.forgotten.empty());
}

Status burnt() { return internal("it burns").about_variable(0); }

void add(Registry& registry, const char* name) {
  Variable variable;
  variable.name = name;
  uint32_t id = 0;
  ASSERT_TRUE(registry.add(std::move(variable), &id).ok());
}

// Every rank numbers them itself.
TEST(FirstFailure, AVariableIsToldByItsName) {
  LossWorld world(2);
  add(world.registry, "table");
  world.failure.abort(burnt());
  EXPECT_EQ(world.failure.status().facts().variable, 0u);
  world.network.settle();
  ASSERT_EQ(world.sent.size(), 1u);
  ToldFailure told = ToldFailure::decode(world.sent[0].text);
  EXPECT_EQ(told.variable, "table");

  LossWorld other(2);
  add(other.registry, "first");
  add(other.registry, "table");
  other.failure.fail(told, PARALLAX_INTERNAL, SectionKind::kAbort, 1);
  EXPECT_EQ(other.failure.status().facts().variable, 1u);

  LossWorld without(2);
  without.failure.fail(told, PARALLAX_INTERNAL, SectionKind::kAbort, 1);
  EXPECT_EQ(without.failure.status().facts().variable, PARALLAX_NO_VARIABLE);
}

// A variable and a step of a part are its own: it takes them, and nobody else does.
TEST(FirstFailure, WhatAPartNamesIsThatPartsAlone) {
  LossWorld whole(3);
  add(whole.registry, "table");
  const auto part_of_whole = [&whole](uint32_t number) {
    return FirstFailure({.columns = whole.columns,
                         .clock = whole.clock,
                         .window = whole.window,
                         .membership = whole.membership,
                         .transport = whole.transport,
                         .outbox = whole.outbox(),
                         .registry = whole.registry,
                         .whole = &whole.failure,
                         .part = number});
  };
  FirstFailure part = part_of_whole(5), other = part_of_whole(6);
  ToldFailure told = {.sentence = "it burns", .facts = {}, .group = 5, .variable = "table"};
  told.facts.step = 7;
  whole.failure.fail(told, PARALLAX_INTERNAL, SectionKind::kAbort, 1);
  part.follow();
  other.follow();
  EXPECT_EQ(part.status().facts().variable, 0u);
  EXPECT_EQ(part.status().facts().step, 7u);
  for (const FirstFailure* each : {&whole.failure, &other}) {
    EXPECT_EQ(each->status().facts().variable, PARALLAX_NO_VARIABLE);
    EXPECT_EQ(each->status().facts().step, PARALLAX_NO_STEP);
  }
}

// Given a lost rank, expect its name, that the others are told and it is not.
TEST(FirstFailure, ALostRankIsForgotten) {
  LossWorld world(3);
  world.failure.lose(2, "gone");
  EXPECT_EQ(world.failure.status().code(), PARALLAX_PEER_LOST);
  EXPECT_EQ(world.failure.status().message(),
            "rank 2 (host host2) is lost: gone; seen by rank 0 (host host0); last step committed "
            "here: 0. Close the job; open a new one with the ranks that are left");
  const ErrorFacts& facts = world.failure.status().facts();
  EXPECT_EQ(facts.rank, 0u) << "it was found here";
  EXPECT_EQ(facts.peer, 2u);
  EXPECT_EQ(facts.host, "host2");
  EXPECT_EQ(facts.step_committed, 0u);
  EXPECT_EQ(world.transport.forgotten, std::vector<uint32_t>{2});
  world.network.settle();
  ASSERT_EQ(world.sent.size(), 1u);
  EXPECT_EQ(world.sent[0].to, 1u);
  EXPECT_EQ(world.sent[0].header.kind, SectionKind::kLost);
  EXPECT_EQ(world.sent[0].header.tag, 2u);
}

// Given a rank that this one is connected to and has never talked to, expect it to be told as well:
// should this one's process end now, it sees that, perhaps before it sees the culprit's end.
TEST(FirstFailure, IsToldToWhoIsConnected) {
  LossWorld world(3, {1});
  world.failure.lose(1, "gone");
  world.network.settle();
  ASSERT_EQ(world.sent.size(), 1u);
  EXPECT_EQ(world.sent[0].to, 2u);
  EXPECT_EQ(world.sent[0].header.tag, 1u);
}

TEST(FirstFailure, ThisRankIsTakenForLostAndACulpritMayBeAnyNumber) {
  LossWorld world(2);
  world.failure.fail(peer_lost("rank 0 is lost"), SectionKind::kLost, 0);
  EXPECT_EQ(world.failure.status().message().find("rank 0 is lost (this rank)"), 0u);
  LossWorld other(2);
  other.failure.fail(peer_lost(std::string(5000, 'x')), SectionKind::kLost, UINT32_MAX);
  EXPECT_TRUE(other.transport.forgotten.empty());
  other.network.settle();
  ASSERT_EQ(other.sent.size(), 1u);
  EXPECT_EQ(ToldFailure::decode(other.sent[0].text).sentence, std::string(512, 'x'));
}

TEST(FirstFailure, SpeaksUntilTheNoticeHasLeft) {
  LossWorld world(2);
  EXPECT_EQ(world.failure.next_deadline_ns(), kNever);
  world.failure.abort(invalid("enough"));
  EXPECT_TRUE(world.failure.speaking());
  EXPECT_EQ(world.failure.next_deadline_ns(), FirstFailure::kLastWordsNs);
  world.failure.close();
  EXPECT_TRUE(world.failure.speaking());
  EXPECT_EQ(world.failure.next_deadline_ns(), FirstFailure::kLastWordsNs) << "then it is looked at";
  world.network.settle();
  EXPECT_FALSE(world.failure.speaking());
  world.failure.said();
  EXPECT_EQ(world.failure.next_deadline_ns(), kNever);
}

TEST(FirstFailure, SpeaksNoLongerThanItMay) {
  LossWorld world(2);
  world.network.hold(0);
  world.failure.abort(invalid("enough"));
  world.network.settle();
  world.clock.now = FirstFailure::kLastWordsNs - 1;
  EXPECT_TRUE(world.failure.speaking());
  world.clock.now = FirstFailure::kLastWordsNs;
  EXPECT_FALSE(world.failure.speaking());
}

TEST(FirstFailure, AClosedJobDoesNotFail) {
  LossWorld world(2);
  world.failure.close();
  world.failure.lose(1, "gone");
  EXPECT_TRUE(world.failure.status().ok());
  EXPECT_FALSE(world.failure.job_goes_on());
  EXPECT_TRUE(world.outbox().idle());
}

TEST(FirstFailure, GivingUpNeedsNoMemoryAndTellsNobody) {
  LossWorld world(2);
  world.failure.give_up();
  EXPECT_EQ(world.failure.status().code(), PARALLAX_LIMIT);
  EXPECT_FALSE(world.failure.speaking());
  EXPECT_TRUE(world.outbox().idle());
}

}  // namespace
}  // namespace parallax::testkit
