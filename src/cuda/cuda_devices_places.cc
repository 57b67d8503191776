// SPDX-License-Identifier: Apache-2.0
// Which devices these are, for ranks to find out whether two of them would take part with one. See
// cuda_devices.h.
#include <array>
#include <cstddef>
#include <string>

#include "base/environment.h"
#include "cuda/cuda_devices.h"

namespace parallax {

namespace {

constexpr int kByUuid = 23000;  // NCCL 2.30 compares UUIDs

// "UUID 8f6c1a7e-...".
std::string text_of(const CUuuid& uuid) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text = "UUID ";
  for (size_t i = 0; i < sizeof uuid.bytes; ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    const auto byte = static_cast<unsigned char>(uuid.bytes[i]);
    text += {kDigits[byte >> 4], kDigits[byte & 15]};
  }
  return text;
}

}  // namespace

// As NCCL tells them apart, on hosts that NCCL_HOSTID may make of one: by the bus, where instances
// of a GPU are one, and from 2.30 on by the UUID. What has one UUID is one whatever its bus is told
// to be.
void CudaDevices::tell_places(int nccl_version, std::vector<DeviceIdentity>* places) const {
  const char* const host = variable("NCCL_HOSTID");
  const std::string tail = host == nullptr ? "" : ", NCCL_HOSTID " + std::string(host);
  for (int i = 0; i < count_; ++i) {
    CUdevice device = 0;
    std::array<char, 32> bus = {};
    CUuuid uuid = {};
    if (api_.cuDeviceGet(&device, i) != CUDA_SUCCESS) return places->clear();
    DeviceIdentity& told = places->emplace_back();
    const bool by_bus = nccl_version < kByUuid;
    if (by_bus && api_.cuDeviceGetPCIBusId(bus.data(), static_cast<int>(bus.size()) - 1, device) ==
                      CUDA_SUCCESS) {
      told.bus = bus.data() + tail;
    }
    if (api_.cuDeviceGetUuid_v2(&uuid, device) == CUDA_SUCCESS) told.uuid = text_of(uuid) + tail;
  }
}

}  // namespace parallax
