// SPDX-License-Identifier: Apache-2.0
// CudaCommunicator: Communicator by NCCL. One communicator that does not block (ncclConfig_t), one
// stream of ours, and an event behind each launch. See device/communicator.h for the contract.
//
// Between a launch that NCCL answers with "in progress" and its settling the stream may not have
// the work yet, so what is to follow on the stream, the event that ends a launch and kernels that
// sum what was gathered (gathered_sums.h), is enqueued when it has settled. So are the copies of
// reductions that go by the host (host_legs.h).
//
// What takes NCCL or the driver long is done by a thread (meanwhile.h), one thing after the other:
// memory, registrations before a launch (launch_memory.h) and their end, the communicator's own in
// good order. While it is at it nobody else calls the communicator; nor is it at it while NCCL is,
// by threads of its own: a buffer is deregistered when the communicator is ready and nothing is
// under way, and launches that come meanwhile wait for that.
//
// To give up has a thread of its own, since what the first one is in may last until the abort: a
// call of NCCL's that does not return gets a bounded while (nccl_gate.h), then the communicator is
// aborted under it. What NCCL knew counts as its own until both threads are back.
#ifndef PARALLAX_CUDA_CUDA_COMMUNICATOR_H_
#define PARALLAX_CUDA_CUDA_COMMUNICATOR_H_

#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "cuda/device_blocks.h"
#include "cuda/event_pool.h"
#include "cuda/gather_window.h"
#include "cuda/gathered_sums.h"
#include "cuda/host_legs.h"
#include "cuda/launch_memory.h"
#include "cuda/library.h"
#include "cuda/meanwhile.h"
#include "cuda/nccl_call.h"
#include "cuda/nccl_gate.h"
#include "cuda/program_windows.h"
#include "cuda/wake_stream.h"
#include "device/communicator.h"

namespace parallax {

class CudaCommunicator final : public Communicator {
 public:
  struct Parts {
    const DriverLibrary& driver;
    const NcclLibrary& nccl;
    CUcontext context = nullptr;                           // retained for as long as this lives
    kernels::Launcher* launcher = nullptr;                 // of sums in order
    std::function<CUevent(DeviceMark)> mark_of;            // of a mark that is not released
    std::function<CUcontext(uint32_t device)> context_of;  // of a device that is open
    // Gives memory back that nothing uses, in its own time: the driver waits for the device.
    std::function<void(DeviceBlocks&&)> give_back;
    std::function<void()> left;  // this stays for good, and what it uses with it
    // For a call that is in NCCL when it is given up.
    std::chrono::nanoseconds abort_after = {};
    std::function<void()> wake;  // called by the driver's threads
  };

  // IO.
  static Status create(Parts parts, const CommunicatorOptions& options,
                       std::unique_ptr<Communicator>* communicator);
  ~CudaCommunicator() override;  // after end()
  CudaCommunicator(const CudaCommunicator&) = delete;
  CudaCommunicator& operator=(const CudaCommunicator&) = delete;

  Status advance() override;
  bool ready() const override { return phase_ == Phase::kReady && !memory_.buffers().leaving(); }
  Status launch(std::span<const DeviceReduction> together) override;
  uint64_t launched() const override { return launched_; }
  uint64_t ended() const override { return placed() - under_way_.size(); }
  uint64_t placed() const override {
    return launched_ - (settling() || phase_ == Phase::kPreparing ? 1 : 0);
  }
  Status follow(uint64_t launch, uint32_t device, void* stream) override;
  void arm() override;
  bool to_be_asked() const override {
    return phase_ == Phase::kForming || phase_ == Phase::kLending || settling();
  }
  Status register_windows(std::span<const ByteRange> windows) override;
  bool knows(const ByteRange& memory) override;
  Status forget(const ByteRange& memory, bool* over) override;
  RegisteredMemory registered() const override;
  void abort() override;
  bool quiet() override;
  bool drain(int64_t timeout_ns) override;
  bool end() override;

 private:
  // Lending: one of a part is made out of this one. Preparing: a launch has not what it needs.
  // Forming again while windows are registered.
  enum class Phase : uint8_t {
    kForming,
    kReady,
    kLending,
    kPreparing,
    kSettling,
    kFailed,
    kAborted
  };
  // What threads do (meanwhile_, aborting_).
  enum Task : uint64_t { kWindow, kMemory, kForget, kLetGo, kClose, kAbort };
  // While that is so, of both. The one that lends is NCCL's until the other is there.
  struct Kin {
    CudaCommunicator *parent = nullptr, *child = nullptr;
  };

  CudaCommunicator(Parts parts, const CommunicatorOptions& options)
      : parts_(std::move(parts)),
        driver_(parts_.driver.api),
        nccl_(parts_.nccl.api),
        device_(options.device),
        rank_(options.rank),
        windows_(nccl_),
        memory_(driver_, nccl_, parts_.context, options.memory_around, windows_, gate_),
        wakes_(driver_, parts_.wake),
        events_(driver_),
        meanwhile_(wakes_.wake()),
        aborting_(wakes_.wake()) {}

  bool settling() const { return phase_ == Phase::kSettling; }
  bool leaves();
  // `work` with the device's context; every call of NCCL's and most of the driver's want it.
  template <typename Work>
  Status within_context(Work&& work);
  Status begin(const CommunicatorOptions& options);
  void end_lending();
  Status ask();
  Status form_window(bool* in_progress);
  Status look_at_events();
  Status order_behind();
  Status prepare();
  void list_calls();
  ncclResult_t call_together(const char** what);
  HostLegs::Shared of_zeros() const;
  Status launch_prepared();
  Status enqueue();
  Status go_on(bool* more);
  // Its end is that of all that the stream has now.
  Status end_launch(CUstream stream);
  enum class Goodbye : uint8_t { kBeforeAbort, kInGoodOrder };
  void say_goodbye(ncclComm_t communicator, Goodbye how);
  bool let_go();
  bool given_up();
  Status failed(const char* what, CUresult error);
  Status failed(const char* what, ncclResult_t error);

  const Parts parts_;
  const DriverApi& driver_;
  const NcclApi& nccl_;
  const uint32_t device_, rank_;
  NcclGate gate_;           // of what meanwhile_ calls
  ProgramWindows windows_;  // of memory that ranks agreed on
  LaunchMemory memory_;
  WakeStream wakes_;  // behind launches, where somebody sleeps
  Phase phase_ = Phase::kForming;
  CUstream stream_ = nullptr;
  ncclComm_t communicator_ = nullptr;  // NCCL's to write as long as there is a parent
  Kin kin_;
  uint64_t launched_ = 0;
  std::deque<CUevent> under_way_;  // the end of each launch, in order
  EventPool events_;
  bool was_idle_ = false, over_ = false;   // aborted: it was idle; it is NCCL's no more
  std::vector<DeviceReduction> together_;  // what is launched, all with buffers
  std::vector<NcclCall> calls_;            // of it, as one
  std::unique_ptr<GatheredSums> sums_;     // in order; none: NCCL sums
  // What they gather into; none: not all ranks can register it.
  std::unique_ptr<GatherWindow> window_;
  std::unique_ptr<HostLegs> legs_;  // of reductions in two legs; none: there are none
  Meanwhile meanwhile_, aborting_;  // end first: their threads use the rest
};

}  // namespace parallax

#endif  // PARALLAX_CUDA_CUDA_COMMUNICATOR_H_
