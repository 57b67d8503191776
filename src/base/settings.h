// SPDX-License-Identifier: Apache-2.0
// Settings: everything that can be set from outside a program, in ONE table (settings_table.cc):
// name, type, default, unit, range, help, where it may be given, and the field of
// parallax_options_t that it fills. Parsing, docs/settings.md, `parallax info -c` and the settings
// report come from that table. Nothing else of the library reads PARALLAX_* variables, but the
// rendezvous: a launcher's names (launcher.h) and the secret, which is kept nowhere (secret.h).
//
// Precedence: the program's own field, if it is not zero > environment (PARALLAX_NAME) > file >
// default. The file is the one that PARALLAX_CONFIG_FILE names, else ~/.parallax.conf over
// /etc/parallax.conf; lines are `name = value`, and # opens a comment.
//
// A wrong value is INVALID and names where it stands, the value, what is allowed and the remedy. A
// name that the table lacks is a warning with the nearest name: an older library may read a newer
// file. PARALLAX_TEST_* belongs to tests and is passed over.
//
// A program with rights that its caller lacks takes neither the environment nor ~/.parallax.conf
// (environment.h); /etc/parallax.conf holds for it too.
//
// Plain values. load() reads files.
#ifndef PARALLAX_BASE_SETTINGS_H_
#define PARALLAX_BASE_SETTINGS_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace parallax {

enum class SettingType : uint8_t {
  kText,    // any text
  kSecret,  // any text, never shown
  kChoice,  // one of `choices`; as a number: its index there
  kList,    // some of `choices`, separated by commas
  kNumber,  // min..max
  kBytes,   // min..max, with K, M, G or T for powers of 1024
  kSwitch   // 0 or 1; on/off, yes/no, true/false
};

// Where a setting may be set: bits of SettingRow::sources.
inline constexpr uint32_t kSetInCode = 1;
inline constexpr uint32_t kSetInEnvironment = 2;
inline constexpr uint32_t kSetInFile = 4;
inline constexpr uint32_t kSetWhileOpen = 8;  // parallax_set

struct SettingRow {
  const char* name;  // "lease_ms"; its variable is PARALLAX_LEASE_MS
  SettingType type;
  const char* standard;   // the default, as text; "" is "not set"
  const char* unit = "";  // "ms", "bytes"
  uint64_t min = 0, max = 0;
  const char* choices = "";  // "auto|hybrid|ps|ar"
  uint32_t sources = 0;
  const char* help = "";
  // The field that it fills where the program left zero; at most one.
  uint32_t parallax_options_t::*number32 = nullptr;
  uint64_t parallax_options_t::*number64 = nullptr;
  const char* parallax_options_t::*text = nullptr;
};

std::span<const SettingRow> setting_rows();
const SettingRow* find_setting(std::string_view name);  // null: no such
std::string setting_variable(const SettingRow& row);    // "PARALLAX_LEASE_MS"
std::string setting_allowed(const SettingRow& row);     // "a whole number, 50..4294967295"
std::string setting_sources(const SettingRow& row);     // "code, environment, file, parallax_set"
std::string nearest_setting(std::string_view name);     // by edit distance; "" if none is near
std::string settings_markdown();                        // the table of docs/settings.md

enum class SettingSource : uint8_t { kDefault, kFile, kEnvironment, kCode };
const char* setting_source_name(SettingSource source);

struct SettingValue {
  std::string text;     // "" is "not set"
  uint64_t number = 0;  // of kChoice, kNumber, kBytes, kSwitch
  SettingSource source = SettingSource::kDefault;
  std::string where;  // "environment PARALLAX_LEASE_MS", "/etc/parallax.conf line 3"
  std::string wrong;  // "environment PARALLAX_LEASE_MS: 'two'": was given and cannot be taken
};

struct SettingSources {
  std::vector<std::string> environment;  // "NAME=VALUE"
  std::string system_file = "/etc/parallax.conf";
};

class Settings {
 public:
  Settings();  // every default

  // Reads the files, then the environment, all of them: the first failure is returned, and what is
  // wrong keeps the value it had. INVALID, IO (a file that PARALLAX_CONFIG_FILE names and that
  // cannot be read). Warnings are appended to warnings().
  Status load(const SettingSources& sources);
  // The text of one file. Pure; for load and for fuzzing. `name` is for sentences.
  Status load_text(std::string_view text, const std::string& name);

  // Fills in the options that the program left zero, and records those that it set. Texts point
  // into this object, which must not move while they are used.
  void apply(parallax_options_t* options);

  // What parallax_set does: a value that the program gives while the job is open. INVALID: no such
  // setting, or value; UNSUPPORTED: it is fixed at open. Then nothing has changed.
  Status change(std::string_view name, std::string_view text);

  const SettingValue& value(std::string_view name) const;  // of a name in the table
  const std::vector<std::string>& warnings() const { return warnings_; }
  // Adds to a refusal where the settings that it names were set, unless the program set them, so
  // that the user knows which file or variable to change. Other failures are returned as they are.
  Status explained(const Status& failure) const;
  // What parallax_open takes its log from, and the value as shown (a secret is not).
  std::string shown(const SettingRow& row) const;
  // [{"name", "value", "unit", "source", "where"}]: a JSON array.
  std::string json() const;

 private:
  Status set(const SettingRow& row, std::string_view text, SettingSource source,
             const std::string& where, const char* remedy);
  Status load_file(const std::string& path, bool must_exist);
  Status load_files(const SettingSources& sources);
  Status load_environment(const std::vector<std::string>& environment);
  static bool coded(const SettingRow& row, const parallax_options_t& options, bool identified,
                    SettingValue* value);
  SettingValue& at(const SettingRow& row);

  std::vector<SettingValue> values_;  // by row
  std::vector<std::string> warnings_;
};

}  // namespace parallax

#endif  // PARALLAX_BASE_SETTINGS_H_
