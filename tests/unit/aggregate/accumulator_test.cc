// SPDX-License-Identifier: Apache-2.0
// Accumulates against a naive sum: any chunks, any order of arrival, absent sources, -0, NaN,
// garbage.
#include "aggregate/accumulator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <numeric>

#include "base/seeded_random.h"
#include "support/row_widths.h"
#include "support/vector_levels.h"
#include "unit/aggregate/drawn_numbers.h"

namespace parallax {
namespace {

template <typename Accumulator, typename... Options>
void reserve(Arena* arena, Accumulator* accumulator, const Options&... options) {
  Arena measure;
  accumulator->lay_out(measure, options...);
  ASSERT_TRUE(arena->reserve(measure.used_bytes()).ok());
  accumulator->lay_out(*arena, options...);
}

// Payloads lie one byte off, as in messages.
class Payload {
 public:
  template <typename T>
  void append(const T* values, size_t count) {
    const auto* bytes = reinterpret_cast<const std::byte*>(values);
    bytes_.insert(bytes_.end(), bytes, bytes + count * sizeof(T));
  }
  std::span<const std::byte> span() const { return std::span(bytes_).subspan(1); }

 private:
  std::vector<std::byte> bytes_ = std::vector<std::byte>(1);
};

// What every source gives, as it is sent: parts in order, then the end.
struct Part {
  uint32_t count = 0;
  Payload payload;
};
struct Source {
  std::vector<Part> parts;
  size_t next = 0;  // to be sent; parts.size(): the end
  bool done = false;
};

// Sends parts of sources by chance, in order within a source.
template <typename Send, typename End>
void deliver(SeededRandom& random, std::vector<Source>& sources, Send send, End end) {
  size_t left = sources.size();
  while (left > 0) {
    const auto at = static_cast<uint32_t>(random.below(sources.size()));
    Source& source = sources[at];
    if (source.done) continue;
    if (source.next < source.parts.size()) {
      ASSERT_TRUE(send(at, source.parts[source.next++]));
      continue;
    }
    source.done = true;
    --left;
    end(at);
  }
}

// ---- rows

constexpr uint32_t kWidth = 3;
constexpr uint32_t kRowKeys = 40;

Part rows_part(const std::vector<uint32_t>& row_keys, const std::vector<float>& values) {
  Part part;
  part.count = static_cast<uint32_t>(row_keys.size());
  part.payload.append(row_keys.data(), row_keys.size());
  part.payload.append(values.data(), values.size());
  return part;
}

const float* floats(const std::byte* values) { return reinterpret_cast<const float*>(values); }

// The sums of rows, one by one in the order that they are drawn in, and what they are the sums of.
struct NaiveRows {
  std::map<uint32_t, std::vector<float>> sums;
  std::map<uint32_t, std::vector<double>> magnitudes;

