// SPDX-License-Identifier: Apache-2.0
// Sums of elements against a naive sum: any pieces, any order of arrival, lent and left out
// addends, sums placed elsewhere or over an addend, -0, what does not fit; and what is complete
// while the rest is still to come.
#include "aggregate/dense_accumulator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <optional>
#include <vector>

#include "aggregate/accumulator.h"
#include "base/seeded_random.h"
#include "unit/aggregate/drawn_numbers.h"

namespace parallax {
namespace {

// Laid out, in memory of its own.
class Sum : public DenseAccumulator {
 public:
  Sum(uint64_t elements, const DenseAccumulatorOptions& options) {
    Arena measure;
    lay_out(measure, elements, options);
    EXPECT_TRUE(arena_.reserve(measure.used_bytes()).ok());
    lay_out(arena_, elements, options);
    clear();
  }
  float at(uint64_t element) const { return reinterpret_cast<const float*>(values())[element]; }

 private:
  Arena arena_;
};

// Numbers one byte off, as in messages.
template <typename T>
class Numbers {
 public:
  explicit Numbers(const std::vector<T>& numbers) : bytes_(1) {
    const auto bytes = std::as_bytes(std::span(numbers));
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
  }
  const std::byte* at(uint64_t element) const { return bytes_.data() + 1 + element * sizeof(T); }

 private:
  std::vector<std::byte> bytes_;
};

bool add(DenseAccumulator& sum, uint32_t addend, const std::vector<float>& values) {
  return sum.add(addend, values.size(), {Numbers(values).at(0), PARALLAX_F32});
}

// The addends of one sum, given in pieces by chance; after each piece what is complete is compared.
class Trial {
 public:
  Trial(SeededRandom& random, bool ordered, uint32_t addends, uint64_t elements)
      : random_(random), ordered_(ordered), elements_(elements), left_out_(addends) {
    for (uint32_t addend = 0; addend < addends; ++addend) {
      std::vector<float>& numbers = numbers_.emplace_back(elements);
      for (float& number : numbers) number = draw_float(random);
      left_out_[addend] = random.chance(25);
    }
    // A double narrows to the float that was drawn: another type, the same numbers.
    lent_ = random.chance(60) ? static_cast<uint32_t>(random.below(addends)) : addends;
    wide_ = random.chance(20);
    if (lent_ < addends) left_out_[lent_] = false;
    place_ = static_cast<Place>(random.below(3));
  }

  void run(Sum& sum) {
    const size_t addends = numbers_.size();
    std::vector<uint64_t> given(addends);
    std::vector<bool> over(addends);
    std::vector<Numbers<float>> sources;
    for (const std::vector<float>& numbers : numbers_) sources.emplace_back(numbers);
    const Numbers<double> wide(
        lent_ < addends ? std::vector<double>(numbers_[lent_].begin(), numbers_[lent_].end())
                        : std::vector<double>());
    std::vector<float> elsewhere(elements_, 17.0f);
    // Before anything came, or when some sums are begun already, and none is complete.
    const size_t place_at = random_.chance(50) ? addends : 1 + random_.below(addends);
    for (size_t left = addends; left > 0;) {
      if (place_ == Place::kElsewhere && left <= place_at && !sum.placed() && sum.complete() == 0) {
        sum.place(reinterpret_cast<std::byte*>(elsewhere.data()));
        EXPECT_TRUE(sum.placed());
      }
      const auto at = static_cast<uint32_t>(random_.below(addends));
      if (over[at]) continue;
      if (left_out_[at]) {
        sum.leave_out(at);
        given[at] = elements_;
      } else if (at == lent_) {
        if (wide_) {
          sum.lend(at, {wide.at(0), PARALLAX_F64});
        } else if (place_ == Place::kOverTheLent && !ordered_) {
          elsewhere = numbers_[at];
          auto* const there = reinterpret_cast<std::byte*>(elsewhere.data());
          sum.place_over_lent(there);
          EXPECT_TRUE(sum.placed());
          sum.lend(at, {there, PARALLAX_F32});
        } else {
          sum.lend(at, {sources[at].at(0), PARALLAX_F32});
        }
        given[at] = elements_;
      } else {
        const uint64_t count = 1 + random_.below(elements_ - given[at]);
        ASSERT_TRUE(sum.add(at, count, {sources[at].at(given[at]), PARALLAX_F32}));
        given[at] += count;
        ASSERT_EQ(sum.came(at), given[at]);
      }
      over[at] = given[at] == elements_;
      ASSERT_EQ(sum.ended(at), over[at]);
      if (over[at]) --left;
      check(sum, *std::min_element(given.begin(), given.end()));
      if (testing::Test::HasFatalFailure()) return;
    }
    EXPECT_TRUE(sum.whole());
    EXPECT_EQ(sum.empty(), std::find(left_out_.begin(), left_out_.end(), false) == left_out_.end());
  }

 private:
  void check(const Sum& sum, uint64_t complete) {
    ASSERT_EQ(sum.complete(), complete);
    if (sum.empty()) return;
    for (uint64_t i = 0; i < complete; ++i) {
      float naive = 0;
      double magnitude = 0;
      for (size_t addend = 0; addend < numbers_.size(); ++addend) {
        if (left_out_[addend]) continue;
        naive += numbers_[addend][i];
        magnitude += std::fabs(static_cast<double>(numbers_[addend][i]));
      }
      if (ordered_) {
        ASSERT_TRUE(same_bits(sum.at(i), naive)) << "element " << i;
      } else {
        ASSERT_NEAR(static_cast<double>(sum.at(i)), static_cast<double>(naive), 1e-6 * magnitude)
            << "element " << i;
        ASSERT_FALSE(same_bits(sum.at(i), -0.0f)) << "element " << i;
      }
    }
  }

