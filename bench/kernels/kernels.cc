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
#include <iterator>
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
#include "message/section_payload.h"
#include "server/table.h"
#include "server/update_rules.h"
#include "tool/bench/workload.h"
#include "tool/bench/zipf.h"
#include "variable/partition.h"
#include "variable/rule_table.h"

namespace parallax {
namespace {

constexpr int64_t kWidths[] = {1, 8, 16, 64, 256, 1024, 4096};
constexpr int64_t kByteCounts[] = {16 << 10, 1 << 20, 16 << 20};
// By width, the first cache and the memory alone: there are many widths. Bytes bound the rows.
constexpr int64_t kRowsByteCounts[] = {16 << 10, 16 << 20};
constexpr uint32_t kFloatDtypes[] = {PARALLAX_F32, PARALLAX_F16, PARALLAX_BF16};
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

// One addend of a step's dense sum, as the engine takes it, message by message. Sums are floats.
void dense_accumulate(benchmark::State& state, uint32_t dtype) {
  constexpr uint64_t kMessageElements = 2048;
  const auto bytes = static_cast<size_t>(state.range(0));
  const size_t element_bytes = bytes_of_dtype(dtype);
  const uint64_t elements = bytes / element_bytes;
  const std::vector<std::byte> values = some_values(dtype, elements);
  Arena arena;
  DenseAccumulator accumulator;
  reserve(&arena, [&](Arena& from) { accumulator.lay_out(from, elements, {.addends = kSources}); });
  const auto add = [&](uint32_t addend) {
    for (uint64_t first = 0; first < elements; first += kMessageElements) {
      const uint64_t count = std::min(kMessageElements, elements - first);
      if (!accumulator.add(addend, count, {values.data() + first * element_bytes, dtype})) {
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

// A slice's rows, ids drawn by Zipf's law: duplicates coalesced, all grouped by owner. This is
// where narrow rows are scattered and added: the sums are floats, and so is all that an owner gets.
void row_coalescer(benchmark::State& state, uint32_t dtype) {
  const Shape shape(state, dtype);
  const uint64_t table_rows = shape.rows * kTableRowsPerRow;
  const auto width = static_cast<uint32_t>(shape.width);
  const Partition partition(table_rows, width, true, SlotMap::of_ranks(kWorld, kSlotsPerOwner), 0);
  const auto ids = tool::bench::draw_ids(table_rows, kSkew, kSeed, 0, shape.rows);
  const std::vector<std::byte> values = some_values(dtype, shape.rows * width);
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
                          .values = {.rows = values.data(), .dtype = dtype}};
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

// Distinct rows, all over a table of more of them.
std::vector<uint32_t> scattered_rows(const Partition& partition, uint64_t rows) {
  std::vector<uint32_t> row_keys;
  for (uint64_t row = 0; row < rows; ++row) row_keys.push_back(partition.row_key_of(row));
  return row_keys;
}

// Rows of a table copied into the answer to a pull, one behind the other. Bytes are those read.
struct Gather {
  const char* name;
  uint32_t from, to;
};
constexpr Gather kGathers[] = {
    {"gather_f32", PARALLAX_F32, PARALLAX_F32},
    {"gather_f16", PARALLAX_F16, PARALLAX_F16},
    {"gather_bf16", PARALLAX_BF16, PARALLAX_BF16},
    {"gather_f32_as_f16", PARALLAX_F32, PARALLAX_F16},
    {"gather_f32_as_bf16", PARALLAX_F32, PARALLAX_BF16},
};

void gather(benchmark::State& state, const Gather& what) {
  const Shape shape(state, what.from);
  const Partition partition(shape.rows * kTableRowsPerRow, shape.width, true,
                            SlotMap::of_ranks(kWorld, kSlotsPerOwner), 0);
  const std::vector<uint32_t> order = scattered_rows(partition, shape.rows);
  const std::vector<std::byte> table = some_values(what.from, partition.rows() * shape.width);
  std::vector<std::byte> answer(shape.rows * shape.width * bytes_of_dtype(what.to));
  Send send;
  send.header.encoding = Encoding::kRows;
  send.format = {.element_bytes = bytes_of_dtype(what.to),
                 .source_bytes = bytes_of_dtype(what.from),
                 .convert = converter(what.from, what.to)};
  send.rows = {.values = table.data(),
               .order = order.data(),
               .row_elements = static_cast<uint32_t>(shape.width)};
  send.count = shape.rows;
  measure(state, shape.bytes, [&] {
    write_payload(send, shape.rows, answer.data());
    benchmark::DoNotOptimize(answer.data());
  });
}

// Rows all over a table updated by a step's gradient, with the values kept as they are updated, or
// narrower. Gradients are floats in any case.
struct TableUpdate {
  uint32_t rule, stored;
  bool by_chance = false;

  std::string name() const {
    return std::string("table_update_") + kRules[rule].name + "_" + dtype_name(stored) +
           (by_chance ? "_by_chance" : "");
  }
};
constexpr TableUpdate kTableUpdates[] = {
    {PARALLAX_RULE_SGD, PARALLAX_F32},      {PARALLAX_RULE_SGD, PARALLAX_F16},
    {PARALLAX_RULE_SGD, PARALLAX_BF16},     {PARALLAX_RULE_SGD, PARALLAX_BF16, true},
    {PARALLAX_RULE_ADAGRAD, PARALLAX_F32},  {PARALLAX_RULE_ADAGRAD, PARALLAX_F16},
    {PARALLAX_RULE_ADAGRAD, PARALLAX_BF16},
};

void table_update(benchmark::State& state, const TableUpdate& what) {
  const Shape shape(state, PARALLAX_F32);
  Variable variable;
  variable.rows = shape.rows * kTableRowsPerRow;
  variable.row_elements = shape.width;
  variable.rows_max = shape.rows;
  variable.rule = what.rule;
  variable.init_low = variable.init_high = 1;
  variable.initial_accumulator_value = 1;
  variable.storage_dtype = what.stored == PARALLAX_F32 ? 0 : PARALLAX_AS(what.stored);
  if (what.by_chance) variable.rounding = PARALLAX_ROUNDING_STOCHASTIC;
  const Partition partition(variable.rows, shape.width, true,
                            SlotMap::of_ranks(kWorld, kSlotsPerOwner), 0);
  Table table(variable, partition, 0, false);
  if (!table.reserve().ok()) return state.SkipWithError("no memory for the table");
  uint64_t left = UINT64_MAX;
  if (!table.initialize(&left)) return state.SkipWithError("the table is not all there");
  const std::vector<uint32_t> row_keys = scattered_rows(partition, shape.rows);
  const std::vector<float> values(shape.rows * shape.width, 0x1p-10F);
  ReducedGradient gradient;
  gradient.contributed = gradient.has_values = gradient.rows = true;
  gradient.row_count = static_cast<uint32_t>(shape.rows);
  gradient.row_keys = row_keys.data();
  gradient.values = reinterpret_cast<const std::byte*>(values.data());
  gradient.row_elements = shape.width;
  const UpdateArguments with = {
      .rule = what.rule, .learning_rate = 0x1p-10, .epsilon = kRules[what.rule].epsilon};
  measure(state, shape.bytes, [&] {
    if (table.apply(gradient, with) != 0) state.SkipWithError("the table was not updated");
  });
}

// Rows that lie one behind the other, with their states, updated by a rule.
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
    for (const int64_t bytes : kRowsByteCounts) benchmark->Args({width, bytes});
  }
}

// A benchmark for each dtype, with its name behind the kernel's.
template <size_t kCount>
void add_each(const char* name, const uint32_t (&dtypes)[kCount],
              void (*kernel)(benchmark::State&, uint32_t),
              void (*arguments)(benchmark::internal::Benchmark*)) {
  for (const uint32_t dtype : dtypes) {
    const std::string with_dtype = std::string(name) + "_" + dtype_name(dtype);
    arguments(benchmark::RegisterBenchmark(
        with_dtype.c_str(), [kernel, dtype](benchmark::State& state) { kernel(state, dtype); }));
  }
}

void add_all() {
  constexpr uint32_t kAll[] = {PARALLAX_F32,  PARALLAX_F64, PARALLAX_F16,
                               PARALLAX_BF16, PARALLAX_I32, PARALLAX_I64};
  static_assert(std::size(kAll) == kDtypeCount);
  by_bytes(benchmark::RegisterBenchmark("memcpy", memcpy_alone));
  add_each("dense_accumulate", kFloatDtypes, dense_accumulate, by_bytes);
  add_each("row_sum", kAll, row_sum, by_width_and_bytes);
  add_each("row_coalescer", kFloatDtypes, row_coalescer, by_width_and_bytes);
  by_width_and_bytes(benchmark::RegisterBenchmark("scatter_add", scatter_add));
  for (const Gather& each : kGathers) {
    by_width_and_bytes(benchmark::RegisterBenchmark(
        each.name, [&each](benchmark::State& state) { gather(state, each); }));
  }
  for (const TableUpdate& each : kTableUpdates) {
    by_width_and_bytes(benchmark::RegisterBenchmark(
        each.name().c_str(), [&each](benchmark::State& state) { table_update(state, each); }));
  }
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
  // Shorter than Google Benchmark's own, since they are many; what the caller says comes later, and
  // so instead.
  std::string min_time = "--benchmark_min_time=0.1";
  std::vector<char*> arguments(argv, argv + argc);
  arguments.insert(arguments.begin() + 1, min_time.data());
  argc = static_cast<int>(arguments.size());
  arguments.push_back(nullptr);
  argv = arguments.data();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