  void add(uint32_t row_key, const float* row) {
    auto& sum = sums.try_emplace(row_key, kWidth, 0.0f).first->second;
    auto& magnitude = magnitudes.try_emplace(row_key, kWidth, 0.0).first->second;
    for (uint32_t column = 0; column < kWidth; ++column) {
      sum[column] += row[column];
      magnitude[column] += std::fabs(static_cast<double>(row[column]));
    }
  }
};

// A source's distinct rows, or none, in parts of any size.
Source draw_rows(SeededRandom& random, NaiveRows* naive) {
  Source source;
  std::vector<uint32_t> all(kRowKeys);
  for (uint32_t i = 0; i < kRowKeys; ++i) std::swap(all[i] = i, all[random.below(i + 1)]);
  all.resize(random.chance(20) ? 0 : random.below(kRowKeys + 1));
  for (size_t at = 0; at < all.size();) {
    const size_t size = std::min<size_t>(all.size() - at, 1 + random.below(9));
    const std::vector<uint32_t> row_keys(all.begin() + static_cast<ptrdiff_t>(at),
                                         all.begin() + static_cast<ptrdiff_t>(at + size));
    std::vector<float> values(size * kWidth);
    for (float& value : values) value = draw_float(random);
    for (size_t i = 0; i < size; ++i) naive->add(row_keys[i], &values[i * kWidth]);
    source.parts.push_back(rows_part(row_keys, values));
    at += size;
  }
  return source;
}

class RowAccumulatorTest : public testing::TestWithParam<bool> {};

TEST_P(RowAccumulatorTest, AgreesWithTheNaiveSumInAnyOrderOfArrival) {
  const bool ordered = GetParam();
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    SeededRandom random(seed);
    const auto count = static_cast<uint32_t>(random.between(1, 7));
    Arena arena;
    RowAccumulator accumulator;
    reserve(&arena, &accumulator,
            RowAccumulatorOptions{.sources = count,
                                  .rows_max = kRowKeys,
                                  .source_rows_max = kRowKeys,
                                  .row_elements = kWidth,
                                  .ordered = ordered});
    for (int step = 0; step < 3; ++step) {
      accumulator.clear();
      std::vector<Source> sources(count);
      NaiveRows naive;
      for (Source& source : sources) source = draw_rows(random, &naive);
      deliver(
          random, sources,
          [&](uint32_t at, const Part& part) {
            return accumulator.add(at, part.count, part.payload.span());
          },
          [&](uint32_t at) {
            accumulator.end(at);
            EXPECT_TRUE(accumulator.ended(at));
            const bool all = std::all_of(sources.begin(), sources.end(),
                                         [](const Source& each) { return each.done; });
            EXPECT_EQ(accumulator.complete(), all);
          });
      ASSERT_EQ(accumulator.row_count(), naive.sums.size()) << "seed " << seed;
      EXPECT_EQ(accumulator.contributed(), !naive.sums.empty());
      for (uint32_t slot = 0; slot < accumulator.row_count(); ++slot) {
        const uint32_t row_key = accumulator.row_keys()[slot];
        for (uint32_t column = 0; column < kWidth; ++column) {
          const float got = floats(accumulator.row(slot))[column];
          const float want = naive.sums.at(row_key)[column];
          if (ordered) {
            ASSERT_TRUE(same_bits(got, want)) << "seed " << seed << ": " << got << ", " << want;
          } else {
            ASSERT_NEAR(static_cast<double>(got), static_cast<double>(want),
                        1e-6 * naive.magnitudes.at(row_key)[column]);
          }
        }
      }
    }
  }
}

// A source's rows as it has them where they are read, begun from +0.
struct StagedSource {
  std::vector<uint32_t> keys;
  std::vector<float> rows;
  std::vector<const std::byte*> places;

