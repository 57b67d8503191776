// SPDX-License-Identifier: Apache-2.0
// Flags of `parallax bench wire`, and the sizes they ask for.
#include "tool/bench/wire_options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iterator>

#include "tool/bench/nccl_flags.h"
#include "tool/bench/options.h"
#include "tool/tool.h"

namespace parallax::tool::bench {

namespace {

constexpr uint64_t kWireBytesMax = uint64_t{1} << 30;  // of a message

struct WireTexts {
  std::string bytes_min = "8", bytes_max, bytes_step, ways, format = "table", timeout_s;
  double factor = 4;
  FixedFlags fixed{FixedFlags::Bench::kWire};
};

Status plan_sizes(const WireTexts& texts, std::vector<uint64_t>* sizes) {
  uint64_t least = 0, most = uint64_t{4} << 20, step = 0;
  PARALLAX_RETURN_IF_ERROR(parse_bytes("-b", texts.bytes_min, &least));
  if (!texts.bytes_max.empty()) {
    PARALLAX_RETURN_IF_ERROR(parse_bytes("-e", texts.bytes_max, &most));
  }
  if (!texts.bytes_step.empty()) {
    PARALLAX_RETURN_IF_ERROR(parse_bytes("-i", texts.bytes_step, &step));
  }
  if (least < 8 || most > kWireBytesMax || least > most) {
    return invalid("-b " + std::to_string(least) + " -e " + std::to_string(most) +
                   ": give sizes from 8 to 1G, the first no larger than the last");
  }
  if (!(texts.factor > 1) || texts.factor > 1e6) {
    return invalid("-f must be more than 1; to add a number of bytes use -i");
  }
  for (uint64_t bytes = least; bytes <= most;) {
    // Whole elements of the library's operations.
    const uint64_t whole = bytes / 8 * 8;
    if (sizes->empty() || sizes->back() != whole) sizes->push_back(whole);
    if (sizes->size() > kPointsMax) return invalid("-b, -e and -i or -f give more than 1000 sizes");
    const auto grown = static_cast<uint64_t>(static_cast<double>(bytes) * texts.factor);
    bytes = step > 0 ? bytes + step : std::max(bytes + 1, grown);
  }
  return {};
}

Status parse_ways(const std::string& text, std::vector<Way>* ways) {
  std::string all;
  for (const Way way : kWays) all += (all.empty() ? "" : ",") + std::string(way_name(way));
  const std::string list = text.empty() ? all : text;
  for (size_t at = 0; at <= list.size();) {
    const size_t comma = std::min(list.find(',', at), list.size());
    const std::string word = list.substr(at, comma - at);
    const auto way = std::find_if(std::begin(kWays), std::end(kWays),
                                  [&](Way each) { return word == way_name(each); });
    if (way == std::end(kWays)) return invalid("--ways " + word + ": give some of " + all);
    if (std::find(ways->begin(), ways->end(), *way) == ways->end()) ways->push_back(*way);
    at = comma + 1;
  }
  return {};
}

Status convert_wire(const WireTexts& texts, WireOptions* options) {
  PARALLAX_RETURN_IF_ERROR(texts.fixed.check());
  if (!texts.timeout_s.empty()) {
    PARALLAX_RETURN_IF_ERROR(parse_timeout(texts.timeout_s, &options->timeout_ms));
  }
  PARALLAX_RETURN_IF_ERROR(plan_sizes(texts, &options->sizes));
  PARALLAX_RETURN_IF_ERROR(parse_ways(texts.ways, &options->ways));
  if (texts.format == "osu") options->format = WireFormat::kOsu;
  if (texts.format == "ucx") options->format = WireFormat::kUcx;
  if (options->csv_file == options->json_file && !options->csv_file.empty()) {
    return invalid("--csv and --json name the same file, " + options->csv_file);
  }
  if (options->rank >= std::max(options->world, 1u)) {
    return invalid("--rank " + std::to_string(options->rank) + " is not below --world " +
                   std::to_string(options->world));
  }
  return {};
}

void add_wire_flags(CLI::App& app, WireOptions* options, WireTexts* texts) {
  constexpr uint32_t kMost = 10'000'000;
  app.add_option("-b,--minbytes", texts->bytes_min, "bytes of a message, at first: 8, or 4K; 8");
  app.add_option("-e,--maxbytes", texts->bytes_max, "at most; 4M");
  auto* const step = app.add_option("-i,--stepbytes", texts->bytes_step, "bytes between sizes");
  app.add_option("-f,--stepfactor", texts->factor, "factor between sizes; 4")->excludes(step);
  app.add_option("-n,--iters", options->iterations,
                 "messages of a timing; 1000 to 64K, 100 to 1M, 20 beyond; steps at most 100")
      ->check(CLI::Range(1u, kMost));
  app.add_option("-w,--warmup_iters", options->warmups, "messages before them; 5")
      ->check(CLI::Range(0u, kMost));
  app.add_option("-c,--check", options->checks,
                 "messages after them whose every byte is checked; 1, 0 for none")
      ->check(CLI::Range(0u, kMost));
  app.add_option("-N,--run_cycles", options->repeats,
                 "timings of each line, each way in its turn; the figures are their medians; 5")
      ->check(CLI::Range(1u, 1000u));
  app.add_option("--ways", texts->ways,
                 "tcp,ucx,verbs_send,verbs_write,verbs_read,allreduce,push_pull, or some; all");
  app.add_option("--format", texts->format,
                 "table, or the layout of others: osu (OSU micro-benchmarks), ucx (ucx_perftest)")
      ->check(CLI::IsMember({"table", "osu", "ucx"}));
  texts->fixed.add(app);
  app.add_option("--rank", options->rank, "this rank; the environment's");
  app.add_option("--world", options->world, "the number of ranks, 2; the environment's");
  app.add_option("--rendezvous", options->rendezvous, "how ranks meet; the environment's");
  auto* const milliseconds = app.add_option("--timeout-ms", options->timeout_ms,
                                            "how long to wait for the other rank; 120000")
                                 ->check(CLI::Range(1u, UINT32_MAX));
  app.add_option("-T,--timeout", texts->timeout_s, "the same in seconds; 120")
      ->excludes(milliseconds);
  app.add_option("--csv", options->csv_file, "write comma-separated values to this file, too");
  app.add_option("--json", options->json_file, "write a JSON object to this file, too");
}

}  // namespace

const char* way_name(Way way) {
  static constexpr const char* kNames[] = {"tcp",        "ucx",       "verbs_send", "verbs_write",
                                           "verbs_read", "allreduce", "push_pull"};
  return kNames[static_cast<size_t>(way)];
}

uint32_t iterations_of(const WireOptions& options, uint64_t bytes) {
  if (options.iterations > 0) return options.iterations;
  return bytes <= 65536 ? 1000 : bytes <= 1 << 20 ? 100 : 20;
}

bool parse_wire_options(int argc, char** argv, WireOptions* options, int* exit_status) {
  WireTexts texts;
  CLI::App app(
      "Measures what a wire between two ranks carries by plain sockets, UCX and verbs, beside the "
      "library's own operations, and which share of it they reach. Start two ranks, one on each "
      "host: mpirun -n 2 --map-by node parallax bench wire.",
      "parallax bench wire");
  add_wire_flags(app, options, &texts);
  if (!parse_command_line(app, argc, argv, exit_status)) return false;
  const Status status = convert_wire(texts, options);
  if (!status.ok()) *exit_status = complain("bench wire", status.message(), kExitUsage);
  return status.ok();
}

}  // namespace parallax::tool::bench
