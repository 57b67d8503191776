// SPDX-License-Identifier: Apache-2.0
// The two faces of an explanation: JSON and a table, both from alternatives(). Pure; any thread;
// nothing blocks.
#include "planner/explain.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "planner/cost.h"
#include "planner/row_coding.h"

namespace parallax {
namespace {

using Json = nlohmann::ordered_json;

// Bytes are whole numbers to a reader; past 2^63 only the double can say them.
Json rounded_or_null(double value) {
  if (std::isnan(value)) return nullptr;
  if (value >= 0x1p63) return value;
  return static_cast<uint64_t>(std::round(value));
}

double to_hundredths(double value) { return std::round(value * 100) / 100; }

Json measured_json(const VariableFacts& facts) {
  if (!facts.measured) return nullptr;
  const double rows = static_cast<double>(facts.rows);
  return {{"touched_rows_per_host", facts.touched_rows_per_host},
          {"union_rows", facts.union_rows},
          {"pulled_rows_per_host", facts.pulled_rows_per_host},
          {"density", facts.rows == 0 ? 0.0 : facts.touched_rows_per_host / rows}};
}

std::string why_of_chosen(const std::vector<Alternative>& found) {
  for (const Alternative& alternative : found) {
    if (alternative.chosen) return alternative.why;
  }
  return "not one of the ways that fit this variable";
}

// Of slices on devices: how they get to what was chosen; else nothing.
std::string why_of_carrier(const VariableFacts& facts) {
  if (!facts.carrier.empty()) return "; among the devices, by " + facts.carrier;
  return facts.carrier_why.empty() ? ""
                                   : "; slices on devices go by host memory: " + facts.carrier_why;
}

std::string why_of_table(const VariableFacts& facts) {
  if (facts.table.empty()) return "";
  return "; its table lies in the memory of " + facts.table + ", and its placement stays";
}

// Of rows between hosts.
bool crosses_as_rows(const VariableFacts& facts, const TopologyFacts& topology) {
  return topology.hosts > 1 && carries_rows(facts);
}

Json coding_json(const VariableFacts& facts, const TopologyFacts& topology) {
  const RowCodingChoice choice = choose_row_coding(facts, topology);
  return {{"row_keys", choice.row_keys},
          {"pushed_numbers", choice.pushed},
          {"pulled_numbers", choice.pulled},
          {"why", choice.why}};
}

std::string why_of_coding(const VariableFacts& facts, const TopologyFacts& topology) {
  if (!crosses_as_rows(facts, topology)) return "";
  const RowCodingChoice choice = choose_row_coding(facts, topology);
  if (!choice.row_keys && !choice.pushed && !choice.pulled) return "";
  const bool numbers = choice.pushed || choice.pulled;
  return std::string("; coded on the wire: ") + (choice.row_keys ? "row keys" : "") +
         (choice.row_keys && numbers ? " and " : "") + (numbers ? "numbers" : "");
}

// By wire_dtype, which of the narrower types may be bf16 alone. What other methods carry is whole.
bool rounds_pushed(const VariableFacts& facts, const TopologyFacts& topology,
                   const VariablePlan& plan) {
  return crosses_as_rows(facts, topology) && plan.method == Method::kPushPull &&
         facts.pushed.bytes != 0 && facts.pushed.bytes < facts.element_bytes;
}

std::string why_of_rounding(const VariableFacts& facts, const TopologyFacts& topology,
                            const VariablePlan& plan) {
  if (!rounds_pushed(facts, topology, plan)) return "";
  return "; what is pushed to other hosts is rounded to bf16 (wire_dtype), by which a sum is off "
         "by at most 2^-8 of the sum of the hosts' |sums|";
}

// Of this rank's host. By allgatherv every host sums, all in one order.
bool sums_in_domains(const VariableFacts& facts, const TopologyFacts& topology,
                     const VariablePlan& plan) {
  return topology.domains > 1 && carries_rows(facts) && plan.method != Method::kAllgatherv &&
         plan.method != Method::kAllreduce;
}

std::string why_of_domains(const VariableFacts& facts, const TopologyFacts& topology,
                           const VariablePlan& plan) {
  if (!sums_in_domains(facts, topology, plan)) return "";
  return "; rows are summed within each of " + std::to_string(topology.domains) +
         " NUMA nodes first";
}

void add_fused(const FusedFacts& fused, Json* variable) {
  Json& json = *variable;
  json["fused"] = {{"first", fused.first}, {"tables", fused.tables}, {"rows", json["rows"]}};
  json["name"] = fused.name;
  json["rows"] = fused.rows;
  if (fused.is_first) return;
  json["why"] = "goes with '" + fused.first + "', of its kind and as small (fuse_tables)";
  json["measured"] = nullptr;
  json["alternatives"] = Json::array();
}

Json variable_json(const VariableFacts& facts, const TopologyFacts& topology,
                   const std::vector<Alternative>& found, const VariablePlan& plan) {
  Json alternatives_json = Json::array();
  for (const Alternative& alternative : found) {
    Json each = {{"placement", placement_name(alternative.placement)},
                 {"method", method_name(alternative.method)},
                 {"predicted_bytes_per_host", rounded_or_null(alternative.bytes_per_host)}};
    if (!std::isnan(alternative.microseconds)) {
      each["predicted_us"] = to_hundredths(alternative.microseconds);
    }
    each["chosen"] = alternative.chosen;
    each["why"] = alternative.why;
    alternatives_json.push_back(std::move(each));
  }
  Json json = {
      {"name", facts.name},
      {"rows", facts.rows},
      {"row_elements", facts.row_elements},
      {"tag", tag_name(facts.tag)},
      {"placement", placement_name(plan.placement)},
      {"method", method_name(plan.method)},
      {"why", why_of_chosen(found) + why_of_table(facts) + why_of_carrier(facts) +
                  why_of_domains(facts, topology, plan) + why_of_rounding(facts, topology, plan)},
      {"measured", measured_json(facts)},
      {"alternatives", std::move(alternatives_json)}};
  if (!facts.carrier.empty() || !facts.carrier_why.empty()) {
    json["carrier"] = facts.carrier.empty() ? "host" : facts.carrier;
  }
  if (!facts.table.empty()) json["table"] = facts.table;
  if (sums_in_domains(facts, topology, plan)) json["domains"] = topology.domains;
  if (rounds_pushed(facts, topology, plan)) json["pushed_as"] = "bf16";
  if (crosses_as_rows(facts, topology)) json["coding"] = coding_json(facts, topology);
  if (facts.ceiling.bytes_max != 0) {
    const Chunks& chunks = chunks_of(plan.method, facts);
    json["exchange_bytes_max"] = facts.ceiling.bytes_max;
    json["exchange_bytes"] = chunks.bytes;
    json["chunks"] = chunks.count;
  }
  if (const std::string pin = pin_text(facts); !pin.empty()) json["pin"] = pin;
  for (const TimedAlgorithm& each : facts.timed) {
    json["algorithms"].push_back({{"name", each.name},
                                  {"predicted_us", to_hundredths(each.microseconds)},
                                  {"chosen", each.chosen}});
  }
  return json;
}

std::string bytes_text(double bytes) { return std::isnan(bytes) ? "?" : cost::figure(bytes); }

std::string padded(std::string text, size_t width) {
  if (text.size() < width) text.append(width - text.size(), ' ');
  return text;
}

std::string right_aligned(const std::string& text, size_t width) {
  return text.size() < width ? std::string(width - text.size(), ' ') + text : text;
}

// Widths of the columns that hold the words of enums; the longest is "placement" and "reduce_rows".
constexpr size_t kPlacementWidth = 9;
constexpr size_t kMethodWidth = 11;
constexpr size_t kBytesWidth = 15;

std::string table_line(const std::string& name, size_t name_width, const Alternative& row) {
  return padded(name, name_width) + "  " + padded(placement_name(row.placement), kPlacementWidth) +
         "  " + padded(method_name(row.method), kMethodWidth) + "  " +
         right_aligned(bytes_text(row.bytes_per_host), kBytesWidth) + "  " + row.why + "\n";
}

}  // namespace

std::string explain_json(std::span<const VariableFacts> variables, const TopologyFacts& topology,
                         parallax_plan_mode_t mode, std::span<const VariablePlan> plan,
                         bool settled, std::span<const FusedFacts> fused) {
  PARALLAX_CHECK(variables.size() == plan.size());
  Json list = Json::array();
  for (size_t i = 0; i < variables.size(); ++i) {
    const auto found =
        alternatives(variables[i], topology, mode, {.plan = plan[i], .settled = settled});
    list.push_back(variable_json(variables[i], topology, found, plan[i]));
    if (i < fused.size() && fused[i].tables > 0) add_fused(fused[i], &list.back());
  }
  Json costs = Json::object();
  for (size_t row = 0; row < kConstantCount; ++row) {
    costs[kConstantRows[row].name] = constant(topology.costs, row);
  }
  const Json whole = {{"mode", mode_name(mode)},   {"settled", settled},
                      {"hosts", topology.hosts},   {"ranks", topology.ranks},
                      {"costs", std::move(costs)}, {"variables", std::move(list)}};
  return whole.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string explain_table(std::span<const VariableFacts> variables, const TopologyFacts& topology,
                          parallax_plan_mode_t mode, std::span<const VariablePlan> plan,
                          bool settled) {
  PARALLAX_CHECK(variables.size() == plan.size());
  std::string text = "plan " + mode_name(mode) + (settled ? ", settled" : ", by form") +
                     "; hosts " + std::to_string(topology.hosts) + ", ranks " +
                     std::to_string(topology.ranks) + "\ncosts " + costs_text(topology.costs) +
                     "\n";
  size_t name_width = std::string("variable").size();
  for (const VariableFacts& facts : variables) name_width = std::max(name_width, facts.name.size());
  text += padded("variable", name_width) + "  " + padded("placement", kPlacementWidth) + "  " +
          padded("method", kMethodWidth) + "  " + right_aligned("bytes/host/step", kBytesWidth) +
          "  why\n";
  for (size_t i = 0; i < variables.size(); ++i) {
    const auto found =
        alternatives(variables[i], topology, mode, {.plan = plan[i], .settled = settled});
    for (const Alternative& row : found) {
      if (!row.chosen) continue;
      Alternative chosen = row;
      chosen.why += why_of_table(variables[i]) + why_of_carrier(variables[i]) +
                    why_of_domains(variables[i], topology, plan[i]) +
                    why_of_rounding(variables[i], topology, plan[i]) +
                    why_of_coding(variables[i], topology);
      text += table_line(variables[i].name, name_width, chosen);
    }
    for (const Alternative& row : found) {
      if (!row.chosen) text += table_line("  not", name_width, row);
    }
  }
  return text;
}

}  // namespace parallax
