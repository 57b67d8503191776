// SPDX-License-Identifier: Apache-2.0
// Names of constants, and texts of them. See constants.h.
#include "planner/constants.h"

#include <algorithm>
#include <charconv>

namespace parallax {

const std::array<ConstantRow, kConstantCount> kConstantRows = {{
    {"inside_latency_ns", [](CostConstants& all) -> uint64_t& { return all.inside.latency_ns; }},
    {"inside_overhead_ns", [](CostConstants& all) -> uint64_t& { return all.inside.overhead_ns; }},
    {"inside_byte_ps", [](CostConstants& all) -> uint64_t& { return all.inside.byte_ps; }},
    {"between_latency_ns", [](CostConstants& all) -> uint64_t& { return all.between.latency_ns; }},
    {"between_overhead_ns",
     [](CostConstants& all) -> uint64_t& { return all.between.overhead_ns; }},
    {"between_byte_ps", [](CostConstants& all) -> uint64_t& { return all.between.byte_ps; }},
    {"sum_f32_byte_ps", [](CostConstants& all) -> uint64_t& { return all.sum_byte_ps[0]; }},
    {"sum_f64_byte_ps", [](CostConstants& all) -> uint64_t& { return all.sum_byte_ps[1]; }},
    {"sum_i32_byte_ps", [](CostConstants& all) -> uint64_t& { return all.sum_byte_ps[2]; }},
    {"sum_i64_byte_ps", [](CostConstants& all) -> uint64_t& { return all.sum_byte_ps[3]; }},
    {"copy_byte_ps", [](CostConstants& all) -> uint64_t& { return all.copy_byte_ps; }},
    {"row_sum_ps", [](CostConstants& all) -> uint64_t& { return all.row_sum_ps; }},
    {"row_sort_ps", [](CostConstants& all) -> uint64_t& { return all.row_sort_ps; }},
    {"across_byte_ps", [](CostConstants& all) -> uint64_t& { return all.across_byte_ps; }},
}};

uint64_t constant(const CostConstants& constants, size_t row) {
  CostConstants all = constants;
  return kConstantRows[row].of(all);
}

CostConstants CostSetting::over(CostConstants constants) const {
  for (size_t row = 0; row < kConstantCount; ++row) {
    if (given[row]) kConstantRows[row].of(constants) = constant(values, row);
  }
  return constants;
}

Status parse_costs(std::string_view text, CostSetting* setting) {
  *setting = {};
  if (text.empty() || text == "measured") return {};
  if (text == "standard") {
    setting->measured = false;
    return {};
  }
  while (!text.empty()) {
    const std::string_view item = text.substr(0, text.find(','));
    text.remove_prefix(std::min(text.size(), item.size() + 1));
    const std::string_view name = item.substr(0, item.find('='));
    const auto row = std::find_if(kConstantRows.begin(), kConstantRows.end(),
                                  [&](const ConstantRow& each) { return name == each.name; });
    if (row == kConstantRows.end() || name.size() == item.size()) {
      return invalid("costs: '" + std::string(item) +
                     "' is not name=value of a constant; give measured, standard, or some of " +
                     costs_text({}) + ", separated by commas");
    }
    const std::string_view value = item.substr(name.size() + 1);
    uint64_t& number = row->of(setting->values);
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
    if (error != std::errc() || end != value.data() + value.size() || number > kConstantMax) {
      return invalid("costs: " + std::string(name) + " is '" + std::string(value) +
                     "', and must be a whole number, 0.." + std::to_string(kConstantMax));
    }
    setting->given[static_cast<size_t>(row - kConstantRows.begin())] = true;
  }
  // Nothing is left to measure.
  setting->measured =
      std::find(setting->given.begin(), setting->given.end(), false) != setting->given.end();
  return {};
}

std::string costs_text(const CostConstants& constants) {
  std::string text;
  for (size_t row = 0; row < kConstantCount; ++row) {
    if (row > 0) text += ",";
    text += std::string(kConstantRows[row].name) + "=" + std::to_string(constant(constants, row));
  }
  return text;
}

}  // namespace parallax
