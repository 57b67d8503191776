// SPDX-License-Identifier: Apache-2.0
// Settings of a job: read when it opens, and passed to the log and to the options. Runs on the
// thread that opens the job; reads files and the environment, which no other thread may change
// meanwhile.
#ifndef PARALLAX_JOB_JOB_SETTINGS_H_
#define PARALLAX_JOB_JOB_SETTINGS_H_

#include <cstdint>
#include <memory>
#include <string>

#include "base/settings.h"
#include "group/group.h"
#include "variable/pins.h"

namespace parallax {

// The log as the settings have it; their warnings are logged, each once in a process.
void use_log_settings(const Settings& settings);

// Fills in what *options leaves zero. Its strings may then point into **settings. INVALID, IO.
Status take_settings(parallax_options_t* options, std::unique_ptr<Settings>* settings);

// INVALID, UNSUPPORTED.
Status check_options(const parallax_options_t& options);
// Of options that were checked.
Pins pins_of(const parallax_options_t& options);
uint32_t plan_after_steps_of(const parallax_options_t& options);
uint32_t staleness_of(const parallax_options_t& options);  // as StepWindow has it
RowWays row_ways_of(const Settings& settings);

// Where it was set; "" where it was not.
inline std::string set_where(const SettingValue& value) {
  return value.text.empty() ? "" : value.where;
}

// Of a rank that a launcher started beside others, and that was not told to meet them: it would
// train a model of its own.
void warn_if_left_alone(const parallax_options_t& options);

// Once in a process, where ranks of a host outnumber its cores and the lease is short.
void warn_of_short_lease(size_t ranks, int64_t lease_ns);

}  // namespace parallax

#endif  // PARALLAX_JOB_JOB_SETTINGS_H_
