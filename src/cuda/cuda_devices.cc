// SPDX-License-Identifier: Apache-2.0
// The devices of a job, their marks and batches. See cuda_devices.h.
#include "cuda/cuda_devices.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <string>
#include <system_error>
#include <utility>

#include "base/environment.h"
#include "cuda/context.h"
#include "cuda/cuda_communicator.h"
#include "cuda/gather_window.h"
#include "cuda/nccl_call.h"

namespace parallax {

namespace {

constexpr int64_t kEndNs = 5'000'000'000;
constexpr std::chrono::microseconds kDrainLook(100);

Status count_devices(const DriverLibrary& driver, int* count) {
  const CUresult error = driver.api.cuDeviceGetCount(count);
  if (error != CUDA_SUCCESS) {
    return unsupported("the CUDA driver does not tell its devices: " +
                       error_text(driver.api, error));
  }
  if (*count > 0) return {};
  return unsupported("the CUDA driver (" + cuda_version_text(driver.version) +
                     ") shows no device; CUDA_VISIBLE_DEVICES may hide them");
}

}  // namespace

Status CudaDevices::create(const DeviceOptions& options, std::unique_ptr<Devices>* devices) {
  const DriverLibrary* driver = nullptr;
  PARALLAX_RETURN_IF_ERROR(load_driver(&driver));
  int count = 0;
  PARALLAX_RETURN_IF_ERROR(count_devices(*driver, &count));
  devices->reset(new CudaDevices(*driver, count, options));
  return {};
}

CudaDevices::~CudaDevices() {
  const auto until = std::chrono::steady_clock::now() + std::chrono::nanoseconds(kEndNs);
  bool over = drain(kEndNs);
  opener_.finish();
  std::thread freer;
  {
    const MutexLock lock(freed_mutex_);
    freer = std::move(freer_);
  }
  if (freer.joinable()) freer.join();
  free_all();  // where no thread could be had
  const MutexLock lock(mutex_);
  for (const auto& [number, device] : devices_) over = over && device->finish_queues(until);
  if (!over) {
    // A device that does not end keeps what its driver still uses and calls.
    static_cast<void>(wake_.release());
    for (auto& [number, device] : devices_) static_cast<void>(device.release());
    return;
  }
  for (const Marked& each : marks_) {
    if (each.device != nullptr) each.device->give_back(each.mark.event);
  }
  for (const Batch& each : batches_) {
    if (each.device != nullptr) each.device->end(each.copies);
  }
  kernels_.clear();
  devices_.clear();
}

CudaDevice* CudaDevices::find(uint32_t number) const {
  const auto found = devices_.find(number);
  return found == devices_.end() ? nullptr : found->second.get();
}

Status CudaDevices::find_open(uint32_t number, CudaDevice** device) const {
  *device = find(number);
  if (*device != nullptr) return {};
  return bad_state("device " + std::to_string(number) + " is not open");
}

Status CudaDevices::open(uint32_t number) {
  {
    const MutexLock lock(mutex_);
    if (find(number) != nullptr) return {};
  }
  if (number >= static_cast<uint32_t>(count_)) {
    return unsupported("device is " + std::to_string(number) + ", and the CUDA driver shows " +
                       std::to_string(count_) +
                       (count_ == 1 ? " device" : " devices, counted from 0"));
  }
  const MutexLock opening(opening_mutex_);
  {
    const MutexLock lock(mutex_);
    if (find(number) != nullptr) return {};
  }
  std::unique_ptr<CudaDevice> opened;
  PARALLAX_RETURN_IF_ERROR(CudaDevice::open(driver_, number, *wake_, &opened));
  const MutexLock lock(mutex_);
  devices_.emplace(number, std::move(opened));
  return {};
}

CUcontext CudaDevices::any_context() const {
  const MutexLock lock(mutex_);
  return devices_.empty() ? nullptr : devices_.begin()->second->context();
}

PlacedMemory CudaDevices::place_of(const void* address) const {
  const CUcontext context = any_context();
  if (context == nullptr) return {};
  const ContextScope scope(api_, context);
  if (scope.status() != CUDA_SUCCESS) return {MemoryPlace::kUnknown, 0};
  unsigned int type = 0;
  unsigned int managed = 0;
  int ordinal = 0;
  std::array<CUpointer_attribute, 3> asked = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                              CU_POINTER_ATTRIBUTE_IS_MANAGED,
                                              CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL};
  std::array<void*, 3> told = {&type, &managed, &ordinal};
  const CUresult error =
      api_.cuPointerGetAttributes(static_cast<unsigned int>(asked.size()), asked.data(),
                                  told.data(), reinterpret_cast<CUdeviceptr>(address));
  if (error != CUDA_SUCCESS) return {MemoryPlace::kUnknown, 0};
  if (managed != 0) return {MemoryPlace::kShared, 0};
  if (type != CU_MEMORYTYPE_DEVICE) return {};
  return {MemoryPlace::kDevice, static_cast<uint32_t>(std::max(ordinal, 0))};
}

