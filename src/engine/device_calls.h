// SPDX-License-Identifier: Apache-2.0
// DeviceCalls: calls whose slices lie on a device. Each is checked as far as the host can see and
// gets its request at once; its ids and gradients are copied to pinned host memory behind what the
// caller's stream holds; then the call is taken as one with slices in host memory is (Take), and
// all else goes on as for that one; and when its request would complete, its results are copied
// back before it does.
//
// What only the ids and numbers themselves tell, such as an id past the end, is found when they are
// here: then the request fails with it, and nothing of the call was done.
//
// Calls that contribute to a variable are taken in the order in which they were made, and so are
// pulls of one step and the next, which are answered one at a time. So a call with slices in host
// memory waits here, without a copy, while an earlier one does that it may not overtake. Others go
// past: a stream that is late holds up nobody else's slices.
//
// A call whose gradients are dense and large is taken when their first pieces are here, and the
// exchanges have the others as they come (arriving_slices.h). Then an error of the device fails the
// job: other ranks have a part of it. Large results are copied to their devices as they are written
// (leaving_slices.h), and the rest of them when the request would complete.
//
// A call that runs out of memory holds nothing. Once its first copy has begun nothing of it throws:
// its request ends with what failed, behind that copy.
//
// Engine's owner only; nothing blocks but the opening of a device and memory to be pinned, each the
// first time.
#ifndef PARALLAX_ENGINE_DEVICE_CALLS_H_
#define PARALLAX_ENGINE_DEVICE_CALLS_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "collectives/device_launches.h"
#include "device/device_share.h"
#include "engine/request_pool.h"
#include "engine/slice_checks.h"
#include "engine/staged_slices.h"
#include "group/group.h"
#include "group/step_pipeline.h"
#include "variable/registry.h"

namespace parallax {

class DeviceCalls final : private RequestKeeper {
 public:
  struct Call {
    RequestKind kind = RequestKind::kPull;
    uint64_t step = 0;
    std::span<const parallax_slice_t> slices;
    // By slice, where there are any: StagedSlices::from_tables().
    std::span<const uint8_t> from_tables = {};
    // Likewise: StagedSlices::arriving(), of one that is taken before all of it is here.
    std::span<ArrivingElements* const> arriving = {};
    // Likewise: StagedSlices::result_dtypes(), where slices are not of that dtype any more.
    std::span<const uint32_t> result_dtypes = {};
    // Likewise: StagedSlices::leaving().
    std::span<LeavingElements* const> leaving = {};
  };
  // Takes a call with slices in host memory, which were not checked yet, for a request that is
  // there already. A refused one has changed nothing.
  using Take = std::function<Status(const Call& call, Request* request)>;
  struct Parts {
    const Registry& registry;
    const SliceChecks& checks;
    StepPipeline& pipeline;
    RequestPool& requests;
    DeviceLaunches* launches = nullptr;  // none: no variable is direct
    const Group* group = nullptr;        // none: there is no table on a device
  };

  // All outlive this.
  DeviceCalls(const Parts& parts, OpenDevices open, Take take);
  ~DeviceCalls() override;
  DeviceCalls(const DeviceCalls&) = delete;
  DeviceCalls& operator=(const DeviceCalls&) = delete;

  // Of slices that were not checked: whether they have to come by here. INVALID: a slice of host
  // memory that is a device's, as far as the driver can tell, or whose variable says CUDA.
  Status look_at(const Call& call, bool* comes_by_here) const;
  // Slices that were checked, but for their ids. UNSUPPORTED says what is missing of a device;
  // INVALID, LIMIT, IO, and what Take says where nothing has to be copied first.
  Status post(const Call& call, Request** request);

  // Moves on what can be moved; of a job that has failed too. IO: of what others have a part of
  // the rest does not come, and the job fails with it.
  Status advance();
  // The job is over: calls that are not taken yet fail with it, once no copy reads their buffers.
  void finish_waiting(const Status& status);
  // And all that is still under way, after at most a while: `status` with what was waited for,
  // where its own results did not come.
  void finish_all(const Status& status);