  enum class Place { kOwn, kElsewhere, kOverTheLent };

  SeededRandom& random_;
  const bool ordered_;
  const uint64_t elements_;
  Place place_ = Place::kOwn;
  std::vector<std::vector<float>> numbers_;
  std::vector<bool> left_out_;
  uint32_t lent_ = 0;
  bool wide_ = false;
};

class DenseAccumulatorTest : public testing::TestWithParam<bool> {};

// Given addends in pieces by chance, some left out, one perhaps lent, expect at every moment what
// is complete to be the naive sum, in order bit for bit, and a step to leave nothing to the next.
TEST_P(DenseAccumulatorTest, WhatIsCompleteIsTheNaiveSum) {
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    SeededRandom random(seed);
    const auto addends = static_cast<uint32_t>(random.between(1, 6));
    const uint64_t elements = 1 + random.below(70);
    Sum sum(elements, {.addends = addends, .ordered = GetParam()});
    for (int step = 0; step < 3; ++step) {
      sum.clear();
      Trial(random, GetParam(), addends, elements).run(sum);
      if (HasFatalFailure()) return;
    }
  }
}

// Given pieces that are too long, empty, after the end or of an addend that is left out, expect
// each refused, and nothing of it summed.
TEST_P(DenseAccumulatorTest, RefusesWhatDoesNotFit) {
  for (const uint32_t addend : {0u, 1u}) {  // 1 is held back where ordered
    Sum sum(300, {.addends = 3, .ordered = GetParam()});
    const std::vector<float> ones(301, 1.0f);
    EXPECT_FALSE(add(sum, addend, ones)) << "beyond the end";
    EXPECT_FALSE(sum.add(addend, UINT64_MAX, {nullptr, PARALLAX_F32}));
    EXPECT_FALSE(sum.add(addend, 0, {nullptr, PARALLAX_F32}));
    EXPECT_EQ(sum.came(addend), 0u);
    EXPECT_TRUE(add(sum, addend, std::vector<float>(299, 1.0f)));
    EXPECT_FALSE(add(sum, addend, {1.0f, 1.0f})) << "one too many";
    EXPECT_TRUE(add(sum, addend, {1.0f}));
    EXPECT_FALSE(add(sum, addend, {1.0f})) << "after the end";
    sum.leave_out(2);
    EXPECT_FALSE(add(sum, 2, {1.0f})) << "left out";
    EXPECT_EQ(sum.complete(), 0u);
    EXPECT_TRUE(add(sum, 1 - addend, std::vector<float>(300, 1.0f)));
    ASSERT_TRUE(sum.whole());
    for (uint64_t i = 0; i < 300; ++i) EXPECT_EQ(sum.at(i), 2.0f) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Both, DenseAccumulatorTest, testing::Bool());

// Given an addend that is lent, expect it to be read only when another comes, and again never.
TEST(DenseAccumulator, ReadsWhatIsLentOnce) {
  Sum sum(4, {.addends = 2});
  std::vector<float> lent = {1, 2, 3, 4};
  sum.lend(0, {reinterpret_cast<const std::byte*>(lent.data()), PARALLAX_F32});
  lent[0] = 10;
  ASSERT_TRUE(add(sum, 1, {5, 5}));
  EXPECT_EQ(sum.complete(), 2u);
  lent = {0, 0, 30, 40};
  ASSERT_TRUE(add(sum, 1, {5, 5}));
  ASSERT_TRUE(sum.whole());
  EXPECT_EQ(sum.at(0), 15);
  EXPECT_EQ(sum.at(1), 7);
  EXPECT_EQ(sum.at(2), 35);
  EXPECT_EQ(sum.at(3), 45);
}

// Given rows made dense, expect those that nobody gave to stay told from those that add up to zero,
// however the two meet.
TEST(DenseAccumulator, RowsMadeDenseStayTold) {
  const std::vector<float> first = {1, kNoRow, 0, kNoRow, kNoRow};
  const std::vector<float> second = {-1, kNoRow, kNoRow, 2, kNoRow};
  for (const bool ordered : {false, true}) {
    for (const bool lent : {false, true}) {
      Sum sum(5, {.addends = 2, .ordered = ordered, .made_dense = true});
      if (lent) {
        sum.lend(0, {reinterpret_cast<const std::byte*>(first.data()), PARALLAX_F32});
      } else {
        ASSERT_TRUE(add(sum, 0, first));
      }
      ASSERT_TRUE(add(sum, 1, second));
      ASSERT_TRUE(sum.whole());
      EXPECT_EQ(sum.at(0), 0);
      EXPECT_EQ(sum.at(3), 2);
      for (const uint64_t given : {0u, 2u, 3u}) {
        const float value = sum.at(given);
        EXPECT_FALSE(is_no_row(&value)) << given;
      }
      for (const uint64_t none : {1u, 4u}) {
        const float value = sum.at(none);
        EXPECT_TRUE(is_no_row(&value)) << none;
      }
    }
  }
}

// Given slices of a narrower type, expect the sum of what they widen to.
TEST(DenseAccumulator, WidensWhatItIsGiven) {
  Sum sum(2, {.addends = 2, .ordered = true});
  const std::vector<uint16_t> halves = {0x3c00, 0x4000};  // 1, 2
  ASSERT_TRUE(sum.add(1, 2, {reinterpret_cast<const std::byte*>(halves.data()), PARALLAX_F16}));
  ASSERT_TRUE(add(sum, 0, {10, 20}));
  EXPECT_EQ(sum.at(0), 11);
  EXPECT_EQ(sum.at(1), 22);
}

}  // namespace
}  // namespace parallax
