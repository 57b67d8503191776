// SPDX-License-Identifier: Apache-2.0
// JobDevices: a job's way to devices: the module, looked for at the first call that has to do with
// a device, and what all groups of the job share of it. A job that never has one never looks, so
// that no driver starts its threads in it, and a process may fork as before.
//
// Any thread; opening blocks on the file system and the driver, so prepare() comes first, without
// the engine mutex: what the engine opens is open then. The pinned memory is the engine's owner's.
#ifndef PARALLAX_JOB_JOB_DEVICES_H_
#define PARALLAX_JOB_JOB_DEVICES_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string>

#include "base/mutex.h"
#include "base/settings.h"
#include "base/status.h"
#include "device/device_share.h"
#include "device/loader.h"
#include "parallax/parallax.h"

namespace parallax {

// What a rank may pin, of so many on its host, by the setting: where it is not set they share a
// quarter of the machine's memory, since what is pinned is nobody else's. 0: no bound.
uint64_t pinned_max_bytes(const SettingValue& setting, size_t ranks);

// In the order in which they are made; they end the other way round.
struct DevicesAndPools {
  std::unique_ptr<Devices> devices;
  std::unique_ptr<PinnedPool> pinned;
  std::unique_ptr<ScratchPool> scratch;
};

class JobDevices {
 public:
  // How long the end of a job waits for devices.
  static constexpr int64_t kEndNs = 10'000'000'000;

  struct Options {
    std::string module_dir;
    uint64_t pinned_max_bytes = 0;  // 0: no bound
    uint64_t pinned_call_max_bytes = UINT64_MAX;
    uint64_t scratch_max_bytes = 0;   // of each device; 0: none
    uint64_t coalesce_min_bytes = 0;  // of a slice, to be coalesced on its device
    bool collectives = false;         // devices may sum among themselves
    int64_t abort_after_ns = 0;       // of their calls (DeviceOptions)
    std::function<void()> wake;       // called from threads of the driver's, until this ends
  };

  // As the settings say, with so many ranks on the host.
  static Options options_of(const Settings& settings, size_t ranks, std::function<void()> wake);
  explicit JobDevices(Options options);
  ~JobDevices();
  JobDevices(const JobDevices&) = delete;
  JobDevices& operator=(const JobDevices&) = delete;

  // UNSUPPORTED: what was looked for, where, and what is missing. One that failed is tried again.
  Status open(DeviceShare* share) PARALLAX_EXCLUDES(mutex_);
  // Opens what a call is about to need, as far as it can be: what fails is the call's to say.
  void prepare(std::span<const parallax_slice_t> slices) PARALLAX_EXCLUDES(mutex_);
  void prepare(const parallax_variable_t& variable) PARALLAX_EXCLUDES(mutex_);
  // The device whose stream is to wait; where the job has none yet there is nothing to wait for.
  // UNSUPPORTED, IO.
  Status open_for_stream(uint32_t device) PARALLAX_EXCLUDES(mutex_);
  // Gives back what the job has on devices, and before that by `release` what is not this one's.
  // Drivers wait for their devices to do so: where one does not end in kEndNs its memory is left,
  // and the log says it.
  void close(std::function<void()> release) PARALLAX_EXCLUDES(mutex_);

  // {"used", "module", "made", "tried", "driver", "collectives", "collectives_why", "devices"}
  nlohmann::json report() const PARALLAX_EXCLUDES(mutex_);

 private:
  // Shared with what the driver may still call when the job is gone.
  struct Waker {
    Mutex mutex;
    std::function<void()> wake PARALLAX_GUARDED_BY(mutex);
  };

  const Options options_;
  const std::shared_ptr<Waker> waker_;
  mutable Mutex mutex_;
  DeviceModuleReport found_ PARALLAX_GUARDED_BY(mutex_);
  DevicesAndPools all_ PARALLAX_GUARDED_BY(mutex_);  // once there, until the end
};

}  // namespace parallax

#endif  // PARALLAX_JOB_JOB_DEVICES_H_
