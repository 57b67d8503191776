// SPDX-License-Identifier: Apache-2.0
// The table that a device module (libparallax_cuda.so) exports through its one entry. As with
// transport modules, C++ objects cross: `build` is compared as a whole, and only the fields before
// it may be read until it was found equal.
#ifndef PARALLAX_DEVICE_MODULE_H_
#define PARALLAX_DEVICE_MODULE_H_

#include <cstdint>
#include <memory>

#include "base/module_build.h"
#include "device/devices.h"

namespace parallax {

inline constexpr uint32_t kDeviceModuleAbi = 1;  // of the fields up to `build`: never to change

// Raised with every change of what crosses: this table, Status, Devices and their structs.
#define PARALLAX_DEVICE_MODULE_LAYOUT 10
#define PARALLAX_DEVICE_MODULE_BUILD PARALLAX_BUILD_TEXT(PARALLAX_DEVICE_MODULE_LAYOUT)

struct ParallaxDeviceModule {
  uint32_t abi = 0;             // kDeviceModuleAbi
  uint32_t struct_bytes = 0;    // sizeof the module's table
  const char* build = nullptr;  // PARALLAX_DEVICE_MODULE_BUILD of the module
  const char* name = nullptr;   // "cuda"
  const char* made = nullptr;   // what it was compiled with: "CUDA 13.0, NCCL 2.28.9"
  // UNSUPPORTED says what is missing: the driver's library, one of its functions, a device.
  Status (*create)(const DeviceOptions& options, std::unique_ptr<Devices>* devices) = nullptr;
  // What there is, without a context on any device; as far as it goes where it says UNSUPPORTED.
  Status (*describe)(DeviceReport* report) = nullptr;
};

// The name and type of the entry.
inline constexpr const char* kCudaModuleEntry = "parallax_cuda_module";
using DeviceModuleEntry = const ParallaxDeviceModule* (*)();

}  // namespace parallax

extern "C" __attribute__((visibility("default"))) const parallax::ParallaxDeviceModule*
parallax_cuda_module(void);

#endif  // PARALLAX_DEVICE_MODULE_H_
