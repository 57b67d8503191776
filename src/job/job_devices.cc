// SPDX-License-Identifier: Apache-2.0
// Opening devices, and what is told of them. See job_devices.h.
#include "job/job_devices.h"

#include <dlfcn.h>

#include <chrono>
#include <system_error>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "base/log.h"
#include "base/machine_memory.h"

namespace parallax {

uint64_t pinned_max_bytes(const SettingValue& setting, size_t ranks) {
  if (setting.source != SettingSource::kDefault) return setting.number;
  return machine_memory().most_bytes() / 4 / ranks;
}

JobDevices::Options JobDevices::options_of(const Settings& settings, size_t ranks,
                                           std::function<void()> wake) {
  return {.module_dir = settings.value("module_dir").text,
          .pinned_max_bytes = parallax::pinned_max_bytes(settings.value("pinned_max_bytes"), ranks),
          .pinned_call_max_bytes = settings.value("pinned_call_max_bytes").number,
          .scratch_max_bytes = settings.value("device_scratch_max_bytes").number,
          .coalesce_min_bytes = settings.value("device_coalesce_min_bytes").number,
          .collectives = settings.value("nccl").number != 0,
          .abort_after_ns = static_cast<int64_t>(settings.value("nccl_abort_ms").number) *
                            kNanosecondsPerMillisecond,
          .wake = std::move(wake)};
}

JobDevices::JobDevices(Options options)
    : options_(std::move(options)), waker_(std::make_shared<Waker>()) {
  const MutexLock lock(waker_->mutex);
  waker_->wake = options_.wake;
}

JobDevices::~JobDevices() {
  close([] {});
  const MutexLock waking(waker_->mutex);
  waker_->wake = nullptr;
}

namespace {

// What a job had on devices, and whether that is given back. Of the thread that does it, and of who
// waits for it, whichever goes last.
struct Ending {
  Mutex mutex;
  Mutex::CondVar changed;
  bool over PARALLAX_GUARDED_BY(mutex) = false;
  bool left PARALLAX_GUARDED_BY(mutex) = false;
};

void end_devices(DevicesAndPools all, const std::function<void()>& release,
                 const std::shared_ptr<Ending>& ending) {
  // What a device may still write to is not freed, nor what its driver may still call.
  const bool ended = all.devices->drain(JobDevices::kEndNs / 2);
  if (ended) {
    release();
    all.scratch.reset();
    all.pinned.reset();
    all.devices.reset();
  } else {
    static_cast<void>(all.scratch.release());
    static_cast<void>(all.pinned.release());
    static_cast<void>(all.devices.release());
  }
  const MutexLock lock(ending->mutex);
  ending->over = true;
  ending->left = !ended;
  ending->changed.notify_all();
}

enum class HowItEnded : uint8_t { kUnderWay, kLeft, kGivenBack };

HowItEnded wait_for(Ending& ending) {
  const auto until =
      std::chrono::steady_clock::now() + std::chrono::nanoseconds(JobDevices::kEndNs);
  const MutexLock lock(ending.mutex);
  while (!ending.over && std::chrono::steady_clock::now() < until) {
    ending.changed.wait_until(ending.mutex, until);
  }
  if (!ending.over) return HowItEnded::kUnderWay;
  return ending.left ? HowItEnded::kLeft : HowItEnded::kGivenBack;
}

// A thread of ours may come back from the driver, or from NCCL, at any time: a program that unloads
// the library (dlclose) is not to take its code away.
void stay_loaded() {
  Dl_info self = {};
  if (dladdr(reinterpret_cast<const void*>(&stay_loaded), &self) == 0) return;
  static_cast<void>(dlopen(self.dli_fname, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE));
}

}  // namespace

void JobDevices::close(std::function<void()> release) {
  DevicesAndPools all;
  {
    const MutexLock lock(mutex_);
    all = std::move(all_);
  }
  if (all.devices == nullptr) return;
  const uint64_t pinned_bytes = all.pinned->bytes_held();
  const auto ending = std::make_shared<Ending>();
  // Held by the function, so that they are there where no thread can be had.
  struct Held {
    DevicesAndPools all;
    std::function<void()> release;
  };
  const auto held = std::make_shared<Held>(Held{std::move(all), std::move(release)});
  const auto body = [held, ending] { end_devices(std::move(held->all), held->release, ending); };
  std::thread thread;
  try {
    thread = std::thread(body);
  } catch (const std::system_error&) {
    body();
  }
  const HowItEnded how = wait_for(*ending);
  if (how != HowItEnded::kGivenBack) stay_loaded();
  if (how == HowItEnded::kUnderWay) {
    thread.detach();
  } else if (thread.joinable()) {
    thread.join();
  }
  if (how == HowItEnded::kGivenBack) return;
  PARALLAX_LOG(kWarn, kInit,
               "a device, or NCCL, did not end within " + std::to_string(kEndNs / 1'000'000'000) +
                   " s of the job's end: what the job had on devices and " +
                   std::to_string(pinned_bytes) +
                   " bytes of pinned memory are not given back before the process ends; look for "
                   "work on the program's streams that never ends, and for calls of NCCL's that "
                   "do not return, as for a rank that is gone");
}

void JobDevices::prepare(std::span<const parallax_slice_t> slices) {
  for (const parallax_slice_t& slice : slices) {
    if (slice.memory != PARALLAX_MEMORY_CUDA) continue;
    DeviceShare share;
    if (!open(&share).ok()) return;
    if (!share.devices->open(slice.device).ok()) continue;
    const bool kernels = slice.form == PARALLAX_FORM_ROWS || slice.as_dtype != 0;
    if (kernels && options_.scratch_max_bytes > 0) {
      static_cast<void>(share.devices->prepare_kernels(slice.device).ok());
    }
  }
}

// NCCL is large, and loaded once.
void JobDevices::prepare(const parallax_variable_t& variable) {
  if (variable.memory != PARALLAX_MEMORY_CUDA) return;
  DeviceShare share;
  if (open(&share).ok() && options_.collectives) static_cast<void>(share.devices->collectives());
}

Status JobDevices::open_for_stream(uint32_t device) {
  Devices* used = nullptr;
  {
    const MutexLock lock(mutex_);
    used = all_.devices.get();
  }
  return used == nullptr ? Status() : used->open(device);
}

Status JobDevices::open(DeviceShare* share) {
  const MutexLock lock(mutex_);
  if (all_.devices == nullptr) {
    const ParallaxDeviceModule* module = nullptr;
    PARALLAX_RETURN_IF_ERROR(load_cuda_module(options_.module_dir, &module, &found_));
    const auto wake = [waker = waker_] {
      const MutexLock waking(waker->mutex);
      if (waker->wake) waker->wake();
    };
    const Status created =
        module->create({.wake = wake, .abort_after_ns = options_.abort_after_ns}, &all_.devices);
    if (!created.ok()) return created.prefixed(found_.path + ": ");
    all_.pinned = std::make_unique<PinnedPool>(*all_.devices, options_.pinned_max_bytes);
    all_.scratch = std::make_unique<ScratchPool>(*all_.devices, options_.scratch_max_bytes);
    PARALLAX_LOG(kInfo, kInit, "devices by " + found_.path + ", for " + found_.made);
  }
  *share = {.devices = all_.devices.get(),
            .pinned = all_.pinned.get(),
            .pinned_call_max_bytes = options_.pinned_call_max_bytes,
            .scratch = all_.scratch->any() ? all_.scratch.get() : nullptr,
            .coalesce_bytes_min = options_.coalesce_min_bytes,
            .collectives = options_.collectives};
  return {};
}

nlohmann::json JobDevices::report() const {
  nlohmann::json report;
  Devices* used = nullptr;
  {
    const MutexLock lock(mutex_);
    used = all_.devices.get();
    report = {{"used", used != nullptr},
              {"module", found_.path},
              {"made", found_.made},
              {"tried", found_.tried}};
  }
  if (used == nullptr) return report;
  // Without the lock: it may load NCCL.
  const DeviceReport told = used->report();
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
