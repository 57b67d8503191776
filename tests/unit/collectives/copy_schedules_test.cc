// SPDX-License-Identifier: Apache-2.0
// Every builder for worlds of 1 to 64 ranks and several layouts: each rank ends with each number
// that it is to have, once, and nobody sends what its receiver does not expect.
#include "collectives/copy_schedules.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "base/seeded_random.h"
#include "support/host_map_of.h"
#include "unit/collectives/layouts.h"

namespace parallax::schedules {
namespace {

constexpr int64_t kNothing = -1;

// What is where, as numbers; ranges move whole, as soon as they are there.
class CopyRun {
 public:
  CopyRun(std::vector<Schedule> schedules, std::vector<std::vector<int64_t>> inputs,
          uint64_t elements)
      : schedules_(std::move(schedules)), inputs_(std::move(inputs)) {
    results_.assign(schedules_.size(), std::vector<int64_t>(elements, kNothing));
  }

  std::string run() {
    std::vector<std::vector<bool>> done;
    for (const Schedule& schedule : schedules_) done.emplace_back(schedule.ops.size());
    for (bool moved = true; moved;) {
      moved = false;
      for (uint32_t rank = 0; rank < schedules_.size(); ++rank) {
        for (size_t i = 0; i < schedules_[rank].ops.size(); ++i) {
          if (done[rank][i] || !advance(rank, schedules_[rank].ops[i])) continue;
          if (!wrong_.empty()) return wrong_;
          moved = done[rank][i] = true;
        }
      }
    }
    for (uint32_t rank = 0; rank < done.size(); ++rank) {
      if (std::find(done[rank].begin(), done[rank].end(), false) != done[rank].end()) {
        return "an operation of rank " + std::to_string(rank) + " never runs";
      }
    }
    return under_way_.empty() ? "" : "a message is never received";
  }
  const std::vector<int64_t>& result(uint32_t rank) const { return results_[rank]; }

 private:
  using Way = std::tuple<uint32_t, uint32_t, uint64_t>;  // from, to, first element

  uint64_t first_of(uint32_t rank, const Op& op) const {
    return schedules_[rank].pairwise ? 0 : op.range.first;
  }
  bool advance(uint32_t rank, const Op& op) {
    if (op.range.count == 0) wrong_ = "an empty range";
    if (op.kind == OpKind::kReceiveCopy) {
      const auto found = under_way_.find({op.peer, rank, first_of(rank, op)});
      if (found == under_way_.end()) return false;
      if (found->second.size() != op.range.count) wrong_ = "another range is sent than received";
      put(rank, op.range, found->second);
      under_way_.erase(found);
      return true;
    }
    std::vector<int64_t> values;
    for (uint64_t i = op.range.first; i < op.range.end(); ++i) {
      const bool input = op.from == kInput;
      values.push_back(input ? inputs_[rank].at(i - schedules_[rank].input_first)
                             : results_[rank].at(i));
      if (values.back() == kNothing) return false;
    }
    if (op.kind == OpKind::kCopy) {
      put(rank, op.range, values);
    } else if (!under_way_.emplace(Way{rank, op.peer, first_of(rank, op)}, values).second) {
      wrong_ = "two messages of one name";
    }
    return true;
  }
  void put(uint32_t rank, const Range& range, const std::vector<int64_t>& values) {
    for (uint64_t i = 0; i < range.count; ++i) {
      int64_t& to = results_[rank].at(range.first + i);
      if (to != kNothing) wrong_ = "a number comes twice";
      to = values[i];
    }
  }

