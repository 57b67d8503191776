// SPDX-License-Identifier: Apache-2.0
// Conformance cases of exchanges in which every rank keeps to the protocol.
#include <algorithm>
#include <set>

#include "support/sanitizers.h"
#include "unit/collectives/exchange_conformance.h"

namespace parallax::exchange_conformance {

namespace {

constexpr uint32_t kWorldThinned = 8;  // up to this world every layout is taken
const std::vector<SumType> kFloats = {SumType::kF32, SumType::kF64};

// As many ranks on each host as its turn says.
std::vector<uint32_t> in_turn(uint32_t world, const std::vector<uint32_t>& ranks_of_hosts) {
  std::vector<uint32_t> layout;
  for (uint32_t host = 0; layout.size() < world; ++host) {
    const size_t ranks = ranks_of_hosts[host % ranks_of_hosts.size()];
    layout.insert(layout.end(), std::min(ranks, world - layout.size()), host);
  }
  return layout;
}

std::vector<uint32_t> interleaved(uint32_t world, uint32_t hosts) {
  std::vector<uint32_t> layout;
  for (uint32_t rank = 0; rank < world; ++rank) layout.push_back(rank % hosts);
  return layout;
}

Setting setting_of(const Candidate& candidate, const Sweep& sweep,
                   const std::vector<uint32_t>& layout, bool ordered, uint64_t turn) {
  // Not in step with the turns of order and of sum type, so that all pairs come up.
  const size_t shape = sweep.shape < 0 ? turn / 2 + turn / 12 : static_cast<size_t>(sweep.shape);
  return {.hosts = layout,
          .shape = candidate.shapes[shape % candidate.shapes.size()],
          .sum = sweep.sums[turn / 3 % sweep.sums.size()],
          .ordered = ordered,
          .counted = candidate.rows && (sweep.all_counted || turn / 5 % 2 == 0),
          .variable = static_cast<uint32_t>(turn % 7),
          .message_bytes_max = sweep.message_bytes_max,
          .seed = turn};
}

// One step of all ranks with the contributions that `draw` makes.
void one_step_each(const Candidate& candidate, const Sweep& sweep, const Draw& draw) {
  for_each_setting(candidate, sweep, [&](const Setting& setting) {
    ExchangeWorld world(candidate, setting);
    const std::vector<Contributions> contributions = {
        draw_contributions(setting, draw, world.random())};
    run_steps(world, candidate, contributions, !draw.arbitrary);
  });
}

}  // namespace

std::vector<std::vector<uint32_t>> layouts_of(uint32_t world) {
  const std::set<std::vector<uint32_t>> each_once = {
      in_turn(world, {world}),   in_turn(world, {1}),    in_turn(world, {2}),
      in_turn(world, {4}),       in_turn(world, {3, 1}), in_turn(world, {1, 4}),
      in_turn(world, {3, 2, 1}), interleaved(world, 2),  interleaved(world, 3),
  };
  return {each_once.begin(), each_once.end()};
}

void for_each_setting(const Candidate& candidate, const Sweep& sweep, const Body& body) {
  const bool brief = testkit::kBrief;
  const uint32_t seeds = (brief ? 1 : sweep.seeds);
  const uint32_t thinned = sweep.thinned * (brief ? 4 : 1);
  uint64_t turn = 0;
  uint64_t asked = 0;
  uint64_t layouts = 0;
  const uint64_t orders = sweep.ordered.size();
  for (uint32_t world = sweep.world_min; world <= kWorldMax; ++world) {
    for (const std::vector<uint32_t>& layout : layouts_of(world)) {
      ++layouts;
      for (uint64_t i = 0; i < seeds * orders; ++i) {
        const bool ordered = sweep.ordered[i % orders];
        const Setting setting = setting_of(candidate, sweep, layout, ordered, ++turn);
        const uint32_t hosts = 1 + *std::max_element(layout.begin(), layout.end());
        if (candidate.applies && !candidate.applies(setting.shape, hosts, ordered)) continue;
        if (world > kWorldThinned) {
          const bool other_order = SeededRandom(layouts).below(orders) != i % orders;
          if (other_order || SeededRandom(turn).below(thinned) != 0) continue;
        } else if (brief && SeededRandom(turn).below(3) != 0) {
          continue;
        }
        ++asked;
        SCOPED_TRACE(setting.say());
        body(setting);
        if (testing::Test::HasFailure()) return;
      }
    }
  }
  EXPECT_TRUE(asked > 0 || sweep.ordered == std::vector<bool>{true}) << "it applies nowhere";
  if (asked == 0) GTEST_SKIP() << "it keeps no order";
}

// ---- what is given

// Given slices of every rank, expect their sum at its owners, and where it is delivered
// everywhere.
void everyone_contributes(const Candidate& candidate) { one_step_each(candidate, {}, {}); }

// Given numbers of every sum type, expect sums of that type.
void sums_in_every_type(const Candidate& candidate) {
  std::vector<SumType> sums = kFloats;
  if (candidate.integers) sums.insert(sums.end(), {SumType::kI32, SumType::kI64});
  for (const SumType sum : sums) {
    one_step_each(candidate, {.sums = {sum}, .thinned = 6}, {.absent_percent = 10});
  }
}

// Given floats whose sum depends on the order, expect the ranks of a host summed in local
// order, then the hosts in order, at any timing.
void ordered_sums_keep_their_order(const Candidate& candidate) {
  one_step_each(candidate, {.sums = kFloats, .ordered = {true}},
                {.arbitrary = true, .absent_percent = 10, .empty_percent = 5});
}

// Given slices of 16-bit floats, expect them summed as the floats that they are.
void narrow_slices_are_widened(const Candidate& candidate) {
  for (const uint32_t dtype : {uint32_t{PARALLAX_F16}, uint32_t{PARALLAX_BF16}}) {
    one_step_each(candidate, {.thinned = 6}, {.dtype = dtype});
  }
}

// Given a variable whose rows end in a count, expect the ranks that gave each row in it,
// however often one gave it.
void rows_count_their_ranks(const Candidate& candidate) {
  if (!candidate.rows) GTEST_SKIP() << "slices have no rows";
  one_step_each(candidate, {.sums = kFloats, .all_counted = true, .thinned = 2},
                {.absent_percent = 20, .empty_percent = 10});
}

// ---- what is not given

// Given ranks that end the step without a slice, and slices without rows, expect the others'
// sum.
void the_absent_count_as_nothing(const Candidate& candidate) {
  one_step_each(candidate, {}, {.absent_percent = 50, .empty_percent = 30});
}

// Given no slice at all, expect the end of the step, and that nothing was given.
void nobody_contributes(const Candidate& candidate) {
  one_step_each(candidate, {.thinned = 3}, {.absent_percent = 100});
}

// Given nothing but slices without rows, expect that they count as given, and that nothing is
// to be applied.
void slices_without_rows_are_given(const Candidate& candidate) {
  if (!candidate.rows) GTEST_SKIP() << "slices have no rows";
  one_step_each(candidate, {.thinned = 3}, {.absent_percent = 30, .empty_percent = 100});
}

// Given one rank alone that gives a slice, without rows, of a variable with fewer rows than ranks,
// expect every rank to know that it was given, in whatever order its news arrives.
void one_slice_without_rows_is_known(const Candidate& candidate) {
  if (!candidate.rows) GTEST_SKIP() << "slices have no rows";
  const Sweep sweep = {.seeds = 3, .shape = 2, .world_min = 6};
  for_each_setting(candidate, sweep, [&](const Setting& setting) {
    ExchangeWorld world(candidate, setting);
    Contributions contributions(world.size());
    Contribution& only = contributions[world.random().below(world.size())];
    only.contributed = true;
    only.dtype = dtype_of(setting.sum);
    run_step(world, 1, contributions);
    check_step(world, candidate, 1, contributions);
  });
}

// ---- steps after each other

// Given steps in which now these and now those contribute, two of them in flight, expect of
// each its own.
void steps_do_not_leak(const Candidate& candidate) {
  constexpr uint32_t kAbsentPercents[] = {0, 100, 60, 0, 30};
  for_each_setting(candidate, {.thinned = 4}, [&](const Setting& setting) {
    ExchangeWorld world(candidate, setting);
    std::vector<Contributions> contributions;
    for (const uint32_t absent : kAbsentPercents) {
      contributions.push_back(draw_contributions(
          setting, {.absent_percent = absent, .empty_percent = 20}, world.random()));
    }
    run_steps(world, candidate, contributions);
  });
}

// Given messages that hold a part of a slice, expect its sections to be summed as one, those
// of elements cut at whole grains.
void small_messages_split_sections(const Candidate& candidate) {
  uint32_t split = 0;
  const Sweep sweep = {
      .sums = kFloats, .message_bytes_max = kSmallMessageBytes, .shape = 1, .thinned = 3};
  for_each_setting(candidate, sweep, [&](const Setting& setting) {
    ExchangeWorld world(candidate, setting);
    world.tap([&](const Parcel& parcel) {
      const SectionHeader& header = parcel.header;
      const bool dense = header.encoding == Encoding::kDense;
      // Elements for several owners of a column have one last section among them.
      const bool whole = (header.flags & kSectionLast) != 0 || header.count == 0 ||
                         (dense && header.kind == SectionKind::kLocalReduce);
      split += whole ? 0 : 1;
      if (!dense || candidate.rows) return;
      const uint64_t end = header.first + header.count;
      EXPECT_EQ(header.first % kDenseGrain, 0u);
      EXPECT_TRUE(end % kDenseGrain == 0 || end == world.partition().elements()) << end;
    });
    run_steps(world, candidate,
              {draw_contributions(setting, {}, world.random()),
               draw_contributions(setting, {.absent_percent = 30}, world.random())});
  });
  // A brief sweep may have no slice of a chunk that is so long.
  EXPECT_TRUE(split > 0 || testkit::kBrief);
}

// ---- early and late

namespace {

// With the first shape a rank sums something, but for those that are to own nothing.
bool sums(const Candidate& candidate, const ExchangeWorld& world, uint32_t rank) {
  if (candidate.pieces != Pieces::kOwner) return false;
  if (!candidate.uneven_owners) return true;
  return candidate.rows ? world.partition().rows_owned(rank) > 0
                        : world.partition().range_of(rank).count > 0;
}

}  // namespace

// Given a rank that contributes after all others have ended, expect nothing reduced where its
// part is missed, then all.
void the_last_to_contribute_is_waited_for(const Candidate& candidate) {
  for_each_setting(candidate, {.shape = 0, .thinned = 2}, [&](const Setting& setting) {
    ExchangeWorld world(candidate, setting);
    const Contributions contributions = draw_contributions(setting, {}, world.random());
    const auto last = static_cast<uint32_t>(world.random().below(world.size()));
    for (uint32_t rank = 0; rank < world.size(); ++rank) {
      if (rank == last) continue;
      world.contribute(rank, 1, contributions[rank]);
      world.end(rank, 1);
    }
    world.run();
    for (uint32_t rank = 0; rank < world.size(); ++rank) {
      EXPECT_FALSE(sums(candidate, world, rank) && world.exchange(rank).state(1).reduced);
      EXPECT_FALSE(candidate.delivers && world.exchange(rank).state(1).delivered);
    }
    world.contribute(last, 1, contributions[last]);
    world.end(last, 1);
    world.run();
    check_step(world, candidate, 1, contributions);
  });
}

namespace {

// Every rank that somebody misses is the late one, or misses somebody itself, and that leads to the
// late one: so the error of a timeout never names the innocent.
void expect_named(ExchangeWorld& world, uint32_t late) {
  std::vector<std::vector<uint32_t>> missing;
  for (uint32_t rank = 0; rank < world.size(); ++rank) {
    const MissingRanks ranks = world.exchange(rank).missing(1);
    EXPECT_TRUE(ranks.to_give.empty() || ranks.to_return.empty());
    missing.push_back(ranks.to_give.empty() ? ranks.to_return : ranks.to_give);
    missing.back().insert(missing.back().end(), ranks.to_tell.begin(), ranks.to_tell.end());
  }
  std::vector<bool> leads(world.size());
  leads[late] = true;
  for (uint32_t round = 0; round < world.size(); ++round) {
    for (uint32_t rank = 0; rank < world.size(); ++rank) {
      leads[rank] = leads[rank] || std::any_of(missing[rank].begin(), missing[rank].end(),
                                               [&](uint32_t missed) { return leads[missed]; });
    }
  }
  bool named = false, waited = false;
  for (uint32_t rank = 0; rank < world.size(); ++rank) {
    for (const uint32_t missed : missing[rank]) {
      named |= missed == late;
      EXPECT_TRUE(leads[missed]) << "rank " << rank << " misses rank " << missed
                                 << ", which does not wait for rank " << late;
    }
    const ExchangeState state = world.exchange(rank).state(1);
    const bool done = state.reduced && state.delivered;
    EXPECT_TRUE(done || !missing[rank].empty()) << "rank " << rank << " misses nobody";
    waited |= !done && rank != late;
  }
  EXPECT_TRUE(named || !waited) << "nobody misses rank " << late;
}

}  // namespace

// Given a rank none of whose sections arrive, expect no other to be delivered, and all that
// is missed to lead to it; given its sections in the end, expect the sum.
void a_late_sender_is_named(const Candidate& candidate) {
  const Sweep sweep = {.shape = 0, .world_min = 2, .thinned = 2};
  for_each_setting(candidate, sweep, [&](const Setting& setting) {
    ExchangeWorld world(candidate, setting);
    const Contributions contributions =
        draw_contributions(setting, {.absent_percent = 10}, world.random());
    const auto late = static_cast<uint32_t>(world.random().below(world.size()));
    world.hold([late](const Parcel& parcel) { return parcel.from == late && parcel.to != late; });
    run_step(world, 1, contributions);
    for (uint32_t rank = 0; rank < world.size(); ++rank) {
      if (rank == late) continue;
      SCOPED_TRACE("rank " + std::to_string(rank) + ", late " + std::to_string(late));
      EXPECT_FALSE(sums(candidate, world, rank) && world.exchange(rank).state(1).reduced);
      EXPECT_FALSE(candidate.delivers && world.exchange(rank).state(1).delivered);
    }
    expect_named(world, late);
    world.hold(nullptr);
    world.run();
    check_step(world, candidate, 1, contributions);
  });
}

// Given a rank to which the way back is slow, and others that are a whole step ahead of it,
// expect both steps' sums.
void the_next_step_may_come_early(const Candidate& candidate) {
  for_each_setting(candidate, {.world_min = 2, .thinned = 2}, [&](const Setting& setting) {
    ExchangeWorld world(candidate, setting);
    const Contributions first = draw_contributions(setting, {.absent_percent = 20}, world.random());
    const Contributions second =
        draw_contributions(setting, {.absent_percent = 20}, world.random());
    const auto behind = static_cast<uint32_t>(world.random().below(world.size()));
    // Once all is reduced: a piece may be on its way back while others are still on their way
    // there.
    const auto all_reduced = [&world] {
      for (uint32_t rank = 0; rank < world.size(); ++rank) {
        if (!world.exchange(rank).state(1).reduced) return false;
      }
      return true;
    };
    world.hold([&all_reduced, behind](const Parcel& parcel) {
      const bool back = parcel.header.kind == SectionKind::kHostGather ||
                        parcel.header.kind == SectionKind::kLocalBroadcast ||
                        parcel.header.kind == SectionKind::kDenseGather;
      return parcel.to == behind && parcel.from != behind && back && all_reduced();
    });
    run_step(world, 1, first);
    EXPECT_FALSE(world.under_way_to(behind) > 0 && world.exchange(behind).state(1).delivered);
    for (uint32_t rank = 0; rank < world.size(); ++rank) {
      ASSERT_TRUE(world.exchange(rank).state(1).reduced);
      if (rank == behind) continue;
      world.contribute(rank, 2, second[rank]);
      world.end(rank, 2);
    }
    world.run();
    world.hold(nullptr);
    world.run();
    check_step(world, candidate, 1, first);
    world.contribute(behind, 2, second[behind]);
    world.end(behind, 2);
    world.run();
    check_step(world, candidate, 2, second);
  });
}

// ---- memory

// Given a variable, expect the memory that was foretold, reserved and laid out to be the
// same.
void memory_is_as_foretold(const Candidate& candidate) {
  size_t most = 0;
  for_each_setting(candidate, {.thinned = 4}, [&](const Setting& setting) {
    ExchangeWorld world(candidate, setting);
    for (uint32_t rank = 0; rank < world.size(); ++rank) {
      EXPECT_EQ(world.exchange(rank).arena().used_bytes(), world.foretold_bytes(rank));
      EXPECT_GE(world.exchange(rank).arena().reserved_bytes(), world.foretold_bytes(rank));
      most = std::max(most, world.foretold_bytes(rank));
    }
  });
  EXPECT_GT(most, 0u);
}

}  // namespace parallax::exchange_conformance
