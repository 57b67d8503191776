// SPDX-License-Identifier: Apache-2.0
// What is left of the process's file descriptors, for libraries that end the process when they run
// out of them.
#ifndef PARALLAX_BASE_DESCRIPTORS_H_
#define PARALLAX_BASE_DESCRIPTORS_H_

#include <cstdint>

#include "base/status.h"

namespace parallax {

// LIMIT, naming `what`, unless `count` descriptors can be opened at this moment; by opening them,
// since neither the limit nor /proc tells what a sandbox allows. For small counts. Any thread.
Status check_descriptors(uint32_t count, const char* what);

}  // namespace parallax

#endif  // PARALLAX_BASE_DESCRIPTORS_H_
