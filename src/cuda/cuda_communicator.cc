// SPDX-License-Identifier: Apache-2.0
// The calls of NCCL. See cuda_communicator.h.
#include "cuda/cuda_communicator.h"

#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/number.h"
#include "cuda/context.h"

namespace parallax {

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
  Status begun = made->within_context([&] { return made->begin(options); });
  if (begun.ok()) {
    *communicator = std::move(made);
  } else if (!made->end()) {
    static_cast<void>(made.release());
  }
  return begun;
}

Status CudaCommunicator::begin(const CommunicatorOptions& options) {
  CUresult error = driver_.cuStreamCreateWithPriority(&stream_, CU_STREAM_NON_BLOCKING, 0);
  if (error != CUDA_SUCCESS) {
    stream_ = nullptr;
    return failed("a stream for reductions (cuStreamCreate)", error);
  }
  error = wakes_.open();
  if (error != CUDA_SUCCESS) return failed("a stream that wakes (cuStreamCreate)", error);
  ncclUniqueId id;
  static_assert(sizeof id.internal == sizeof options.id.bytes);
  std::memcpy(id.internal, options.id.bytes.data(), sizeof id.internal);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  if (!options.host_ranks.empty()) {
    sums_ = std::make_unique<GatheredSums>(driver_, *parts_.launcher, options.host_ranks);
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
  const bool waits = to_be_asked() || phase_ == Phase::kPreparing || !under_way_.empty();
  if (!waits && !memory_.buffers().leaving()) return {};
  return within_context([this] {
    // NCCL is another thread's meanwhile.
    const bool theirs = leaves();
    Status moved;
    if (!theirs) moved = phase_ == Phase::kPreparing ? prepare() : ask();
    if (moved.ok()) moved = look_at_events();
    // What has ended may be the last that a buffer waited for.
    if (moved.ok() && !theirs) leaves();
    return moved;
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
    const ncclResult_t kept = memory_.buffers().kept(
        [this](const ByteRange& memory) { return windows_.overlaps(memory); });
    if (kept != ncclSuccess) {
      return failed("ncclCommDeregister of memory that a window is to have", kept);
    }
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
    bool allocated = false;
    static_cast<void>(meanwhile_.ask(
        kWindow,
        [this] {
          const ContextScope scope(driver_, parts_.context);
          window_->allocate(parts_.context, sums_->scratch_bytes());
          return Status();
        },
        &allocated));
    *in_progress = !allocated;
    if (!allocated) return {};
    const ncclResult_t result = window_->offer(communicator_);
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
  for (const ByteRange& each : windows) memory_.buffers().leave(each);
  leaves();
  windows_.add(windows);
  phase_ = Phase::kForming;
  return {};
}

RegisteredMemory CudaCommunicator::registered() const {
  if (phase_ == Phase::kAborted) return {};
  RegisteredMemory counts = memory_.buffers().counts();
  windows_.count(&counts);
  if (window_ != nullptr) window_->count(&counts);
  return counts;
}

Status CudaCommunicator::look_at_events() {
  while (!under_way_.empty()) {
    const CUresult error = driver_.cuEventQuery(under_way_.front());
    if (error == CUDA_ERROR_NOT_READY) return {};
    if (error != CUDA_SUCCESS) return failed("a reduction", error);
    events_.give_back(under_way_.front());
    under_way_.pop_front();
  }
  return {};
}

void CudaCommunicator::arm() {
  if (under_way_.empty() || phase_ == Phase::kAborted || wakes_.armed_for(ended() + 1)) return;
  const ContextScope scope(driver_, parts_.context);
  if (scope.status() == CUDA_SUCCESS) wakes_.wake_behind(under_way_.front(), ended() + 1);
}

// ---- launching

Status CudaCommunicator::launch(std::span<const DeviceReduction> together) {
  together_.assign(together.begin(), together.end());
  const bool lacks_scratch = sums_ != nullptr && !sums_->has_scratch();
  // In place NCCL does not see what the program gave.
  memory_.note(together, lacks_scratch ? sums_->scratch_bytes() : 0,
               window_ == nullptr || !window_->taken());
  ++launched_;
  phase_ = Phase::kPreparing;
  return within_context([this] { return prepare(); });
}

// What it lacks a thread gets; mostly it lacks nothing.
Status CudaCommunicator::prepare() {
  if (memory_.lacks()) {
    bool over = false;
    static_cast<void>(meanwhile_.ask(
        kMemory,
        [this, communicator = communicator_] {
          memory_.get(communicator);
          return Status();
        },
        &over));
    if (!over) return {};
    const CUresult error = memory_.take();
    if (error != CUDA_SUCCESS) return failed(memory_.failed().c_str(), error);
    if (sums_ != nullptr && !sums_->has_scratch()) sums_->use_scratch(memory_.take_scratch());
  }
  return launch_prepared();
}

Status CudaCommunicator::launch_prepared() {
  PARALLAX_RETURN_IF_ERROR(order_behind());
  const CUresult cleared = memory_.clear_zeros(together_, stream_);
  if (cleared != CUDA_SUCCESS) return failed(memory_.failed().c_str(), cleared);
  memory_.give_zeros(together_);
  if (sums_ != nullptr) sums_->begin(together_);
  if (together_.front().leg == DeviceLeg::kFromHost) {
    const CUresult error = legs_->from_host(together_, stream_, of_zeros());
    if (error != CUDA_SUCCESS) return failed(legs_->last_call(), error);
  }
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

HostLegs::Shared CudaCommunicator::of_zeros() const {
  return [this](const DeviceReduction& reduction) { return memory_.of_zeros(reduction); };
}

// What is given up may be a thread's.
bool CudaCommunicator::knows(const ByteRange& memory) {
  if (phase_ != Phase::kAborted) memory_.buffers().drop_refused(memory);
  return memory_.knows(memory);
}

// What it does not let go of is no failure of ours: what is launched works as before.
Status CudaCommunicator::forget(const ByteRange& memory, bool* over) {
  if (phase_ == Phase::kAborted) {
    *over = given_up();
    return {};
  }
  *over = !knows(memory);
  if (*over) return {};
  RegisteredBuffers& buffers = memory_.buffers();
  leaves();
  if (buffers.leaving()) return {};  // this, or other memory before it
  if (buffers.knows(memory)) {
    buffers.leave(memory);
    leaves();
    if (buffers.leaving()) return {};
  }
  *over = !knows(memory);
  const ncclResult_t error =
      buffers.kept([&memory](const ByteRange& each) { return each.overlaps(memory); });
  if (error == ncclSuccess) return {};
  return io_error("device " + std::to_string(device_) + ": NCCL " +
                  nccl_version_text(parts_.nccl.version) +
                  " did not let go of memory that was registered with it, and has it until its "
                  "communicator ends: ncclCommDeregister: " +
                  nccl_.ncclGetErrorString(error));
}

// Whether a thread has NCCL let go of memory that was registered. It begins where NCCL has nothing
// in progress, which would be a second thread in it, and nothing under way, which to deregister may
// wait for: an abort alone ends that where a rank is gone.
bool CudaCommunicator::leaves() {
  RegisteredBuffers& buffers = memory_.buffers();
  if (!buffers.leaving()) return false;
  if (!buffers.handed_over() && (phase_ != Phase::kReady || !under_way_.empty())) return false;
  buffers.hand_over();
  bool over = false;
  static_cast<void>(meanwhile_.ask(
      kForget,
      [this, communicator = communicator_] {
        const ContextScope scope(driver_, parts_.context);
        memory_.buffers().deregister(communicator);
        return Status();
      },
      &over));
  if (over) memory_.buffers().settle();
  return !over;
}

// The caller's streams are not waited for: ours is, by the device.
Status CudaCommunicator::order_behind() {
  for (const DeviceReduction& each : together_) {
    if (each.after == 0) continue;
    const CUresult error =
        driver_.cuStreamWaitEvent(stream_, parts_.mark_of(each.after), CU_EVENT_WAIT_DEFAULT);
    if (error != CUDA_SUCCESS) return failed("cuStreamWaitEvent", error);
  }
  return {};
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
  const char* what = "cuEventCreate";
  CUresult error = events_.take(&event);
  if (error == CUDA_SUCCESS) {
    what = "cuEventRecord";
    error = driver_.cuEventRecord(event, stream);
  }
  if (error == CUDA_SUCCESS) {
    phase_ = Phase::kReady;
    return {};
  }
  events_.give_back(event);
  under_way_.pop_back();
  return failed(what, error);
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
