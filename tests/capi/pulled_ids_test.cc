// SPDX-License-Identifier: Apache-2.0
// Pushes of the ids that a rank has pulled, or of almost these: what was found of a pull's ids is
// used by a push of the same ones, and of no others. Ranks of two hosts as threads, against sums
// that a plain loop makes of all that they push. Numbers are small and whole, so that sums are
// exact.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "parallax/parallax.hpp"
#include "support/rank_threads.h"

namespace pulled_ids {
namespace {

using parallax::Job;
using parallax::Request;
using parallax::sized;

using Ids = std::vector<int64_t>;

constexpr uint32_t kSteps = 40;
constexpr uint64_t kRows = 60, kRowsMax = 70;

class Random {
 public:
  Random(uint64_t seed, uint64_t step, uint64_t rank)
      : bits_(seed * 1'000'003 + step * 1'009 + rank) {}
  uint64_t below(uint64_t end) { return bits_() % end; }
  Ids ids(uint64_t count) {
    Ids ids(count);
    for (int64_t& id : ids) {
      const uint64_t rows = below(2) == 0 ? kRows : 8;  // duplicates
      id = below(20) == 0 ? -1 : static_cast<int64_t>(below(rows));
    }
    return ids;
  }
  // Of as many as there are, or of one of them another than `ids`.
  Ids like(const Ids& ids) {
    Ids like = ids;
    switch (below(9)) {
      case 0:
      case 1:
        return like;
      case 2:
        std::shuffle(like.begin(), like.end(), bits_);
        return like;
      case 3:
        like.resize(below(ids.size() + 1));  // the first of them
        return like;
      case 4:
        std::erase_if(like, [this](int64_t) { return below(3) == 0; });
        return like;
      case 5:
        for (const int64_t id : this->ids(kRowsMax - ids.size())) like.push_back(id);
        return like;
      case 6:
        if (!like.empty()) like[below(like.size())] = static_cast<int64_t>(below(kRows));
        return like;
      case 7:
        if (!like.empty()) like[below(like.size())] = -1;
        return like;
      default:
        return this->ids(below(kRowsMax + 1));
    }
  }

 private:
  std::mt19937_64 bits_;
};

// What a rank does in a step.
struct Does {
  std::vector<Ids> pulls;
  Ids pushed;
  bool push_first = false;       // before its pulls
  bool narrow = false;           // what it pushes has ids of 32 bits
  std::vector<float> gradients;  // a row for each that is pushed
};

Does draw(uint64_t seed, uint64_t step, uint32_t rank, uint64_t width) {
  Random random(seed, step, rank);
  Does does;
  for (uint64_t i = random.below(5) == 0 ? 0 : 1 + random.below(2); i > 0; --i) {
    does.pulls.push_back(random.ids(random.below(8) == 0 ? 0 : random.below(kRowsMax + 1)));
  }
  does.pushed = random.like(does.pulls.empty() ? random.ids(20) : does.pulls.back());
  does.push_first = random.below(6) == 0;
  does.narrow = random.below(3) == 0;
  does.gradients.resize(does.pushed.size() * width);
  for (float& number : does.gradients) number = static_cast<float>(random.below(17)) - 8;
  return does;
}

void add(const Does& does, uint64_t width, std::vector<float>* table) {
  for (size_t i = 0; i < does.pushed.size(); ++i) {
    if (does.pushed[i] < 0) continue;
    for (uint64_t c = 0; c < width; ++c) {
      (*table)[static_cast<uint64_t>(does.pushed[i]) * width + c] += does.gradients[i * width + c];
    }
  }
}

std::vector<float> rows_of(const std::vector<float>& table, const Ids& ids, uint64_t width) {
  std::vector<float> rows(ids.size() * width);
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0) continue;
    std::copy_n(&table[static_cast<uint64_t>(ids[i]) * width], width, &rows[i * width]);
  }
  return rows;
}

struct Case {
  uint64_t seed = 0;
  uint32_t world = 2;
  uint32_t staleness = 0;
  uint32_t threads = 0;
  bool one_host = false;
  uint64_t width = 16;
};

class PulledIds {
 public:
  PulledIds(const Case& of, uint32_t rank, Job& job) : case_(of), rank_(rank), job_(job) {
    auto table = sized<parallax_variable_t>();
    table.name = "table";
    table.rows = kRows;
    table.row_elements = of.width;
    table.rows_max = kRowsMax;
    table.rule = PARALLAX_RULE_SUM;
    slice_ = sized<parallax_slice_t>();
    slice_.variable = job.register_variable(table);
    slice_.form = PARALLAX_FORM_ROWS;
    job.commit();
    table_.resize(kRows * of.width);
  }