namespace {

// A free one, there before the driver is called: nothing that it has begun is lost for want of
// memory.
template <typename Numbered>
size_t free_number(std::vector<Numbered>& all) {
  for (size_t i = 0; i < all.size(); ++i) {
    if (all[i].device == nullptr) return i;
  }
  all.emplace_back();
  return all.size() - 1;
}

}  // namespace

Status CudaDevices::mark(uint32_t number, void* stream, DeviceMark* mark) {
  const MutexLock lock(mutex_);
  CudaDevice* device = nullptr;
  PARALLAX_RETURN_IF_ERROR(find_open(number, &device));
  const size_t at = free_number(marks_);
  StreamMark made;
  PARALLAX_RETURN_IF_ERROR(device->mark(stream, &made));
  marks_[at] = {.device = device, .mark = made};
  *mark = static_cast<DeviceMark>(at) + 1;
  return {};
}

void CudaDevices::release(DeviceMark mark) {
  const MutexLock lock(mutex_);
  Marked& marked = marks_[mark - 1];
  marked.device->give_back(marked.mark.event);
  marked = {};
}

template <typename QueueUp>
Status CudaDevices::begin(DeviceMark mark, DeviceBatch* batch, QueueUp queue_up) {
  *batch = 0;
  const size_t at = free_number(batches_);
  const Marked& after = marks_[mark - 1];
  QueuedCopies queued;
  bool begun = false;
  Status status = queue_up(*after.device, after.mark, &queued, &begun);
  if (!begun) return status;
  // Some have begun: how the others failed is told once these have ended.
  batches_[at] = {.device = after.device, .copies = queued, .status = std::move(status)};
  *batch = static_cast<DeviceBatch>(at) + 1;
  return {};
}

Status CudaDevices::copy(CopyDirection direction, DeviceMark mark,
                         std::span<const DeviceCopy> copies, DeviceBatch* batch) {
  const MutexLock lock(mutex_);
  return begin(mark, batch,
               [&](CudaDevice& device, const StreamMark& after, QueuedCopies* queued, bool* begun) {
                 return device.copy(direction, after, copies, queued, begun);
               });
}

Status CudaDevices::coalesce(DeviceMark mark, std::span<const RowsToCoalesce> all,
                             DeviceBatch* batch) {
  const MutexLock lock(mutex_);
  CudaKernels& kernels = *kernels_.at(marks_[mark - 1].device->number());
  return begin(mark, batch,
               [&](CudaDevice& device, const StreamMark& after, QueuedCopies* queued, bool* begun) {
                 return device.coalesce(kernels.launcher(), after, all, queued, begun);
               });
}

Status CudaDevices::convert(CopyDirection direction, DeviceMark mark,
                            std::span<const DeviceConversion> each, DeviceBatch* batch) {
  const MutexLock lock(mutex_);
  kernels::Launcher& launcher = kernels_.at(marks_[mark - 1].device->number())->launcher();
  return begin(mark, batch,
               [&](CudaDevice& device, const StreamMark& after, QueuedCopies* queued, bool* begun) {
                 return device.convert(launcher, direction, after, each, queued, begun);
               });
}

Status CudaDevices::follow(DeviceBatch batch, uint32_t number, void* stream) {
  const MutexLock lock(mutex_);
  CudaDevice* device = nullptr;
  PARALLAX_RETURN_IF_ERROR(find_open(number, &device));
  const auto of_caller = static_cast<CUstream>(stream);
  PARALLAX_RETURN_IF_ERROR(device->check_stream(of_caller));
  if (batch == 0) return {};
  const Batch& followed = batches_[batch - 1];
  return followed.device->follow(followed.copies, *device, of_caller);
}

Status CudaDevices::poll(DeviceBatch batch, bool* ended) {
  const MutexLock lock(mutex_);
  Batch& asked = batches_[batch - 1];
  Status status = asked.device->look(asked.copies, ended);
  // A device that has failed says so again: one answer alone does not free what it may write to.
  const bool doubted = std::exchange(asked.doubted, !status.ok());
  if (!status.ok() && !doubted) *ended = false;
  if (!*ended) return {};
  if (!asked.status.ok()) status = asked.status;
  asked.device->end(asked.copies);
  asked = {};
  return status;
}

bool CudaDevices::under_way() {
  return std::any_of(batches_.begin(), batches_.end(), [](const Batch& batch) {
    bool ended = true;
    if (batch.device != nullptr) static_cast<void>(batch.device->look(batch.copies, &ended).ok());
    return !ended;
  });
}