  explicit StagedSource(const Source& source) {
    for (const Part& part : source.parts) {
      const std::byte* const from = part.payload.span().data();
      const size_t before = keys.size();
      keys.resize(before + part.count);
      rows.resize(keys.size() * kWidth);
      std::memcpy(&keys[before], from, part.count * sizeof(uint32_t));
      std::memcpy(&rows[before * kWidth], from + part.count * sizeof(uint32_t),
                  part.count * kWidth * sizeof(float));
    }
    for (float& number : rows) number += 0.0f;
    for (size_t i = 0; i < keys.size(); ++i) {
      places.push_back(reinterpret_cast<const std::byte*>(&rows[i * kWidth]));
    }
  }
  bool has_rows_of(const Source& source) const {
    const StagedSource anew(source);
    return std::equal(rows.begin(), rows.end(), anew.rows.begin(), anew.rows.end(), same_bits);
  }
  // Others take the scratch meanwhile.
  bool join(RowAccumulator* accumulator, uint32_t at, SeededRandom& random,
            RowScratch* scratch) const {
    for (size_t i = 0, some = 0; i < keys.size(); i += some) {
      some = std::min<size_t>(keys.size() - i, 1 + random.below(kRowsTogether));
      if (random.chance(20)) {
        bool inserted;
        RowIndex* const index = scratch->begin(scratch, 1);
        if (index != nullptr) index->find_or_insert(keys[i], &inserted);
      }
      if (!accumulator->join(std::span(keys).subspan(i, some), &places[i])) return false;
    }
    accumulator->end(at);
    return true;
  }
};

// Some sources send their rows, the others' are read where they lie, in the order of the sources,
// once all have come. Tells of each row key where the only source that has it has it, if that is
// one of the others.
std::map<uint32_t, const std::byte*> sum_both_ways(SeededRandom& random, RowAccumulator* sum,
                                                   RowScratch* scratch,
                                                   const std::vector<Source>& sources,
                                                   std::vector<StagedSource>* staged) {
  std::map<uint32_t, const std::byte*> only;
  std::vector<uint32_t> joined;
  const uint32_t sending = random.chance(50) ? 40 : 0;
  for (uint32_t at = 0; at < sources.size(); ++at) {
    const StagedSource& rows = staged->emplace_back(sources[at]);
    const bool sends = random.chance(sending);
    for (const Part& part : sources[at].parts) {
      EXPECT_TRUE(sends ? sum->add(at, part.count, part.payload.span())
                        : sum->spend(at, part.count));
    }
    for (size_t i = 0; i < rows.keys.size(); ++i) {
      const auto [place, first] = only.try_emplace(rows.keys[i], sends ? nullptr : rows.places[i]);
      if (!first) place->second = nullptr;
    }
    sends ? sum->end(at) : joined.push_back(at);
  }
  for (const uint32_t at : joined) {
    EXPECT_TRUE((*staged)[at].join(sum, at, random, scratch));
  }
  EXPECT_TRUE(sum->complete());
  return only;
}

// Given sources of both kinds, expect the naive sum; where rows may stay, those that one source
// alone gave where that has them.
TEST_P(RowAccumulatorTest, JoinedRowsAreSummedAsSentOnesAre) {
  const bool ordered = GetParam();
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    SeededRandom random(seed);
    const auto count = static_cast<uint32_t>(random.between(1, 7));
    const bool rows_stay = random.chance(50), by_scratch = random.chance(70);
    RowScratch scratch;
    if (random.chance(20)) {  // too small
      ASSERT_TRUE(scratch.reserve(1 + random.below(kRowKeys)).ok());
    }
    Arena arena;
    RowAccumulator accumulator;
    reserve(&arena, &accumulator,
            RowAccumulatorOptions{.sources = count,
                                  .rows_max = kRowKeys,
                                  .source_rows_max = kRowKeys,
                                  .row_elements = kWidth,
                                  .ordered = ordered,
                                  .rows_stay = rows_stay,
                                  .scratch = by_scratch ? &scratch : nullptr});
    if (by_scratch && random.chance(80)) {
      ASSERT_TRUE(scratch.reserve(accumulator.rows_max()).ok());
    }
    for (int step = 0; step < 3; ++step) {
      accumulator.clear();
      NaiveRows naive;
      std::vector<Source> sources(count);
      for (Source& source : sources) source = draw_rows(random, &naive);
      std::vector<StagedSource> staged;
      staged.reserve(count);
      const auto only = sum_both_ways(random, &accumulator, &scratch, sources, &staged);
      for (uint32_t at = 0; at < count; ++at) {
        EXPECT_TRUE(staged[at].has_rows_of(sources[at])) << "who reads has written";
      }
      ASSERT_EQ(accumulator.row_count(), naive.sums.size()) << "seed " << seed;
      EXPECT_EQ(accumulator.places() != nullptr, rows_stay);
      EXPECT_EQ(accumulator.values() == nullptr, rows_stay);
      for (uint32_t slot = 0; slot < accumulator.row_count(); ++slot) {
        const uint32_t row_key = accumulator.row_keys()[slot];
        ASSERT_EQ(accumulator.index().find(row_key), slot);
        if (rows_stay && only.at(row_key) != nullptr) {
          EXPECT_EQ(accumulator.row(slot), only.at(row_key)) << "it was copied";
        }
        for (uint32_t column = 0; column < kWidth; ++column) {
          const float got = floats(accumulator.row(slot))[column];
          const float want = naive.sums.at(row_key)[column];
          ASSERT_TRUE(ordered
                          ? same_bits(got, want)
                          : std::fabs(got - want) <= 1e-6 * naive.magnitudes.at(row_key)[column])
              << "seed " << seed << ": " << got << ", " << want;
        }
      }
    }
  }
}

TEST(RowAccumulator, JoinedRowsAreBoundedAsSentOnesAre) {
  Arena arena;
  RowAccumulator accumulator;
  reserve(
      &arena, &accumulator,
      RowAccumulatorOptions{.sources = 2, .rows_max = 2, .source_rows_max = 2, .row_elements = 1});
  accumulator.clear();
  EXPECT_FALSE(accumulator.spend(0, 3));
  EXPECT_TRUE(accumulator.spend(0, 2));
  EXPECT_FALSE(accumulator.spend(0, 1));
  const std::vector<uint32_t> keys = {1, 2, 3};
  const float number = 1;
  const std::vector<const std::byte*> rows(3, reinterpret_cast<const std::byte*>(&number));
  EXPECT_FALSE(accumulator.join(keys, rows.data())) << "more distinct rows than there may be";
  accumulator.end(0);
  EXPECT_FALSE(accumulator.spend(0, 0)) << "it has ended";
}

