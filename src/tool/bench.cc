// SPDX-License-Identifier: Apache-2.0
// parallax bench: times operations of the C ABI among ranks and checks what they give. It uses
// parallax.h alone for what it measures.
#include <string_view>

#include "tool/bench/job.h"
#include "tool/bench/measure.h"
#include "tool/bench/options.h"
#include "tool/bench/print.h"
#include "tool/bench/wire.h"
#include "tool/tool.h"

namespace parallax::tool {

namespace {

using bench::Group;
using bench::Options;
using bench::Point;

int run_rank(const Options& options, const std::vector<Point>& points) {
  Group group(
      bench::open_options(options.rank, options.world, options.timeout_ms, options.rendezvous));
  const bool prints = group.rank() == 0;
  bench::Printer printer(options, group.world(), group.hosts(), prints ? stdout : nullptr);
  // Rank 0 prints before it lets the others leave: they end with an error too, and a launcher would
  // then end rank 0.
  const auto give_up = [&](const std::string& sentence) {
    if (prints) complain("bench", sentence, kExitNo);
    group.close();
    return kExitNo;
  };
  // Rank 0 alone writes, and all end if it cannot.
  Status status = printer.begin();
  if (!group.all_ok(status.ok())) return give_up(status.message());
  for (uint32_t cycle = 0; options.cycles == 0 || cycle < options.cycles; ++cycle) {
    for (const Point& point : points) {
      try {
        bench::Line line = bench::measure(options, point, group);
        line.cycle = cycle;
        status = printer.add(line);
      } catch (const bench::Unsupported& error) {  // every rank finds so
        return give_up(error.what());
      }
      if (!group.all_ok(status.ok())) return give_up(status.message());
    }
  }
  status = printer.end();
  if (!group.all_ok(status.ok())) return give_up(status.message());
  group.close();
  return printer.exit_status();
}

}  // namespace

int bench_main(int argc, char** argv) {
  if (argc > 1 && std::string_view(argv[1]) == "wire") return bench::wire_main(argc - 1, argv + 1);
  Options options;
  int exit_status = kExitOk;
  if (!bench::parse_options(argc, argv, &options, &exit_status)) return exit_status;
  std::vector<Point> points;
  const Status status = bench::plan_points(options, &points);
  if (!status.ok()) return complain("bench", status.message(), kExitUsage);
  try {
    return run_rank(options, points);
  } catch (const std::exception& error) {
    return complain("bench", error.what(), kExitNo);
  }
}

}  // namespace parallax::tool
