// SPDX-License-Identifier: Apache-2.0
// Tables that keep values narrower than they update them: half the memory, one rounding an update,
// and random bits of an element that are its own, wherever it lies.
#include "server/stored_values.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/seeded_random.h"
#include "server/table.h"
#include "support/numbers.h"
#include "support/row_widths.h"
#include "support/slot_maps.h"
#include "support/vector_levels.h"
#include "variable/storage.h"

namespace parallax::stored_values {
namespace {

using testkit::Numbers;

Variable stored_variable(uint64_t rows, uint64_t width, bool ids, uint32_t dtype) {
  Variable variable;
  variable.name = "table";
  variable.rows = rows;
  variable.row_elements = width;
  variable.rows_max = ids ? rows : 0;
  variable.rule = PARALLAX_RULE_SGD;
  variable.init = PARALLAX_INIT_UNIFORM;
  variable.init_high = 1;
  variable.storage_dtype = dtype;
  variable.rounding = dtype == 0 ? PARALLAX_ROUNDING_NEAREST_EVEN : PARALLAX_ROUNDING_STOCHASTIC;
  return variable;
}

struct Tables {
  Tables(const Variable& of, uint32_t world, bool sharded)
      : variable(of),
        partition(of.rows, of.row_elements, of.ids_declared(), testkit::even_slots(world), 1) {
    for (uint32_t rank = 0; rank < world; ++rank) {
      tables.push_back(std::make_unique<Table>(variable, partition, rank, sharded));
      EXPECT_TRUE(tables.back()->reserve().ok());
      uint64_t left = UINT64_MAX;
      EXPECT_TRUE(tables.back()->initialize(&left));
    }
  }
  // The same gradient for every row of each table, so many times.
  void update(int times, float gradient) {
    const uint64_t width = variable.row_elements;
    for (int i = 0; i < times; ++i) {
      for (uint32_t rank = 0; rank < tables.size(); ++rank) {
        Table& table = *tables[rank];
        const uint64_t count = table.array(0).size() / bytes_of_dtype(table.dtype(0));
        const std::vector<float> values(count, gradient);
        std::vector<uint32_t> row_keys;
        for (uint64_t row = 0; partition.ids_declared() && row < count / width; ++row) {
          row_keys.push_back(table.sharded() ? partition.row_key_at(rank, row)
                                             : static_cast<uint32_t>(row));
        }
        ReducedGradient reduced;
        reduced.contributed = reduced.has_values = true;
        reduced.rows = partition.ids_declared();
        reduced.row_keys = row_keys.data();
        reduced.row_count = static_cast<uint32_t>(row_keys.size());
        reduced.row_elements = width;
        reduced.values = reinterpret_cast<const std::byte*>(values.data());
        reduced.count = count;
        reduced.first = table.sharded() && !reduced.rows ? partition.range_of(rank).first : 0;
        ASSERT_EQ(table.apply(reduced, {.rule = variable.rule, .learning_rate = 1}), 0);
      }
    }
  }
  // By element of the variable, row by row.
  std::vector<double> values() const {
    std::vector<double> all;
    const uint64_t width = variable.row_elements;
    for (uint64_t at = 0; at < variable.elements(); ++at) {
      for (uint32_t rank = 0; rank < tables.size(); ++rank) {
        const Table& table = *tables[rank];
        const std::byte* number = nullptr;
        if (partition.ids_declared()) {
          const uint32_t row_key = partition.row_key_of(at / width);
          if (table.sharded() && partition.owner_of(row_key) != rank) continue;
          number = table.row(row_key) + at % width * bytes_of_dtype(table.dtype(0));
        } else {
          const Range range = partition.range_of(rank);
          if (table.sharded() && at - range.first >= range.count) continue;
          number = table.element(at);
        }
        all.push_back(Numbers::read(table.dtype(0), number, 0));
        break;
      }
    }
    return all;
  }
  const Variable variable;
  const Partition partition;
  std::vector<std::unique_ptr<Table>> tables;
};

// Expect two bytes an element, and states as they were.
TEST(StoredValues, TakeHalfTheMemory) {
  constexpr uint64_t kRows = 5000, kWidth = 64, kScratch = 1024;
  for (const bool ids : {true, false}) {
    for (const uint32_t rule : {PARALLAX_RULE_SGD, PARALLAX_RULE_ADAM}) {
      Variable variable = stored_variable(kRows, kWidth, ids, 0);
      variable.rule = rule;
      const Tables wide(variable, 1, true);
      variable.storage_dtype = PARALLAX_AS(PARALLAX_BF16);
      const Tables narrow(variable, 1, true);
      const size_t values = kRows * kWidth * sizeof(float);
      EXPECT_EQ(wide.tables[0]->array(0).size(), values);
      EXPECT_EQ(narrow.tables[0]->array(0).size(), values / 2);
      EXPECT_EQ(narrow.tables[0]->array(1).size(), wide.tables[0]->array(1).size());
      EXPECT_EQ(narrow.tables[0]->needed_bytes() + values / 2,
                wide.tables[0]->needed_bytes() + kScratch * sizeof(float));
    }
  }
}

// What a row's update leaves of a value, and of its state, by the formulas of parallax.h: each step
// rounded to float, and the value once more to what it is kept in.
void update_naively(uint32_t rule, float g, Numbers* values, size_t at, float* state) {
  constexpr float kRate = 0.3f, kEpsilon = 1e-10f;
  volatile float step = kRate * g;
  if (rule == PARALLAX_RULE_ADAGRAD) {
    const volatile float square = g * g;
    *state += square;
    step = step / (std::sqrt(*state) + kEpsilon);
  }
  const volatile float value = static_cast<float>((*values)[at]) - step;
  values->set(at, static_cast<double>(value));
}

// Three updates of some rows of a table, whose values are kept in the dtype: each number as one by
// itself would be, and rows that nobody gave as they were.
void update_rows_of(uint32_t width, uint32_t dtype, uint32_t rule) {
  constexpr uint64_t kRows = 6;
  const std::vector<uint32_t> row_keys = {4, 0, 3};
  Variable variable =
      stored_variable(kRows, width, true, dtype == PARALLAX_F32 ? 0 : PARALLAX_AS(dtype));
  variable.rule = rule;
  variable.initial_accumulator_value = 0.25f;
  variable.rounding = PARALLAX_ROUNDING_NEAREST_EVEN;
  Tables tables(variable, 1, false);
  Table& table = *tables.tables[0];
  ASSERT_EQ(table.dtype(0), dtype);
  Numbers values(dtype, Numbers::read_all(dtype, table.array(0).data(), kRows * width));
  std::vector<float> states(kRows * width, 0.25f), gradient(row_keys.size() * width);
  SeededRandom random(width);
  for (int step = 0; step < 3; ++step) {
    for (size_t i = 0; i < gradient.size(); ++i) {
      gradient[i] = static_cast<float>(random.unit() - 0.5);
      const size_t at = row_keys[i / width] * width + i % width;
      update_naively(rule, gradient[i], &values, at, &states[at]);
    }
    ReducedGradient reduced;
    reduced.contributed = reduced.has_values = reduced.rows = true;
    reduced.row_keys = row_keys.data();
    reduced.row_count = static_cast<uint32_t>(row_keys.size());
    reduced.row_elements = width;
    reduced.values = reinterpret_cast<const std::byte*>(gradient.data());
    ASSERT_EQ(table.apply(reduced, {.rule = rule, .learning_rate = 0.3f, .epsilon = 1e-10}), 0);
  }
  ASSERT_EQ(std::memcmp(table.array(0).data(), values.data(), table.array(0).size()), 0);
  if (rule == PARALLAX_RULE_ADAGRAD) {
    ASSERT_EQ(std::memcmp(table.array(1).data(), states.data(), table.array(1).size()), 0);
  }
}

// Given rows of any width, kept as they are updated or narrower, at each level of vector code:
// expect the bits of one number at a time.
TEST(StoredValues, RowsOfAnyWidthAreUpdatedAsOneNumberIs) {
  for (const uint32_t width : testkit::kRowWidths) {
    for (const uint32_t dtype : {PARALLAX_F32, PARALLAX_F16, PARALLAX_BF16}) {
      for (const uint32_t rule : {PARALLAX_RULE_SGD, PARALLAX_RULE_ADAGRAD}) {
        SCOPED_TRACE(std::to_string(width) + " " + dtype_name(dtype) + " " +
                     parallax::kRules[rule].name);
        testkit::at_each_vector_level([&] { update_rows_of(width, dtype, rule); });
        if (HasFatalFailure()) return;
      }
    }
  }
}

// Given the same updates of tables of any number of ranks, sharded and mirrored: expect the same
// bits of every element.
TEST(StoredValues, ChanceIsTheElements) {
  for (const uint32_t dtype : {PARALLAX_AS(PARALLAX_BF16), PARALLAX_AS(PARALLAX_F16)}) {
    for (const bool ids : {true, false}) {
      for (const uint64_t width : {1u, 7u, 100u, 1500u}) {
        SCOPED_TRACE(std::to_string(width) + (ids ? " rows" : " dense"));
        const Variable variable = stored_variable(23, width, ids, dtype);
        Tables first(variable, 1, true);
        first.update(3, 0.00137f);
        const std::vector<double> want = first.values();
        ASSERT_EQ(want.size(), variable.elements());
        for (const uint32_t world : {1u, 2u, 5u}) {
          for (const bool sharded : {true, false}) {
            Tables other(variable, world, sharded);
            other.update(3, 0.00137f);
            ASSERT_EQ(other.values(), want) << world << sharded;
          }
        }
      }
    }
  }
}

// Updates too small for the type are lost by rounding to nearest, and not by chance.
TEST(StoredValues, SmallUpdatesAddUp) {
  constexpr int kTimes = 400;
  constexpr float kStep = -0x1p-12f;  // a 32nd of the step of bf16 between 1 and 2
  Variable variable = stored_variable(1000, 8, true, PARALLAX_AS(PARALLAX_BF16));
  variable.init = PARALLAX_INIT_CONSTANT;
  variable.init_low = variable.init_high = 1;
  Tables by_chance(variable, 1, true);
  by_chance.update(kTimes, kStep);
  variable.rounding = PARALLAX_ROUNDING_NEAREST_EVEN;
  Tables nearest(variable, 1, true);
  nearest.update(kTimes, kStep);
  double mean = 0;
  for (const double value : by_chance.values()) mean += value / (8 * 1000);
  // A step of 2^-7 is taken with probability 1/32: of 8,000 walks of 400 throws the mean deviates
  // by 2^-7 * sqrt(400 / 32 / 8000).
  EXPECT_NEAR(mean, 1 + kTimes * 0x1p-12, 5 * 0x1p-7 * 0.04);
  for (const double value : nearest.values()) ASSERT_EQ(value, 1);
}

// Bits of other rows, columns, updates, variables and seeds are others.
TEST(StoredValues, NothingSharesItsChance) {
  std::set<uint64_t> seen;
  size_t count = 0;
  Variable variable = stored_variable(8, 8, true, PARALLAX_AS(PARALLAX_BF16));
  for (const char* name : {"a", "b", "ab", "ba"}) {
    variable.name = name;
    for (variable.init_seed = 0; variable.init_seed < 3; ++variable.init_seed) {
      for (uint64_t row = 0; row < 8; ++row) {
        for (uint64_t column = 0; column < 8; ++column, ++count) {
          seen.insert(CounterBits(rounding_seed(variable), row).at(column));
        }
      }
    }
  }
  EXPECT_EQ(seen.size(), count);
  variable.name = "table";
  variable.init = PARALLAX_INIT_CONSTANT;
  variable.init_low = variable.init_high = 1;
  variable.rows = 500;
  Tables tables(variable, 1, true);
  tables.update(1, -0x1p-8f);
  const std::vector<double> once = tables.values();
  Tables twice(variable, 1, true);
  twice.tables[0]->updates().set(0, 1);
  twice.update(1, -0x1p-8f);
  EXPECT_NE(twice.values(), once) << "the next update has the bits of the one before";
}

}  // namespace
}  // namespace parallax::stored_values
