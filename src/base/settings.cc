// SPDX-License-Identifier: Apache-2.0
// Reading, checking and explaining settings. See settings.h; the table is settings_table.cc.
#include "base/settings.h"

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/check.h"

namespace parallax {

namespace {

constexpr std::string_view kPrefix = "PARALLAX_";
constexpr std::string_view kTestPrefix = "PARALLAX_TEST_";
constexpr size_t kFileBytesMax = 1 << 20;
constexpr size_t kShownBytesMax = 80;  // of a wrong value, in a sentence

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\r";
  const size_t first = text.find_first_not_of(kBlanks);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlanks) - first + 1);
}

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& each : out) each = static_cast<char>(std::tolower(static_cast<unsigned char>(each)));
  return out;
}

std::vector<std::string> split(std::string_view text, char at) {
  std::vector<std::string> parts;
  while (true) {
    const size_t end = text.find(at);
    parts.emplace_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

bool parse_number(std::string_view text, bool suffix, uint64_t* number) {
  uint32_t shift = 0;
  if (suffix && !text.empty()) {
    constexpr std::string_view kSuffixes = "KMGT";
    const size_t at =
        kSuffixes.find(static_cast<char>(std::toupper(static_cast<unsigned char>(text.back()))));
    if (at != std::string_view::npos) {
      shift = 10 * (static_cast<uint32_t>(at) + 1);
      text.remove_suffix(1);
    }
  }
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *number);
  if (error != std::errc() || end != text.data() + text.size()) return false;
  if (*number > UINT64_MAX >> shift) return false;
  *number <<= shift;
  return true;
}

bool parse_switch(const std::string& text, uint64_t* number) {
  for (const char* no : {"0", "off", "no", "false"}) {
    if (text == no) return *number = 0, true;
  }
  for (const char* yes : {"1", "on", "yes", "true"}) {
    if (text == yes) return *number = 1, true;
  }
  return false;
}

bool parse_list(const SettingRow& row, std::string_view text) {
  if (text.starts_with('^')) text.remove_prefix(1);
  const std::vector<std::string> choices = split(row.choices, '|');
  const std::vector<std::string> given = split(text, ',');
  return std::all_of(given.begin(), given.end(), [&](const std::string& each) {
    return std::find(choices.begin(), choices.end(), trimmed(each)) != choices.end();
  });
}

// Into *value's text and number, as the row's type has it.
bool parse(const SettingRow& row, std::string_view text, SettingValue* value) {
  value->text = std::string(text);
  value->number = 0;
  switch (row.type) {
    case SettingType::kText:
    case SettingType::kSecret:
      return text.find('\0') == std::string_view::npos;
    case SettingType::kList:
      value->text = lower(text);
      return parse_list(row, value->text);
    case SettingType::kChoice: {
      value->text = lower(text);
      const std::vector<std::string> choices = split(row.choices, '|');
      const auto found = std::find(choices.begin(), choices.end(), value->text);
      value->number = static_cast<uint64_t>(found - choices.begin());
      return found != choices.end();
    }
    case SettingType::kSwitch:
      if (!parse_switch(lower(text), &value->number)) return false;
      value->text = std::to_string(value->number);
      return true;
    case SettingType::kNumber:
    case SettingType::kBytes:
      if (!parse_number(text, row.type == SettingType::kBytes, &value->number)) return false;
      value->text = std::to_string(value->number);
      return value->number >= row.min && value->number <= row.max;
  }
  return false;
}

// "rank" in "open: rank is 3", neither in "open: ranks" nor in "every rank"; a name that is no word
// of English, such as lease_ms, anywhere.
bool names_setting(std::string_view sentence, std::string_view word) {
  constexpr std::string_view kBehindNames[] = {" is ", " must ", ": ", " '", " \""};
  const bool plain = word.find('_') == std::string_view::npos;
  const auto of_word = [](char each) {
    return std::isalnum(static_cast<unsigned char>(each)) != 0 || each == '_';
  };
  for (size_t at = sentence.find(word); at != std::string_view::npos;
       at = sentence.find(word, at + 1)) {
    const size_t end = at + word.size();
    if ((at == 0 || !of_word(sentence[at - 1])) &&
        (end == sentence.size() || !of_word(sentence[end]))) {
      const std::string_view rest = sentence.substr(end);
      if (!plain || std::any_of(std::begin(kBehindNames), std::end(kBehindNames),
                                [&](std::string_view each) { return rest.starts_with(each); })) {
        return true;
      }
    }
  }
  return false;
}

void keep_first(Status status, Status* first) {
  if (first->ok()) *first = std::move(status);
}

std::string unknown(const std::string& what, std::string_view name, bool variable) {
  std::string near = nearest_setting(name);
  if (near.empty()) return what + "; `parallax info -c` lists them";
  return what + "; did you mean " + (variable ? setting_variable(*find_setting(near)) : near) + "?";
}

}  // namespace

Settings::Settings() {
  for (const SettingRow& row : setting_rows()) {
    SettingValue value;
    if (*row.standard != '\0') PARALLAX_CHECK(parse(row, row.standard, &value));
    values_.push_back(std::move(value));
  }
}

