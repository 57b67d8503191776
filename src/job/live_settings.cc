// SPDX-License-Identifier: Apache-2.0
// What a change of a setting does. See live_settings.h.
#include "job/live_settings.h"

#include <utility>

#include "base/clock.h"
#include "job/job_settings.h"

namespace parallax {

LiveSettings::LiveSettings(std::unique_ptr<Settings> settings, uint32_t timeout_ms)
    : settings_(std::move(settings)),
      opened_(settings_.get()),
      timeout_ns_(timeout_ms * kNanosecondsPerMillisecond) {}

Status LiveSettings::set(std::string_view name, std::string_view value,
                         const std::function<void(const Settings& changed)>& use_memory) {
  const MutexLock lock(mutex_);
  PARALLAX_RETURN_IF_ERROR(settings_->change(name, value));
  if (name == "timeout_ms") {
    timeout_ns_.store(
        static_cast<int64_t>(settings_->value(name).number) * kNanosecondsPerMillisecond,
        std::memory_order_relaxed);
  } else if (name.starts_with("debug")) {
    use_log_settings(*settings_);
  } else {
    use_memory(*settings_);
  }
  return {};
}

std::string LiveSettings::json() const {
  const MutexLock lock(mutex_);
  return settings_->json();
}

}  // namespace parallax
