// SPDX-License-Identifier: Apache-2.0
// DeviceShare: the devices of a job, its pinned memory and its scratch memory there, which all its
// groups share, and how a group comes by them: at the first call that has to do with a device, so
// that a job without any never looks for a driver. Engine's owner only.
#ifndef PARALLAX_DEVICE_DEVICE_SHARE_H_
#define PARALLAX_DEVICE_DEVICE_SHARE_H_

#include <functional>

#include "base/status.h"
#include "device/block_pool.h"
#include "device/devices.h"

namespace parallax {

struct DeviceShare {
  Devices* devices = nullptr;
  PinnedPool* pinned = nullptr;
  uint64_t pinned_call_max_bytes = UINT64_MAX;  // beyond, a call goes in pieces
  ScratchPool* scratch = nullptr;               // null: rows are coalesced by the host
  uint64_t coalesce_bytes_min = 0;              // of a slice's ids and values: below, too
  bool collectives = false;                     // its library may be looked for
  // Dense gradients of two such pieces or more are sent as they come to the host.
  uint64_t arriving_piece_bytes = uint64_t{1} << 20;
};

// UNSUPPORTED: what was looked for, where, and what is missing. Takes a while the first time.
using OpenDevices = std::function<Status(DeviceShare* share)>;

}  // namespace parallax

#endif  // PARALLAX_DEVICE_DEVICE_SHARE_H_
