// SPDX-License-Identifier: Apache-2.0
// What is said of the settings, row by row. See settings.h.
#include <array>
#include <string>
#include <utility>

#include "base/settings.h"

namespace parallax {

namespace {

std::string replaced(std::string_view text, char from, std::string_view to) {
  std::string out;
  for (const char each : text) {
    if (each == from) {
      out += to;
    } else {
      out += each;
    }
  }
  return out;
}

}  // namespace

std::string setting_allowed(const SettingRow& row) {
  switch (row.type) {
    case SettingType::kText:
    case SettingType::kSecret:
      return "text";
    case SettingType::kChoice:
      return "one of " + replaced(row.choices, '|', ", ");
    case SettingType::kList:
      return "some of " + replaced(row.choices, '|', ", ");
    case SettingType::kSwitch:
      return "0 or 1";
    case SettingType::kNumber:
      return "a whole number, " + std::to_string(row.min) + ".." + std::to_string(row.max);
    case SettingType::kBytes:
      return "a whole number, " + std::to_string(row.min) + ".." + std::to_string(row.max) +
             ", or with K, M, G or T";
  }
  return "";
}

std::string setting_sources(const SettingRow& row) {
  std::string sources;
  for (const auto& [bit, name] :
       {std::pair{kSetInCode, "code"}, std::pair{kSetInEnvironment, "environment"},
        std::pair{kSetInFile, "file"}, std::pair{kSetWhileOpen, "parallax_set"}}) {
    if ((row.sources & bit) == 0) continue;
    if (!sources.empty()) sources += ", ";
    sources += name;
  }
  return sources;
}

const char* setting_source_name(SettingSource source) {
  constexpr std::array kNames = {"default", "file", "environment", "code"};
  return kNames[static_cast<size_t>(source)];
}

std::string settings_markdown() {
  std::string table =
      "| name | variable | allowed | default | set in | |\n|---|---|---|---|---|---|\n";
  for (const SettingRow& row : setting_rows()) {
    const std::string standard = *row.standard == '\0' ? "not set" : row.standard;
    table += "| `" + std::string(row.name) + "` | `" + setting_variable(row) + "` | " +
             setting_allowed(row) + " | " + standard +
             (*row.unit == '\0' || *row.standard == '\0' ? "" : std::string(" ") + row.unit) +
             " | " + setting_sources(row) + " | " + replaced(row.help, '|', "\\|") + " |\n";
  }
  return table;
}

}  // namespace parallax
