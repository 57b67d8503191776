// SPDX-License-Identifier: Apache-2.0
// LiveSettings: the settings of a job that is open, some of which a program may change as it goes
// (parallax_set). What a job was opened with is read from there until others know the job.
//
// Any thread, but for as_opened(). Its lock comes before the engine mutex, so that of two changes
// the later one is what holds.
#ifndef PARALLAX_JOB_LIVE_SETTINGS_H_
#define PARALLAX_JOB_LIVE_SETTINGS_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/mutex.h"
#include "base/settings.h"
#include "base/status.h"

namespace parallax {

class LiveSettings {
 public:
  // `timeout_ms` is the job's.
  LiveSettings(std::unique_ptr<Settings> settings, uint32_t timeout_ms);

  // By the thread that opens the job.
  const Settings& as_opened() const { return *opened_; }

  // The deadline of each call that begins from now on.
  int64_t timeout_ns() const { return timeout_ns_.load(std::memory_order_relaxed); }

  // Changes one for the whole job, or what of it is the process's. `use_memory` takes the settings
  // about memory. INVALID: no such setting, or value; UNSUPPORTED: it is fixed at open.
  Status set(std::string_view name, std::string_view value,
             const std::function<void(const Settings& changed)>& use_memory)
      PARALLAX_EXCLUDES(mutex_);
  // As Settings::json.
  std::string json() const PARALLAX_EXCLUDES(mutex_);

 private:
  mutable Mutex mutex_;
  const std::unique_ptr<Settings> settings_ PARALLAX_PT_GUARDED_BY(mutex_);
  const Settings* const opened_;  // the same
  std::atomic<int64_t> timeout_ns_;
};

}  // namespace parallax

#endif  // PARALLAX_JOB_LIVE_SETTINGS_H_
