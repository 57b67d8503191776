// SPDX-License-Identifier: Apache-2.0
// Tables: initial values wherever a row lies, the two rules, and moving between placements both
// ways.
#include "server/table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <numeric>
#include <vector>

#include "aggregate/accumulator.h"
#include "base/seeded_random.h"
#include "support/slot_maps.h"
#include "variable/initial_value.h"

namespace parallax {
namespace {

Variable variable_of(uint64_t rows, uint64_t width, bool ids, uint32_t rule) {
  Variable variable;
  variable.name = "v";
  variable.rows = rows;
  variable.row_elements = width;
  variable.rule = rule;
  variable.rows_max = ids ? 4 : 0;
  variable.init = PARALLAX_INIT_UNIFORM;
  variable.init_high = 1;
  variable.epsilon = 1e-10;
  variable.initial_accumulator_value = 0.25f;
  return variable;
}

std::span<float> floats(std::span<std::byte> bytes) {
  return {reinterpret_cast<float*>(bytes.data()), bytes.size() / sizeof(float)};
}
std::span<float> values_of(Table& table) { return floats(table.array(0)); }
const float* floats_at(const std::byte* number) { return reinterpret_cast<const float*>(number); }

struct Tables {
  Tables(const Variable& of, uint32_t world_size)
      : Tables(of, world_size, testkit::even_slots(world_size)) {}
  Tables(const Variable& of, uint32_t world_size, const SlotMap& slots)
      : variable(of), partition(of.rows, of.row_elements, of.ids_declared(), slots, 1) {
    for (uint32_t rank = 0; rank < world_size; ++rank) {
      shards.push_back(make(rank, true));
      mirrors.push_back(make(rank, false));
    }
  }
  std::unique_ptr<Table> make(uint32_t rank, bool sharded) const {
    auto table = std::make_unique<Table>(variable, partition, rank, sharded);
    EXPECT_TRUE(table->reserve().ok());
    uint64_t left = 0;
    do {
      left = 100;
    } while (!table->initialize(&left));
    return table;
  }
  const Variable variable;
  const Partition partition;
  std::vector<std::unique_ptr<Table>> shards, mirrors;
};

struct Shape {
  uint64_t rows, width;
  bool ids;
};
constexpr Shape kShapes[] = {{1, 1, true},     {100, 3, true}, {7, 300, true},
                             {1000, 1, false}, {3, 5, false},  {2, 700, false}};

// `want` gives the value of a row and column, which must lie wherever that row does.
void expect_values(const Tables& tables, const Shape& shape,
                   const std::function<float(uint64_t row, uint64_t column)>& want) {
  for (uint64_t at = 0; at < shape.rows * shape.width; ++at) {
    const uint64_t row = at / shape.width;
    const float value = want(row, at % shape.width);
    if (!shape.ids) {
      ASSERT_EQ(*floats_at(tables.mirrors.back()->element(at)), value);
      for (uint32_t owner = 0; owner < tables.shards.size(); ++owner) {
        // Wraps to a huge number if it lies before.
        const Range here = tables.partition.range_of(owner);
        if (at - here.first >= here.count) continue;
        ASSERT_EQ(*floats_at(tables.shards[owner]->element(at)), value);
      }
      continue;
    }
    const uint32_t row_key = tables.partition.row_key_of(row);
    const uint32_t owner = tables.partition.owner_of(row_key);
    ASSERT_EQ(floats_at(tables.shards[owner]->row(row_key))[at % shape.width], value);
    ASSERT_EQ(floats_at(tables.mirrors.back()->row(row_key))[at % shape.width], value);
  }
}

TEST(Table, InitialValuesFollowTheRow) {
  for (const Shape& shape : kShapes) {
    for (uint32_t init = PARALLAX_INIT_UNIFORM; init <= PARALLAX_INIT_TRUNCATED_NORMAL; ++init) {
      for (const uint32_t world : {1u, 2u, 5u}) {
        Variable variable = variable_of(shape.rows, shape.width, shape.ids, PARALLAX_RULE_ADAGRAD);
        variable.init = init;
        variable.init_std = 2;
        const Tables tables(variable, world);
        expect_values(tables, shape, [&variable](uint64_t row, uint64_t column) {
          return static_cast<float>(initial_value(variable, row, column));
        });
        for (auto& shard : tables.shards) {
          for (const float state : floats(shard->array(1))) ASSERT_EQ(state, 0.25f);
        }
      }
    }
  }
}

// From a buffer of each rank's own, and in pieces of any size from elsewhere.
TEST(Table, GivenValuesFollowTheRow) {
  for (const Shape& shape : kShapes) {
    std::vector<float> values(shape.rows * shape.width);
    std::iota(values.begin(), values.end(), 1.0f);
    const std::span<const std::byte> bytes = std::as_bytes(std::span(values));
    const auto want = [&](uint64_t row, uint64_t column) {
      return values[row * shape.width + column];
    };
    for (const uint32_t world : {1u, 2u, 5u}) {
      Variable variable = variable_of(shape.rows, shape.width, shape.ids, PARALLAX_RULE_ADAGRAD);
      variable.init = PARALLAX_INIT_BUFFER;
      variable.initial = bytes.data();
      expect_values(Tables(variable, world), shape, want);

      variable.init = PARALLAX_INIT_BROADCAST;
      variable.initial = nullptr;
      const Tables tables(variable, world);
      for (const auto* each : {&tables.shards, &tables.mirrors}) {
        for (const auto& table : *each) {
          for (const float value : values_of(*table)) ASSERT_EQ(value, 0.0f);
          for (size_t first = 0, piece = 1; first < values.size(); first += piece, ++piece) {
            piece = std::min(piece, values.size() - first);
            table->take_values(first, bytes.subspan(first * sizeof(float), piece * sizeof(float)));
          }
        }
      }
      expect_values(tables, shape, want);
      for (auto& shard : tables.shards) {
        for (const float state : floats(shard->array(1))) ASSERT_EQ(state, 0.25f);
      }
    }
  }
}

// Owners' parts into a mirror and out of it again: nothing is lost, nothing is moved.
TEST(Table, MovesBothWaysKeepEveryBit) {
  for (const Shape& shape : kShapes) {
    for (const uint32_t rule : {PARALLAX_RULE_ADAM, PARALLAX_RULE_ROWWISE_ADAGRAD}) {
      if (rule == PARALLAX_RULE_ROWWISE_ADAGRAD && !shape.ids) continue;
      for (const uint32_t world : {1u, 2u, 5u, 9u}) {
        Tables tables(variable_of(shape.rows, shape.width, shape.ids, rule), world);
        Table& mirror = *tables.mirrors[0];
        Table& copy = *tables.mirrors[world - 1];
        for (uint32_t array = 0; array < mirror.array_count(); ++array) {
          float next = 1;
          for (float& number : floats(mirror.array(array))) number = next++;
        }
        mirror.updates().set(0, 17);
        for (uint32_t owner = 0; owner < world; ++owner) {
          Table& shard = *tables.shards[owner];
          shard.take_own_part(mirror);
          ASSERT_EQ(shard.updates().of_first(), 17u);
          for (uint32_t array = 0; array < mirror.array_count(); ++array) {
            const std::span<const std::byte> part = shard.array(array);
            const size_t half = part.size() / 8 * 4;
            ASSERT_TRUE(copy.place_part(array, owner, 0, part.first(half)));
            ASSERT_TRUE(copy.place_part(array, owner, half / 4, part.subspan(half)));
            std::array<std::byte, 4> more = {};
            ASSERT_FALSE(copy.place_part(array, owner, part.size() / 4, more)) << "beyond its end";
            ASSERT_FALSE(copy.place_part(array, owner, UINT64_MAX, more));
          }
        }
        for (uint32_t array = 0; array < mirror.array_count(); ++array) {
          float next = 1;
          for (const float number : floats(copy.array(array))) ASSERT_EQ(number, next++);
        }
      }
    }
  }
}

TEST(Table, RulesFollowTheirFormulas) {
  SeededRandom random(5);
  for (const uint32_t rule : {PARALLAX_RULE_SGD, PARALLAX_RULE_ADAGRAD}) {
    Variable variable = variable_of(10, 2, true, rule);
    const Tables tables(variable, 1);
    Table& table = *tables.shards[0];
    std::vector<float> values(values_of(table).begin(), values_of(table).end());
    std::vector<float> states(values.size(), 0.25f);
    const std::vector<uint32_t> row_keys = {3, 8, 0};
    for (int step = 0; step < 50; ++step) {
      std::vector<float> gradient(6);
      for (float& g : gradient) g = static_cast<float>(random.unit() - 0.5);
      const auto scale = static_cast<float>(random.unit());
      ReducedGradient reduced;
      reduced.has_values = true;
      reduced.rows = true;
      reduced.row_count = 3;
      reduced.row_elements = 2;
      reduced.row_keys = row_keys.data();
      reduced.values = reinterpret_cast<const std::byte*>(gradient.data());
      table.apply(reduced, {.rule = rule, .learning_rate = 0.3f, .scale = scale, .epsilon = 1e-10});
      for (size_t i = 0; i < 6; ++i) {
        const size_t at = row_keys[i / 2] * 2 + i % 2;
        const float g = gradient[i] * scale;
        if (rule == PARALLAX_RULE_SGD) {
          values[at] -= 0.3f * g;
        } else {
          states[at] += g * g;
          values[at] -= 0.3f * g / (std::sqrt(states[at]) + 1e-10f);
        }
      }
      ASSERT_TRUE(std::equal(values.begin(), values.end(), values_of(table).begin())) << step;
    }
    ReducedGradient nothing;
    table.apply(nothing, {.rule = rule, .learning_rate = 9});
    ASSERT_TRUE(std::equal(values.begin(), values.end(), values_of(table).begin()));
  }
}

// Receive rows of which the last does not lie here: expect the first not to be written either.
TEST(Table, ARefusedSectionWritesNothing) {
  const Tables tables(variable_of(30, 2, true, PARALLAX_RULE_SGD), 3);
  const std::vector<float> ones(4, 1);
  for (const bool sharded : {true, false}) {
    Table& table = sharded ? *tables.shards[0] : *tables.mirrors[0];
    const std::vector<float> before(values_of(table).begin(), values_of(table).end());
    SectionHeader header{.kind = SectionKind::kRowsWrite, .encoding = Encoding::kRows};
    header.count = 2;
    const auto write = [&](uint32_t first, uint32_t second) {
      std::vector<std::byte> payload(2 * sizeof(uint32_t) + sizeof(float) * ones.size());
      std::memcpy(&payload[0], &first, sizeof first);
      std::memcpy(&payload[4], &second, sizeof second);
      std::memcpy(&payload[8], ones.data(), sizeof(float) * ones.size());
      return table.write_section({header, payload});
    };
    EXPECT_FALSE(write(0, 30)) << "beyond the variable";
    if (sharded) {
      EXPECT_FALSE(write(0, 1)) << "rank 1's";
    }
    EXPECT_TRUE(std::equal(before.begin(), before.end(), values_of(table).begin()));
    EXPECT_TRUE(write(0, 3));
    EXPECT_EQ(floats_at(table.row(0))[1], 1);
    EXPECT_EQ(floats_at(table.row(3))[0], 1);
  }
}

TEST(Table, RowsMadeDenseThatNobodyGaveAreLeftAlone) {
  const Tables tables(variable_of(4, 2, true, PARALLAX_RULE_ADAGRAD), 1);
  Table& table = *tables.mirrors[0];
  const std::vector<float> before(values_of(table).begin(), values_of(table).end());
  const std::vector<float> gradient = {kNoRow, kNoRow, 1, 2, kNoRow, kNoRow, 0, 0};
  ReducedGradient reduced;
  reduced.has_values = true;
  reduced.values = reinterpret_cast<const std::byte*>(gradient.data());
  reduced.count = 8;
  // A norm of NaN: what was touched is lost, as in the framework, what was not is not.
  table.apply(reduced, {.rule = PARALLAX_RULE_ADAGRAD, .learning_rate = 1, .scale = NAN});
  for (const size_t kept : {0, 1, 4, 5}) EXPECT_EQ(values_of(table)[kept], before[kept]);
  for (const size_t touched : {2, 3, 6, 7}) EXPECT_TRUE(std::isnan(values_of(table)[touched]));
}

// Row-lazy: given weight decay of either kind, expect rows that nobody gave to stay as they are.
TEST(Table, OnlyRowsThatAreGivenDecay) {
  for (const bool decoupled : {false, true}) {
    const Tables tables(variable_of(4, 2, true, PARALLAX_RULE_SGD), 1);
    Table& table = *tables.mirrors[0];
    const std::vector<float> before(values_of(table).begin(), values_of(table).end());
    const std::vector<float> gradient = {kNoRow, kNoRow, 0, 0, kNoRow, kNoRow, kNoRow, kNoRow};
    ReducedGradient reduced;
    reduced.has_values = true;
    reduced.values = reinterpret_cast<const std::byte*>(gradient.data());
    reduced.count = 8;
    table.apply(reduced, {.rule = PARALLAX_RULE_SGD,
                          .learning_rate = 0.5,
                          .weight_decay = 0.5,
                          .decoupled = decoupled});
    for (size_t at = 0; at < 8; ++at) {
      const bool given = at == 2 || at == 3;
      EXPECT_EQ(values_of(table)[at], given ? before[at] - 0.25f * before[at] : before[at]) << at;
    }
  }
}

// Longer than the pieces in which a variable without row ids is updated: every element once.
TEST(Table, EveryElementDecaysOnce) {
  const Tables tables(variable_of(5000, 2, false, PARALLAX_RULE_ADAGRAD), 1);
  Table& table = *tables.mirrors[0];
  const std::vector<float> before(values_of(table).begin(), values_of(table).end());
  std::vector<float> gradient(before.size());
  for (size_t at = 0; at < gradient.size(); ++at) gradient[at] = static_cast<float>(at % 7 + 1);
  ReducedGradient reduced;
  reduced.has_values = true;
  reduced.values = reinterpret_cast<const std::byte*>(gradient.data());
  reduced.count = gradient.size();
  table.apply(reduced, {.rule = PARALLAX_RULE_ADAGRAD,
                        .learning_rate = 0.5,
                        .weight_decay = 0.5,
                        .decoupled = true,
                        .epsilon = 1e-10});
  const std::span<const float> states = floats(table.array(1));
  for (size_t at = 0; at < before.size(); ++at) {
    const float g = gradient[at];
    const float state = 0.25f + g * g;
    ASSERT_EQ(states[at], state) << at;
    ASSERT_EQ(values_of(table)[at], before[at] * 0.75f - 0.5f * g / (std::sqrt(state) + 1e-10f))
        << at;
  }
}

}  // namespace
}  // namespace parallax
