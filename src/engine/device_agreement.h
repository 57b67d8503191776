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
#include "group/group.h"
#include "variable/registry.h"

namespace parallax {

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
    bool deterministic = false;
  };

  // All parts outlive this.
  explicit DeviceAgreement(const Parts& parts) : parts_(parts) {}

  // Of the variables of this commit, which are numbered.
  DeviceTerms terms();
  // What all ranks find each other by, of rank 0. Where they sum within hosts there is no need.
  bool needs_id() const { return !parts_.launches.begun() && !by_host(); }
  Status make_id(CommunicatorId* id);
  // All ranks have agreed, and no step has begun with them; `finished` is the last one that ended.
  // LIMIT. *another_round: no rank may begin a step before all have come here, since what other
  // hosts send is for the new exchanges.
  Status carry(const DeviceTerms& agreed, uint64_t finished, bool* another_round);

  // Why devices do not sum this one; "": they may. Of any variable whose slices lie on devices.
  static std::string why_not(const Variable& variable);

 private:
  bool by_host() const;
  Status look_for_devices(DeviceShare* share);
  Status check_ordered() const;
  Status check_by_host(const DeviceShare& share);
  BetweenHosts::Options between(const Variable& variable) const;
  void begin(const DeviceTerms& agreed);
  Status carry_direct(const Variable& variable, const DeviceTerms& agreed, uint64_t finished,
                      DeviceLaunches::Entry* entry);
  static void number_in_order(const Columns& columns, CommunicatorOptions* options);

  const Parts parts_;
  DeviceShare share_;
  CommunicatorId host_id_;  // of the first rank of a host, where ranks sum within hosts
  CollectiveSupport support_;
};

}  // namespace parallax

#endif  // PARALLAX_ENGINE_DEVICE_AGREEMENT_H_