bool CudaDevices::drain(int64_t timeout_ns) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::nanoseconds(timeout_ns);
  while (true) {
    {
      const MutexLock lock(mutex_);
      if (!under_way()) return !left_;
    }
    if (std::chrono::steady_clock::now() >= until) return false;
    std::this_thread::sleep_for(kDrainLook);
  }
}

// For all devices of the process (portable), with whichever context is there.
Status CudaDevices::allocate_pinned(uint64_t bytes, std::byte** memory) {
  const CUcontext context = any_context();
  if (context == nullptr) return bad_state("no device is open");
  const ContextScope scope(api_, context);
  void* made = nullptr;
  CUresult error = scope.status();
  if (error == CUDA_SUCCESS) error = api_.cuMemHostAlloc(&made, bytes, CU_MEMHOSTALLOC_PORTABLE);
  if (error != CUDA_SUCCESS) return limit("cuMemHostAlloc: " + error_text(api_, error));
  *memory = static_cast<std::byte*>(made);
  return {};
}

void CudaDevices::release_pinned(std::byte* memory) noexcept {
  const MutexLock lock(freed_mutex_);
  std::memcpy(memory, &freed_, sizeof freed_);
  freed_ = memory;
  start_freer();
}

void CudaDevices::give_back(DeviceBlocks&& blocks) noexcept {
  if (blocks.empty()) return;
  const MutexLock lock(freed_mutex_);
  freed_on_devices_.splice(freed_on_devices_.end(), blocks);
  start_freer();
}

void CudaDevices::start_freer() {
  if (freeing_) return;
  try {
    if (freer_.joinable()) freer_.join();  // it has found nothing, and is about to end
    freer_ = std::thread([this] { free_all(); });
    freeing_ = true;
  } catch (const std::system_error&) {
    // No thread: what is released next tries again, and the end of all.
  }
}

void CudaDevices::free_all() noexcept {
  while (free_one()) {
  }
}

// Waits for the device, without a lock. False: there is nothing more.
bool CudaDevices::free_one() noexcept {
  std::byte* pinned = nullptr;
  DeviceBlocks block;
  {
    const MutexLock lock(freed_mutex_);
    pinned = freed_;
    if (pinned != nullptr) {
      std::memcpy(&freed_, pinned, sizeof freed_);
    } else if (!freed_on_devices_.empty()) {
      block.splice(block.end(), freed_on_devices_, freed_on_devices_.begin());
    } else {
      freeing_ = false;
      return false;
    }
  }
  const ContextScope scope(api_, pinned == nullptr ? block.front().context : any_context());
  if (scope.status() != CUDA_SUCCESS) return true;
  if (pinned != nullptr) {
    api_.cuMemFreeHost(pinned);
  } else if (const DeviceBlock& of = block.front(); of.nccl_free != nullptr) {
    of.nccl_free(reinterpret_cast<void*>(of.memory));
  } else {
    api_.cuMemFree_v2(of.memory);
  }
  return true;
}

Status CudaDevices::allocate(uint32_t number, uint64_t bytes, void** memory) {
  PARALLAX_RETURN_IF_ERROR(open(number));
  CudaDevice* device = nullptr;
  {
    const MutexLock lock(mutex_);
    PARALLAX_RETURN_IF_ERROR(find_open(number, &device));
  }
  return device->allocate(bytes, memory);
}

void CudaDevices::release(uint32_t number, void* memory) {
  if (left_) return;
  CudaDevice* device = nullptr;
  {
    const MutexLock lock(mutex_);
    device = find(number);
  }
  if (device != nullptr) device->release(memory);
}

DeviceReport CudaDevices::report() const {
  DeviceReport report;
  static_cast<void>(describe_cuda(&report).ok());
  return report;
}

// ---- communicators

CollectiveSupport CudaDevices::collectives() const {
  CollectiveSupport support;
  support.driver_version = static_cast<uint32_t>(driver_.version);
  support.devices = static_cast<uint32_t>(count_);
  const NcclLibrary* nccl = nullptr;
  const Status loaded = load_nccl(&nccl);
  support.there = loaded.ok();
  if (loaded.ok()) support.library_version = static_cast<uint32_t>(nccl->version);
  support.why = loaded.message();
  if (loaded.ok()) tell_places(nccl->version, &support.places);
  support.windows = loaded.ok() && GatherWindow::possible(nccl->api);
  support.why_no_splits = loaded.ok() ? SplitCall::why_not(nccl->api) : support.why;
  support.splits = support.why_no_splits.empty();
  support.why_not_ordered = CudaKernels::why_none(api_, count_);
  support.ordered_ranks_max = support.why_not_ordered.empty() ? kernels::kSumRanksMax : 0;
  return support;
}

