// SPDX-License-Identifier: Apache-2.0
// What the build says of itself: the only file that is compiled anew when that changes.
#include "tool/tool.h"

namespace parallax::tool {

const BuildInfo& build_info() {
  static constexpr BuildInfo kInfo = {.version = PARALLAX_BUILD_VERSION,
                                      .git = PARALLAX_BUILD_GIT,
                                      .compiler = PARALLAX_BUILD_COMPILER,
                                      .build_type = PARALLAX_BUILD_TYPE,
                                      .options = PARALLAX_BUILD_OPTIONS};
  return kInfo;
}

}  // namespace parallax::tool
