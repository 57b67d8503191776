// SPDX-License-Identifier: Apache-2.0
// The one entry of libparallax_ucx.so. Any thread; does not block.
#include "transport/module/module.h"
#include "transport/ucx/ucx_transport.h"

extern "C" const parallax::ParallaxTransportModule* parallax_ucx_module(void) {
  // The string must outlive us, and only the library itself knows its version.
  static const std::string library = std::string("UCX ") + ucp_get_version_string();
  static const parallax::ParallaxTransportModule module = {
      .abi = parallax::kModuleAbi,
      .struct_bytes = sizeof(parallax::ParallaxTransportModule),
      .build = PARALLAX_MODULE_BUILD,
      .name = "ucx",
      .library = library.c_str(),
      .create = parallax::UcxTransport::create,
  };
  return &module;
}