// Rows of one width, of a few sources that have most of the row keys in common.
struct WideRows {
  explicit WideRows(uint32_t width) : width(width) {
    SeededRandom random(width);
    for (uint32_t source = 0; source < kSources; ++source) {
      for (uint32_t i = 0; i < kRowsOfEach; ++i) row_keys.push_back((5 * source + 3 * i) % kKeys);
    }
    for (size_t i = 0; i < row_keys.size() * width; ++i) {
      values.push_back(draw_float(random) + 0.0f);  // begun from +0, as sums are
      auto& sum = sums.try_emplace(row_keys[i / width], width, 0.0f).first->second;
      const volatile float next = sum[i % width] + values[i];
      sum[i % width] = next;
    }
  }
  // In messages that come before their turn; or where they lie, and some of them may stay.
  void sum(RowAccumulator* accumulator, bool sent) const {
    accumulator->clear();
    for (uint32_t turn = 0; turn < kSources; ++turn) {
      const uint32_t source = sent ? kSources - 1 - turn : turn;
      const uint32_t* const keys = &row_keys[source * kRowsOfEach];
      const float* const rows = &values[size_t{source} * kRowsOfEach * width];
      if (sent) {
        const Part part = rows_part({keys, keys + kRowsOfEach}, {rows, rows + kRowsOfEach * width});
        ASSERT_TRUE(accumulator->add(source, kRowsOfEach, part.payload.span()));
      } else {
        std::array<const std::byte*, kRowsOfEach> places;
        for (uint32_t i = 0; i < kRowsOfEach; ++i) {
          places[i] = reinterpret_cast<const std::byte*>(rows + i * width);
        }
        ASSERT_TRUE(accumulator->spend(source, kRowsOfEach));
        ASSERT_TRUE(accumulator->join({keys, kRowsOfEach}, places.data()));
      }
      accumulator->end(source);
    }
    ASSERT_EQ(accumulator->row_count(), sums.size());
    for (uint32_t slot = 0; slot < accumulator->row_count(); ++slot) {
      const std::vector<float>& want = sums.at(accumulator->row_keys()[slot]);
      ASSERT_EQ(std::memcmp(accumulator->row(slot), want.data(), width * sizeof(float)), 0)
          << width << ", row " << accumulator->row_keys()[slot];
    }
  }
  static constexpr uint32_t kSources = 3, kRowsOfEach = 5, kKeys = 7;
  const uint32_t width;
  std::vector<uint32_t> row_keys;
  std::vector<float> values;
  std::map<uint32_t, std::vector<float>> sums;
};

