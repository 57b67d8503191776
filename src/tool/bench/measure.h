// SPDX-License-Identifier: Apache-2.0
// Measure: one line of the output. All ranks call it together; each opens a job of its own for the
// line, warms up, times, checks, and tells the others its figures.
#ifndef PARALLAX_TOOL_BENCH_MEASURE_H_
#define PARALLAX_TOOL_BENCH_MEASURE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "tool/bench/job.h"
#include "tool/bench/options.h"

namespace parallax::tool::bench {

// bench/METRICS.md has the formulas. Figures are of one operation, also where a step has more.
struct Line {
  Point point;
  uint32_t cycle = 0;
  uint64_t distinct_rows = 0;     // on rows: of a rank, the mean over ranks
  uint64_t union_rows = 0;        // on rows: of all ranks
  std::string method;             // as the library's plan names it
  double time_us = 0;             // mean of the iterations' times
  double cpu_us = 0;              // the same of the process's processor time
  double p50_us = 0, p99_us = 0;  // of all ranks' times of all iterations
  double step_us = 0;             // mean, until step_end's request is complete
  double algorithm_gb_s = 0, bus_gb_s = 0;
  uint64_t wire_bytes = 0, local_bytes = 0;  // sent by a rank in a step, the mean over ranks
  uint64_t wrong = 0;                        // elements, on all ranks
};

// Whether the aggregate takes the gradient's place.
bool is_in_place(Operation operation);

// Bytes of elements that a rank has to receive, as a multiple of those it gives: busbw / algbw.
double received_share(Operation operation, uint32_t ranks, const Line& line);

// Linear between the two nearest; `values` is not empty.
double quantile(std::vector<double> values, double share);

Line measure(const Options& options, const Point& point, Group& group);

}  // namespace parallax::tool::bench

#endif  // PARALLAX_TOOL_BENCH_MEASURE_H_
