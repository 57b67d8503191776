// SPDX-License-Identifier: Apache-2.0
// Contributions, the naive sum, checks and drivers. See exchange_training.h.
#include "unit/collectives/exchange_training.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "aggregate/row_kernels.h"
#include "support/numbers.h"

namespace parallax::exchange_conformance {

namespace {

constexpr uint32_t kPaddingPercent = 15;
constexpr uint32_t kEveryRowPercent = 20;  // of the slices, where one may have every row
constexpr uint64_t kNegativeZeroOneIn = 32;
constexpr uint32_t kActionsMax = 1u << 22;  // of a test's driver: far beyond any

double draw_number(const Draw& draw, SumType sum, SeededRandom& random) {
  const bool floating = is_floating(dtype_of(sum));
  const uint64_t drawn = random.next();
  if (floating && drawn % kNegativeZeroOneIn == 0) return -0.0;
  if (!draw.arbitrary) {
    const double units = static_cast<double>((drawn >> 32) % 257) - 128;
    return floating ? units / 64 : units;
  }
  const double any = std::ldexp(random.unit() * 2 - 1, static_cast<int>(random.between(-20, 20)));
  return testkit::rounded(dtype_of(sum), any);
}

std::vector<double> draw_numbers(size_t count, const Draw& draw, SumType sum,
                                 SeededRandom& random) {
  std::vector<double> numbers(count);
  for (double& number : numbers) number = draw_number(draw, sum, random);
  return numbers;
}

testkit::NaiveTraining naive_of(const ExchangeWorld& world) {
  const Setting& setting = world.setting();
  parallax_variable_t variable = {};
  variable.size = sizeof variable;
  variable.name = "exchanged";
  variable.rows = setting.shape.rows;
  variable.row_elements = setting.shape.row_elements;
  variable.rows_max = setting.shape.rows_max;
  variable.dtype = dtype_of(setting.sum);
  return {{variable}, world.hosts().ranks_of};
}

uint64_t rows_given(const std::vector<uint32_t>& givers) {
  return givers.size() - static_cast<uint64_t>(std::count(givers.begin(), givers.end(), 0u));
}

// The rows of a naive sum where an exchange has them, each with its count if it has one.
void fill_rows(const ExchangeWorld& world, const std::vector<double>& sum,
               const std::vector<uint32_t>& givers, Expected* expected) {
  const Setting& setting = world.setting();
  const size_t width = setting.shape.row_elements;
  const size_t road_width = setting.gradient_elements();
  // An integer has no such value; nobody asks for one.
  std::vector<double> values(setting.shape.rows * road_width, -0.0);
  expected->givers.resize(givers.size());
  for (uint64_t row = 0; row < givers.size(); ++row) {
    const uint32_t row_key = world.partition().row_key_of(row);
    expected->givers[row_key] = givers[row];
    if (givers[row] == 0) continue;
    for (size_t i = 0; i < width; ++i) {
      const double number = sum[row * width + i];
      values[row_key * road_width + i] = number;
      const double mean = setting.counted ? number / givers[row] : number;
      expected->square += mean * mean;
    }
    if (setting.counted) values[row_key * road_width + width] = givers[row];
  }
  expected->values = bytes_of(dtype_of(setting.sum), values);
}

}  // namespace

Contribution draw_gift(const Setting& setting, const Draw& draw, SeededRandom& random) {
  const Shape& shape = setting.shape;
  Contribution contribution;
  contribution.contributed = !random.chance(draw.absent_percent);
  contribution.dtype = draw.dtype == UINT32_MAX ? dtype_of(setting.sum) : draw.dtype;
  if (!contribution.contributed) return contribution;
  if (shape.rows_max == 0) {
    contribution.values = draw_numbers(shape.elements(), draw, setting.sum, random);
    return contribution;
  }
  if (random.chance(draw.empty_percent)) return contribution;
  contribution.dense = shape.rows_max >= shape.rows && random.chance(kEveryRowPercent);
  if (contribution.dense)
    contribution.dense_values = draw_numbers(shape.elements(), draw, setting.sum, random);
  contribution.ids.resize(1 + random.below(shape.rows_max));
  for (int64_t& id : contribution.ids) {
    id = random.chance(kPaddingPercent) ? -1 : static_cast<int64_t>(random.below(shape.rows));
  }
  contribution.values =
      draw_numbers(contribution.ids.size() * shape.row_elements, draw, setting.sum, random);
  return contribution;
}

Contributions draw_contributions(const Setting& setting, const Draw& draw, SeededRandom& random) {
  Contributions contributions;
  for (uint32_t rank = 0; rank < setting.world(); ++rank) {
    contributions.push_back(draw_gift(setting, draw, random));
  }
  return contributions;
}

Expected expected_sum(const ExchangeWorld& world, const Contributions& contributions) {
  const Setting& setting = world.setting();
  const testkit::NaiveTraining naive = naive_of(world);
  const std::vector<double> sum = naive.sum_of(0, contributions);
  Expected expected;
  expected.contributed =
      std::any_of(contributions.begin(), contributions.end(),
                  [](const Contribution& contribution) { return contribution.contributed; });
  if (setting.shape.rows_max == 0) {
    expected.has_values = expected.contributed;
    expected.values = bytes_of(dtype_of(setting.sum), sum);
    for (const double number : sum) expected.square += number * number;
  } else {
    const std::vector<uint32_t> givers = naive.ranks_of_rows(0, contributions);
    expected.union_rows = rows_given(givers);
    expected.has_values = expected.union_rows > 0;
    for (const auto& ranks : world.hosts().ranks_of) {
      Contributions of_host(contributions.size());
      for (const uint32_t rank : ranks) of_host[rank] = contributions[rank];
      expected.touched_rows += rows_given(naive.ranks_of_rows(0, of_host));
    }
    for (uint32_t rank = 0; rank < contributions.size(); ++rank) {
      Contributions of_rank(contributions.size());
      of_rank[rank] = contributions[rank];
      expected.given_rows += rows_given(naive.ranks_of_rows(0, of_rank));
    }
    fill_rows(world, sum, givers, &expected);
  }
  if (!is_floating(dtype_of(setting.sum))) expected.square = 0;  // integers have no norm
  return expected;
}

// ---- checks

StepCheck::StepCheck(ExchangeWorld& world, const Candidate& candidate, uint64_t step,
                     const Contributions& contributions, bool exact_norm)
    : world_(world),
      candidate_(candidate),
      step_(step),
      exact_norm_(exact_norm),
      expected_(expected_sum(world, contributions)) {}

size_t StepCheck::row_bytes() const {
  return world_.setting().gradient_elements() * bytes_of_sum(world_.setting().sum);
}

void StepCheck::check_rank(uint32_t rank) {
  SCOPED_TRACE("step " + std::to_string(step_) + ", rank " + std::to_string(rank));
  Exchange& exchange = world_.exchange(rank);
  EXPECT_TRUE(exchange.state(step_).contributed);
  EXPECT_TRUE(exchange.state(step_).reduced);
  EXPECT_TRUE(exchange.state(step_).delivered);
  EXPECT_TRUE(world_.given_back(rank, step_));
  EXPECT_TRUE(exchange.missing(step_).empty());
  add_squared_norm(exchange.owned(step_), &square_);
  const ExchangeCounts counts = exchange.counts(step_);
  counts_.touched_rows += counts.touched_rows;
  counts_.given_rows += counts.given_rows;
  counts_.union_rows += counts.union_rows;
  if (candidate_.delivers) check_whole(exchange.whole(step_));
  if (candidate_.pieces < Pieces::kNone) check_owned(rank, exchange.owned(step_));
}

void StepCheck::check_whole(const ReducedGradient& whole) {
  EXPECT_EQ(whole.contributed, expected_.contributed);
  EXPECT_EQ(whole.has_values, expected_.has_values);
  EXPECT_EQ(whole.counted, world_.setting().counted);
  EXPECT_EQ(whole.rows, candidate_.gives_rows());
  if (whole.rows) {
    EXPECT_EQ(whole.row_count, expected_.union_rows);
    check_rows(whole);
    return;
  }
  EXPECT_EQ(whole.first, 0u);
  EXPECT_EQ(whole.count, world_.partition().elements());
  if (whole.has_values) check_elements(whole);
}

void StepCheck::check_owned(uint32_t rank, const ReducedGradient& owned) {
  const Partition& partition = world_.partition();
  const bool of_host = candidate_.pieces == Pieces::kHost;
  if (candidate_.gives_rows()) {
    if (!of_host && partition.rows_owned(rank) == 0) {
      EXPECT_FALSE(owned.has_values);
      return;
    }
    // On a host with more ranks than another some have no piece.
    if (of_host && !world_.columns(rank).is_leader()) return;
    EXPECT_TRUE(owned.contributed == expected_.contributed || (of_host && owned.row_count == 0));
    EXPECT_EQ(owned.has_values, owned.row_count > 0);
    owned_rows_ += owned.row_count;
    check_rows(owned);
    for (uint32_t i = 0; i < owned.row_count && !of_host; ++i) {
      EXPECT_EQ(partition.owner_of(owned.row_keys[i]), rank);
    }
    return;
  }
  const Range range = partition.range_of(rank);
  if (range.count == 0) {
    EXPECT_FALSE(owned.has_values);
    return;
  }
  EXPECT_FALSE(owned.rows);
  EXPECT_EQ(owned.contributed, expected_.contributed);
  EXPECT_EQ((Range{owned.first, owned.count}), range);
  if (candidate_.made_dense && !owned.has_values) {  // others may have got all the rows
    EXPECT_EQ(rows_given(givers_in(range)), 0u);
    return;
  }
  EXPECT_EQ(owned.has_values, expected_.has_values);
  if (!owned.has_values) return;
  owned_elements_ += owned.count;
  check_elements(owned);
}

std::vector<uint32_t> StepCheck::givers_in(const Range& range) const {
  const auto width = static_cast<ptrdiff_t>(world_.setting().gradient_elements());
  const auto first = expected_.givers.begin() + static_cast<ptrdiff_t>(range.first) / width;
  return {first, first + static_cast<ptrdiff_t>(range.count) / width};
}

void StepCheck::check_rows(const ReducedGradient& part) const {
  std::vector<bool> seen(expected_.givers.size());
  for (uint32_t i = 0; i < part.row_count; ++i) {
    const uint32_t row_key = part.row_keys[i];
    ASSERT_LT(row_key, seen.size());
    EXPECT_FALSE(seen[row_key]) << "row_key " << row_key << " came twice";
    seen[row_key] = true;
    ASSERT_GT(expected_.givers[row_key], 0u) << "nobody gave row_key " << row_key;
    std::vector<std::byte> row(part.row(i), part.row(i) + row_bytes());
    // What lies in a slice is no sum yet, which begins from +0.
    if (part.places != nullptr) {
      with_sum_type(world_.setting().sum, [&](auto tag) {
        using T = typename decltype(tag)::type;
        start_sum_there(reinterpret_cast<T*>(row.data()), row.size() / sizeof(T));
      });
    }
    ASSERT_EQ(std::memcmp(row.data(), &expected_.values[row_key * row_bytes()], row_bytes()), 0)
        << "the sum of row_key " << row_key << ", given by " << expected_.givers[row_key]
        << " ranks";
  }
}

void StepCheck::check_elements(const ReducedGradient& part) const {
  const SumType sum = world_.setting().sum;
  const size_t bytes = bytes_of_sum(sum);
  const std::byte* expected = &expected_.values[part.first * bytes];
  if (std::memcmp(part.values, expected, part.count * bytes) == 0) return;
  for (uint64_t i = 0; i < part.count; ++i) {
    if (std::memcmp(part.values + i * bytes, expected + i * bytes, bytes) == 0) continue;
    FAIL() << "element " << part.first + i << " is "
           << testkit::Numbers::read(dtype_of(sum), part.values, i) << ", not "
           << testkit::Numbers::read(dtype_of(sum), expected, i);
  }
}

void StepCheck::check_totals() const {
  SCOPED_TRACE("step " + std::to_string(step_));
  if (candidate_.pieces == Pieces::kUntold) {
    EXPECT_EQ(square_.value(), 0);
  } else if (exact_norm_ && !world_.setting().counted) {
    EXPECT_EQ(square_.value(), expected_.square);
  } else {
    EXPECT_NEAR(square_.value(), expected_.square, 1e-9 * expected_.square);
  }
  EXPECT_EQ(counts_.touched_rows, expected_.touched_rows);
  EXPECT_EQ(counts_.given_rows, expected_.given_rows);
  EXPECT_EQ(counts_.union_rows, expected_.union_rows);
  if (candidate_.pieces >= Pieces::kNone) return;
  const bool rows = candidate_.gives_rows();
  const uint64_t holders = candidate_.pieces == Pieces::kHost ? world_.hosts().ranks_of.size() : 1;
  EXPECT_EQ(owned_rows_, rows ? holders * expected_.union_rows : 0);
  const uint64_t elements = expected_.has_values ? world_.partition().elements() : 0;
  EXPECT_TRUE(candidate_.made_dense || owned_elements_ == (rows ? 0 : elements));
}

// ---- drivers

void run_step(ExchangeWorld& world, uint64_t step, const Contributions& contributions) {
  std::vector<uint32_t> order(world.size());
  for (uint32_t i = 0; i < order.size(); ++i) order[i] = i;
  for (size_t i = order.size(); i > 1; --i) {
    std::swap(order[i - 1], order[world.random().below(i)]);
  }
  for (const uint32_t rank : order) {
    world.contribute(rank, step, contributions[rank]);
    world.wander(world.random().below(8));
    if (world.random().chance(50)) world.end(rank, step);
  }
  for (const uint32_t rank : order) {
    if (!world.end_told(rank, step)) world.end(rank, step);
  }
  world.run();
}

void check_step(ExchangeWorld& world, const Candidate& candidate, uint64_t step,
                const Contributions& contributions) {
  StepCheck check(world, candidate, step, contributions);
  for (uint32_t rank = 0; rank < world.size(); ++rank) check.check_rank(rank);
  check.check_totals();
}

namespace {

// Where every rank is, in the bounds that a job's decisions set: step t + 1 is started once t is
// decided, and t + 2 opened once t is over here; t is decided when it is over before, ended and
// reduced everywhere.
class Pipeline {
 public:
  Pipeline(ExchangeWorld& world, const Candidate& candidate,
           const std::vector<Contributions>& gifts_by_step, bool exact_norm)
      : world_(world), gifts_(gifts_by_step), ranks_(world.size()) {
    for (uint64_t step = 1; step <= gifts_.size(); ++step) {
      checks_.emplace_back(world, candidate, step, gifts_[step - 1], exact_norm);
    }
  }

