// SPDX-License-Identifier: Apache-2.0
// How settings reach the options and the log of a job. See job_settings.h.
#include "step/job_settings.h"

#include "base/environment.h"
#include "base/log.h"
#include "transport/rendezvous/interface.h"

namespace parallax {

void use_log_settings(const Settings& settings) {
  log_configure({.level = static_cast<LogLevel>(settings.value("debug").number),
                 .subsystems = settings.value("debug_subsys").text,
                 .file = settings.value("debug_file").text});
  for (const std::string& warning : settings.warnings()) {
    log_write_once(LogLevel::kWarn, LogSubsystem::kEnv, warning);
  }
}

namespace {

// Half a place would be another place: rank 0 alone, or every rank as rank 0.
Status check_place(const Settings& settings) {
  const SettingValue& rank = settings.value("rank");
  const SettingValue& world = settings.value("world");
  const bool ranked = rank.source == SettingSource::kEnvironment;
  const bool counted = world.source == SettingSource::kEnvironment && world.number > 1;
  if (ranked && world.source == SettingSource::kDefault) {
    return invalid("open: PARALLAX_RANK is " + rank.text +
                   ", but PARALLAX_WORLD is not set; set both, or neither");
  }
  if (counted && rank.source == SettingSource::kDefault) {
    return invalid("open: PARALLAX_WORLD is " + world.text +
                   ", but PARALLAX_RANK is not set; set both, or neither");
  }
  return {};
}

// Ranks that share memory never open it, and would leave a misspelt name to the first job that
// does.
void check_device(const Settings& settings, const char* device) {
  if (device == nullptr || *device == '\0' || is_network_device(device)) return;
  log_write_once(LogLevel::kWarn, LogSubsystem::kEnv,
                 std::string("net_device is '") + device + "', from " +
                     settings.value("net_device").where +
                     ": this machine has no such interface and no such RDMA device");
}

}  // namespace

Status take_settings(parallax_options_t* options, std::unique_ptr<Settings>* settings) {
  auto loaded = std::make_unique<Settings>();
  const Status status = loaded->load({.environment = process_environment()});
  if (!status.ok()) return {status.code(), "open: " + status.message()};
  use_log_settings(*loaded);
  if (caller_is_distrusted()) {
    PARALLAX_LOG(kInfo, kEnv,
                 "this program has rights that its caller may lack: the environment and "
                 "~/.parallax.conf are not taken");
  }
  loaded->apply(options);
  PARALLAX_RETURN_IF_ERROR(check_place(*loaded));
  check_device(*loaded, options->net_device);
  for (const SettingRow& row : setting_rows()) {
    const SettingValue& value = loaded->value(row.name);
    if (value.source == SettingSource::kDefault) continue;
    PARALLAX_LOG(kInfo, kEnv,
                 std::string(row.name) + " = " + loaded->shown(row) + ", from " + value.where);
  }
  *settings = std::move(loaded);
  return {};
}

}  // namespace parallax
