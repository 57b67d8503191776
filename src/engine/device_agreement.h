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
    OpenDevices devices = {};
    bool allowed = true;  // by the setting nccl
    bool deterministic = false;
  };

  // All parts outlive this.
  explicit DeviceAgreement(const Parts& parts) : parts_(parts) {}

  // Of the variables of this commit, which are numbered.
  DeviceTerms terms();
  // What the ranks find each other by, of rank 0.
  Status make_id(CommunicatorId* id);
  // All ranks have agreed, and no step has begun with them; `finished` is the last one that ended.
  void carry(const DeviceTerms& agreed, uint64_t finished);

  // Why devices do not sum this one; "": they may. Of any variable whose slices lie on devices.
  static std::string why_not(const Variable& variable);

 private:
  Status check_ordered() const;
  static void number_in_order(const Columns& columns, CommunicatorOptions* options);

  const Parts parts_;
  Devices* devices_ = nullptr;
  CollectiveSupport support_;
};

}  // namespace parallax

#endif  // PARALLAX_ENGINE_DEVICE_AGREEMENT_H_
