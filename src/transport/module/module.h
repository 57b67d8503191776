// SPDX-License-Identifier: Apache-2.0
// The table that a transport module (libparallax_ucx.so) exports through its one entry. It passes
// C++ objects across, so library and module must come from one build recipe: `build` is compared as
// a whole, and only the fields before it may be read until it was found equal.
#ifndef PARALLAX_TRANSPORT_MODULE_MODULE_H_
#define PARALLAX_TRANSPORT_MODULE_MODULE_H_

#include <cstdint>
#include <memory>
#include <string>

#include "base/module_build.h"
#include "transport/module/network_transport.h"

namespace parallax {

inline constexpr uint32_t kModuleAbi = 1;  // of the fields up to `build`: never to change

// Its layout number is raised with every change of what crosses: this table, Status, Transport,
// NetworkTransport, their structs.
#define PARALLAX_MODULE_LAYOUT 2
#define PARALLAX_MODULE_BUILD PARALLAX_BUILD_TEXT(PARALLAX_MODULE_LAYOUT)

struct ParallaxTransportModule {
  uint32_t abi = 0;               // kModuleAbi
  uint32_t struct_bytes = 0;      // sizeof the module's table
  const char* build = nullptr;    // PARALLAX_MODULE_BUILD of the module
  const char* name = nullptr;     // "ucx"
  const char* library = nullptr;  // what it drives, with the version found: "UCX 1.13.1"
  Status (*create)(const NetworkOptions& options,
                   std::unique_ptr<NetworkTransport>* transport) = nullptr;
};

// The name and type of the entry.
inline constexpr const char* kUcxModuleEntry = "parallax_ucx_module";
using ModuleEntry = const ParallaxTransportModule* (*)();

}  // namespace parallax

extern "C" __attribute__((visibility("default"))) const parallax::ParallaxTransportModule*
parallax_ucx_module(void);

#endif  // PARALLAX_TRANSPORT_MODULE_MODULE_H_