SettingValue& Settings::at(const SettingRow& row) { return values_[&row - setting_rows().data()]; }

const SettingValue& Settings::value(std::string_view name) const {
  const SettingRow* row = find_setting(name);
  PARALLAX_CHECK(row != nullptr);
  return values_[row - setting_rows().data()];
}

namespace {

std::string shown_wrong(const SettingRow& row, std::string_view text) {
  return row.type == SettingType::kSecret ? "..." : std::string(text.substr(0, kShownBytesMax));
}

Status wrong_value(const SettingRow& row, std::string_view text, const std::string& where,
                   const char* remedy) {
  return invalid(where + ": " + row.name + " is '" + shown_wrong(row, text) + "'; it must be " +
                 setting_allowed(row) +
                 (*row.unit == '\0' ? "" : std::string(" (") + row.unit + ")") + ": " + remedy);
}

}  // namespace

Status Settings::set(const SettingRow& row, std::string_view text, SettingSource source,
                     const std::string& where, const char* remedy) {
  SettingValue value;
  if (!parse(row, text, &value)) {
    at(row).wrong = where + ": '" + shown_wrong(row, text) + "'";
    return wrong_value(row, text, where, remedy);
  }
  value.source = source;
  value.where = where;
  value.wrong = std::move(at(row).wrong);
  at(row) = std::move(value);
  return {};
}

Status Settings::load_text(std::string_view text, const std::string& name) {
  Status first;
  size_t number = 0;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = trimmed(text.substr(0, std::min(end, text.find('#'))));
    text.remove_prefix(std::min(end + 1, text.size()));
    ++number;
    if (line.empty()) continue;
    const std::string where = name + " line " + std::to_string(number);
    const size_t equals = line.find('=');
    if (equals == std::string_view::npos) {
      keep_first(invalid(where + ": '" + std::string(line.substr(0, kShownBytesMax)) +
                         "' is not `name = value`: correct or remove the line"),
                 &first);
      continue;
    }
    const std::string given = lower(trimmed(line.substr(0, equals))).substr(0, kShownBytesMax);
    const SettingRow* row = find_setting(given);
    if (row == nullptr) {
      warnings_.push_back(unknown(where + ": '" + given + "' is not a setting", given, false));
    } else if ((row->sources & kSetInFile) == 0) {
      keep_first(invalid(where + ": " + given +
                         " differs from rank to rank and cannot be given in a file: remove the "
                         "line, set " +
                         setting_variable(*row)),
                 &first);
    } else {
      keep_first(set(*row, trimmed(line.substr(equals + 1)), SettingSource::kFile, where,
                     "correct or remove the line"),
                 &first);
    }
  }
  return first;
}

Status Settings::load_file(const std::string& path, bool must_exist) {
  std::error_code nothing_there;
  if (std::filesystem::is_fifo(path, nothing_there)) {  // opening it would wait for a writer
    return invalid(path + " is a pipe: it is no file of settings");
  }
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  std::string text(kFileBytesMax + 1, '\0');
  if (file) file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (!file.is_open() || file.bad()) {
    if (!must_exist && (errno == ENOENT || errno == ENOTDIR)) return {};
    const std::string sentence = path + ": cannot be read: " + std::strerror(errno);
    if (must_exist) return io_error("PARALLAX_CONFIG_FILE: " + sentence + "; correct or unset it");
    warnings_.push_back(sentence + "; its settings are not used");
    return {};
  }
  text.resize(static_cast<size_t>(file.gcount()));
  if (text.size() > kFileBytesMax) {
    return invalid(path + " is larger than 1 MiB: it is no file of settings");
  }
  return load_text(text, path);
}

Status Settings::load_files(const SettingSources& sources) {
  std::string home;
  for (const std::string& entry : sources.environment) {
    if (entry.starts_with("PARALLAX_CONFIG_FILE=") && entry.back() != '=') {
      return load_file(entry.substr(entry.find('=') + 1), true);
    }
    if (entry.starts_with("HOME=")) home = entry.substr(entry.find('=') + 1);
  }
  Status first = load_file(sources.system_file, false);
  if (!home.empty()) keep_first(load_file(home + "/.parallax.conf", false), &first);
  return first;
}

Status Settings::load_environment(const std::vector<std::string>& environment) {
  Status first;
  for (const std::string& entry : environment) {
    const size_t equals = entry.find('=');
    if (!entry.starts_with(kPrefix) || equals == std::string::npos) continue;
    if (entry.starts_with(kTestPrefix)) continue;
    const std::string variable = entry.substr(0, equals);
    const std::string name = lower(variable.substr(kPrefix.size()));
    const SettingRow* row = find_setting(name);
    if (row == nullptr || setting_variable(*row) != variable) {
      warnings_.push_back(unknown(variable + " is not a setting of libparallax", name, true));
      continue;
    }
    const std::string value = entry.substr(equals + 1);
    if (value.empty()) continue;  // as if it were not set
    keep_first(set(*row, value, SettingSource::kEnvironment, "environment " + variable,
                   "correct or unset it"),
               &first);
  }
  return first;
}

