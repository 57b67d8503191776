// SPDX-License-Identifier: Apache-2.0
// Steps of whole groups over a network of sections, without engines or requests: what is voted,
// decided and applied, when a step may end, and which decisions are refused.
#include "group/step_pipeline.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <utility>
#include <vector>

#include "unit/group/step_world.h"

namespace parallax::testkit {
namespace {

float sum_of(uint32_t world) { return static_cast<float>(world * (world + 1) / 2); }

TEST(StepPipeline, EveryRankAppliesTheSumOfAll) {
  for (const auto& hosts : layouts()) {
    StepWorld world(hosts);
    for (uint64_t step = 1; step <= 4; ++step) {
      world.step();
      for (uint32_t rank = 0; rank < world.size(); ++rank) {
        ASSERT_EQ(world[rank].finished.size(), step) << "rank " << rank;
        EXPECT_EQ(world[rank].finished.back(), step);
        EXPECT_EQ(world.value(rank), -static_cast<float>(step) * sum_of(world.size()));
        EXPECT_EQ(world.decision(rank, step).outcome, Outcome::kCommit);
        EXPECT_EQ(world.decision(rank, step).contributors, world.size());
        EXPECT_TRUE(world[rank].pipeline.window().between_steps());
      }
    }
  }
}

// Given rows that stay in another rank's memory until they are applied, expect a step whose rank
// has lost sight of them to go no further, neither with its norm nor with its update, until its
// loss would be told; here it sees them again.
TEST(StepPipeline, RowsThatStayAreReadWhileTheyAreThere) {
  SharedHost shared(2);
  StepWorld world({0, 0}, managed("rows", StepWorld::kElements / 2, StepWorld::kElements / 2), 0,
                  &shared);
  // Each gives what the other owns.
  std::vector<std::vector<int64_t>> ids(2);
  const Partition& partition = world[0].group.runtime(0).owned_gradient;
  for (uint64_t id = 0; id < partition.rows(); ++id) {
    const uint32_t owner = partition.owner_of(partition.row_key_of(id));
    ids[1 - owner].push_back(static_cast<int64_t>(id));
  }
  const std::vector<float> ones(4, 1.0f);
  for (const bool before_the_vote : {true, false}) {
    const uint64_t step = before_the_vote ? 1 : 2;
    for (uint32_t rank = 0; rank < 2; ++rank) {
      ASSERT_EQ(world[rank].pipeline.begin(), step);
      const RowSlice rows = {.ids = {.wide = ids[rank].data()},
                             .count = static_cast<uint32_t>(ids[rank].size()),
                             .values = {reinterpret_cast<const std::byte*>(ones.data())}};
      world[rank].group.runtime(0).exchange_at(step).contribute(step, {.rows = rows},
                                                                &world[rank].pending);
    }
    world.end(0, step, {.learning_rate = 1});
    world.settle();
    ASSERT_EQ(world[0].pending + world[1].pending, 0u);
    const ReducedGradient part = world[0].group.runtime(0).exchange_at(step).owned(step);
    ASSERT_TRUE(part.row_count > 0 && part.places != nullptr) << "rows were copied";
    const auto set_unmapped = [&shared](bool unmapped) {
      shared.rank(0).unmapped = shared.rank(1).unmapped = unmapped;
    };
    set_unmapped(before_the_vote);
    world.end(1, step, {.learning_rate = 1});
    if (before_the_vote) {
      world.settle();
      EXPECT_TRUE(world[0].finished.empty() && world[1].finished.empty());
      EXPECT_FALSE(world[0].pipeline.state(1).voted && world[1].pipeline.state(1).voted);
      set_unmapped(false);
    }
    world.settle();
    for (uint32_t rank = 0; rank < 2; ++rank) EXPECT_EQ(world[rank].finished.size(), step);
  }
}

// The root's updates run at once, in its own turn: expect the others' decision to have left before.
TEST(StepPipeline, TheDecisionGoesOutBeforeTheUpdates) {
  struct Seen {
    StepWorld* world = nullptr;
    uint32_t updates = 0, kept_back = 0;
  } seen;
  Variable variable = managed("dense", StepWorld::kElements / 2);
  variable.rule = PARALLAX_RULE_CALLBACK;
  variable.own_rule = {.apply =
                           [](void* context, const parallax_rule_block_t*) {
                             Seen& all = *static_cast<Seen*>(context);
                             ++all.updates;
                             for (const uint32_t other : {1u, 2u}) {
                               all.kept_back += all.world->network().outbox(0).has_queued(other);
                             }
                             return 0;
                           },
                       .context = &seen};
  StepWorld world({0, 0, 0}, std::move(variable), 0);
  seen.world = &world;
  world.step();
  EXPECT_GT(seen.updates, 0u);
  EXPECT_EQ(seen.kept_back, 0u);
}

TEST(StepPipeline, OneRankWithInfinitiesDiscardsTheStep) {
  StepWorld world({0, 0, 1});
  world.step([](uint32_t rank, StepEnd* end) { end->found_inf = rank == 2; });
  for (uint32_t rank = 0; rank < world.size(); ++rank) {
    EXPECT_EQ(world[rank].finished, std::vector<uint64_t>{1});
    EXPECT_EQ(world.decision(rank, 1).outcome, Outcome::kDiscard);
    EXPECT_EQ(world.value(rank), 0.0f);
  }
}

TEST(StepPipeline, RanksThatDisagreeDiscardTheStepAndAreNamed) {
  StepWorld world({0, 0, 1});
  world.step([](uint32_t rank, StepEnd* end) { end->learning_rate = rank == 2 ? 2.0f : 1.0f; });
  for (uint32_t rank = 0; rank < world.size(); ++rank) {
    const Decision& decision = world.decision(rank, 1);
    EXPECT_EQ(decision.outcome, Outcome::kMismatch);
    EXPECT_TRUE((decision.first.rank == 2) != (decision.second.rank == 2));
    EXPECT_EQ(world.value(rank), 0.0f);
  }
}

TEST(StepPipeline, AbsentRanksDoNotContribute) {
  StepWorld world({0, 1, 1});
  world.step([](uint32_t rank, StepEnd* end) { end->absent = rank == 1; });
  for (uint32_t rank = 0; rank < world.size(); ++rank) {
    EXPECT_EQ(world.decision(rank, 1).contributors, 2u);
    EXPECT_EQ(world.value(rank), -4.0f);
  }
}

TEST(StepPipeline, TheNormOfTheSumClips) {
  StepWorld world({0, 1});
  world.step([](uint32_t, StepEnd* end) { end->clip_norm = 1; });
  const double norm = 3 * std::sqrt(static_cast<double>(StepWorld::kElements));
  for (uint32_t rank = 0; rank < world.size(); ++rank) {
    EXPECT_NEAR(world.decision(rank, 1).gradient_norm, norm, 1e-9);
    EXPECT_NEAR(world.value(rank), -3 / norm, 1e-5);
  }
}

// Given rates of two groups, expect the variable to be updated by those of its own.
TEST(StepPipeline, AVariableIsUpdatedByTheRatesOfItsGroup) {
  for (const auto& hosts : layouts()) {
    StepWorld world(hosts, 1);
    const auto rates = [](uint32_t, StepEnd* end) {
      end->learning_rate = 0;
      end->rates.count = 2;
      end->rates.groups[0] = {.learning_rate = 9, .weight_decay = 9};
      end->rates.groups[1] = {.learning_rate = 0.5f, .weight_decay = 0.25f, .maximize = 1};
    };
    const float gradient = sum_of(world.size());
    float value = 0;
    for (uint64_t step = 1; step <= 3; ++step) {
      world.step(rates);
      value -= 0.5f * (-gradient + 0.25f * value);
      for (uint32_t rank = 0; rank < world.size(); ++rank) EXPECT_EQ(world.value(rank), value);
    }
  }
}

TEST(StepPipeline, RatesThatDifferDiscardTheStepAndAreNamed) {
  for (const auto& hosts : layouts()) {
    StepWorld world(hosts);
    const uint32_t odd = world.size() - 1;
    if (odd == 0) continue;
    world.step([&](uint32_t rank, StepEnd* end) {
      end->rates.count = 2;
      end->rates.groups[1].weight_decay = rank == odd ? 0.5f : 0.25f;
    });
    for (uint32_t rank = 0; rank < world.size(); ++rank) {
      const Decision& decision = world.decision(rank, 1);
      EXPECT_EQ(decision.outcome, Outcome::kMismatch);
      EXPECT_EQ(decision.difference.any, 1u);
      EXPECT_EQ(decision.difference.group, 1u);
      EXPECT_STREQ(kRatesFields[decision.difference.field], "weight_decay");
      EXPECT_TRUE((decision.difference.first_rank == odd) !=
                  (decision.difference.second_rank == odd));
      EXPECT_EQ(world.value(rank), 0.0f);
    }
    // And the next one goes on.
    world.step();
    EXPECT_EQ(world.value(0), -sum_of(world.size()));
    // As many as the others, or none.
    world.step([&](uint32_t rank, StepEnd* end) { end->rates.count = rank == odd ? 1 : 2; });
    const Decision& decision = world.decision(0, 3);
    EXPECT_EQ(decision.outcome, Outcome::kMismatch);
    EXPECT_NE(decision.first.rates_count, decision.second.rates_count);
  }
}

// A group's clip comes first; what the global norm is of, is what it has left.
TEST(StepPipeline, AGroupClipsBeforeTheWhole) {
  const double norm = 3 * std::sqrt(static_cast<double>(StepWorld::kElements));
  const auto clipped = [](float group, float whole) {
    StepWorld world({0, 1}, 1);
    world.step([&](uint32_t, StepEnd* end) {
      end->clip_norm = whole;
      end->rates.count = 2;
      end->rates.groups[1] = {.learning_rate = 1, .clip_norm = group};
    });
    EXPECT_EQ(world.value(0), world.value(1));
    return std::pair(world.decision(1, 1), world.value(1));
  };
  const auto [group, by_group] = clipped(2, 0);
  EXPECT_NEAR(group.group_scales[1], 2 / norm, 1e-6);
  EXPECT_EQ(group.group_scales[0], 1);
  EXPECT_EQ(group.gradient_norm, 0);
  EXPECT_EQ(group.clip_scale, 1);
  EXPECT_NEAR(by_group, -3 * 2 / norm, 1e-5);
  const auto [both, by_both] = clipped(2, 1);
  EXPECT_NEAR(both.gradient_norm, 2, 1e-5);
  EXPECT_NEAR(both.clip_scale, 0.5, 1e-5);
  EXPECT_NEAR(by_both, -3 / norm, 1e-5);
  // What does not clip changes no bit.
  const auto [wide, by_none] = clipped(100, 0);
  EXPECT_EQ(wide.group_scales[1], 1);
  EXPECT_EQ(by_none, -3);
}

// Given a rank that is one step behind: the others end the next step, and nobody decides it.
TEST(StepPipeline, TwoStepsMayBeEndingAtATime) {
  StepWorld world({0, 0, 1});
  for (uint32_t rank = 1; rank < world.size(); ++rank) {
    for (uint64_t step = 1; step <= 2; ++step) {
      ASSERT_EQ(world[rank].pipeline.begin(), step);
      world.end(rank, step, {.learning_rate = 1, .absent = true});
    }
    EXPECT_FALSE(world[rank].pipeline.may_say_ended(2)) << "step 1 is not decided";
  }
  world.settle();
  for (uint32_t rank = 0; rank < world.size(); ++rank) {
    EXPECT_EQ(world[rank].pipeline.window().decided(), 0u);
  }
  for (uint64_t step = 1; step <= 2; ++step) {
    world[0].pipeline.begin();
    world.end(0, step, {.learning_rate = 1, .absent = true});
    world.settle();
    for (uint32_t rank = 0; rank < world.size(); ++rank) {
      EXPECT_EQ(world[rank].pipeline.window().finished(), step) << "rank " << rank;
    }
  }
}

TEST(StepPipeline, AStepEndsOnceAllThatWasCalledHasStarted) {
  StepWorld world({0});
  StepPipeline& pipeline = world[0].pipeline;
  EXPECT_FALSE(pipeline.may_say_ended(1)) << "it has not begun";
  pipeline.begin();
  EXPECT_FALSE(pipeline.may_say_ended(1)) << "it has not ended";
  pipeline.state(1).unstarted = 1;
  pipeline.state(1).pulls_left = 1;
  world.end(0, 1, {.learning_rate = 1});
  EXPECT_FALSE(pipeline.may_say_ended(1));
  pipeline.state(1).unstarted = 0;
  EXPECT_FALSE(pipeline.may_say_ended(1)) << "a pull is not answered";
  pipeline.state(1).pulls_left = 0;
  EXPECT_TRUE(pipeline.may_say_ended(1));
  world.settle();
  EXPECT_EQ(world[0].finished, std::vector<uint64_t>{1});
  EXPECT_FALSE(pipeline.may_say_ended(1)) << "it is over";
}

// Memory that a send of the step may read is not handed on before the send is packed.
TEST(StepPipeline, AStepIsFinishedOnceWhatItLentIsBack) {
  for (const bool sums : {false, true}) {
    StepWorld world({0, 1});
    StepState& state = world[1].pipeline.state(1);
    for (uint32_t rank = 0; rank < 2; ++rank) {
      world[rank].pipeline.begin();
      world.end(rank, 1, {.learning_rate = 1, .absent = true});
    }
    uint32_t& lent = sums ? state.sums_pending : state.contributions_open;
    lent = 1;
    world.settle();
    EXPECT_EQ(world[0].pipeline.window().finished(), 1u);
    EXPECT_EQ(world[1].pipeline.window().decided(), 1u);
    EXPECT_EQ(world[1].pipeline.window().finished(), 0u);
    lent = 0;
    world.settle();
    EXPECT_EQ(world[1].pipeline.window().finished(), 1u);
  }
}

TEST(StepPipeline, BeginForgetsTheStepWhoseStateItTakesOver) {
  StepWorld world({0});
  StepPipeline& pipeline = world[0].pipeline;
  for (uint64_t step = 1; step <= 3; ++step) {
    ASSERT_EQ(pipeline.begin(), step);
    StepState& state = pipeline.state(step);
    EXPECT_EQ(state.step, step);
    EXPECT_EQ(state.contributed, std::vector<Contributed>{Contributed::kNothing});
    EXPECT_EQ(state.dense_variable, kNoVariable);
    EXPECT_FALSE(state.voted);
    state.contributed[0] = Contributed::kAll;
    world.contribute(0, step, 1);
    world.end(0, step, {.learning_rate = 1});
    world.settle();
    ASSERT_EQ(pipeline.window().finished(), step);
  }
}

TEST(StepPipeline, RefusesVotesAndDecisionsThatCannotBeReadOrDoNotFit) {
  StepWorld world({0, 1});
  const std::byte bytes[5] = {};
  EXPECT_FALSE(world[0].pipeline.merge_vote(1, bytes));
  EXPECT_FALSE(world[1].pipeline.take_decision(bytes));
  world[1].pipeline.begin();
  world.end(1, 1, {.learning_rate = 1, .absent = true});
  Decision decision;
  decision.dense_variable = 0;  // which has no row ids
  std::array<std::byte, kVoteBytesMax> encoded;
  const size_t used = encode_decision(decision, encoded);
  EXPECT_FALSE(world[1].pipeline.take_decision(std::span(encoded).first(used)));
  EXPECT_EQ(world[1].pipeline.window().decided(), 0u);
}

// ---- votes to all

StepWorld held_world(const std::vector<uint32_t>& hosts) {
  return {hosts, held("dense", StepWorld::kElements / 2), 0};
}

// How many ranks tell all of them their votes: all, or the first of each host.
uint32_t voters_among(const std::vector<uint32_t>& hosts) {
  const auto count = static_cast<uint32_t>(std::set<uint32_t>(hosts.begin(), hosts.end()).size());
  return count == 1 ? static_cast<uint32_t>(hosts.size()) : count;
}

// Given a variable of the framework's and few ranks, expect steps decided everywhere alike, by one
// vote of each voter to each other, and without an answer but to ranks that are none.
TEST(StepPipeline, FewRanksVoteToAllWhereNothingIsManaged) {
  for (const auto& hosts : layouts()) {
    StepWorld world(hosts, held("dense", StepWorld::kElements / 2), 0);
    const uint32_t ranks = world.size();
    const uint32_t voters = voters_among(hosts);
    const bool to_all = voters > 1 && voters <= kVotesToAllMax;
    for (uint64_t step = 1; step <= 4; ++step) {
      world.step([&](uint32_t rank, StepEnd* end) {
        end->found_inf = step == 2 && rank == 0;
        end->absent = step == 3 && rank == ranks - 1;
      });
      for (uint32_t rank = 0; rank < ranks; ++rank) {
        EXPECT_EQ(world[rank].pipeline.votes_to_all(), to_all);
        ASSERT_EQ(world[rank].finished.size(), step) << "rank " << rank;
        const Decision& decision = world.decision(rank, step);
        EXPECT_EQ(decision.outcome, step == 2 ? Outcome::kDiscard : Outcome::kCommit);
        EXPECT_EQ(decision.contributors, step == 3 ? ranks - 1 : ranks);
      }
    }
    EXPECT_EQ(world.sections(SectionKind::kVote), to_all ? 4 * voters * (voters - 1) : 0);
    const uint32_t answered = to_all ? ranks - voters : ranks - 1;
    EXPECT_EQ(world.sections(SectionKind::kTreeDown), 4 * answered);
  }
}

// Given ranks that end a step of which others have given nothing yet, expect the votes of all of
// them, owners of sums too, to be with the others, and nobody to be through with the step before
// all have given.
TEST(StepPipeline, AVoteToAllWaitsForNoSum) {
  for (const auto& hosts : layouts()) {
    const uint32_t voters = voters_among(hosts);
    if (voters == 1 || voters > kVotesToAllMax) continue;
    StepWorld world = held_world(hosts);
    for (uint32_t rank = 0; rank < world.size(); ++rank) {
      for (uint32_t each = 0; each < rank; ++each) EXPECT_EQ(world[each].finished.size(), 0u);
      const uint64_t step = world[rank].pipeline.begin();
      world.contribute(rank, step, 1);
      world.end(rank, step, {.learning_rate = 1});
      world.settle();
      // Of which hosts the last rank has, where these vote.
      std::set<uint32_t> whole(hosts.begin(), hosts.begin() + rank + 1);
      for (uint32_t later = rank + 1; later < hosts.size(); ++later) whole.erase(hosts[later]);
      const size_t told = voters == hosts.size() ? rank + 1 : whole.size();
      EXPECT_EQ(world.sections(SectionKind::kVote), told * (voters - 1));
    }
    for (uint32_t rank = 0; rank < world.size(); ++rank) {
      EXPECT_EQ(world[rank].finished.size(), 1u);
      EXPECT_EQ(world.decision(rank, 1).contributors, world.size());
    }
  }
}

// Given that all have given all variables, expect nobody to tell anyone that none follows, unless
// somebody may wait for rows; of who has not, all of its host hear it.
TEST(StepPipeline, WhoGaveAllNeedNotSayThatItHasEnded) {
  for (const bool managed_one : {false, true}) {
    StepWorld world = managed_one ? StepWorld({0, 0, 0}) : held_world({0, 0, 0});
    uint64_t told = 0;
    for (uint64_t step = 1; step <= 4; ++step) {
      world.step([&](uint32_t rank, StepEnd* end) {
        end->absent = step > 2 && rank == 1;
        world[rank].pipeline.state(step).contributed[0] =
            end->absent ? Contributed::kNothing : Contributed::kAll;
      });
      told += managed_one ? 3 * 2 : step > 2 ? 2 : 0;
      EXPECT_EQ(world.sections(SectionKind::kStepEnded), told) << "step " << step;
      for (uint32_t rank = 0; rank < world.size(); ++rank) {
        ASSERT_EQ(world[rank].finished.size(), step) << "rank " << rank;
        EXPECT_EQ(world.decision(rank, step).contributors, step > 2 ? 2u : 3u);
      }
    }
  }
}

// Given ranks that say different things, expect every one to find it out by itself.
TEST(StepPipeline, RanksThatDisagreeAreFoundByAll) {
  for (const bool rates : {false, true}) {
    StepWorld world = held_world({0, 0, 1});
    world.step([&](uint32_t rank, StepEnd* end) {
      if (!rates) end->clip_norm = rank == 1 ? 2.0f : 1.0f;
      if (rates) end->rates.count = 2;
      if (rates) end->rates.groups[1].weight_decay = rank == 1 ? 0.5f : 0.25f;
    });
    for (uint32_t rank = 0; rank < world.size(); ++rank) {
      const Decision& decision = world.decision(rank, 1);
      EXPECT_EQ(decision.outcome, Outcome::kMismatch);
      if (rates) {
        EXPECT_EQ(decision.difference.group, 1u);
        EXPECT_TRUE((decision.difference.first_rank == 1) !=
                    (decision.difference.second_rank == 1));
      } else {
        EXPECT_TRUE((decision.first.rank == 1) != (decision.second.rank == 1));
      }
    }
    world.step();
    EXPECT_EQ(world.decision(2, 2).outcome, Outcome::kCommit) << "of the last step nothing is left";
  }
}

// Given votes that come twice, of a step that is not open, of no vote's bytes, or where nobody
// votes to all, expect each refused; and who has not voted to be known.
TEST(StepPipeline, RefusesVotesOfOthersThatCannotBe) {
  StepWorld world = held_world({0, 0, 0});
  StepPipeline& pipeline = world[0].pipeline;
  std::array<std::byte, kVoteBytesMax> bytes;
  Vote vote;
  vote.any = true;
  vote.scalars.rank = vote.pace.rank = 1;
  const auto payload = std::span<const std::byte>(bytes).first(encode_vote(vote, bytes));
  SectionHeader header = {.kind = SectionKind::kVote};
  const auto takes = [&](uint32_t from, uint64_t step, std::span<const std::byte> said) {
    header.step = step;
    return pipeline.take_vote(from, {header, said});
  };
  EXPECT_EQ(pipeline.voted_by_others(), 0u);
  EXPECT_FALSE(takes(1, 3, payload)) << "nobody is two steps ahead";
  EXPECT_FALSE(takes(1, 0, payload));
  EXPECT_TRUE(takes(1, 1, payload));
  EXPECT_FALSE(takes(1, 1, payload)) << "it came twice";
  EXPECT_FALSE(takes(2, 1, payload.first(7)));
  EXPECT_TRUE(takes(1, 2, payload));
  EXPECT_EQ(pipeline.voted_by_others(), 2u);
  header.part = 2;
  EXPECT_FALSE(takes(2, 2, payload));
  header.part = 1;
  EXPECT_FALSE(takes(1, 2, payload)) << "behind its vote";
  StepWorld other({0, 0, 0});
  header.part = 0;
  header.step = 1;
  EXPECT_FALSE(other[0].pipeline.take_vote(1, {header, payload}));
}

}  // namespace
}  // namespace parallax::testkit
