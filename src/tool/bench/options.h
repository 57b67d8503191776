// SPDX-License-Identifier: Apache-2.0
// Options of `parallax bench`: what is measured, on which sizes, and where it is written. Flags are
// those of nccl-tests where it has one; those with one true value here are in nccl_flags.h. Values;
// any thread.
#ifndef PARALLAX_TOOL_BENCH_OPTIONS_H_
#define PARALLAX_TOOL_BENCH_OPTIONS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"

namespace parallax::tool::bench {

enum class Operation : uint8_t { kAllreduce, kAllgatherv, kReduceRows, kPushPull };
const char* operation_name(Operation operation);
const char* dtype_name_of_nccl(uint32_t dtype);
const char* reduction_name(uint32_t reduction);
std::string rule_name(uint32_t rule);  // "rowwise_adagrad"
bool is_sparse(Operation operation);

// What an iteration's time is made of its ranks' times: the -a of nccl-tests.
enum class RankTime : uint8_t { kRank0, kAverage, kLeast, kLargest };

// What elements are and how they are reduced.
struct Kind {
  uint32_t dtype = 0;      // parallax_dtype_t
  uint32_t reduction = 0;  // parallax_reduction_t
};

struct Options {
  Operation operation = Operation::kAllreduce;
  uint64_t bytes_min = 8;
  uint64_t bytes_max = uint64_t{16} << 20;
  uint64_t bytes_step = 0;  // added; 0: bytes are multiplied by `factor`
  double factor = 2;
  uint32_t iterations = 20;
  uint32_t warmups = 5;
  uint32_t checks = 1;
  uint32_t operations = 1;  // of a step, launched together
  uint32_t cycles = 1;      // times that all lines are measured; 0: until it is ended
  std::vector<Kind> kinds = {{}};
  RankTime rank_time = RankTime::kAverage;
  bool processor_time = false;  // the table's column `time`

  // pushpull.
  uint32_t rule = 0;  // parallax_rule_t; SUM unless given
  uint32_t plan = 0;  // parallax_plan_mode_t; PS unless given

  // Operations on rows.
  uint64_t width = 64;
  uint64_t table_rows = 100'000;
  double skew = 1;
  std::vector<double> densities;  // of the table; in place of sizes
  uint64_t seed = 1;

  // Where this rank is; zero and "": as the environment says.
  uint32_t rank = 0, world = 0;
  std::string rendezvous;
  uint32_t timeout_ms = 0;

  std::string csv_file, json_file;  // "": none
};

inline constexpr size_t kPointsMax = 1000;

// One line of the output: what a rank gives in each operation.
struct Point {
  Kind kind;
  uint64_t count = 0;  // elements
  uint64_t rows = 0;   // sparse: count / width
  uint64_t bytes = 0;  // of the elements
};

// False: the usage was wrong or --help printed; then *exit_status is what to end with.
bool parse_options(int argc, char** argv, Options* options, int* exit_status);

// "-d all" and "-o all" are those that the other flags leave. INVALID, UNSUPPORTED.
Status parse_kinds(const std::string& dtypes, const std::string& reductions, Options* options);

// "16M": K, M, G and T are powers of 1024. INVALID names the flag.
Status parse_bytes(const std::string& flag, const std::string& text, uint64_t* bytes);

// The value of -T, seconds. INVALID.
Status parse_timeout(const std::string& text, uint32_t* timeout_ms);

// The lines to measure, in order: by kind, then by size. INVALID names the flag.
Status plan_points(const Options& options, std::vector<Point>* points);

}  // namespace parallax::tool::bench

#endif  // PARALLAX_TOOL_BENCH_OPTIONS_H_
