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

constexpr int kNoRoot = -1;
constexpr const char* kStandardOutput = "standard output";

// After a write; nothing that fails later may hide why this one did.
Status written(const std::string& path, std::FILE* file) {
  const bool flushed = std::fflush(file) == 0;
  if (flushed && std::ferror(file) == 0) return {};
  return io_error(path + " is not complete: " + std::strerror(errno) + "; make room");
}

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
                {"type", dtype_name_of_nccl(line.point.kind.dtype)},
                {"redop", reduction_name(line.point.kind.reduction)},
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
                {"local_bytes", line.local_bytes},
                {"root", kNoRoot},
                {"place", is_in_place(options_.operation) ? "in" : "out"},
                {"cpu_us", line.cpu_us},
                {"agg_iters", options_.operations},
                {"cycle", line.cycle}});
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
  PARALLAX_RETURN_IF_ERROR(written(path, file.get()));
  if (std::fclose(file.release()) == 0) return {};
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
  if (options_.operations > 1) {
    std::fprintf(out_, "# figures are of one of %u operations of a step, launched together\n",
                 options_.operations);
  }
  if (options_.processor_time) {
    std::fputs("# time: processor time of a rank's process; bandwidths, p50 and p99: wall time\n",
               out_);
  }
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
  return written(kStandardOutput, out_);
}

// nccl-tests' columns come first, in its order, so that scripts which cut them go on working; ours
// follow.
void Printer::print_table_head() const {
  const bool sparse = is_sparse(options_.operation);
  const auto twice = [this](const char* time, const char* algbw, const char* busbw,
                            const char* wrong) {
    for (int i = 0; i < 2; ++i) {
      std::fprintf(out_, " %10s %8s %8s %6s", time, algbw, busbw, wrong);
    }
  };
  std::fprintf(out_, "#%11s %11s %8s %5s %6s %35s %35s\n", "", "", "", "", "", "out-of-place",
               "in-place");
  std::fprintf(out_, "#%11s %11s %8s %5s %6s", "size", "count", "type", "redop", "root");
  twice("time", "algbw", "busbw", "#wrong");
  std::fprintf(out_, " %11s", "method");
  if (sparse) std::fprintf(out_, " %9s %9s %9s %9s", "rows", "distinct", "union", "density");
  std::fprintf(out_, " %10s %10s %12s %12s\n", "p50", "p99", "wire", "local");
  std::fprintf(out_, "#%11s %11s %8s %5s %6s", "(B)", "(elements)", "", "", "");
  twice("(us)", "(GB/s)", "(GB/s)", "");
  std::fprintf(out_, " %11s", "");
  if (sparse) std::fprintf(out_, " %9s %9s %9s %9s", "", "", "", "");
  std::fprintf(out_, " %10s %10s %12s %12s\n", "(us)", "(us)", "(B/rank)", "(B/rank)");
}

// One of nccl-tests' two groups; that which the operation does not have says so.
void Printer::print_group(const Line& line, bool in_place) const {
  constexpr const char* kNone = "N/A";
  if (in_place != is_in_place(options_.operation)) {
    std::fprintf(out_, " %10s %8s %8s %6s", kNone, kNone, kNone, kNone);
    return;
  }
  const std::string wrong = options_.checks > 0 ? std::to_string(line.wrong) : kNone;
  std::fprintf(out_, " %10.2f %8.3f %8.3f %6s",
               options_.processor_time ? line.cpu_us : line.time_us, line.algorithm_gb_s,
               line.bus_gb_s, wrong.c_str());
}

void Printer::print_table_line(const Line& line) const {
  std::fprintf(out_, " %11" PRIu64 " %11" PRIu64 " %8s %5s %6d", line.point.bytes, line.point.count,
               dtype_name_of_nccl(line.point.kind.dtype), reduction_name(line.point.kind.reduction),
               kNoRoot);
  print_group(line, false);
  print_group(line, true);
  std::fprintf(out_, " %11s", line.method.c_str());
  if (is_sparse(options_.operation)) {
    std::fprintf(out_, " %9" PRIu64 " %9" PRIu64 " %9" PRIu64 " %9.3g", line.point.rows,
                 line.distinct_rows, line.union_rows, density_of(line));
  }
  std::fprintf(out_, " %10.2f %10.2f %12" PRIu64 " %12" PRIu64 "\n", line.p50_us, line.p99_us,
               line.wire_bytes, line.local_bytes);
}

Status Printer::print_csv(const Json& cells) {
  std::string head, row;
  for (const auto& [name, cell] : cells.items()) {
    head += (head.empty() ? "" : ",") + name;
    row += (row.empty() ? "" : ",") + csv_text(cell);
  }
  if (line_count_ == 0) std::fprintf(csv_.get(), "%s\n", head.c_str());
  std::fprintf(csv_.get(), "%s\n", row.c_str());
  return written(options_.csv_file, csv_.get());
}

Status Printer::add(const Line& line) {
  wrong_ += line.wrong;
  if (out_ == nullptr) return {};
  print_table_line(line);
  PARALLAX_RETURN_IF_ERROR(written(kStandardOutput, out_));
  const Json all = cells(line);
  if (csv_ != nullptr) PARALLAX_RETURN_IF_ERROR(print_csv(all));
  if (json_ != nullptr) lines_.push_back(all);
  ++line_count_;
  bus_gb_s_sum_ += line.bus_gb_s;
  return {};
}

Status Printer::end() {
  if (out_ == nullptr) return {};
  std::fprintf(out_, "# Out of bounds values : %" PRIu64 " %s\n", wrong_,
               options_.checks == 0 ? "NOT CHECKED"
               : wrong_ == 0        ? "OK"
                                    : "FAILED");
  std::fprintf(out_, "# Avg bus bandwidth    : %g\n",
               bus_gb_s_sum_ / static_cast<double>(std::max<uint64_t>(1, line_count_)));
  PARALLAX_RETURN_IF_ERROR(written(kStandardOutput, out_));
  if (json_ != nullptr) {
    const Json all = {{"version", parallax_version_string()},
                      {"operation", operation_name(options_.operation)},
                      {"ranks", ranks_},
                      {"hosts", hosts_},
                      {"warmups", options_.warmups},
                      {"iterations", options_.iterations},
                      {"checks", options_.checks},
                      {"seed", options_.seed},
                      {"lines", lines_},
                      {"agg_iters", options_.operations},
                      {"cycles", options_.cycles}};
    std::fprintf(json_.get(), "%s\n", all.dump(2).c_str());
  }
  const Status csv = close_file(options_.csv_file, std::move(csv_));
  const Status json = close_file(options_.json_file, std::move(json_));
  return csv.ok() ? json : csv;
}

int Printer::exit_status() const { return wrong_ == 0 ? kExitOk : kExitNo; }

}  // namespace parallax::tool::bench
