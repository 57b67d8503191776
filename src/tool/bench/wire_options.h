// SPDX-License-Identifier: Apache-2.0
// Options of `parallax bench wire`. Flags are those of nccl-tests where it has one. Values; any
// thread.
#ifndef PARALLAX_TOOL_BENCH_WIRE_OPTIONS_H_
#define PARALLAX_TOOL_BENCH_WIRE_OPTIONS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"

namespace parallax::tool::bench {

enum class WireFormat : uint8_t { kTable, kOsu, kUcx };

// What is measured on a wire.
enum class Way : uint8_t { kTcp, kUcx, kVerbsSend, kVerbsWrite, kVerbsRead, kAllreduce, kPushPull };
inline constexpr Way kWays[] = {Way::kTcp,       Way::kUcx,       Way::kVerbsSend, Way::kVerbsWrite,
                                Way::kVerbsRead, Way::kAllreduce, Way::kPushPull};
const char* way_name(Way way);  // "verbs_send"
inline bool is_step(Way way) { return way == Way::kAllreduce || way == Way::kPushPull; }
inline bool is_verbs(Way way) {
  return way == Way::kVerbsSend || way == Way::kVerbsWrite || way == Way::kVerbsRead;
}

struct WireOptions {
  std::vector<uint64_t> sizes;  // bytes, ascending
  uint32_t iterations = 0;      // 0: by size, see iterations_of
  uint32_t warmups = 5;
  uint32_t checks = 1;
  uint32_t repeats = 5;
  std::vector<Way> ways;
  WireFormat format = WireFormat::kTable;
  std::string csv_file, json_file;  // "": none

  // Where this rank is; zero and "": as the environment says.
  uint32_t rank = 0, world = 0;
  std::string rendezvous;
  uint32_t timeout_ms = 0;
};

// Messages of one timing: many of small ones, for clocks are coarse.
uint32_t iterations_of(const WireOptions& options, uint64_t bytes);

// False: the usage was wrong or --help printed; then *exit_status is what to end with.
bool parse_wire_options(int argc, char** argv, WireOptions* options, int* exit_status);

}  // namespace parallax::tool::bench

#endif  // PARALLAX_TOOL_BENCH_WIRE_OPTIONS_H_
