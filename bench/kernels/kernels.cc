// SPDX-License-Identifier: Apache-2.0
// Google Benchmark over the library's hot kernels, each beside memcpy of as many bytes in the same
// run. Bytes are those of the elements that go into a kernel, once (of ids for the hash to owner);
// an argument gives them, the other the width of a row. The formulas are in bench/METRICS.md.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <span>
#include <string>
#include <vector>

#include "aggregate/accumulator.h"
#include "aggregate/dense_accumulator.h"
#include "aggregate/row_coalescer.h"
#include "aggregate/row_kernels.h"
#include "base/arena.h"
#include "base/number.h"
#include "base/vector_code.h"
#include "server/update_rules.h"
#include "tool/bench/workload.h"
#include "tool/bench/zipf.h"
#include "variable/partition.h"
#include "variable/rule_table.h"

namespace parallax {
namespace {

constexpr int64_t kWidths[] = {1, 8, 64, 256};
constexpr int64_t kByteCounts[] = {16 << 10, 1 << 20, 16 << 20};
constexpr double kMemcpySeconds = 0.01;
constexpr size_t kMemcpyBatchBytes = 1 << 20;
constexpr uint32_t kWorld = 8;
constexpr uint64_t kTableRowsPerRow = 4;  // rows of a variable, per row of a slice
constexpr double kSkew = 1;
constexpr uint64_t kSeed = 1;

// Processor time of this thread: what other programs take is left out, for kernel and memcpy alike.
double cpu_seconds() {
  timespec now = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

std::vector<std::byte> some_values(uint32_t dtype, uint64_t count) {
  std::vector<std::byte> values(count * bytes_of_dtype(dtype));
  tool::bench::fill_dense({.dtype = dtype, .count = count}, values.data());
  return values;
}

double memcpy_bytes_per_second(size_t bytes) {
  const std::vector<std::byte> from(bytes, std::byte{1});
  std::vector<std::byte> to(bytes);
  const size_t copies =
      std::max<size_t>(1, kMemcpyBatchBytes / bytes);  // the clock costs a syscall
  uint64_t batches = 0;
  const double start = cpu_seconds();
  double elapsed = 0;
  for (; elapsed < kMemcpySeconds; ++batches, elapsed = cpu_seconds() - start) {
    for (size_t i = 0; i < copies; ++i) {
      std::memcpy(to.data(), from.data(), bytes);
      benchmark::DoNotOptimize(to.data());
      benchmark::ClobberMemory();
    }
  }
  return static_cast<double>(batches * copies * bytes) / elapsed;
}

// Runs `kernel` for as long as Google Benchmark asks, and compares with memcpy.
template <typename Kernel>
void measure(benchmark::State& state, size_t bytes, Kernel kernel) {
  const double memcpy_rate = memcpy_bytes_per_second(bytes);
  const double start = cpu_seconds();
  for (auto iteration : state) {
    (void)iteration;
    kernel();
    benchmark::ClobberMemory();
  }
  const double elapsed = cpu_seconds() - start;
  const auto total = static_cast<double>(state.iterations()) * static_cast<double>(bytes);
  state.SetBytesProcessed(static_cast<int64_t>(total));
  state.counters["memcpy_bytes_per_second"] =
      benchmark::Counter(memcpy_rate, benchmark::Counter::kDefaults, benchmark::Counter::kIs1024);
  state.counters["of_memcpy"] = total / elapsed / memcpy_rate;
}

// Reserves what `lay_out(arena)` takes.
template <typename LayOut>
void reserve(Arena* arena, LayOut lay_out) {
  Arena sizes;
  lay_out(sizes);
  const Status status = arena->reserve(sizes.used_bytes());
  if (!status.ok()) {
    std::fprintf(stderr, "parallax_kernels: %s\n", status.message().c_str());
    std::exit(1);
  }
  lay_out(*arena);
}

// What a benchmark with the arguments width and bytes works on.
struct Shape {
  Shape(const benchmark::State& state, uint32_t dtype)
      : width(static_cast<uint64_t>(state.range(0))),
        rows(std::max<uint64_t>(
            1, static_cast<uint64_t>(state.range(1)) / (width * bytes_of_dtype(dtype)))),
        bytes(rows * width * bytes_of_dtype(dtype)) {}
  uint64_t width, rows, bytes;
};

void memcpy_alone(benchmark::State& state) {
  const auto bytes = static_cast<size_t>(state.range(0));
  const std::vector<std::byte> from = some_values(PARALLAX_F32, bytes / sizeof(float));
  std::vector<std::byte> to(bytes);
  measure(state, bytes, [&] {
    std::memcpy(to.data(), from.data(), bytes);
    benchmark::DoNotOptimize(to.data());
  });
}

// Rows added to rows of sums, in order.
void row_sum(benchmark::State& state, uint32_t dtype) {
  const Shape shape(state, dtype);
  const std::vector<std::byte> values = some_values(dtype, shape.rows * shape.width);
  with_dtype(dtype, [&](auto tag) {
    using In = typename decltype(tag)::type;
    std::vector<sum_of_t<In>> sums(shape.rows * shape.width);
    measure(state, shape.bytes, [&] {
      for (uint64_t row = 0; row < shape.rows; ++row) {
        add_to_sum<In>(sums.data() + row * shape.width,
                       values.data() + row * shape.width * sizeof(In), shape.width);
      }
      benchmark::DoNotOptimize(sums.data());
    });
  });
}

// A source comes once: so many of them before an accumulator starts over with the first.
constexpr uint32_t kSources = 4096;

// One addend of a step's dense sum, as the engine takes it, message by message.

void dense_accumulate(benchmark::State& state) {
  constexpr uint64_t kMessageElements = 2048;
  const auto bytes = static_cast<size_t>(state.range(0));
  const uint64_t elements = bytes / sizeof(float);
  const std::vector<std::byte> values = some_values(PARALLAX_F32, elements);
  Arena arena;
  DenseAccumulator accumulator;
  reserve(&arena, [&](Arena& from) { accumulator.lay_out(from, elements, {.addends = kSources}); });
  const auto add = [&](uint32_t addend) {
    for (uint64_t first = 0; first < elements; first += kMessageElements) {
      const uint64_t count = std::min(kMessageElements, elements - first);
      if (!accumulator.add(addend, count, {values.data() + first * sizeof(float), PARALLAX_F32})) {
        state.SkipWithError("the accumulator refused a piece");
      }
    }
  };
  uint32_t next = kSources;
  measure(state, bytes, [&] {
    if (next == kSources) {
      accumulator.clear();
      add(0);
      next = 1;
    }
    add(next++);
  });
}

// A slice's rows, ids drawn by Zipf's law: duplicates coalesced, all grouped by owner.
void row_coalescer(benchmark::State& state) {
  const Shape shape(state, PARALLAX_F32);
  const uint64_t table_rows = shape.rows * kTableRowsPerRow;
  const auto width = static_cast<uint32_t>(shape.width);
  const Partition partition(table_rows, width, true, SlotMap::of_ranks(kWorld, kSlotsPerOwner), 0);
  const auto ids = tool::bench::draw_ids(table_rows, kSkew, kSeed, 0, shape.rows);
  const std::vector<std::byte> values = some_values(PARALLAX_F32, shape.rows * width);
  const RowCoalescerOptions options = {
      .rows_max = shape.rows, .groups = kWorld, .row_elements = width};
  Arena arena, block_arena;
  RowCoalescer coalescer;
  const uint64_t block_bytes = RowCoalescer::block_bytes(shape.rows, width * sizeof(float));
  std::span<std::byte> block;
  reserve(&block_arena, [&](Arena& from) { block = from.take<std::byte>(block_bytes); });
  reserve(&arena, [&](Arena& from) { coalescer.lay_out(from, options); });
  const RowSlice slice = {.ids = {.wide = ids.data()},
                          .count = static_cast<uint32_t>(shape.rows),
                          .values = {.rows = values.data()}};
  measure(state, shape.bytes, [&] {
    coalescer.coalesce(
        partition, slice, {}, [&](uint32_t row_key) { return partition.owner_of(row_key); },
        block.data());
    benchmark::DoNotOptimize(coalescer.item_count());
  });
  state.counters["distinct"] =
      static_cast<double>(coalescer.item_count()) / static_cast<double>(shape.rows);
}

// A message of rows with row keys, added where each has its sum: the owner's half of a push.
void scatter_add(benchmark::State& state) {
  const Shape shape(state, PARALLAX_F32);
  const auto rows = static_cast<uint32_t>(shape.rows);
  const Partition partition(shape.rows * kTableRowsPerRow, shape.width, true,
                            SlotMap::of_ranks(kWorld, kSlotsPerOwner), 0);
  std::vector<std::byte> message(shape.rows * sizeof(uint32_t));
  for (uint32_t row = 0; row < rows; ++row) {
    const uint32_t row_key = partition.row_key_of(row);
    std::memcpy(message.data() + row * sizeof row_key, &row_key, sizeof row_key);
  }
  const std::vector<std::byte> values = some_values(PARALLAX_F32, shape.rows * shape.width);
  message.insert(message.end(), values.begin(), values.end());
  Arena arena;
  RowAccumulator accumulator;
  reserve(&arena, [&](Arena& from) {
    accumulator.lay_out(from, {.sources = kSources,
                               .rows_max = shape.rows,
                               .source_rows_max = shape.rows,
                               .row_elements = static_cast<uint32_t>(shape.width)});
  });
  const auto add = [&](uint32_t source) {
    if (!accumulator.add(source, rows, message))
      state.SkipWithError("the accumulator refused the rows");
  };
  uint32_t next = kSources;
  measure(state, shape.bytes, [&] {
    if (next == kSources) {
      accumulator.clear();
      add(0);
      next = 1;
    }
    add(next++);
  });
}

// Rows of a table updated by a rule.
void update(benchmark::State& state, uint32_t rule) {
  const Shape shape(state, PARALLAX_F32);
  const uint64_t elements = shape.rows * shape.width;
  const UpdateArguments with = {.rule = rule,
                                .learning_rate = 0x1p-10,
                                .epsilon = kRules[rule].epsilon,
                                .beta1 = 0.9,
                                .beta2 = 0.999,
                                .momentum = 0.5};
  std::vector<float> value(elements), state0(elements), state1(elements);
  std::vector<float> gradient(elements, 0x1p-10F);
  const uint64_t state_width = kRules[rule].row_states > 0 ? 1 : shape.width;
  with_rule<float>(with, [&](const auto& apply) {
    measure(state, shape.bytes, [&] {
      update_in_vectors(apply, [&] {
        for (uint64_t row = 0; row < shape.rows; ++row) {
          const uint64_t at = row * shape.width, state_at = row * state_width;
          update_row(apply, Decay<float>(with),
                     RowParts<float>{value.data() + at, state0.data() + state_at,
                                     state1.data() + state_at, gradient.data() + at, shape.width},
                     1.0F);
        }
      });
      benchmark::DoNotOptimize(value.data());
    });
  });
}

// Each id's row key and owner. Bytes are those of the ids.
void hash_to_owner(benchmark::State& state) {
  const uint64_t count = static_cast<uint64_t>(state.range(0)) / sizeof(int64_t);
  const Partition partition(count * kTableRowsPerRow, 1, true,
                            SlotMap::of_ranks(kWorld, kSlotsPerOwner), 0);
  const auto ids = tool::bench::draw_ids(partition.rows(), kSkew, kSeed, 0, count);
  std::vector<uint32_t> counts(kWorld);
  measure(state, count * sizeof(int64_t), [&] {
    for (const int64_t id : ids) {
      ++counts[partition.owner_of(partition.row_key_of(static_cast<uint64_t>(id)))];
    }
    benchmark::DoNotOptimize(counts.data());
  });
}

void by_bytes(benchmark::internal::Benchmark* benchmark) {
  benchmark->ArgName("bytes");
  for (const int64_t bytes : kByteCounts) benchmark->Arg(bytes);
}

void by_width_and_bytes(benchmark::internal::Benchmark* benchmark) {
  benchmark->ArgNames({"width", "bytes"});
  for (const int64_t width : kWidths) {
    for (const int64_t bytes : kByteCounts) benchmark->Args({width, bytes});
  }
}

void add_all() {
  by_bytes(benchmark::RegisterBenchmark("memcpy", memcpy_alone));
  by_bytes(benchmark::RegisterBenchmark("dense_accumulate", dense_accumulate));
  for (uint32_t dtype = 0; dtype < kDtypeCount; ++dtype) {
    const std::string name = std::string("row_sum_") + dtype_name(dtype);
    by_width_and_bytes(benchmark::RegisterBenchmark(
        name.c_str(), [dtype](benchmark::State& state) { row_sum(state, dtype); }));
  }
  by_width_and_bytes(benchmark::RegisterBenchmark("row_coalescer", row_coalescer));
  by_width_and_bytes(benchmark::RegisterBenchmark("scatter_add", scatter_add));
  for (const RuleTraits& each : kRules) {
    if (each.rule == PARALLAX_RULE_NONE || each.calls_back) continue;
    const std::string name = std::string("update_") + each.name;
    by_width_and_bytes(benchmark::RegisterBenchmark(
        name.c_str(), [rule = each.rule](benchmark::State& state) { update(state, rule); }));
  }
  by_bytes(benchmark::RegisterBenchmark("hash_to_owner", hash_to_owner));
}

}  // namespace
}  // namespace parallax

// --level=NAME, one of the machine's vector levels: taken out of the arguments. False: none such.
bool take_level(int* argc, char** argv) {
  const std::string flag = "--level=";
  for (int i = 1; i < *argc; ++i) {
    const std::string argument = argv[i];
    if (!argument.starts_with(flag)) continue;
    const auto levels = parallax::vector_levels();
    const auto found = std::find_if(levels.begin(), levels.end(), [&](auto level) {
      return argument.substr(flag.size()) == parallax::vector_level_name(level);
    });
    if (found == levels.end()) {
      std::fprintf(stderr, "parallax_kernels: %s: this machine has", argument.c_str());
      for (const auto level : levels) {
        std::fprintf(stderr, " %s", parallax::vector_level_name(level));
      }
      std::fprintf(stderr, "\n");
      return false;
    }
    parallax::set_vector_level(*found);
    std::rotate(argv + i, argv + i + 1, argv + *argc);
    --*argc;
    return true;
  }
  return true;
}

int main(int argc, char** argv) {
  if (!take_level(&argc, argv)) return 2;
  parallax::add_all();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