  bool done() const {
    return std::all_of(ranks_.begin(), ranks_.end(),
                       [this](const Rank& rank) { return rank.finished == gifts_.size(); });
  }

  void advance(uint32_t rank) {
    Rank& each = ranks_[rank];
    if (each.ended < gifts_.size() && decided_ >= each.ended) start(rank, each);
    const uint64_t step = each.finished + 1;
    if (decided_ < step || !world_.exchange(rank).state(step).delivered ||
        !world_.given_back(rank, step)) {
      return;
    }
    checks_[step - 1].check_rank(rank);
    each.finished = step;
    world_.open(rank, step + 2);
  }

  void decide() {
    const uint64_t step = decided_ + 1;
    for (uint32_t rank = 0; rank < ranks_.size(); ++rank) {
      if (ranks_[rank].finished + 1 < step || ranks_[rank].ended < step ||
          !world_.end_told(rank, step) || !world_.exchange(rank).state(step).reduced) {
        return;
      }
    }
    decided_ = step;
  }

  void check_totals() const {
    for (const StepCheck& check : checks_) check.check_totals();
  }

 private:
  struct Rank {
    uint64_t contributed = 0;
    uint64_t ended = 0;
    uint64_t finished = 0;
  };

  void start(uint32_t rank, Rank& each) {
    const uint64_t step = each.ended + 1;
    if (step > each.finished + 2) return;
    if (each.contributed < step) {
      world_.contribute(rank, step, gifts_[step - 1][rank]);
      each.contributed = step;
    } else {
      world_.end(rank, step);
      each.ended = step;
    }
  }

  ExchangeWorld& world_;
  const std::vector<Contributions>& gifts_;
  std::vector<StepCheck> checks_;
  std::vector<Rank> ranks_;
  uint64_t decided_ = 0;
};

}  // namespace

void run_steps(ExchangeWorld& world, const Candidate& candidate,
               const std::vector<Contributions>& gifts_by_step, bool exact_norm) {
  Pipeline pipeline(world, candidate, gifts_by_step, exact_norm);
  for (uint32_t actions = 0; !pipeline.done(); ++actions) {
    ASSERT_LT(actions, kActionsMax) << "the steps do not come to an end";
    world.wander(world.random().below(8));
    pipeline.advance(static_cast<uint32_t>(world.random().below(world.size())));
    pipeline.decide();
    if (testing::Test::HasFailure()) return;
  }
  pipeline.check_totals();
}

}  // namespace parallax::exchange_conformance
