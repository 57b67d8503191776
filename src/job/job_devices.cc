// SPDX-License-Identifier: Apache-2.0
// Opening devices, and what is told of them. See job_devices.h.
#include "job/job_devices.h"

#include <utility>

#include "base/log.h"
#include "base/machine_memory.h"

namespace parallax {

uint64_t pinned_max_bytes(const SettingValue& setting, size_t ranks) {
  if (setting.source != SettingSource::kDefault) return setting.number;
  return machine_memory().most_bytes() / 4 / ranks;
}

JobDevices::JobDevices(std::string module_dir, uint64_t pinned_max_bytes,
                       std::function<void()> wake)
    : module_dir_(std::move(module_dir)),
      pinned_max_bytes_(pinned_max_bytes),
      waker_(std::make_shared<Waker>()) {
  const MutexLock lock(waker_->mutex);
  waker_->wake = std::move(wake);
}

JobDevices::~JobDevices() {
  const MutexLock lock(mutex_);
  // A device that does not end may still write to what it was given: its end waits for it first.
  if (devices_ != nullptr) devices_->drain(int64_t{5'000'000'000});
  pinned_.reset();
  devices_.reset();
  const MutexLock waking(waker_->mutex);
  waker_->wake = nullptr;
}

Status JobDevices::open(DeviceShare* share) {
  const MutexLock lock(mutex_);
  if (devices_ == nullptr) {
    const ParallaxDeviceModule* module = nullptr;
    PARALLAX_RETURN_IF_ERROR(load_cuda_module(module_dir_, &module, &found_));
    const auto wake = [waker = waker_] {
      const MutexLock waking(waker->mutex);
      if (waker->wake) waker->wake();
    };
    const Status created = module->create({.wake = wake}, &devices_);
    if (!created.ok()) return created.prefixed(found_.path + ": ");
    pinned_ = std::make_unique<PinnedPool>(*devices_, pinned_max_bytes_);
    PARALLAX_LOG(kInfo, kInit, "devices by " + found_.path + ", for " + found_.made);
  }
  *share = {devices_.get(), pinned_.get()};
  return {};
}

nlohmann::json JobDevices::report() const {
  const MutexLock lock(mutex_);
  nlohmann::json report = {{"used", devices_ != nullptr},
                           {"module", found_.path},
                           {"made", found_.made},
                           {"tried", found_.tried}};
  if (devices_ == nullptr) return report;
  const DeviceReport told = devices_->report();
  report["driver"] = told.driver;
  report["collectives"] = told.collectives;
  report["collectives_why"] = told.collectives_why;
  report["devices"] = nlohmann::json::array();
  for (const DeviceInfo& each : told.devices) {
    report["devices"].push_back(
        {{"number", each.number}, {"name", each.name}, {"pci_bus_id", each.pci_bus_id}});
  }
  return report;
}

}  // namespace parallax
