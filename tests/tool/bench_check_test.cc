// SPDX-License-Identifier: Apache-2.0
// The check of `parallax bench`: right buffers pass, and each way of being wrong is counted.
#include "tool/bench/check.h"

#include <gtest/gtest.h>

#include <bit>
#include <cstdio>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tool/bench/measure.h"
#include "tool/bench/options.h"
#include "tool/bench/print.h"
#include "tool/bench/zipf.h"
#include "tool/tool.h"

namespace parallax::tool::bench {
namespace {

constexpr uint32_t kDtypes[] = {PARALLAX_F32,  PARALLAX_F64, PARALLAX_F16,
                                PARALLAX_BF16, PARALLAX_I32, PARALLAX_I64};
constexpr uint64_t kWidth = 3;

std::vector<std::byte> numbers(uint32_t dtype, const std::vector<double>& values) {
  std::vector<std::byte> bytes(values.size() * bytes_of_dtype(dtype));
  with_dtype(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    for (size_t i = 0; i < values.size(); ++i) store<T>(values[i], bytes.data() + i * sizeof(T));
  });
  return bytes;
}

const std::vector<std::vector<int64_t>> kIds = {{4, 9, 4}, {9, 2, 7}};

// Rows of kIds summed by hand, ascending.
std::map<int64_t, std::vector<double>> sums_by_hand() {
  std::map<int64_t, std::vector<double>> sums;
  for (uint32_t rank = 0; rank < kIds.size(); ++rank) {
    for (const int64_t id : kIds[rank]) {
      auto& row = sums.try_emplace(id, kWidth, 0.0).first->second;
      for (uint64_t column = 0; column < kWidth; ++column) {
        row[column] += element_of(rank, static_cast<uint64_t>(id), column);
      }
    }
  }
  return sums;
}

struct Rows {
  std::vector<int64_t> ids;
  std::vector<double> values;
};

Rows right_rows() {
  Rows rows;
  for (const auto& [id, values] : sums_by_hand()) {
    rows.ids.push_back(id);
    rows.values.insert(rows.values.end(), values.begin(), values.end());
  }
  return rows;
}

uint64_t wrong_in(const Rows& rows) {
  const auto bytes = numbers(PARALLAX_F32, rows.values);
  return count_wrong_rows({.dtype = PARALLAX_F32,
                           .width = kWidth,
                           .ids = rows.ids.data(),
                           .values = bytes.data(),
                           .count = rows.ids.size()},
                          RowUnion(kIds));
}

TEST(BenchCheck, CountsWrongElementsOfEveryDtype) {
  constexpr uint32_t kWorld = 3;
  constexpr uint64_t kCount = 20;
  const DenseSum sum(kWorld);
  for (const uint32_t dtype : kDtypes) {
    std::vector<double> total(kCount, 0);
    std::vector<std::byte> given(kCount * bytes_of_dtype(dtype));
    for (uint32_t rank = 0; rank < kWorld; ++rank) {
      fill_dense({.dtype = dtype, .rank = rank, .count = kCount}, given.data());
      with_dtype(dtype, [&](auto tag) {
        using T = typename decltype(tag)::type;
        for (uint64_t i = 0; i < kCount; ++i) {
          total[i] += static_cast<double>(load<T>(given.data() + i * sizeof(T)));
        }
      });
    }
    EXPECT_EQ(count_wrong(dtype, numbers(dtype, total).data(), kCount, 1, sum), 0u) << dtype;
    total[0] += 1;
    total[13] -= 1;
    EXPECT_EQ(count_wrong(dtype, numbers(dtype, total).data(), kCount, 1, sum), 2u) << dtype;
    std::swap(total[4], total[5]);
    EXPECT_EQ(count_wrong(dtype, numbers(dtype, total).data(), kCount, 1, sum), 4u) << dtype;
  }
}

TEST(BenchCheck, OneBitAndNoNumberAreWrong) {
  const auto expected = [](uint64_t) { return 5.0; };
  float value = std::bit_cast<float>(std::bit_cast<uint32_t>(5.0F) + 1);
  EXPECT_EQ(count_wrong(PARALLAX_F32, reinterpret_cast<std::byte*>(&value), 1, 1, expected), 1u);
  value = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(count_wrong(PARALLAX_F32, reinterpret_cast<std::byte*>(&value), 1, 1, expected), 1u);
  EXPECT_EQ(count_wrong(PARALLAX_F32, reinterpret_cast<std::byte*>(&value), 1, 3, expected), 1u);
  // An average may be off by the last place, not by more.
  value = std::bit_cast<float>(std::bit_cast<uint32_t>(5.0F / 3) + 1);
  EXPECT_EQ(count_wrong(PARALLAX_F32, reinterpret_cast<std::byte*>(&value), 1, 3, expected), 0u);
  value = 5.0F / 3 * (1 + 0x1p-20F);
  EXPECT_EQ(count_wrong(PARALLAX_F32, reinterpret_cast<std::byte*>(&value), 1, 3, expected), 1u);
}

TEST(BenchCheck, CountsRowsThatAreWrongMissingOrTooMany) {
  EXPECT_EQ(wrong_in(right_rows()), 0u);
  Rows rows = right_rows();
  rows.values[1] += 1;
  EXPECT_EQ(wrong_in(rows), 1u);

  rows = right_rows();  // without its second row
  rows.ids.erase(rows.ids.begin() + 1);
  rows.values.erase(rows.values.begin() + kWidth, rows.values.begin() + 2 * kWidth);
  EXPECT_EQ(wrong_in(rows), kWidth);

  rows = right_rows();
  rows.ids.push_back(1000);
  rows.values.insert(rows.values.end(), kWidth, 1.0);
  EXPECT_EQ(wrong_in(rows), kWidth);

  EXPECT_EQ(wrong_in({}), RowUnion(kIds).size() * kWidth);
}

TEST(BenchCheck, PulledRowsFollowTheRule) {
  const auto sums = sums_by_hand();
  const RowUnion all(kIds);
  const std::vector<int64_t>& ids = kIds[0];  // with a duplicate
  RuleModel model({.rule = PARALLAX_RULE_SGD, .dtype = PARALLAX_F32, .width = kWidth}, ids, all);
  const auto expect_factor = [&](double factor) {
    std::vector<double> values;
    for (const int64_t id : ids) {
      for (const double sum : sums.at(id)) values.push_back(factor * sum);
    }
    const auto wrong = [&] {
      return count_wrong_pulled(PARALLAX_F32, ids, numbers(PARALLAX_F32, values).data(), kWidth,
                                model);
    };
    EXPECT_EQ(wrong(), 0u) << factor;
    values[2 * kWidth] += 1;
    EXPECT_EQ(wrong(), 1u) << factor;
  };
  expect_factor(0);
  model.advance(1);
  expect_factor(-kLearningRate);
  model.advance(2);
  expect_factor(0);
  model.advance(5);
  expect_factor(-kLearningRate);
}

TEST(BenchCheck, AnotherOperationsResultIsWrong) {
  constexpr uint64_t kCount = 20, kShift = 1;
  const DenseSum sum(1);
  std::vector<std::byte> dense(kCount * sizeof(float));
  fill_dense({.dtype = PARALLAX_F32, .count = kCount, .shift = kShift}, dense.data());
  const auto shifted = [&](uint64_t i) { return sum(i + kShift); };
  EXPECT_EQ(count_wrong(PARALLAX_F32, dense.data(), kCount, 1, shifted), 0u);
  EXPECT_EQ(count_wrong(PARALLAX_F32, dense.data(), kCount, 1, sum), kCount);

  const std::vector<int64_t> ids = {2, 4, 9};
  const RowUnion all({ids});
  const uint64_t elements = ids.size() * kWidth;
  std::vector<std::byte> values(elements * sizeof(float));
  RowsFill fill = {.dtype = PARALLAX_F32, .ids = ids, .width = kWidth, .shift = kShift};
  fill_rows(fill, values.data());
  ReducedRows rows = {.dtype = PARALLAX_F32,
                      .width = kWidth,
                      .shift = kShift,
                      .ids = ids.data(),
                      .values = values.data(),
                      .count = ids.size()};
  EXPECT_EQ(count_wrong_rows(rows, all), 0u);
  rows.shift = 0;
  EXPECT_EQ(count_wrong_rows(rows, all), elements);

  RuleModelOptions options = {.dtype = PARALLAX_F32, .width = kWidth, .shift = kShift};
  options.rule = PARALLAX_RULE_SUM;
  for (const uint64_t shift : {kShift, uint64_t{0}}) {
    options.shift = shift;
    RuleModel model(options, ids, all);
    model.advance(1);
    EXPECT_EQ(count_wrong_pulled(PARALLAX_F32, ids, values.data(), kWidth, model),
              shift == kShift ? 0u : elements);
  }
}

Options kinds_of(const std::string& dtypes, const std::string& reductions, uint32_t rule) {
  Options options;
  options.rule = rule;
  options.kinds.clear();
  EXPECT_TRUE(parse_kinds(dtypes, reductions, &options).ok());
  return options;
}

TEST(BenchOptions, AllIsWhatTheTypesTake) {
  const auto pairs = [](const Options& options) {
    std::vector<std::string> pairs;
    for (const Kind& kind : options.kinds) {
      pairs.push_back(std::string(dtype_name_of_nccl(kind.dtype)) + " " +
                      reduction_name(kind.reduction));
    }
    return pairs;
  };
  using Pairs = std::vector<std::string>;
  EXPECT_EQ(pairs(kinds_of("all", "all", PARALLAX_RULE_SUM)),
            (Pairs{"int32 sum", "int64 sum", "half sum", "half avg", "float sum", "float avg",
                   "double sum", "double avg", "bfloat16 sum", "bfloat16 avg"}));
  EXPECT_EQ(pairs(kinds_of("all", "avg", PARALLAX_RULE_SUM)),
            (Pairs{"half avg", "float avg", "double avg", "bfloat16 avg"}));
  EXPECT_EQ(pairs(kinds_of("i32", "all", PARALLAX_RULE_SUM)), (Pairs{"int32 sum"}));
  EXPECT_EQ(pairs(kinds_of("all", "sum", PARALLAX_RULE_SGD)),
            (Pairs{"half sum", "float sum", "double sum", "bfloat16 sum"}));
  Options options;
  options.rule = PARALLAX_RULE_SUM;
  EXPECT_EQ(parse_kinds("int32", "avg", &options).code(), PARALLAX_INVALID);
  options.rule = PARALLAX_RULE_SGD;
  EXPECT_EQ(parse_kinds("int32", "all", &options).code(), PARALLAX_INVALID);
  EXPECT_EQ(parse_kinds("float", "prod", &options).code(), PARALLAX_UNSUPPORTED);
  EXPECT_EQ(parse_kinds("uint8", "sum", &options).code(), PARALLAX_UNSUPPORTED);
  EXPECT_EQ(parse_kinds("fp8", "sum", &options).code(), PARALLAX_INVALID);
}

TEST(BenchOptions, FlagsOfNcclTests) {
  std::vector<std::string> words = {"bench", "allreduce", "-T",  "3",           "-m", "5",
                                    "-N",    "0",         "-C",  "1",           "-r", "-1",
                                    "-g",    "1",         "-p0", "--blocking=1"};
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  Options options;
  int exit_status = kExitOk;
  ASSERT_TRUE(parse_options(static_cast<int>(argv.size()), argv.data(), &options, &exit_status));
  EXPECT_EQ(options.timeout_ms, 3000u);
  EXPECT_EQ(options.operations, 5u);
  EXPECT_EQ(options.cycles, 0u);
  EXPECT_TRUE(options.processor_time);
}

TEST(BenchOptions, EveryKindHasEverySize) {
  Options options = kinds_of("all", "sum", PARALLAX_RULE_SUM);
  options.bytes_min = 1;  // no type is so small: one element
  options.bytes_max = 16;
  options.factor = 16;
  std::vector<Point> points;
  ASSERT_TRUE(plan_points(options, &points).ok());
  std::vector<uint64_t> bytes;
  for (const Point& point : points) bytes.push_back(point.bytes);
  EXPECT_EQ(bytes, (std::vector<uint64_t>{4, 16, 8, 16, 2, 16, 4, 16, 8, 16, 2, 16}));
}

TEST(BenchWorkload, RanksDrawTheirOwnRows) {
  constexpr uint64_t kRows = 1'000'000, kCount = 1000;
  const auto first = draw_ids(kRows, 0, 1, 0, kCount);
  EXPECT_EQ(first, draw_ids(kRows, 0, 1, 0, kCount));
  for (const auto& other : {draw_ids(kRows, 0, 1, 1, kCount), draw_ids(kRows, 0, 2, 0, kCount)}) {
    const RowUnion both({first, other});
    EXPECT_GT(both.size(), 2 * kCount * 9 / 10);
  }
  const RowUnion skewed({draw_ids(kRows, 2, 1, 0, kCount)});
  EXPECT_LT(skewed.size(), kCount / 4);
  EXPECT_EQ(skewed.id(0), 0);
  EXPECT_GE(skewed.largest_sum(), static_cast<double>(kCount) / 2);
}

TEST(BenchPrint, WrongElementsFailTheRun) {
  const Options options;
  for (const bool prints : {true, false}) {
    std::FILE* const out = prints ? std::tmpfile() : nullptr;
    Printer printer(options, 2, 1, out);
    ASSERT_TRUE(printer.begin().ok());
    Line line;
    line.method = "allreduce";
    ASSERT_TRUE(printer.add(line).ok());
    EXPECT_EQ(printer.exit_status(), kExitOk);
    line.wrong = 3;
    ASSERT_TRUE(printer.add(line).ok());
    ASSERT_TRUE(printer.end().ok());
    EXPECT_EQ(printer.exit_status(), kExitNo);
    if (!prints) continue;
    std::rewind(out);
    std::string text(4096, '\0');
    text.resize(std::fread(text.data(), 1, text.size(), out));
    EXPECT_NE(text.find("Out of bounds values : 3 FAILED"), std::string::npos) << text;
    std::fclose(out);
  }
}

TEST(BenchMeasure, FactorsOfBusBandwidth) {
  Line line;
  line.point.rows = 100;
  line.distinct_rows = 50;
  line.union_rows = 80;
  EXPECT_DOUBLE_EQ(received_share(Operation::kAllreduce, 4, line), 1.5);
  EXPECT_DOUBLE_EQ(received_share(Operation::kAllgatherv, 4, line), 1.5);
  EXPECT_DOUBLE_EQ(received_share(Operation::kReduceRows, 4, line), 0.75 * 1.3);
  EXPECT_DOUBLE_EQ(received_share(Operation::kPushPull, 4, line), 0.75);
  EXPECT_DOUBLE_EQ(quantile({3, 1, 2}, 0.5), 2);
  EXPECT_DOUBLE_EQ(quantile({0, 100}, 0.99), 99);
  EXPECT_DOUBLE_EQ(quantile({7}, 0.99), 7);
}

}  // namespace
}  // namespace parallax::tool::bench
