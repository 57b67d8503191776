// SPDX-License-Identifier: Apache-2.0
// WireFigures: what the timings of `parallax bench wire` come to, and how they are written. Pure,
// so that the formats are tested against texts; any thread. bench/METRICS.md has the formulas.
#ifndef PARALLAX_TOOL_BENCH_WIRE_FIGURES_H_
#define PARALLAX_TOOL_BENCH_WIRE_FIGURES_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tool/bench/wire_options.h"

namespace parallax::tool::bench {

// A message there and one back; message after message one way; an operation of the library.
enum class WireForm : uint8_t { kPingPong, kStream, kStep };
const char* form_name(WireForm form);  // "ping-pong"

struct WireLine {
  uint64_t bytes = 0;  // of a message; of a step: what a rank receives in each leg, before `share`
  Way way = Way::kTcp;
  WireForm form = WireForm::kPingPong;
  uint32_t iterations = 0;         // of a timing
  double legs = 1;                 // of a step: 1 there and back at once, 2 one after the other
  double share = 1;                // of `bytes` that travelled: rows given twice go once
  std::vector<double> times_us{};  // of a message or a step, by repeat
  uint64_t wrong = 0;              // bytes, or elements of a step; on both ranks

  // By settle().
  double time_us = 0, time_us_min = 0, time_us_max = 0;
  double gb_s = 0;
  double of_wire = -1;  // negative: nothing to compare with
};

struct WireRun {
  std::string version;
  uint32_t hosts = 0;
  uint32_t warmups = 0, checks = 0, repeats = 0;
  // "tcp" and "one connection to 10.0.0.2", or "NOT RUN: ..."
  std::vector<std::pair<std::string, std::string>> ways;
  std::vector<WireLine> lines;  // by size, then by way
};

// Medians, and shares of the wire. The wire's time for a size is that of the fastest raw way: in a
// stream for streams; else half a ping-pong's round trip, as often as the operation has legs. Steps
// of ranks on one host do not cross a wire and have no share.
void settle(WireRun* run);

uint64_t wrong_of(const WireRun& run);

// Each ends in a newline.
std::string wire_table(const WireRun& run);
std::string wire_osu(const WireRun& run);  // OSU micro-benchmarks'
std::string wire_ucx(const WireRun& run);  // ucx_perftest's
std::string wire_csv(const WireRun& run);
std::string wire_json(const WireRun& run);

}  // namespace parallax::tool::bench

#endif  // PARALLAX_TOOL_BENCH_WIRE_FIGURES_H_
