// SPDX-License-Identifier: Apache-2.0
// A caller's own rule through the C ABI: ranks of two hosts as threads, whose function does what
// rules of the library do, on several threads at once; and how it fails.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cfenv>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "parallax/parallax.hpp"
#include "support/own_rules.h"
#include "support/rank_threads.h"

namespace own_rule {
namespace {

using parallax::Error;
using parallax::Job;
using parallax::Request;
using parallax::sized;
using parallax::testkit::OwnRule;

constexpr uint32_t kWorld = 3;
constexpr uint64_t kTableRows = 50;
constexpr uint64_t kColumns = 4;

void on_two_hosts(parallax_plan_mode_t mode, uint32_t threads,
                  const std::function<void(uint32_t, Job&)>& body) {
  parallax::testkit::on_ranks(kWorld, body, [&](uint32_t rank, parallax_options_t& options) {
    options.host = rank == 0 ? "left" : "right";
    options.plan_mode = mode;
    options.plan_after_steps = 2;
    options.deterministic = 1;
    options.compute_threads = threads;
  });
}

parallax_variable_t table(const char* name, uint32_t rule, bool ids) {
  auto variable = sized<parallax_variable_t>();
  variable.name = name;
  variable.rows = ids ? kTableRows : 2 * kTableRows;
  variable.row_elements = kColumns;
  variable.rows_max = ids ? 8 : 0;
  variable.rule = rule;
  variable.init = PARALLAX_INIT_UNIFORM;
  variable.init_high = 1;
  return variable;
}

// Some gradients of a rank and a step, into both of each pair of variables.
void push(Job& job, uint64_t step, uint32_t rank, uint32_t variables) {
  std::vector<int64_t> ids(8);
  std::vector<float> values(2 * kTableRows * kColumns);
  for (size_t i = 0; i < ids.size(); ++i) {
    ids[i] = static_cast<int64_t>((7 * step + 5 * i + rank) % kTableRows);
  }
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = 0.37f * static_cast<float>((i * 31 + step * 17 + rank * 3) % 101) - 17;
  }
  std::vector<parallax_slice_t> slices;
  for (uint32_t variable = 0; variable < variables; ++variable) {
    auto slice = sized<parallax_slice_t>();
    slice.variable = variable;
    slice.values = values.data();
    if (variable < 4) {
      slice.form = PARALLAX_FORM_ROWS;
      slice.ids = ids.data();
      slice.row_count = ids.size();
    }
    slices.push_back(slice);
  }
  job.push(step, slices.data(), slices.size()).wait();
}

Request end(Job& job, uint64_t step) {
  auto options = sized<parallax_step_end_options_t>();
  auto rates = sized<parallax_rates_t>();
  rates.learning_rate = 0.125f;
  rates.weight_decay = 0.0625f;
  rates.decoupled = step % 2;
  rates.maximize = step % 3 == 0 ? 1 : 0;
  rates.clip_norm = 90;
  options.clip_norm = 40;
  options.rates = &rates;
  options.rates_count = 1;
  return job.step_end(step, options);
}

struct KeptRows {
  std::vector<float> values, first, second;
  uint64_t updates = 0;
  bool operator==(const KeptRows&) const = default;
};

KeptRows read(Job& job, uint32_t variable, uint64_t row_count, uint32_t states) {
  KeptRows kept;
  auto rows = sized<parallax_rows_t>();
  rows.variable = variable;
  rows.row_count = row_count;
  kept.values.resize(row_count * kColumns);
  rows.values = kept.values.data();
  if (states > 0) {
    kept.first.resize(row_count * kColumns);
    rows.state[0] = kept.first.data();
  }
  if (states > 1) {
    kept.second.resize(row_count * kColumns);
    rows.state[1] = kept.second.data();
  }
  rows.updates = &kept.updates;
  job.read(rows).wait();
  return kept;
}

// Variables come in pairs, of which the first has the library's rule.
TEST(OwnRule, WhatALibrarysRuleDoesEndsAtItsBits) {
  const struct {
    parallax_plan_mode_t mode;
    uint32_t threads;
  } cases[] = {{PARALLAX_PLAN_HYBRID, 0},
               {PARALLAX_PLAN_PS, 2},
               {PARALLAX_PLAN_AR, 2},
               {PARALLAX_PLAN_AUTO, 1}};
  for (const auto& each : cases) {
    std::array<std::atomic<uint64_t>, 3> called = {};  // of all ranks: one may own nothing
    on_two_hosts(each.mode, each.threads, [&called](uint32_t rank, Job& job) {
      const parallax_variable_t library[] = {table("adam", PARALLAX_RULE_ADAM, true),
                                             table("adagrad", PARALLAX_RULE_ADAGRAD, true),
                                             table("dense adam", PARALLAX_RULE_ADAM, false)};
      std::deque<OwnRule> rules(3);
      for (int i = 0; i < 3; ++i) {
        job.register_variable(library[i]);
        const std::string name = std::string("own ") + library[i].name;
        parallax_variable_t own = rules[i].in_place_of(library[i]);
        own.name = name.c_str();
        job.register_variable(own);
      }
      job.commit();
      for (int i = 0; i < 6; ++i) {
        const uint64_t step = job.step_begin();
        push(job, step, rank, 6);
        end(job, step).wait();
      }
      for (uint32_t i = 0; i < 3; ++i) {
        const uint32_t states = library[i].rule == PARALLAX_RULE_ADAM ? 2 : 1;
        const KeptRows want = read(job, 2 * i, library[i].rows, states);
        EXPECT_EQ(want.updates, 6u);
        EXPECT_EQ(read(job, 2 * i + 1, library[i].rows, states), want) << library[i].name;
        EXPECT_EQ(rules[i].wrong, 0u);
        called[i] += rules[i].rows;
      }
    });
    for (const auto& rows : called) EXPECT_GT(rows, 0u);
  }
}

// What rules of the library make of two variables beside one whose rule rounds upwards and raises
// flags, if it does.
std::vector<KeptRows> trained_beside(bool rounds_upwards, uint32_t threads) {
  std::vector<KeptRows> kept;
  on_two_hosts(PARALLAX_PLAN_AR, threads, [&](uint32_t rank, Job& job) {
    const auto rule = [rounds_upwards](const parallax_rule_block_t&) {
      if (!rounds_upwards) return 0;
      return std::fesetround(FE_UPWARD) + std::feraiseexcept(FE_INVALID | FE_INEXACT);
    };
    parallax_variable_t own = table("own", PARALLAX_RULE_SGD, true);
    parallax::set_rule(own, rule);
    job.register_variable(own);
    const uint32_t adam = job.register_variable(table("adam", PARALLAX_RULE_ADAM, true));
    const uint32_t adagrad = job.register_variable(table("adagrad", PARALLAX_RULE_ADAGRAD, true));
    job.commit();
    for (int i = 0; i < 6; ++i) {
      const uint64_t step = job.step_begin();
      push(job, step, rank, 3);
      end(job, step).wait();
    }
    if (rank == 0) kept = {read(job, adam, kTableRows, 2), read(job, adagrad, kTableRows, 1)};
    job.barrier().wait();
  });
  return kept;
}

TEST(OwnRule, ThatChangesRoundingChangesNoOthersBits) {
  for (const uint32_t threads : {0u, 1u, 2u}) {
    const std::vector<KeptRows> want = trained_beside(false, threads);
    ASSERT_EQ(want.size(), 2u);
    EXPECT_EQ(trained_beside(true, threads), want) << threads << " compute threads";
  }
}

// Waits inside for the other variable's call, as long as no machine is slow.
struct Meeting {
  std::atomic<int> inside{0}, most{0}, of_one{0}, twice{0};
};
struct Guest {
  explicit Guest(Meeting* met) : meeting(met) {}
  Meeting* meeting;
  std::atomic<int> inside{0};
  int operator()(const parallax_rule_block_t&) {
    if (++inside > 1) ++meeting->twice;
    const int now = ++meeting->inside;
    if (now > meeting->most) meeting->most = now;
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (meeting->most < 2 && std::chrono::steady_clock::now() < until) {
      std::this_thread::yield();
    }
    --meeting->inside;
    --inside;
    return 0;
  }
};

TEST(OwnRule, SeveralVariablesAreUpdatedAtOnceAndEachByOneThread) {
  auto options = sized<parallax_options_t>();
  options.compute_threads = 2;
  options.lease_ms = 60'000;
  Job job(options);
  Meeting meeting;
  std::deque<Guest> guests;
  for (const char* name : {"a", "b"}) {
    parallax_variable_t variable = table(name, PARALLAX_RULE_SGD, false);
    variable.rows = 2000;  // several blocks
    parallax::set_rule(variable, guests.emplace_back(&meeting));
    job.register_variable(variable);
  }
  job.commit();
  const uint64_t step = job.step_begin();
  std::vector<float> values(2000 * kColumns, 1.0f);
  auto slice = sized<parallax_slice_t>();
  slice.values = values.data();
  auto other = slice;
  other.variable = 1;
  job.push(step, {slice, other}).wait();
  end(job, step).wait();
  EXPECT_EQ(meeting.most, 2);
  EXPECT_EQ(meeting.twice, 0);
}

TEST(OwnRule, AFailureNamesVariableStepAndNumberOnEveryRank) {
  for (const auto mode : {PARALLAX_PLAN_PS, PARALLAX_PLAN_AR}) {
    on_two_hosts(mode, 1, [](uint32_t rank, Job& job) {
      const auto fails = [](const parallax_rule_block_t& block) {
        if (block.step == 2) throw std::runtime_error("no");
        return 0;
      };
      parallax_variable_t variable = table("mine", PARALLAX_RULE_SGD, true);
      parallax::set_rule(variable, fails);
      job.register_variable(variable);
      job.commit();
      for (int i = 1; i <= 2; ++i) {
        const uint64_t step = job.step_begin();
        push(job, step, rank, 1);
        Request ended = end(job, step);
        try {
          ended.wait();
          EXPECT_EQ(i, 1);
        } catch (const Error& error) {
          EXPECT_EQ(i, 2);
          EXPECT_EQ(error.status(), PARALLAX_ABORTED) << error.what();
          EXPECT_NE(std::string(error.what()).find("the rule_fn of variable 'mine' answered -1"),
                    std::string::npos)
              << error.what();
          EXPECT_EQ(error.info().step, 2u);
          EXPECT_EQ(error.info().variable, 0u);
          EXPECT_STREQ(error.info().field, "rule_fn");
        }
      }
    });
  }
}

// Whoever holds the job's mutex would wait for itself.
TEST(OwnRule, ACallFromWithinIsState) {
  for (const uint32_t threads : {0u, 1u}) {
    auto options = sized<parallax_options_t>();
    options.compute_threads = threads;
    Job job(options);
    std::atomic<int> refused{0};
    const auto asks = [&](const parallax_rule_block_t&) {
      try {
        job.query();
      } catch (const Error& error) {
        if (error.status() == PARALLAX_STATE) ++refused;
      }
      return 0;
    };
    parallax_variable_t variable = table("mine", PARALLAX_RULE_SGD, true);
    parallax::set_rule(variable, asks);
    job.register_variable(variable);
    job.commit();
    const uint64_t step = job.step_begin();
    push(job, step, 0, 1);
    end(job, step).wait();
    EXPECT_EQ(refused, 1);
    EXPECT_EQ(job.query().step_committed, 1u);
  }
}

TEST(OwnRule, RanksThatDifferInStatesAreNamed) {
  on_two_hosts(PARALLAX_PLAN_AUTO, 0, [](uint32_t rank, Job& job) {
    const auto nothing = [](const parallax_rule_block_t&) { return 0; };
    parallax_variable_t variable = table("mine", PARALLAX_RULE_SGD, true);
    parallax::set_rule(variable, nothing);
    variable.state_elements[0] = rank == 2 ? 5 : 4;
    job.register_variable(variable);
    try {
      job.commit();
      ADD_FAILURE() << "committed";
    } catch (const Error& error) {
      EXPECT_EQ(error.status(), PARALLAX_MISMATCH);
      EXPECT_NE(std::string(error.what()).find("field state_elements[0]: rank 0 (host left) has 4"),
                std::string::npos)
          << error.what();
      EXPECT_STREQ(error.info().field, "state_elements[0]");
    }
  });
}

}  // namespace
}  // namespace own_rule