Status Settings::load(const SettingSources& sources) {
  Status first = load_files(sources);
  keep_first(load_environment(sources.environment), &first);
  return first;
}

Status Settings::change(std::string_view name, std::string_view text) {
  const SettingRow* row = find_setting(name);
  if (row == nullptr) {
    // As it stands in a file or, by mistake, as the variable.
    std::string plain = lower(name.substr(0, kShownBytesMax));
    if (plain.starts_with(lower(kPrefix))) plain.erase(0, kPrefix.size());
    return invalid(unknown("set: '" + std::string(name.substr(0, kShownBytesMax)) +
                               "' is not a setting",
                           plain, false))
        .about_field("name");
  }
  if ((row->sources & kSetWhileOpen) == 0) {
    const bool code = (row->sources & kSetInCode) != 0;
    return unsupported("set: " + std::string(name) + " is fixed at open; give it " +
                       (code ? "in the options of parallax_open, or " : "") + "as " +
                       setting_variable(*row) + ", before the job opens")
        .about_field(name);
  }
  SettingValue value;
  if (!parse(*row, text, &value)) {
    return wrong_value(*row, text, "set", "nothing was changed").about_field(name);
  }
  value.source = SettingSource::kCode;
  value.where = "parallax_set";
  value.wrong = std::move(at(*row).wrong);
  at(*row) = std::move(value);
  return {};
}

// The value that the program set for this row, if it set one. `identified`: it says which rank this
// is, so that rank 0 is a value and not an unset field.
bool Settings::coded(const SettingRow& row, const parallax_options_t& options, bool identified,
                     SettingValue* value) {
  const bool of_identity =
      row.number32 == &parallax_options_t::rank || row.number32 == &parallax_options_t::world;
  if (row.text != nullptr) {
    if (options.*row.text == nullptr) return false;
    value->text = options.*row.text;
  } else if (row.number32 != nullptr || row.number64 != nullptr) {
    value->number = row.number64 != nullptr ? options.*row.number64 : options.*row.number32;
    if (of_identity ? !identified : value->number == 0) return false;
    value->text = std::to_string(value->number);
    if (row.type == SettingType::kChoice) {
      const std::vector<std::string> choices = split(row.choices, '|');
      if (value->number < choices.size()) value->text = choices[value->number];
    }
  } else {
    return false;
  }
  value->source = SettingSource::kCode;
  value->where = "the program";
  return true;
}

void Settings::apply(parallax_options_t* options) {
  // The environment may say which rank this is only where the program says nothing of it.
  const bool identified =
      options->rank != 0 || options->world != 0 || options->allgather != nullptr;
  for (const SettingRow& row : setting_rows()) {
    SettingValue& value = at(row);
    SettingValue given;
    if (coded(row, *options, identified, &given)) {
      value = std::move(given);
      continue;
    }
    // Where the program set allgather or unique_id, no setting may add another rendezvous.
    if (row.text == &parallax_options_t::rendezvous &&
        (options->allgather != nullptr || options->unique_id != nullptr)) {
      value = SettingValue();
    }
    if (value.source == SettingSource::kDefault) continue;
    if (row.number32 != nullptr) options->*row.number32 = static_cast<uint32_t>(value.number);
    if (row.number64 != nullptr) options->*row.number64 = value.number;
    if (row.text != nullptr) options->*row.text = value.text.c_str();
  }
}

Status Settings::explained(const Status& failure) const {
  const parallax_status_t code = failure.code();
  if (code != PARALLAX_INVALID && code != PARALLAX_UNSUPPORTED && code != PARALLAX_IO) {
    return failure;
  }
  std::string sentence = failure.message();
  for (const SettingRow& row : setting_rows()) {
    const SettingValue& value = values_[&row - setting_rows().data()];
    const bool outside =
        value.source == SettingSource::kEnvironment || value.source == SettingSource::kFile;
    if (!outside || !names_setting(failure.message(), row.name)) continue;
    sentence += std::string("; ") + row.name + " is set by " + value.where;
  }
  return failure.reworded(std::move(sentence));
}

std::string Settings::shown(const SettingRow& row) const {
  const SettingValue& value = values_[&row - setting_rows().data()];
  if (row.type == SettingType::kSecret) return value.text.empty() ? "" : "(set)";
  return value.text;
}

std::string Settings::json() const {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const SettingRow& row : setting_rows()) {
    const SettingValue& value = values_[&row - setting_rows().data()];
    list.push_back({{"name", row.name},
                    {"variable", setting_variable(row)},
                    {"value", shown(row)},
                    {"unit", row.unit},
                    {"source", setting_source_name(value.source)},
                    {"where", value.where},
                    {"wrong", value.wrong},
                    {"default", row.standard},
                    {"allowed", setting_allowed(row)},
                    {"given_in", setting_sources(row)},
                    {"help", row.help}});
  }
  return list.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace parallax
