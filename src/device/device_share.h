// SPDX-License-Identifier: Apache-2.0
// DeviceShare: the devices of a job and its pinned memory, which all its groups share, and how a
// group comes by them: at the first call that has to do with a device, so that a job without any
// never looks for a driver. Engine's owner only.
#ifndef PARALLAX_DEVICE_DEVICE_SHARE_H_
#define PARALLAX_DEVICE_DEVICE_SHARE_H_

#include <functional>

#include "base/status.h"
#include "device/devices.h"
#include "device/pinned_pool.h"

namespace parallax {

struct DeviceShare {
  Devices* devices = nullptr;
  PinnedPool* pinned = nullptr;
};

// UNSUPPORTED: what was looked for, where, and what is missing. Takes a while the first time.
using OpenDevices = std::function<Status(DeviceShare* share)>;

}  // namespace parallax

#endif  // PARALLAX_DEVICE_DEVICE_SHARE_H_
