// SPDX-License-Identifier: Apache-2.0
// Table, CSV and JSON; the two files have the same cells, unrounded.
#include "tool/bench/print.h"

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

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
  std::fprintf(out_, "# parallax bench %s: libparallax %s, %u ranks, %u hosts\n",
               operation_name(options_.operation), parallax_version_string(), ranks_, hosts_);
  std::fprintf(out_, "# warm-ups %u, iterations %u, checked %u\n", options_.warmups,
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

// nccl-tests' columns, in its order, so that scripts which cut them go on working. The form that
// the operation does not have is as narrow as its heads, so that a line fits 100 columns behind the
// tag of `parallax run`.
void Printer::print_table_head() const {
  const auto group = [this](const char* title, bool in_place) {
    std::fprintf(out_, in_place == is_in_place(options_.operation) ? " %30s" : " %23s", title);
  };
  const auto heads = [this](const char* time, const char* bandwidth_1, const char* bandwidth_2,
                            const char* wrong) {
    for (const bool in_place : {false, true}) {
      const bool ours = in_place == is_in_place(options_.operation);
      std::fprintf(out_, ours ? " %9s %6s %6s %6s" : " %4s %5s %5s %6s", time, bandwidth_1,
                   bandwidth_2, wrong);
    }
    std::fputs("\n", out_);
  };
  std::fprintf(out_, "#%9s %10s %8s %5s %4s", "", "", "", "", "");
  group("out-of-place", false);
  group("in-place", true);
  std::fprintf(out_, "\n#%9s %10s %8s %5s %4s", "size", "count", "type", "redop", "root");
  heads("time", "algbw", "busbw", "#wrong");
  std::fprintf(out_, "#%9s %10s %8s %5s %4s", "(B)", "(elements)", "", "", "");
  heads("(us)", "GB/s", "GB/s", "");
}

void Printer::print_table_line(const Line& line) const {
  std::fprintf(out_, " %9" PRIu64 " %10" PRIu64 " %8s %5s %4d", line.point.bytes, line.point.count,
               dtype_name_of_nccl(line.point.kind.dtype), reduction_name(line.point.kind.reduction),
               kNoRoot);
  constexpr const char* kNone = "N/A";
  const std::string wrong = options_.checks > 0 ? std::to_string(line.wrong) : kNone;
  for (const bool in_place : {false, true}) {
    if (in_place != is_in_place(options_.operation)) {
      std::fprintf(out_, " %4s %5s %5s %6s", kNone, kNone, kNone, kNone);
      continue;
    }
    std::fprintf(out_, " %9.2f %6.3f %6.3f %6s",
                 options_.processor_time ? line.cpu_us : line.time_us, line.algorithm_gb_s,
                 line.bus_gb_s, wrong.c_str());
  }
  std::fputs("\n", out_);
}

// What nccl-tests' columns do not say, as a table of comments below them.
void Printer::print_more() const {
  std::vector<std::vector<std::string>> rows(2 + more_.size());
  const auto column = [&](const char* head, const char* unit, auto cell) {
    rows[0].push_back(head);
    rows[1].push_back(unit);
    for (size_t i = 0; i < more_.size(); ++i) rows[2 + i].push_back(cell(more_[i]));
  };
  const auto rounded = [](const char* form, double value) {
    char text[32];
    std::snprintf(text, sizeof text, form, value);
    return std::string(text);
  };
  const auto whole = [](uint64_t value) { return std::to_string(value); };
  column("size", "(B)", [&](const Line& line) { return whole(line.point.bytes); });
  column("method", "", [](const Line& line) { return line.method; });
  if (is_sparse(options_.operation)) {
    column("rows", "", [&](const Line& line) { return whole(line.point.rows); });
    column("distinct", "", [&](const Line& line) { return whole(line.distinct_rows); });
    column("union", "", [&](const Line& line) { return whole(line.union_rows); });
    column("density", "", [&](const Line& line) { return rounded("%.3g", density_of(line)); });
  }
  column("p50", "(us)", [&](const Line& line) { return rounded("%.2f", line.p50_us); });
  column("p99", "(us)", [&](const Line& line) { return rounded("%.2f", line.p99_us); });
  column("wire", "(B/rank)", [&](const Line& line) { return whole(line.wire_bytes); });
  column("local", "(B/rank)", [&](const Line& line) { return whole(line.local_bytes); });
  std::fprintf(out_, "# The same lines%s:\n", options_.cycles == 1 ? "" : " of the last cycle");
  for (const auto& row : rows) {
    std::fputs("#", out_);
    for (size_t i = 0; i < row.size(); ++i) {
      size_t width = 0;
      for (const auto& each : rows) width = std::max(width, each[i].size());
      std::fprintf(out_, " %*s", static_cast<int>(width), row[i].c_str());
    }
    std::fputs("\n", out_);
  }
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
  if (!more_.empty() && more_.back().cycle != line.cycle) more_.clear();
  more_.push_back(line);
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
  print_more();
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