  void train() {
    for (uint64_t step = 1; step <= kSteps; ++step) {
      const std::string where = "seed " + std::to_string(case_.seed) + ", step " +
                                std::to_string(step) + ", rank " + std::to_string(rank_);
      const Does does = draw(case_.seed, step, rank_, case_.width);
      ASSERT_EQ(job_.step_begin(), step);
      if (does.push_first) push(step, does);
      for (const Ids& ids : does.pulls) {
        const std::vector<float> rows = pull(step, ids);
        // With staleness rows may be older.
        if (case_.staleness > 0) continue;
        ASSERT_EQ(rows, rows_of(table_, ids, case_.width)) << where;
      }
      if (!does.push_first) push(step, does);
      auto options = sized<parallax_step_end_options_t>();
      options.learning_rate = 1;
      Request end = job_.step_end(step, options);
      end.wait();
      for (uint32_t rank = 0; rank < case_.world; ++rank) {
        add(draw(case_.seed, step, rank, case_.width), case_.width, &table_);
      }
    }
    Ids all(kRows);
    for (uint64_t row = 0; row < kRows; ++row) all[row] = static_cast<int64_t>(row);
    EXPECT_EQ(pull(0, all), table_) << "seed " << case_.seed << ", rank " << rank_;
    job_.barrier().wait();
  }

 private:
  // Where other ids lay before.
  std::vector<float> pull(uint64_t step, const Ids& ids) {
    std::vector<float> rows(ids.size() * case_.width, -1e30f);
    place(ids, rows.data());
    job_.pull(step, {slice_}).wait();
    return rows;
  }
  void push(uint64_t step, const Does& does) {
    std::vector<float> gradients = does.gradients;
    place(does.pushed, gradients.data());
    if (does.narrow) {
      std::copy(does.pushed.begin(), does.pushed.end(), narrow_.begin());
      slice_.ids = nullptr;
      slice_.ids_i32 = narrow_.data();
    }
    job_.push(step, {slice_}).wait();
  }
  void place(const Ids& ids, float* values) {
    std::copy(ids.begin(), ids.end(), ids_.begin());
    slice_.ids = ids_.data();
    slice_.ids_i32 = nullptr;
    slice_.row_count = ids.size();
    slice_.values = values;
  }

  const Case case_;
  const uint32_t rank_;
  Job& job_;
  parallax_slice_t slice_;
  Ids ids_ = Ids(kRowsMax);
  std::vector<int32_t> narrow_ = std::vector<int32_t>(kRowsMax);
  std::vector<float> table_;  // as all have pushed to it
};

void train(const Case& of) {
  parallax::testkit::on_ranks(
      of.world, [&](uint32_t rank, Job& job) { PulledIds(of, rank, job).train(); },
      [&](uint32_t rank, parallax_options_t& options) {
        options.host = of.one_host ? "left" : parallax::testkit::left_or_right(rank);
        options.plan_mode = PARALLAX_PLAN_PS;
        options.staleness = of.staleness;
        options.compute_threads = of.threads;
      });
}

// Given pushes of the ids that were pulled last, of these in another order, of some or more of
// them, of almost these where they lay, of others and of none, behind no pull, one or two, or
// before them, expect the table to be what a plain loop makes of it, in each step.
TEST(PulledIds, ArePushedAgainInEveryWay) {
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    for (const uint32_t world : {2u, 3u, 4u}) train({.seed = seed, .world = world});
    train({.seed = seed, .width = 5});
    train({.seed = seed, .threads = 1});
    train({.seed = seed, .one_host = true});
  }
}

TEST(PulledIds, ArePushedAgainWithStaleness) {
  for (const uint32_t staleness : {1u, 3u}) {
    train({.seed = 7, .staleness = staleness});
    train({.seed = 8, .world = 3, .staleness = staleness, .threads = 1});
    train({.seed = 9, .staleness = staleness, .one_host = true});
  }
}

}  // namespace
}  // namespace pulled_ids
