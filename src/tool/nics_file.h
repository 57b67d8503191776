// SPDX-License-Identifier: Apache-2.0
// The option --nics: RDMA devices of another machine, or of a broken one, from a file that
// `parallax info --json -t` wrote there. Blocks on the file.
#ifndef PARALLAX_TOOL_NICS_FILE_H_
#define PARALLAX_TOOL_NICS_FILE_H_

#include <string>

#include "base/status.h"
#include "topology/topology.h"

namespace parallax::tool {

// Puts them in the place of those of *topology; places in the machine stay those of the NICs of the
// same names. IO, INVALID: with the path.
Status use_nics_file(const std::string& path, Topology* topology);

}  // namespace parallax::tool

#endif  // PARALLAX_TOOL_NICS_FILE_H_
