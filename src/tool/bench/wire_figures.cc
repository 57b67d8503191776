// SPDX-License-Identifier: Apache-2.0
// Medians, shares of the wire, and the five ways in which lines are written; columns of others are
// placed as those programs print them. See wire_figures.h.
#include "tool/bench/wire_figures.h"

#include <algorithm>
#include <array>
#include <cinttypes>
#include <cstdio>
#include <nlohmann/json.hpp>

namespace parallax::tool::bench {

namespace {

using WireJson = nlohmann::ordered_json;

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

// Negative: no raw way was timed at this size.
double wire_us(const WireRun& run, uint64_t bytes, WireForm form) {
  double least = -1;
  for (const WireLine& line : run.lines) {
    const bool reads_back = line.way == Way::kVerbsRead && form == WireForm::kPingPong;
    if (is_step(line.way) || line.bytes != bytes || line.form != form || reads_back) continue;
    if (least < 0 || line.time_us < least) least = line.time_us;
  }
  return least;
}

template <typename... Arguments>
std::string formatted(const char* form, Arguments... arguments) {
  std::array<char, 256> text = {};
  std::snprintf(text.data(), text.size(), form, arguments...);
  return text.data();
}

// Ways and forms, in the order of their first lines.
std::vector<std::pair<Way, WireForm>> kinds_of(const WireRun& run) {
  std::vector<std::pair<Way, WireForm>> kinds;
  for (const WireLine& line : run.lines) {
    const std::pair kind(line.way, line.form);
    if (std::find(kinds.begin(), kinds.end(), kind) == kinds.end()) kinds.push_back(kind);
  }
  return kinds;
}

WireJson cells_of(const WireLine& line, const WireRun& run) {
  return {{"size", line.bytes},
          {"way", way_name(line.way)},
          {"form", form_name(line.form)},
          {"iters", line.iterations},
          {"time_us", line.time_us},
          {"time_us_min", line.time_us_min},
          {"time_us_max", line.time_us_max},
          {"gb_s", line.gb_s},
          {"of_wire", line.of_wire < 0 ? WireJson(nullptr) : WireJson(line.of_wire)},
          {"wrong", run.checks > 0 ? WireJson(line.wrong) : WireJson(nullptr)}};
}

std::string head_of(const WireRun& run) {
  std::string text = formatted("# parallax bench wire: libparallax %s, 2 ranks, %u host%s\n",
                               run.version.c_str(), run.hosts, run.hosts == 1 ? "" : "s");
  for (const auto& [name, about] : run.ways) text += "# " + name + ": " + about + "\n";
  return text;
}

}  // namespace

const char* form_name(WireForm form) {
  static constexpr const char* kNames[] = {"ping-pong", "stream", "step"};
  return kNames[static_cast<size_t>(form)];
}

void settle(WireRun* run) {
  for (WireLine& line : run->lines) {
    line.time_us = median(line.times_us);
    const auto [least, largest] = std::minmax_element(line.times_us.begin(), line.times_us.end());
    line.time_us_min = *least;
    line.time_us_max = *largest;
    line.gb_s = static_cast<double>(line.bytes) * line.share * line.legs / line.time_us / 1e3;
  }
  for (WireLine& line : run->lines) {
    const bool streams = line.form == WireForm::kStream;
    const double wire =
        wire_us(*run, line.bytes, streams ? WireForm::kStream : WireForm::kPingPong);
    const bool crosses = !is_step(line.way) || run->hosts > 1;
    line.of_wire = wire < 0 || !crosses ? -1 : wire * line.share * line.legs / line.time_us;
  }
}

uint64_t wrong_of(const WireRun& run) {
  uint64_t wrong = 0;
  for (const WireLine& line : run.lines) wrong += line.wrong;
  return wrong;
}

std::string wire_table(const WireRun& run) {
  std::string text = head_of(run);
  text += formatted("# medians of %u repeats, the ways in turn; warm-ups %u, checked %u\n",
                    run.repeats, run.warmups, run.checks);
  if (run.hosts == 1) {
    text +=
        "# both ranks are on one host: the library's operations go through shared memory there and "
        "have\n# no share of the wire; parallax run --ranks-per-host 1 takes them for two hosts\n";
  }
  text += formatted("#%9s %12s %10s %11s %8s %8s %7s\n", "size", "way", "form", "time", "algbw",
                    "of wire", "#wrong");
  text += formatted("#%9s %12s %10s %11s %8s %8s %7s\n", "(B)", "", "", "(us)", "(GB/s)", "", "");
  for (const WireLine& line : run.lines) {
    const std::string of_wire = line.of_wire < 0 ? "N/A" : formatted("%.2f", line.of_wire);
    const std::string wrong = run.checks > 0 ? std::to_string(line.wrong) : "N/A";
    text +=
        formatted(" %9" PRIu64 " %12s %10s %11.2f %8.3f %8s %7s\n", line.bytes, way_name(line.way),
                  form_name(line.form), line.time_us, line.gb_s, of_wire.c_str(), wrong.c_str());
  }
  text += formatted("# Out of bounds values : %" PRIu64 " %s\n", wrong_of(run),
                    run.checks == 0      ? "NOT CHECKED"
                    : wrong_of(run) == 0 ? "OK"
                                         : "FAILED");
  return text;
}

std::string wire_osu(const WireRun& run) {
  std::string text = head_of(run);
  for (const auto& [way, form] : kinds_of(run)) {
    const bool streams = form == WireForm::kStream;
    const char* const column = streams                   ? "Bandwidth (MB/s)"
                               : form == WireForm::kStep ? "Avg Latency(us)"
                                                         : "Latency (us)";
    text += formatted("\n# parallax bench wire: %s %s\n%-10s%20s\n", way_name(way), form_name(form),
                      "# Size", column);
    for (const WireLine& line : run.lines) {
      if (line.way != way || line.form != form) continue;
      text +=
          formatted("%-10" PRIu64 "%20.2f\n", line.bytes, streams ? line.gb_s * 1e3 : line.time_us);
    }
  }
  return text;
}

std::string wire_ucx(const WireRun& run) {
  constexpr double kMebibyte = 1 << 20;
  const std::string rule =
      "+--------------+--------------+------------------------------+---------------------+--------"
      "--"
      "-------------+\n";
  const std::string fine_rule =
      "+--------------+--------------+----------+---------+---------+----------+----------+--------"
      "--"
      "-+-----------+\n";
  const std::string box = "+" + std::string(rule.size() - 3, '-') + "+\n";
  std::string text = head_of(run);
  for (const WireLine& line : run.lines) {
    const bool streams = line.form == WireForm::kStream;
    const std::string test = std::string(way_name(line.way)) + " " + form_name(line.form);
    text += box + formatted("| Test:         %-90s |\n", test.c_str()) +
            formatted("| Message size: %-90" PRIu64 " |\n", line.bytes) + rule;
    text += formatted(
                "|              |              |       %-22s |   bandwidth (MB/s)  |  message "
                "rate (msg/s) |\n",
                streams ? "overhead (usec)" : " latency (usec)") +
            fine_rule +
            "|    Stage     | # iterations | 50.0%ile | average | overall |  average |  overall |  "
            "average  |  overall  |\n" +
            fine_rule;
    const double mean = [&line] {
      double sum = 0;
      for (const double each : line.times_us) sum += each;
      return sum / static_cast<double>(line.times_us.size());
    }();
    const double bytes = static_cast<double>(line.bytes) * line.legs * line.share;
    text += formatted("%-20s %7u %10.3f %9.3f %9.3f %10.2f %10.2f %11.0f %11.0f\n",
                      "Final:", line.iterations, line.time_us, mean, mean,
                      bytes / line.time_us * 1e6 / kMebibyte, bytes / mean * 1e6 / kMebibyte,
                      1e6 / line.time_us, 1e6 / mean);
  }
  return text;
}

std::string wire_csv(const WireRun& run) {
  std::string text;
  for (const WireLine& line : run.lines) {
    std::string head, row;
    const WireJson cells = cells_of(line, run);
    for (const auto& [name, cell] : cells.items()) {
      head += (head.empty() ? "" : ",") + name;
      row += (row.empty() ? "" : ",") + (cell.is_null()     ? std::string()
                                         : cell.is_string() ? cell.get<std::string>()
                                                            : cell.dump());
    }
    if (text.empty()) text = head + "\n";
    text += row + "\n";
  }
  return text;
}

std::string wire_json(const WireRun& run) {
  WireJson ways = WireJson::object(), lines = WireJson::array();
  for (const auto& [name, about] : run.ways) ways[name] = about;
  for (const WireLine& line : run.lines) lines.push_back(cells_of(line, run));
  const WireJson whole = {
      {"version", run.version}, {"operation", "wire"},    {"ranks", 2},
      {"hosts", run.hosts},     {"warmups", run.warmups}, {"checks", run.checks},
      {"repeats", run.repeats}, {"ways", ways},           {"lines", lines}};
  return whole.dump(2, ' ', false, WireJson::error_handler_t::replace) + "\n";
}

}  // namespace parallax::tool::bench
