// SPDX-License-Identifier: Apache-2.0
#include "group/variables_ahead.h"

#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "unit/group/group_world.h"

namespace parallax::testkit {
namespace {

// Of all calls the memory is the matter of this one alone.
class AskedExchange final : public Exchange {
 public:
  AskedExchange(uint32_t number, std::vector<std::pair<uint32_t, uint64_t>>* asked)
      : number_(number), asked_(asked) {}
  Status reserve() override { return {}; }
  size_t needed_bytes() override { return 0; }
  const Arena& arena() const override { return arena_; }
  void open(uint64_t) override {}
  void contribute(uint64_t, const Contribution&, uint32_t*) override {}
  void end(uint32_t, uint64_t) override {}
  bool on_section(uint32_t, const Section&) override { return false; }
  ExchangeState state(uint64_t) const override { return {}; }
  MissingRanks missing(uint64_t) const override { return {}; }
  ReducedGradient owned(uint64_t) const override { return {}; }
  ReducedGradient whole(uint64_t) const override { return {}; }
  ExchangeCounts counts(uint64_t) const override { return {}; }
  void prefetch(uint64_t step) const override { asked_->emplace_back(number_, step); }

 private:
  const uint32_t number_;
  std::vector<std::pair<uint32_t, uint64_t>>* const asked_;
  Arena arena_;
};

// Given a loop over so many variables, of which the last has another exchange from step 5 on:
// expect each to be asked of the memory once, three turns before its own, as it is in that step.
TEST(VariablesAhead, EachIsAskedForBeforeItsTurn) {
  constexpr uint32_t kAfterChange = 100;
  const Variable variable = managed("rows", 10, 4);
  const SlotMap ranks = a_slot_each(1);
  for (const uint32_t count : {1u, 2u, 3u, 4u, 5u, 9u}) {
    std::vector<std::pair<uint32_t, uint64_t>> asked;
    std::vector<std::unique_ptr<VariableRuntime>> runtimes;
    for (uint32_t i = 0; i < count; ++i) {
      auto& runtime =
          runtimes.emplace_back(std::make_unique<VariableRuntime>(i, variable, ranks, ranks));
      runtime->exchange = std::make_unique<AskedExchange>(i, &asked);
    }
    VariableRuntime& last = *runtimes.back();
    last.change.step = 5;
    last.change.exchange = std::make_unique<AskedExchange>(kAfterChange, &asked);
    for (const uint64_t step : {4u, 5u}) {
      for (uint32_t turn = 0; turn < count; ++turn) {
        asked.clear();
        prefetch_variables(turn, count, step, [&](size_t i) -> const VariableRuntime& {
          EXPECT_LT(i, count);
          return *runtimes[i];
        });
        const bool any = turn + 3 < count;
        ASSERT_EQ(asked.size(), any ? 1u : 0u) << turn << " of " << count;
        if (!any) continue;
        const bool changed = step == 5 && turn + 4 == count;
        EXPECT_EQ(asked[0].first, changed ? kAfterChange : turn + 3);
        EXPECT_EQ(asked[0].second, step);
      }
    }
  }
}

}  // namespace
}  // namespace parallax::testkit