  std::vector<Schedule> schedules_;
  std::vector<std::vector<int64_t>> inputs_, results_;
  std::map<Way, std::vector<int64_t>> under_way_;
  std::string wrong_;
};

void for_every_world(const std::function<void(const HostMap& hosts, uint32_t world)>& visit) {
  for (uint32_t world = 1; world <= 64; world = world < 12 ? world + 1 : world + 13) {
    if (skipped(world)) continue;
    for (const auto& layout : layouts(world)) visit(testkit::host_map(layout), world);
  }
}

int64_t number(uint32_t rank, uint64_t i) { return static_cast<int64_t>(rank * 100 + i); }

TEST(CopySchedules, GatherToAllAndToOne) {
  SeededRandom random(3);
  for_every_world([&](const HostMap& hosts, uint32_t world) {
    const auto root = static_cast<uint32_t>(random.below(world));
    std::vector<Range> given;
    std::vector<std::vector<int64_t>> inputs(world);
    std::vector<int64_t> whole;
    for (uint32_t rank = 0; rank < world; ++rank) {
      given.push_back({whole.size(), random.below(4)});
      for (uint64_t i = 0; i < given.back().count; ++i) {
        inputs[rank].push_back(number(rank, i));
        whole.push_back(number(rank, i));
      }
    }
    std::vector<Schedule> to_all, to_one;
    for (uint32_t rank = 0; rank < world; ++rank) {
      to_all.push_back(allgather_direct(Columns(hosts, rank), given));
      to_one.push_back(gather_direct(Columns(hosts, rank), root, given));
    }
    CopyRun all(std::move(to_all), inputs, whole.size());
    CopyRun one(std::move(to_one), inputs, whole.size());
    ASSERT_EQ(all.run(), "") << world;
    ASSERT_EQ(one.run(), "") << world;
    for (uint32_t rank = 0; rank < world; ++rank) ASSERT_EQ(all.result(rank), whole);
    ASSERT_EQ(one.result(root), whole);
  });
}

TEST(CopySchedules, BroadcastWithAndWithoutTheRootsCopy) {
  for_every_world([](const HostMap& hosts, uint32_t world) {
    for (const bool root_too : {false, true}) {
      const uint32_t root = world / 2;
      std::vector<Schedule> schedules;
      std::vector<std::vector<int64_t>> inputs(world);
      inputs[root] = {7, 8, 9};
      for (uint32_t rank = 0; rank < world; ++rank) {
        schedules.push_back(broadcast_tree(Columns(hosts, rank), root, 3, root_too));
      }
      CopyRun run(std::move(schedules), inputs, 3);
      ASSERT_EQ(run.run(), "") << world;
      for (uint32_t rank = 0; rank < world; ++rank) {
        if (rank == root && !root_too) continue;
        ASSERT_EQ(run.result(rank), inputs[root]);
      }
    }
  });
}

TEST(CopySchedules, AlltoallvMovesEveryPair) {
  SeededRandom random(5);
  for_every_world([&](const HostMap& hosts, uint32_t world) {
    std::vector<std::vector<uint64_t>> counts(world, std::vector<uint64_t>(world));
    for (auto& of : counts) {
      for (uint64_t& each : of) each = random.below(3);
    }
    std::vector<Schedule> schedules;
    std::vector<std::vector<int64_t>> inputs(world), expected(world);
    for (uint32_t rank = 0; rank < world; ++rank) {
      std::vector<uint64_t> received;
      for (const auto& of : counts) received.push_back(of[rank]);
      schedules.push_back(alltoallv_direct(Columns(hosts, rank), counts[rank], received));
      for (uint32_t to = 0; to < world; ++to) {
        for (uint64_t i = 0; i < counts[rank][to]; ++i) {
          inputs[rank].push_back(number(rank, inputs[rank].size()));
          // What a rank has for itself is not in it.
          expected[to].push_back(rank == to ? kNothing : inputs[rank].back());
        }
      }
    }
    CopyRun run(std::move(schedules), inputs, world * 2);
    ASSERT_EQ(run.run(), "") << world;
    for (uint32_t rank = 0; rank < world; ++rank) {
      expected[rank].resize(world * 2, kNothing);
      ASSERT_EQ(run.result(rank), expected[rank]);
    }
  });
}

}  // namespace
}  // namespace parallax::schedules
