// SPDX-License-Identifier: Apache-2.0
// Print: the lines of `parallax bench`: on rank 0 a table (columns of nccl-tests) as they come, and
// files of CSV and JSON; every rank counts what is wrong. One thread.
#ifndef PARALLAX_TOOL_BENCH_PRINT_H_
#define PARALLAX_TOOL_BENCH_PRINT_H_

#include <cstdint>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/status.h"
#include "tool/bench/measure.h"
#include "tool/bench/options.h"

namespace parallax::tool::bench {

class Printer {
 public:
  // `out` null: a rank that only counts.
  Printer(const Options& options, uint32_t ranks, uint32_t hosts, std::FILE* out);
  // Opens the files, so that one that cannot be written is known before anything is measured. IO.
  Status begin();
  // IO.
  Status add(const Line& line);
  // Writes JSON, and what stands below the table. IO.
  Status end();
  // 1 if any element was wrong.
  int exit_status() const;

 private:
  using File = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;

  double density_of(const Line& line) const;
  nlohmann::ordered_json cells(const Line& line) const;
  void print_table_head() const;
  void print_table_line(const Line& line) const;
  void print_more() const;
  Status print_csv(const nlohmann::ordered_json& cells);
  static Status open_file(const std::string& path, File* file);
  static Status close_file(const std::string& path, File file);

  const Options& options_;
  uint32_t ranks_, hosts_;
  std::FILE* out_;
  File csv_{nullptr, std::fclose}, json_{nullptr, std::fclose};
  nlohmann::ordered_json lines_ = nlohmann::ordered_json::array();
  std::vector<Line> more_;  // of this cycle
  uint64_t line_count_ = 0;
  double bus_gb_s_sum_ = 0;
  uint64_t wrong_ = 0;
};

}  // namespace parallax::tool::bench

#endif  // PARALLAX_TOOL_BENCH_PRINT_H_