  // A call of the step that contributes waits to be taken; *variable is one of its.
  bool contributes(uint64_t step, uint32_t* variable) const;
  // Calls visit(request, slice) for each slice of reduces that wait to be taken.
  template <typename Visit>
  void each_waiting_reduce(Visit visit) const {
    for (const Staged* each : waiting_) {
      if (each->kind != RequestKind::kReduce) continue;
      for (const parallax_slice_t& slice : each->slices.host_slices()) visit(*each->request, slice);
    }
  }
  // An evaluation waits to be taken.
  bool evaluates() const;
  // Makes a stream of the device wait for what `request` gives, where that can be done before it is
  // done; where it is done nothing is to wait for. Else *followed is false, and whoever asked asks
  // again once it is awaited(). Of a device that is open. UNSUPPORTED, IO.
  Status follow(Request& request, uint32_t device, void* stream, bool* followed);
  // Copies are under way, or somebody waits on a stream's behalf.
  bool busy() const {
    return !waiting_.empty() || !ending_.empty() || arriving_ > 0 || order_asked_;
  }
  // What devices have coalesced, and what they have not.
  const CoalesceCounts& coalesced() const { return coalesced_; }
  // What its request waits for on a device, in words; "": nothing.
  std::string waits_for(const Request& request) const;

 private:
  enum class Phase : uint8_t { kFree, kWaiting, kTaken, kEnding };
  struct Staged {
    Phase phase = Phase::kFree;
    RequestKind kind = RequestKind::kPull;
    uint64_t step = 0;
    Request* request = nullptr;
    Status status;          // of its copies, the first that failed, or the one that it ends with
    bool gives = false;     // ending: its results go back
    bool arriving = false;  // taken, while the rest of its slices comes
    StagedSlices slices;
  };

  bool keep(Request& request, const Status& status) override;
  Status share(DeviceShare* share);
  bool is_first(uint64_t step, uint32_t variable) const;
  bool in_table(uint32_t variable, uint32_t device) const;
  Staged& free_one();
  static void free(Staged& staged);
  static Status copying(const Staged& staged, const char* what, const Status& failed) noexcept;
  Status lay_out(const Call& call, StagedSlices* slices);
  Status check_direct(const Call& call) const;
  Status check_outside(const parallax_slice_t& slice) const;
  Status check_direct(std::span<const parallax_slice_t> slices, size_t at) const;
  std::string launch_of(const Request& request) const;
  Status begin(Staged& staged);
  Status take(Staged& staged, bool ahead = false);
  bool takes_arriving(const Staged& staged) const;
  Status advance_arriving();
  void stop_arriving(Staged& staged);
  void wait(Staged& staged);
  void stop_waiting(size_t at);
  void count_waiting(const Staged& staged, int change);
  bool behind(const Call& call) const;
  bool held(const Staged& staged) const;
  void hold_those_behind(const Staged& staged);
  void advance_waiting();
  void advance_ending();
  bool has_order(const Staged& staged) const;
  void tell_order(const Staged& staged);
  void advance_order();

  const Parts parts_;
  const OpenDevices open_;
  const Take take_;
  DeviceShare share_;          // once open
  std::deque<Staged> staged_;  // by number, from 1 in Request::staged
  std::vector<Staged*> waiting_, ending_;
  uint32_t arriving_ = 0;  // of them, Staged::arriving
  // Of a variable: contributions that wait, and the last look at those that were held up by one.
  struct Ahead {
    uint32_t waiting = 0;
    uint64_t held_in = 0;
  };
  std::vector<Ahead> ahead_;  // by variable; grows with what was registered, not in a step
  uint64_t look_ = 0;
  uint64_t pulls_from_ = 0;          // in this look: pulls of this step and later are held up
  std::vector<ByteRange> borrowed_;  // of the call being made
  CoalesceCounts coalesced_;
  PinnedPieces pieces_;
  bool order_asked_ = false;  // Order::kAsked may be of one of them
};

}  // namespace parallax

#endif  // PARALLAX_ENGINE_DEVICE_CALLS_H_
