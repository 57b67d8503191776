// SPDX-License-Identifier: Apache-2.0
// How settings reach the options and the log of a job. See job_settings.h.
#include "job/job_settings.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <thread>

#include "base/check.h"
#include "base/clock.h"
#include "base/environment.h"
#include "base/interface.h"
#include "base/log.h"
#include "base/not_yet.h"
#include "base/text.h"
#include "group/step_window.h"
#include "rendezvous/launcher.h"

namespace parallax {

namespace {
constexpr uint32_t kLeaseMinMs = 50;
}  // namespace

void use_log_settings(const Settings& settings) {
  log_configure({.level = static_cast<LogLevel>(settings.value("debug").number),
                 .subsystems = settings.value("debug_subsys").text,
                 .file = settings.value("debug_file").text});
  for (const std::string& warning : settings.warnings()) {
    log_write_once(LogLevel::kWarn, LogSubsystem::kEnv, warning);
  }
}

namespace {

// Rank or world alone would be a wrong identity: rank 0 of a world of one, or every rank as rank 0.
Status check_identity(const Settings& settings) {
  const SettingValue& rank = settings.value("rank");
  const SettingValue& world = settings.value("world");
  const bool ranked = rank.source == SettingSource::kEnvironment;
  const bool counted = world.source == SettingSource::kEnvironment && world.number > 1;
  if (ranked && world.source == SettingSource::kDefault) {
    return invalid("open: PARALLAX_RANK is " + rank.text +
                   ", but PARALLAX_WORLD is not set; set both, or neither")
        .about_field("rank");
  }
  if (counted && rank.source == SettingSource::kDefault) {
    return invalid("open: PARALLAX_WORLD is " + world.text +
                   ", but PARALLAX_RANK is not set; set both, or neither")
        .about_field("world");
  }
  return {};
}

// Ranks that share memory never open net_device, so a misspelt name would go unnoticed until the
// first job over several hosts.
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
  if (!status.ok()) return status.prefixed("open: ");
  use_log_settings(*loaded);
  if (caller_is_distrusted()) {
    PARALLAX_LOG(kInfo, kEnv,
                 "this program has rights that its caller may lack: the environment and "
                 "~/.parallax.conf are not taken");
  }
  loaded->apply(options);
  PARALLAX_RETURN_IF_ERROR(check_identity(*loaded));
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

namespace {

Status check_texts(const parallax_options_t& options) {
  if (options.host != nullptr &&
      (options.host[0] == '\0' ||
       strnlen(options.host, PARALLAX_NAME_MAX + 1) > PARALLAX_NAME_MAX)) {
    return invalid("open: host must have 1.." + std::to_string(PARALLAX_NAME_MAX) + " bytes")
        .about_field("host");
  }
  if (options.host != nullptr && printable(options.host) != options.host) {
    return invalid("open: host '" + printable(options.host) +
                   "' has control characters or is not UTF-8; give a name that prints on a line")
        .about_field("host");
  }
  const std::string transport = options.transport == nullptr ? "tcp" : options.transport;
  if (transport != "ucx" && transport != "tcp" && transport != "shm" && transport != "rdma") {
    return invalid("open: transport is '" + transport.substr(0, 32) +
                   "'; it must be \"tcp\", \"ucx\", \"rdma\" or \"shm\"")
        .about_field("transport");
  }
  return {};
}

Status check_staleness(const parallax_options_t& options) {
  if (options.staleness > PARALLAX_STALENESS_MAX && options.staleness != PARALLAX_ASYNC) {
    return invalid("open: staleness is " + std::to_string(options.staleness) + "; at most " +
                   std::to_string(PARALLAX_STALENESS_MAX) + " steps, or PARALLAX_ASYNC")
        .about_field("staleness");
  }
  if (options.staleness == 0 || options.deterministic == 0) return {};
  return invalid(
             "open: staleness is given, and deterministic is 1; what a pull sees follows from "
             "timing then: set one of them to 0")
      .about_field("staleness");
}

Status parse_pins(const parallax_options_t& options, Pins* pins) {
  return Pins::parse(options.pins == nullptr ? "" : options.pins, options.sparse_as_dense != 0,
                     pins);
}

}  // namespace

Pins pins_of(const parallax_options_t& options) {
  Pins pins;
  const Status parsed = parse_pins(options, &pins);
  PARALLAX_CHECK(parsed.ok());
  return pins;
}

uint32_t plan_after_steps_of(const parallax_options_t& options) {
  constexpr uint32_t kDefault = 8;
  return options.plan_after_steps == 0 ? kDefault : options.plan_after_steps;
}

uint32_t staleness_of(const parallax_options_t& options) {
  return options.staleness == PARALLAX_ASYNC ? StepWindow::kAsync : options.staleness;
}

RowWays row_ways_of(const Settings& settings) {
  const auto is_on = [&](const char* name) { return settings.value(name).number == 0; };
  return {.coding = static_cast<RowCodingMode>(settings.value("row_coding").number),
          .early_bytes_min = is_on("early_pull") ? kEarlyBytesMin : kNeverEarly,
          .push_listed = is_on("push_listed"),
          .in_place = is_on("rows_in_place")};
}

Status check_options(const parallax_options_t& options) {
  const uint32_t world = std::max(1u, options.world);
  if (world > PARALLAX_WORLD_MAX) {
    return invalid("open: world is " + std::to_string(world) + "; at most " +
                   std::to_string(PARALLAX_WORLD_MAX) + " ranks")
        .about_field("world");
  }
  if (options.rank >= world) {
    return invalid("open: rank is " + std::to_string(options.rank) + ", world is " +
                   std::to_string(world) + "; ranks are 0..world-1")
        .about_field("rank");
  }
  PARALLAX_RETURN_IF_ERROR(check_texts(options));
  if (options.lease_ms != 0 && options.lease_ms < kLeaseMinMs) {
    return invalid("open: lease_ms is " + std::to_string(options.lease_ms) +
                   "; below 50 ms ordinary scheduling looks like death")
        .about_field("lease_ms");
  }
  if (options.plan_mode > PARALLAX_PLAN_AR) {
    return invalid("open: plan_mode is " + std::to_string(options.plan_mode) +
                   "; it must be PARALLAX_PLAN_AUTO, _HYBRID, _PS or _AR")
        .about_field("plan_mode");
  }
  const std::pair<const char*, uint32_t> flags[] = {{"deterministic", options.deterministic},
                                                    {"manual_progress", options.manual_progress},
                                                    {"sparse_as_dense", options.sparse_as_dense}};
  for (const auto& [field, value] : flags) {
    if (value <= 1) continue;
    return invalid(std::string("open: ") + field + " is " + std::to_string(value) +
                   "; it must be 0 or 1")
        .about_field(field);
  }
  if (options.reserved != 0) {
    return unsupported("open: reserved is " + std::to_string(options.reserved) +
                       "; this version knows 0 alone: set the whole struct to zero first")
        .about_field("reserved");
  }
  PARALLAX_RETURN_IF_ERROR(
      refuse_not_yet("open: ", {{"replicas", options.replicas != 0},
                                {"no_local_aggregation", options.no_local_aggregation != 0}}));
  PARALLAX_RETURN_IF_ERROR(check_staleness(options));
  Pins pins;
  PARALLAX_RETURN_IF_ERROR(parse_pins(options, &pins));
  constexpr uint32_t kComputeThreadsMax = 256;
  if (options.compute_threads > kComputeThreadsMax) {
    return invalid("open: compute_threads is " + std::to_string(options.compute_threads) +
                   "; at most 256")
        .about_field("compute_threads");
  }
  return {};
}

void warn_if_left_alone(const parallax_options_t& options) {
  if (options.world > 1 || options.rendezvous != nullptr) return;
  Launched launched;
  // The launcher's variables may lack an address: "env" reports that, here only the world counts.
  [[maybe_unused]] const Status read = read_launcher(process_variable, &launched);
  if (launched.world < 2) return;
  PARALLAX_LOG(kWarn, kInit,
               "open: one rank alone, though " + launched.launcher + " started " +
                   std::to_string(launched.world) +
                   "; to train together set options.rendezvous to \"env\", or the variable "
                   "PARALLAX_RENDEZVOUS=env");
}

void warn_of_short_lease(size_t ranks, int64_t lease_ns) {
  constexpr int64_t kLeaseSharedNs = 2000 * kNanosecondsPerMillisecond;
  const size_t cores = std::thread::hardware_concurrency();
  if (cores == 0 || ranks <= cores || lease_ns >= kLeaseSharedNs) return;
  log_write_once(LogLevel::kWarn, LogSubsystem::kInit,
                 "open: " + std::to_string(ranks) + " ranks of this host share " +
                     std::to_string(cores) + " cores with a lease of " +
                     std::to_string(lease_ns / kNanosecondsPerMillisecond) +
                     " ms: one that waits for a core that long is taken for lost; raise lease_ms");
}

}  // namespace parallax
