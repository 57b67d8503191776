// SPDX-License-Identifier: Apache-2.0
// DeviceAgreement: which variables of a commit devices sum among themselves. Each rank says whether
// it can (terms), all hear whether all can, and then carry() gives the variables the exchange that
// does it, or notes why host memory carries them. Engine's owner only; to look for libraries
// blocks.
#ifndef PARALLAX_ENGINE_DEVICE_AGREEMENT_H_
#define PARALLAX_ENGINE_DEVICE_AGREEMENT_H_

#include <cstdint>
#include <string>

#include "base/status.h"
#include "collectives/device_launches.h"
#include "device/device_share.h"
#include "engine/device_terms.h"
#include "engine/placed_buffers.h"
#include "group/group.h"
#include "variable/registry.h"
#include "world/host_map.h"

namespace parallax {

// Of a part: the launches of the whole job, and its ranks. None: it is the whole.
struct LaunchesOfJob {
  DeviceLaunches* launches = nullptr;
  const HostMap* hosts = nullptr;
};

class DeviceAgreement {
 public:
  struct Parts {
    Registry& registry;
    Group& group;
    DeviceLaunches& launches;
    Outbox& outbox;
    OpenDevices devices = {};
    std::function<ByteRange(const void* address)> memory_around = {};  // CommunicatorOptions
    AmongDevices among = AmongDevices::kWorld;                         // the setting nccl
    int64_t timeout_ns = 0;                                            // nccl_timeout_ms
    bool deterministic = false;
    LaunchesOfJob job = {};
  };

  // All parts outlive this.
  explicit DeviceAgreement(const Parts& parts) : parts_(parts) {}

  // Of the variables of this commit, which are numbered.
  DeviceTerms terms();
  // What all ranks find each other by, of rank 0. Where they sum within hosts there is no need.
  bool needs_id() const { return !parts_.launches.begun() && !by_host(); }
  Status make_id(CommunicatorId* id);
  // All ranks have come to the commit, and could make what they form out of the job's communicator:
  // what this one says in one more round. It may not say so before: what another rank waits for
  // until it comes here may be a launch that this one would hold up.
  bool may_hold(const DeviceTerms& agreed) const {
    return agreed.able && agreed.out_of_job == OutOfJob::kCould &&
           agreed.out_of_job == terms_.out_of_job;
  }
  DeviceTerms hold();
  // It is being made out of that: the commit is over when it is there.
  bool forming();
  // Since hold(), until then: the job launches nothing here.
  bool holds() const { return held_; }
  // All ranks have agreed, and no step has begun with them; `finished` is the last one that ended.
  // LIMIT. *another_round: no rank may begin a step before all have come here, since what other
  // hosts send is for the new exchanges.
  Status carry(const DeviceTerms& agreed, uint64_t finished, bool* another_round);

  // Why devices do not sum this one; "": they may. Of any variable whose slices lie on devices.
  static std::string why_not(const Variable& variable);

 private:
  bool by_host() const;
  std::string why_not_out_of_job() const;
  void say_out_of_job(OutOfJob says, const std::string& why_not);
  void form_out_of_job(CommunicatorOptions* options) const;
  Status look_for_devices(DeviceShare* share);
  Status check_ordered() const;
  Status check_by_host(const DeviceShare& share);
  std::string why_no_windows(const DeviceTerms& agreed) const;
  std::vector<ByteRange> windows(const DeviceTerms& agreed);
  BetweenHosts::Options between(const Variable& variable) const;
  uint32_t own_device() const;
  void begin(const DeviceTerms& agreed);
  Status carry_direct(const Variable& variable, const DeviceTerms& agreed, uint64_t finished,
                      DeviceLaunches::Entry* entry);

  const Parts parts_;
  DeviceShare share_;
  CommunicatorId host_id_;  // of the first rank of a host, where ranks sum within hosts
  CollectiveSupport support_;
  DeviceTerms terms_;      // of this commit
  PlacedBuffers buffers_;  // likewise
  bool held_ = false;      // the job's communicator is
  std::string formed_by_;  // of a part, for the plan
};

}  // namespace parallax

#endif  // PARALLAX_ENGINE_DEVICE_AGREEMENT_H_
