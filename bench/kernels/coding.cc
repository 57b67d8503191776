// SPDX-License-Identifier: Apache-2.0
// Google Benchmark over the codes of row keys and numbers (docs/adr/0111): what a key or a number
// takes in bits, and how fast both ways are. Keys are evenly drawn, numbers normal.
#include <benchmark/benchmark.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <numbers>
#include <set>
#include <vector>

#include "base/number.h"
#include "base/seeded_random.h"
#include "message/number_coding.h"
#include "message/row_key_coding.h"

namespace parallax {
namespace {

void count_items(benchmark::State& state, size_t items, size_t coded_bytes) {
  const double bits = 8 * static_cast<double>(coded_bytes) / static_cast<double>(items);
  state.SetItemsProcessed(state.iterations() * static_cast<int64_t>(items));
  state.counters["bits"] = bits;
}

// Arguments: how many keys of how many rows; 1 to read, 0 to code.
void row_keys(benchmark::State& state) {
  const auto count = static_cast<size_t>(state.range(0));
  SeededRandom random(1);
  std::set<uint32_t> drawn;
  while (drawn.size() < count) {
    drawn.insert(static_cast<uint32_t>(random.below(static_cast<uint64_t>(state.range(1)))));
  }
  const std::vector<uint32_t> keys(drawn.begin(), drawn.end());
  std::vector<uint32_t> read(count);
  std::vector<std::byte> out(count * sizeof(uint32_t));
  const size_t bytes = code_row_keys(keys, out);
  for (auto iteration : state) {
    (void)iteration;
    size_t used = 0;
    const bool right =
        state.range(2) == 0
            ? code_row_keys(keys, out) == bytes
            : read_row_keys({out.data(), bytes}, static_cast<uint32_t>(count), read.data(), &used);
    if (!right) std::abort();
    benchmark::ClobberMemory();
  }
  count_items(state, count, bytes);
}

// Arguments: bytes of a number, how many; 1 to read, 0 to code.
void numbers(benchmark::State& state) {
  const auto bytes_each = static_cast<uint32_t>(state.range(0));
  const auto count = static_cast<size_t>(state.range(1));
  SeededRandom random(2);
  std::vector<std::byte> given(count * bytes_each);
  for (size_t i = 0; i < count; ++i) {
    const double radius = std::sqrt(-2 * std::log(1 - random.unit()));
    const auto value = static_cast<float>(radius * std::cos(2 * std::numbers::pi * random.unit()));
    const BFloat rounded = to_bfloat(value);
    const void* const from = bytes_each == 2 ? static_cast<const void*>(&rounded) : &value;
    std::memcpy(&given[i * bytes_each], from, bytes_each);
  }
  std::vector<std::byte> out(given.size()), read(given.size());
  const size_t bytes = code_numbers(bytes_each, given.data(), count, out);
  for (auto iteration : state) {
    (void)iteration;
    const bool right = state.range(2) == 0
                           ? code_numbers(bytes_each, given.data(), count, out) == bytes
                           : read_numbers(bytes_each, {out.data(), bytes}, count, read.data());
    if (!right) std::abort();
    benchmark::ClobberMemory();
  }
  count_items(state, count, bytes);
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(given.size()));
}

BENCHMARK(row_keys)
    ->ArgNames({"keys", "rows", "read"})
    ->ArgsProduct({{50, 800}, {400'000}, {0, 1}})
    ->ArgsProduct({{1'000}, {2'000}, {0, 1}})
    ->ArgsProduct({{16'000}, {10'000'000}, {0, 1}});
BENCHMARK(numbers)
    ->ArgNames({"bytes_each", "count", "read"})
    ->ArgsProduct({{2, 4}, {64, 8'192}, {0, 1}});

}  // namespace
}  // namespace parallax

BENCHMARK_MAIN();
