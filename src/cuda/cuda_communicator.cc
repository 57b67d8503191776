// SPDX-License-Identifier: Apache-2.0
// The calls of NCCL. See cuda_communicator.h.
#include "cuda/cuda_communicator.h"

#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/number.h"
#include "cuda/context.h"

namespace parallax {

namespace {

constexpr uint64_t kZerosAlignment = 256;

// The driver's thread: it may not call CUDA, and does not.
void CUDA_CB wake_owner(void* wake) { (*static_cast<const std::function<void()>*>(wake))(); }

uint64_t padded_zeros(const DeviceReduction& reduction) {
  const uint64_t bytes = reduction.count * bytes_of_dtype(reduction.dtype);
  return (bytes + kZerosAlignment - 1) / kZerosAlignment * kZerosAlignment;
}

}  // namespace

// ---- failures

Status CudaCommunicator::failed(const char* what, CUresult error) {
  if (phase_ != Phase::kAborted) phase_ = Phase::kFailed;
  return io_error("device " + std::to_string(device_) + ": " + what + ": " +
                  error_text(driver_, error));
}

// NCCL tells of a process that is gone by the same word as of a network that is.
Status CudaCommunicator::failed(const char* what, ncclResult_t error) {
  if (phase_ != Phase::kAborted) phase_ = Phase::kFailed;
  std::string text = "device " + std::to_string(device_) + ": NCCL " +
                     nccl_version_text(parts_.nccl.version) + ": " + what + ": " +
                     nccl_.ncclGetErrorString(error);
  const bool there = kin_.parent == nullptr && communicator_ != nullptr;
  const char* last = !there ? nullptr : nccl_.ncclGetLastError(communicator_);
  if (last != nullptr && *last != '\0') text += ": " + std::string(last);
  return error == ncclRemoteError ? peer_lost(std::move(text)) : io_error(std::move(text));
}

template <typename Work>
Status CudaCommunicator::within_context(Work&& work) {
  const ContextScope scope(driver_, parts_.context);
  return scope.status() == CUDA_SUCCESS ? work() : failed("cuCtxPushCurrent", scope.status());
}

// ---- forming

Status CudaCommunicator::create(Parts parts, const CommunicatorOptions& options,
                                std::unique_ptr<Communicator>* communicator) {
  std::unique_ptr<CudaCommunicator> made(new CudaCommunicator(std::move(parts), options));
  PARALLAX_RETURN_IF_ERROR(made->within_context([&] { return made->begin(options); }));
  *communicator = std::move(made);
  return {};
}

Status CudaCommunicator::begin(const CommunicatorOptions& options) {
  CUresult error = driver_.cuStreamCreateWithPriority(&stream_, CU_STREAM_NON_BLOCKING, 0);
  if (error != CUDA_SUCCESS) {
    stream_ = nullptr;
    return failed("a stream for reductions (cuStreamCreate)", error);
  }
  ncclUniqueId id;
  static_assert(sizeof id.internal == sizeof options.id.bytes);
  std::memcpy(id.internal, options.id.bytes.data(), sizeof id.internal);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  if (!options.host_ranks.empty()) {
    sums_ = std::make_unique<GatheredSums>(driver_, *parts_.launcher, parts_.context,
                                           options.host_ranks);
    if (options.windows) window_ = std::make_unique<GatherWindow>(nccl_);
  }
  if (options.shares > 0) {
    legs_ = std::make_unique<HostLegs>(
        driver_,
        ShareHolders{.rank = options.rank, .ranks = options.ranks, .shares = options.shares});
    error = legs_->open();
    if (error != CUDA_SUCCESS) return failed(legs_->last_call(), error);
  }
  // Until it is over NCCL refuses every other call of the parent.
  if (options.out_of != nullptr) {
    auto& parent = static_cast<CudaCommunicator&>(*options.out_of);
    PARALLAX_CHECK(parent.idle());
    SplitCall split(options.without);
    const ncclResult_t begun = split.begin(nccl_, parent.communicator_, &config, &communicator_);
    if (begun != ncclSuccess && begun != ncclInProgress) return failed(split.name(), begun);
    parent.phase_ = Phase::kLending;
    parent.kin_.child = this;
    kin_.parent = &parent;
    return {};
  }
  const ncclResult_t begun = nccl_.ncclCommInitRankConfig(
      &communicator_, static_cast<int>(options.ranks), id, static_cast<int>(options.rank), &config);
  if (begun == ncclSuccess || begun == ncclInProgress) return {};
  return failed("ncclCommInitRankConfig", begun);
}

void CudaCommunicator::end_lending() {
  if (kin_.child != nullptr) std::exchange(kin_.child, nullptr)->kin_.parent = nullptr;
}

// ---- the pass

Status CudaCommunicator::advance() {
  if (phase_ == Phase::kAborted || phase_ == Phase::kFailed) return {};
  const bool waits = to_be_asked() || !under_way_.empty();
  if (!waits) return {};
  return within_context([this] {
    const Status asked = ask();
    return asked.ok() ? look_at_events() : asked;
  });
}

// What NCCL says of itself: an error of any rank comes to light here.
Status CudaCommunicator::ask() {
  if (kin_.parent != nullptr) return {};  // that one is asked
  if (communicator_ == nullptr) return failed("what it was to be made out of", ncclInternalError);
  ncclResult_t error = ncclSuccess;
  const ncclResult_t asked = nccl_.ncclCommGetAsyncError(communicator_, &error);
  if (asked != ncclSuccess) return failed("ncclCommGetAsyncError", asked);
  if (error == ncclInProgress) return {};
  const bool forming = phase_ == Phase::kForming;
  if (error != ncclSuccess) {
    const bool offered = window_ != nullptr && window_->offered();
    return failed(phase_ == Phase::kLending ? "the communicator of a part"
                  : !forming                ? "a reduction"
                  : offered                 ? window_->last_call()
                  : windows_.any()          ? ProgramWindows::kCall
                                            : "ncclCommInitRankConfig",
                  error);
  }
  if (phase_ == Phase::kLending) {
    end_lending();
    phase_ = Phase::kReady;
  }
  if (forming) {
    bool in_progress = false;
    PARALLAX_RETURN_IF_ERROR(form_window(&in_progress));
    if (!in_progress) phase_ = Phase::kReady;
  }
  if (!settling()) return {};
  bool more = false;
  PARALLAX_RETURN_IF_ERROR(go_on(&more));
  return more ? enqueue() : Status();
}

// The first call that every rank makes of a communicator that is there. The others wait in theirs,
// so that an error here is one of all.
Status CudaCommunicator::form_window(bool* in_progress) {
  if (windows_.more()) {
    const ncclResult_t result = windows_.offer(communicator_);
    if (result != ncclSuccess && result != ncclInProgress) {
      return failed(ProgramWindows::kCall, result);
    }
    *in_progress = true;  // as below
    return {};
  }
  windows_.settle();
  if (window_ == nullptr) return {};
  if (!window_->offered()) {
    const ncclResult_t result =
        window_->offer(communicator_, parts_.context, sums_->scratch_bytes());
    // NCCL 2.28 and newer say success while a thread of theirs registers. It is over when the
    // communicator, asked next, says so.
    *in_progress = result == ncclInProgress || result == ncclSuccess;
    return *in_progress ? Status() : failed(window_->last_call(), result);
  }
  window_->settle();
  sums_->use_scratch(window_->take_memory());
  if (window_->taken()) sums_->gather_in_place(rank_);
  return {};
}

// What was registered before, by this rank alone, is not any more.
Status CudaCommunicator::register_windows(std::span<const ByteRange> windows) {
  PARALLAX_CHECK(idle());
  // Forming goes on, one after the other; what sums in an order has windows of its own alone.
  PARALLAX_CHECK(window_ == nullptr);
  for (const ByteRange& each : windows) PARALLAX_RETURN_IF_ERROR(forget(each));
  windows_.add(windows);
  phase_ = Phase::kForming;
  return {};
}

RegisteredMemory CudaCommunicator::registered() const {
  RegisteredMemory counts = buffers_.counts();
  windows_.count(&counts);
  if (window_ != nullptr) window_->count(&counts);
  return counts;
}

Status CudaCommunicator::look_at_events() {
  while (!under_way_.empty()) {
    CUresult error = CUDA_SUCCESS;
    if (!passed(under_way_.front(), &error)) return {};
    if (error != CUDA_SUCCESS) return failed("a reduction", error);
    give_back(under_way_.front());
    under_way_.pop_front();
  }
  return {};
}

bool CudaCommunicator::passed(CUevent event, CUresult* error) const {
  *error = driver_.cuEventQuery(event);
  if (*error != CUDA_ERROR_NOT_READY) return true;
  *error = CUDA_SUCCESS;
  return false;
}

Status CudaCommunicator::take_event(CUevent* event) {
  if (!events_.empty()) {
    *event = events_.back();
    events_.pop_back();
    return {};
  }
  events_.reserve(events_made_ + 1);  // so that what comes back always has room
  const CUresult error = driver_.cuEventCreate(event, CU_EVENT_DISABLE_TIMING);
  if (error != CUDA_SUCCESS) return failed("cuEventCreate", error);
  ++events_made_;
  return {};
}

// ---- launching

Status CudaCommunicator::launch(std::span<const DeviceReduction> together) {
  return within_context([&] { return launch_behind(together); });
}

Status CudaCommunicator::launch_behind(std::span<const DeviceReduction> together) {
  know_memory(together);
  PARALLAX_RETURN_IF_ERROR(order_behind(together));
  PARALLAX_RETURN_IF_ERROR(take_zeros(together));
  give_buffers(together);
  if (sums_ != nullptr) {
    const CUresult error = sums_->begin(together_);
    if (error != CUDA_SUCCESS) return failed(sums_->last_call(), error);
  }
  if (together_.front().leg == DeviceLeg::kFromHost) {
    const CUresult error = legs_->from_host(together_, stream_, of_zeros());
    if (error != CUDA_SUCCESS) return failed(legs_->last_call(), error);
  }
  ++launched_;
  return enqueue();
}

// Up to what NCCL has still in progress.
Status CudaCommunicator::enqueue() {
  for (bool more = true; more;) {
    const CUresult staged = sums_ == nullptr ? CUDA_SUCCESS : sums_->stage(stream_);
    if (staged != CUDA_SUCCESS) return failed(sums_->last_call(), staged);
    list_calls();
    const char* what = "";
    const ncclResult_t result = call_together(&what);
    if (result != ncclSuccess && result != ncclInProgress) return failed(what, result);
    phase_ = Phase::kSettling;
    if (result == ncclInProgress) return {};
    PARALLAX_RETURN_IF_ERROR(go_on(&more));
  }
  return {};
}

// The stream has what NCCL was given: what follows it there.
Status CudaCommunicator::go_on(bool* more) {
  *more = false;
  CUstream behind = stream_;
  if (together_.front().leg == DeviceLeg::kToHost) {
    const CUresult error = legs_->to_host(together_, stream_, of_zeros(), &behind);
    if (error != CUDA_SUCCESS) return failed(legs_->last_call(), error);
  }
  if (sums_ == nullptr) return end_launch(behind);
  const CUresult error = sums_->sum(stream_);
  if (error != CUDA_SUCCESS) return failed(sums_->last_call(), error);
  *more = !sums_->part().empty();
  return *more ? Status() : end_launch(behind);
}

// Whether a reduction works on the zeros, which the next launches use too.
HostLegs::Shared CudaCommunicator::of_zeros() const {
  const CUdeviceptr first = zeros_.empty() ? 0 : zeros_.front().memory;
  return [first, bytes = zeros_bytes_](const DeviceReduction& reduction) {
    const auto at = reinterpret_cast<CUdeviceptr>(reduction.to);
    return first != 0 && at >= first && at - first < bytes;
  };
}

// What a program lets go of says so first (forget): what it does not tell the job of, as tensors of
// a framework's allocator, is not registered.
void CudaCommunicator::know_memory(std::span<const DeviceReduction> together) {
  // In place NCCL does not see what the program gave.
  const bool in_place = window_ != nullptr && window_->taken();
  if (!memory_around_ || !buffers_.possible() || in_place) return;
  for (const DeviceReduction& each : together) {
    for (const std::byte* address : {each.from, static_cast<const std::byte*>(each.to)}) {
      if (address == nullptr || buffers_.knows(address)) continue;
      const ByteRange memory = memory_around_(address);
      if (memory.bytes > 0 && !windows_.overlaps(memory)) buffers_.know(communicator_, memory);
    }
  }
}

// It has not failed for that: what it launches works as before.
Status CudaCommunicator::forget(const ByteRange& memory) {
  if (!buffers_.knows(memory)) return {};
  const ContextScope scope(driver_, parts_.context);
  const ncclResult_t error = buffers_.forget(communicator_, memory);
  if (error == ncclSuccess) return {};
  return io_error("device " + std::to_string(device_) + ": NCCL " +
                  nccl_version_text(parts_.nccl.version) +
                  " did not let go of memory that was registered with it: ncclCommDeregister: " +
                  nccl_.ncclGetErrorString(error));
}

// The caller's streams are not waited for: ours is, by the device.
Status CudaCommunicator::order_behind(std::span<const DeviceReduction> together) {
  for (const DeviceReduction& each : together) {
    if (each.after == 0) continue;
    const CUresult error =
        driver_.cuStreamWaitEvent(stream_, parts_.mark_of(each.after), CU_EVENT_WAIT_DEFAULT);
    if (error != CUDA_SUCCESS) return failed("cuStreamWaitEvent", error);
  }
  return {};
}

// Of those that this rank gives nothing of: at their place in a window, where others find them;
// else in memory of ours, and the sums that come there are nobody's.
Status CudaCommunicator::take_zeros(std::span<const DeviceReduction> together) {
  uint64_t bytes = 0;
  CUresult error = CUDA_SUCCESS;
  for (const DeviceReduction& each : together) {
    bytes += each.from == nullptr ? padded_zeros(each) : 0;
    if (!each.zeros) continue;
    error = driver_.cuMemsetD8Async(reinterpret_cast<CUdeviceptr>(each.from), 0,
                                    each.count * bytes_of_dtype(each.dtype), stream_);
    if (error != CUDA_SUCCESS) {
      return failed("cuMemsetD8Async of a variable's place, which this rank did not give", error);
    }
  }
  if (bytes == 0) return {};
  if (bytes > zeros_bytes_) {
    zeros_.push_front({.context = parts_.context});
    error = driver_.cuMemAlloc_v2(&zeros_.front().memory, bytes);
    if (error != CUDA_SUCCESS) {
      zeros_.pop_front();
      return failed(("cuMemAlloc of " + std::to_string(bytes) +
                     " bytes of zeros, for variables that this rank did not give")
                        .c_str(),
                    error);
    }
    zeros_bytes_ = bytes;
  }
  error = driver_.cuMemsetD8Async(zeros_.front().memory, 0, bytes, stream_);
  return error == CUDA_SUCCESS ? Status() : failed("cuMemsetD8Async", error);
}

void CudaCommunicator::give_buffers(std::span<const DeviceReduction> together) {
  auto* zeros = zeros_.empty() ? nullptr : reinterpret_cast<std::byte*>(zeros_.front().memory);
  together_.assign(together.begin(), together.end());
  for (DeviceReduction& each : together_) {
    if (each.from != nullptr) continue;
    each.from = each.to = zeros;
    zeros += padded_zeros(each);
  }
}

void CudaCommunicator::list_calls() {
  calls_.clear();
  if (sums_ != nullptr) {
    for (const GatheredSums::Piece& each : sums_->part()) {
      calls_.push_back({.kind = NcclKind::kAllGather,
                        .from = each.from,
                        .to = each.gathered,
                        .count = each.count,
                        .dtype = each.dtype});
    }
    return;
  }
  for (const DeviceReduction& each : together_) {
    if (each.leg != DeviceLeg::kAll) {
      add_calls(each, legs_->holders(), &calls_);
      continue;
    }
    calls_.push_back({.from = each.from,
                      .to = each.to,
                      .count = each.count,
                      .dtype = each.dtype,
                      .average = each.average});
  }
}

ncclResult_t CudaCommunicator::call_together(const char** what) {
  const bool group = calls_.size() > 1;
  *what = "ncclGroupStart";
  ncclResult_t result = group ? nccl_.ncclGroupStart() : ncclSuccess;
  if (result != ncclSuccess) return result;
  for (const NcclCall& each : calls_) {
    *what = name_of(each.kind);
    result = call(nccl_, each, communicator_, stream_);
    if (result != ncclSuccess && result != ncclInProgress) break;
  }
  if (!group) return result;
  const ncclResult_t ended = nccl_.ncclGroupEnd();  // whatever came before: it ends the group
  if (result != ncclSuccess && result != ncclInProgress) return result;
  *what = "ncclGroupEnd";
  return ended;
}

// The stream has the work: what follows marks its end.
Status CudaCommunicator::end_launch(CUstream stream) {
  under_way_.push_back(nullptr);  // room, before there is an event
  CUevent& event = under_way_.back();
  Status status = take_event(&event);
  const CUresult error = status.ok() ? driver_.cuEventRecord(event, stream) : CUDA_SUCCESS;
  if (error != CUDA_SUCCESS) {
    give_back(event);
    status = failed("cuEventRecord", error);
  }
  if (!status.ok()) {
    under_way_.pop_back();
    return status;
  }
  phase_ = Phase::kReady;
  // Where it cannot wake, whoever polls finds the end nevertheless.
  driver_.cuLaunchHostFunc(stream, wake_owner, wake_.get());
  return {};
}

// A default stream is the current context's. A later record of the event is nothing to who waits.
Status CudaCommunicator::follow(uint64_t launch, uint32_t device, void* stream) {
  if (launch <= ended()) return {};
  const CUevent event = under_way_[launch - ended() - 1];
  const ContextScope scope(driver_, parts_.context_of(device));
  CUresult error = scope.status();
  if (error == CUDA_SUCCESS) {
    error = driver_.cuStreamWaitEvent(static_cast<CUstream>(stream), event, CU_EVENT_WAIT_DEFAULT);
  }
  if (error == CUDA_SUCCESS) return {};
  return io_error("device " + std::to_string(device_) + ": a stream's wait for a reduction " +
                  "(cuStreamWaitEvent): " + error_text(driver_, error));
}

}  // namespace parallax