// Given rows of any width by each way that they come, at each level of vector code: expect the bits
// of one addition at a time, in the order of the sources.
TEST(RowAccumulator, RowsOfAnyWidthAreThoseOfOneAdditionAtATime) {
  for (const uint32_t width : testkit::kRowWidths) {
    const WideRows rows(width);
    const auto sum = [&](bool sent, bool rows_stay) {
      Arena arena;
      RowAccumulator accumulator;
      reserve(&arena, &accumulator,
              RowAccumulatorOptions{.sources = WideRows::kSources,
                                    .rows_max = WideRows::kKeys,
                                    .source_rows_max = WideRows::kRowsOfEach,
                                    .row_elements = width,
                                    .ordered = true,
                                    .rows_stay = rows_stay});
      rows.sum(&accumulator, sent);
    };
    testkit::at_each_vector_level([&] {
      sum(true, false);
      sum(false, false);
      sum(false, true);
    });
    if (HasFatalFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(Both, RowAccumulatorTest, testing::Bool());

TEST(RowAccumulator, StartsFromPlusZeroAndKeepsNan) {
  Arena arena;
  RowAccumulator accumulator;
  reserve(
      &arena, &accumulator,
      RowAccumulatorOptions{.sources = 1, .rows_max = 2, .source_rows_max = 2, .row_elements = 1});
  accumulator.clear();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Part part = rows_part({5, 6}, {-0.0f, nan});
  ASSERT_TRUE(accumulator.add(0, 2, part.payload.span()));
  EXPECT_TRUE(same_bits(*floats(accumulator.row(0)), 0.0f)) << "+0 + -0 is +0";
  EXPECT_TRUE(std::isnan(*floats(accumulator.row(1))));
}

TEST(RowAccumulator, RefusesWhatDoesNotFit) {
  for (const bool ordered : {false, true}) {
    Arena arena;
    RowAccumulator accumulator;
    reserve(&arena, &accumulator,
            RowAccumulatorOptions{.sources = 2,
                                  .rows_max = 3,
                                  .source_rows_max = 2,
                                  .row_elements = 2,
                                  .ordered = ordered});
    accumulator.clear();
    const Part two = rows_part({1, 2}, {1, 2, 3, 4});
    const std::span<const std::byte> bytes = two.payload.span();
    EXPECT_FALSE(accumulator.add(2, 2, bytes)) << "no such source";
    EXPECT_FALSE(accumulator.add(UINT32_MAX, 2, bytes));
    EXPECT_FALSE(accumulator.add(0, 1, bytes)) << "another count";
    EXPECT_FALSE(accumulator.add(0, 3, bytes));
    EXPECT_FALSE(accumulator.add(0, 2, bytes.first(bytes.size() - 1)));
    EXPECT_FALSE(accumulator.add(0, 0, bytes));
    EXPECT_FALSE(accumulator.add(0, UINT32_MAX, bytes));
    EXPECT_TRUE(accumulator.add(0, 0, {})) << "nothing is legal";
    EXPECT_TRUE(accumulator.add(0, 2, bytes));
    const Part other = rows_part({3, 4}, {1, 2, 3, 4});
    EXPECT_FALSE(accumulator.add(0, 2, other.payload.span()))
        << "more rows than all sources may have";
    accumulator.end(0);
    accumulator.end(0);
    EXPECT_FALSE(accumulator.add(0, 2, bytes)) << "after the end";
    EXPECT_FALSE(accumulator.complete());
    accumulator.end(1);
    EXPECT_TRUE(accumulator.complete());
  }
}

TEST(RowAccumulator, HoldsNoMoreThanItsBound) {
  Arena arena;
  RowAccumulator accumulator;
  reserve(
      &arena, &accumulator,
      RowAccumulatorOptions{
          .sources = 2, .rows_max = 8, .source_rows_max = 4, .row_elements = 2, .ordered = true});
  accumulator.clear();
  const Part one = rows_part({1}, {1, 2});
  int held = 0;
  while (held < 100 && accumulator.add(1, 1, one.payload.span())) ++held;
  EXPECT_EQ(held, 4) << "one source's rows, in messages of one row each";
}

// Whoever gives more than it may is refused then and there, held back or not: those after it have
// room.
TEST(RowAccumulator, ASourceTakesNoRoomOfAnother) {
  for (const bool ordered : {false, true}) {
    Arena arena;
    RowAccumulator accumulator;
    reserve(&arena, &accumulator,
            RowAccumulatorOptions{.sources = 3,
                                  .rows_max = 5,
                                  .rows_max_of = {2, 1, 2},
                                  .row_elements = 1,
                                  .ordered = ordered});
    for (int step = 0; step < 2; ++step) {
      accumulator.clear();
      const Part three = rows_part({5, 6, 7}, {1, 2, 3});
      const Part two = rows_part({8, 9}, {1, 2});
      const Part others = rows_part({3, 4}, {1, 2});
      const Part one = rows_part({1}, {1});
      EXPECT_FALSE(accumulator.add(2, 3, three.payload.span()));
      EXPECT_FALSE(accumulator.add(1, 2, two.payload.span()));
      EXPECT_TRUE(accumulator.add(1, 1, one.payload.span()));
      EXPECT_FALSE(accumulator.add(1, 1, one.payload.span())) << "also the same row again";
      EXPECT_TRUE(accumulator.add(2, 2, two.payload.span()));
      EXPECT_FALSE(accumulator.add(0, 3, three.payload.span()));
      EXPECT_TRUE(accumulator.add(0, 2, others.payload.span()));
      for (uint32_t source = 0; source < 3; ++source) accumulator.end(source);
      EXPECT_TRUE(accumulator.complete());
      EXPECT_EQ(accumulator.row_count(), 5u);
    }
  }
}

}  // namespace
}  // namespace parallax