Status CudaDevices::make_id(CommunicatorId* id) {
  const NcclLibrary* nccl = nullptr;
  PARALLAX_RETURN_IF_ERROR(load_nccl(&nccl));
  ncclUniqueId made;
  const ncclResult_t error = nccl->api.ncclGetUniqueId(&made);
  if (error != ncclSuccess) {
    return io_error(std::string("NCCL: ncclGetUniqueId: ") + nccl->api.ncclGetErrorString(error));
  }
  std::memcpy(id->bytes.data(), made.internal, id->bytes.size());
  return {};
}

CUevent CudaDevices::event_of(DeviceMark mark) {
  const MutexLock lock(mutex_);
  return marks_[mark - 1].mark.event;
}

CudaDevices::Opened CudaDevices::opened(uint32_t number, bool with_kernels) const {
  const MutexLock lock(mutex_);
  const CudaDevice* const device = find(number);
  const auto kernels = kernels_.find(number);
  if (device == nullptr || (with_kernels && kernels == kernels_.end())) return {};
  return {device->context(), with_kernels ? kernels->second.get() : nullptr};
}

// A context takes hundreds of milliseconds to make, and kernels some to load; who asks keeps the
// job's leases.
Status CudaDevices::open_meanwhile(uint32_t number, bool with_kernels, Opened* there) {
  *there = opened(number, with_kernels);
  if (there->context != nullptr) return {};
  bool over = false;
  PARALLAX_RETURN_IF_ERROR(opener_.ask(
      uint64_t{number} * 2 + (with_kernels ? 1 : 0),
      [this, number, with_kernels] { return with_kernels ? load_kernels(number) : open(number); },
      &over));
  if (over) *there = opened(number, with_kernels);
  return {};
}

Status CudaDevices::form(const CommunicatorOptions& options,
                         std::unique_ptr<Communicator>* communicator) {
  const NcclLibrary* nccl = nullptr;
  PARALLAX_RETURN_IF_ERROR(load_nccl(&nccl));
  const bool ordered = !options.host_ranks.empty();
  Opened there;
  PARALLAX_RETURN_IF_ERROR(open_meanwhile(options.device, ordered, &there));
  if (there.context == nullptr) return {};
  return CudaCommunicator::create(
      {.driver = driver_,
       .nccl = *nccl,
       .context = there.context,
       .launcher = ordered ? &there.kernels->launcher() : nullptr,
       .mark_of = [this](DeviceMark mark) { return event_of(mark); },
       .context_of = [this](uint32_t device) { return opened(device, false).context; },
       .give_back = [this](DeviceBlocks&& blocks) { give_back(std::move(blocks)); },
       .left = [this] { left_ = true; },
       .abort_after = abort_after_,
       .wake = *wake_},
      options, communicator);
}

// ---- tables

Status CudaDevices::form_table(uint32_t place, std::unique_ptr<TableQueue>* queue) {
  const uint32_t number = place % static_cast<uint32_t>(count_);
  const Status loaded = load_kernels(number);
  if (loaded.code() == PARALLAX_UNSUPPORTED) {
    return unsupported(loaded.message() +
                       "; or keep the table in host memory (table_memory PARALLAX_MEMORY_HOST)");
  }
  PARALLAX_RETURN_IF_ERROR(loaded);
  const MutexLock lock(mutex_);
  return CudaTableQueue::create(driver_, *find(number), *kernels_.at(number), *wake_, queue);
}

Status describe_cuda(DeviceReport* report) {
  *report = {};
  const DriverLibrary* driver = nullptr;
  PARALLAX_RETURN_IF_ERROR(load_driver(&driver));
  report->driver = "CUDA driver " + cuda_version_text(driver->version);
  const NcclLibrary* nccl = nullptr;
  const Status loaded = load_nccl(&nccl);
  if (loaded.ok()) {
    report->collectives = "NCCL " + nccl_version_text(nccl->version) +
                          (nccl->was_loaded ? ", which the process had loaded" : "");
  } else {
    report->collectives_why = loaded.message();
  }
  int count = 0;
  PARALLAX_RETURN_IF_ERROR(count_devices(*driver, &count));
  for (int i = 0; i < count; ++i) {
    CUdevice device = 0;
    std::array<char, 128> name = {};
    std::array<char, 32> bus = {};
    if (driver->api.cuDeviceGet(&device, i) != CUDA_SUCCESS) continue;
    driver->api.cuDeviceGetName(name.data(), static_cast<int>(name.size()) - 1, device);
    driver->api.cuDeviceGetPCIBusId(bus.data(), static_cast<int>(bus.size()) - 1, device);
    report->devices.push_back({static_cast<uint32_t>(i), name.data(), bus.data()});
  }
  return {};
}

}  // namespace parallax
