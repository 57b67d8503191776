// SPDX-License-Identifier: Apache-2.0
// What a rank of a scenario calls, and in which order. See sim_rank.h.
#include <algorithm>
#include <utility>

#include "sim/sim_rank.h"

namespace parallax::simtest {

void SimRank::add(Act act, uint64_t step, uint64_t number) {
  Op op;
  op.act = act;
  op.step = step;
  op.number = number;
  script_.push_back(op);
}

void SimRank::add_wait(RequestKind kind, uint64_t step) {
  Op op;
  op.act = Act::kWaitKind;
  op.what = kind;
  op.step = step;
  script_.push_back(op);
}

void SimRank::think(SeededRandom& random) {
  if (scenario_.think_ns_max > 0 && random.chance(40)) {
    add(Act::kThink, 0, static_cast<uint64_t>(random.between(0, scenario_.think_ns_max)));
  }
}

void SimRank::write_script() {
  SeededRandom random = scenario_.random(10, rank_, 0);
  for (uint64_t step = 1; step <= scenario_.steps + 1; ++step) {
    write_commit(step, random);
    if (scenario_.barrier_before(step)) {
      add(Act::kBarrier, step);
      if (random.chance(50)) add_wait(RequestKind::kBarrier, step);
    }
    if (scenario_.broadcast_bytes(step) != UINT64_MAX) {
      add(Act::kBroadcast, step);
      if (random.chance(50)) add_wait(RequestKind::kBroadcast, step);
    }
    const size_t begin = script_.size();
    write_step(step, random);
    write_collectives(step, begin, random);
  }
  add(Act::kWaitAll, 0);
  think(random);
  add(Act::kClose, 0);
  add(Act::kWaitAll, 0);
}

// Ahead of a step. A later commit needs the steps before to be over, and no broadcast under way.
void SimRank::write_commit(uint64_t step, SeededRandom& random) {
  if (!scenario_.commit_before(step)) return;
  add_wait(RequestKind::kStepEnd, 0);
  // By chances of their own, so that a seed draws the rest as it did without them.
  if (scenario_.random(12, step, rank_).chance(50)) {
    add(Act::kWaitAll, step);
  } else {
    add_wait(RequestKind::kBroadcast, 0);
  }
  if (!scenario_.registered_before(step, rank_).empty()) add(Act::kRegister, step);
  think(random);
  add(Act::kCommit, step);
  add_wait(RequestKind::kCommit, 0);
}

// Anywhere among the acts of the step, which begin there. Those of one tag in their order, the tags
// in any; waited for, if at all, when nothing of the step is to come.
void SimRank::write_collectives(uint64_t step, size_t begin, SeededRandom& random) {
  const std::vector<testkit::CollectiveCase> cases = scenario_.collectives(step);
  std::vector<uint64_t> tags = {0, 1, 2};
  for (size_t i = tags.size(); i > 1; --i) std::swap(tags[i - 1], tags[random.below(i)]);
  size_t at = begin;
  for (const uint64_t tag : tags) {
    for (size_t i = 0; i < cases.size(); ++i) {
      if (cases[i].tag != tag) continue;
      at += random.below(script_.size() + 1 - at);
      Op op;
      op.act = Act::kCollective;
      op.step = step;
      op.number = i;
      script_.insert(script_.begin() + static_cast<ptrdiff_t>(at++), op);
    }
  }
  if (!cases.empty() && random.chance(50)) add_wait(RequestKind::kCollective, step);
}

void SimRank::add_pulls(uint64_t step, size_t first, size_t end, SeededRandom& random) {
  for (size_t i = first; i < end; ++i) {
    add(Act::kPull, step, i);
    if (random.chance(40)) add_wait(RequestKind::kPull, step);
    think(random);
  }
  if (first < end && random.chance(60)) add_wait(RequestKind::kPull, step);
}

void SimRank::write_step(uint64_t step, SeededRandom& random) {
  think(random);
  add(Act::kBegin, step);
  const size_t pulls = scenario_.pulls(step, rank_).size();
  const size_t early = random.chance(60) ? pulls : random.below(pulls + 1);
  add_pulls(step, 0, early, random);
  // Variables in a random order, in a few calls.
  std::vector<uint32_t> order(scenario_.variables.size());
  for (uint32_t i = 0; i < order.size(); ++i) order[i] = i;
  for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random.below(i)]);
  for (uint64_t group = 0, groups = 1 + random.below(3); group < groups; ++group) {
    for (const bool managed : {true, false}) {
      Op op;
      op.act = managed ? Act::kPush : Act::kReduce;
      op.step = step;
      for (size_t i = group; i < order.size(); i += groups) {
        const uint32_t variable = order[i];
        if (scenario_.managed(variable) == managed &&
            scenario_.contribution(step, rank_, variable).contributed) {
          op.list.push_back(variable);
        }
      }
      if (!op.list.empty()) script_.push_back(op);
    }
    think(random);
  }
  if (random.chance(30)) add_wait(RequestKind::kPush, step);
  if (scenario_.waits_in_step && random.chance(50)) add_wait(RequestKind::kReduce, step);
  add_pulls(step, early, pulls, random);
  if (scenario_.end_step == step && scenario_.abort_rank == rank_) add(Act::kAbort, step);
  add(Act::kEnd, step);
  if (scenario_.end_step == step && scenario_.cancel_rank == rank_) add(Act::kCancel, step);
  const uint64_t open = 1 + uint64_t{scenario_.staleness};  // beside the next one
  if (!scenario_.pipelined || random.chance(20)) {
    add_wait(RequestKind::kStepEnd, step);
  } else if (step > open) {
    add_wait(RequestKind::kStepEnd, step - open);
  }
}

}  // namespace parallax::simtest
