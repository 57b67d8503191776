// SPDX-License-Identifier: Apache-2.0
// Table, CSV and JSON; the two files have the same cells, unrounded.
#include "tool/bench/print.h"

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <cstring>
#include <string>
#include <utility>

#include "tool/tool.h"

namespace parallax::tool::bench {

namespace {

using Json = nlohmann::ordered_json;

std::string csv_text(const Json& cell) {
  return cell.is_null() ? "" : cell.is_string() ? cell.get<std::string>() : cell.dump();
}

}  // namespace

Printer::Printer(const Options& options, uint32_t ranks, uint32_t hosts, std::FILE* out)
    : options_(options), ranks_(ranks), hosts_(hosts), out_(out) {}

double Printer::density_of(const Line& line) const {
  return static_cast<double>(line.distinct_rows) / static_cast<double>(options_.table_rows);
}

Json Printer::cells(const Line& line) const {
  Json cells = {{"size", line.point.bytes},
                {"count", line.point.count},
                {"type", dtype_name_of_nccl(options_.dtype)},
                {"redop", reduction_name(options_.reduction)},
                {"method", line.method}};
  if (options_.operation == Operation::kPushPull) cells["rule"] = rule_name(options_.rule);
  if (is_sparse(options_.operation)) {
    cells.update({{"rows", line.point.rows},
                  {"width", options_.width},
                  {"table_rows", options_.table_rows},
                  {"density", density_of(line)},
                  {"skew", options_.skew},
                  {"distinct_rows", line.distinct_rows},
                  {"union_rows", line.union_rows}});
  }
  cells.update({{"time_us", line.time_us},
                {"algbw_gb_s", line.algorithm_gb_s},
                {"busbw_gb_s", line.bus_gb_s},
                {"wrong", options_.checks > 0 ? Json(line.wrong) : Json(nullptr)},
                {"p50_us", line.p50_us},
                {"p99_us", line.p99_us},
                {"step_us", line.step_us},
                {"wire_bytes", line.wire_bytes},
                {"local_bytes", line.local_bytes}});
  return cells;
}

Status Printer::open_file(const std::string& path, File* file) {
  if (path.empty()) return {};
  file->reset(std::fopen(path.c_str(), "we"));
  if (*file != nullptr) return {};
  return io_error(path + " cannot be written: " + std::strerror(errno) +
                  "; name a file in a folder that can");
}

Status Printer::close_file(const std::string& path, File file) {
  if (file == nullptr) return {};
  const bool failed = std::ferror(file.get()) != 0;
  if (std::fclose(file.release()) == 0 && !failed) return {};
  return io_error(path + " is not complete: " + std::strerror(errno) + "; make room");
}

Status Printer::begin() {
  if (out_ == nullptr) return {};
  PARALLAX_RETURN_IF_ERROR(open_file(options_.csv_file, &csv_));
  PARALLAX_RETURN_IF_ERROR(open_file(options_.json_file, &json_));
  std::fprintf(out_, "# parallax bench %s: libparallax %s, %u ranks, %u hosts; ",
               operation_name(options_.operation), parallax_version_string(), ranks_, hosts_);
  std::fprintf(out_, "warm-ups %u, iterations %u, checked %u\n", options_.warmups,
               options_.iterations, options_.checks);
  if (is_sparse(options_.operation)) {
    std::fprintf(out_, "# table %" PRIu64 " x %" PRIu64 ", Zipf %g, seed %" PRIu64,
                 options_.table_rows, options_.width, options_.skew, options_.seed);
    const bool managed = options_.operation == Operation::kPushPull;
    std::fprintf(out_, "%s%s\n", managed ? ", rule " : "",
                 managed ? rule_name(options_.rule).c_str() : "");
  }
  if (ranks_ == 1) {
    std::fputs("# one rank: nothing is sent; for more: parallax run -n 4 -- parallax bench ...\n",
               out_);
  }
  print_table_head();
  std::fflush(out_);
  return {};
}

void Printer::print_table_head() const {
  const bool sparse = is_sparse(options_.operation);
  std::fprintf(out_, "#%11s %11s %8s %5s %11s", "size", "count", "type", "redop", "method");
  if (sparse) std::fprintf(out_, " %9s %9s %9s %9s", "rows", "distinct", "union", "density");
  std::fprintf(out_, " %10s %8s %8s %6s %10s %10s %12s %12s\n", "time", "algbw", "busbw", "#wrong",
               "p50", "p99", "wire", "local");
  std::fprintf(out_, "#%11s %11s %8s %5s %11s", "(B)", "(elements)", "", "", "");
  if (sparse) std::fprintf(out_, " %9s %9s %9s %9s", "", "", "", "");
  std::fprintf(out_, " %10s %8s %8s %6s %10s %10s %12s %12s\n", "(us)", "(GB/s)", "(GB/s)", "",
               "(us)", "(us)", "(B/rank)", "(B/rank)");
}

void Printer::print_table_line(const Line& line) const {
  std::fprintf(out_, " %11" PRIu64 " %11" PRIu64 " %8s %5s %11s", line.point.bytes,
               line.point.count, dtype_name_of_nccl(options_.dtype),
               reduction_name(options_.reduction), line.method.c_str());
  if (is_sparse(options_.operation)) {
    std::fprintf(out_, " %9" PRIu64 " %9" PRIu64 " %9" PRIu64 " %9.3g", line.point.rows,
                 line.distinct_rows, line.union_rows, density_of(line));
  }
  const std::string wrong = options_.checks > 0 ? std::to_string(line.wrong) : "N/A";
  std::fprintf(out_, " %10.2f %8.3f %8.3f %6s", line.time_us, line.algorithm_gb_s, line.bus_gb_s,
               wrong.c_str());
  std::fprintf(out_, " %10.2f %10.2f %12" PRIu64 " %12" PRIu64 "\n", line.p50_us, line.p99_us,
               line.wire_bytes, line.local_bytes);
}

void Printer::print_csv(const Json& cells) {
  std::string head, row;
  for (const auto& [name, cell] : cells.items()) {
    head += (head.empty() ? "" : ",") + name;
    row += (row.empty() ? "" : ",") + csv_text(cell);
  }
  if (lines_.empty()) std::fprintf(csv_.get(), "%s\n", head.c_str());
  std::fprintf(csv_.get(), "%s\n", row.c_str());
  std::fflush(csv_.get());
}

void Printer::add(const Line& line) {
  wrong_ += line.wrong;
  if (out_ == nullptr) return;
  const Json all = cells(line);
  print_table_line(line);
  std::fflush(out_);
  if (csv_ != nullptr) print_csv(all);
  lines_.push_back(all);
  bus_gb_s_sum_ += line.bus_gb_s;
}

Status Printer::end() {
  if (out_ == nullptr) return {};
  std::fprintf(out_, "# Out of bounds values : %" PRIu64 " %s\n", wrong_,
               options_.checks == 0 ? "NOT CHECKED"
               : wrong_ == 0        ? "OK"
                                    : "FAILED");
  std::fprintf(out_, "# Avg bus bandwidth    : %g\n",
               bus_gb_s_sum_ / static_cast<double>(std::max<size_t>(1, lines_.size())));
  std::fflush(out_);
  if (json_ != nullptr) {
    const Json all = {{"version", parallax_version_string()},
                      {"operation", operation_name(options_.operation)},
                      {"ranks", ranks_},
                      {"hosts", hosts_},
                      {"warmups", options_.warmups},
                      {"iterations", options_.iterations},
                      {"checks", options_.checks},
                      {"seed", options_.seed},
                      {"lines", lines_}};
    std::fprintf(json_.get(), "%s\n", all.dump(2).c_str());
  }
  const Status csv = close_file(options_.csv_file, std::move(csv_));
  const Status json = close_file(options_.json_file, std::move(json_));
  return csv.ok() ? json : csv;
}

int Printer::exit_status() const { return wrong_ == 0 ? kExitOk : kExitNo; }

}  // namespace parallax::tool::bench
