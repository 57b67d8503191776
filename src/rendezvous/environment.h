// SPDX-License-Identifier: Apache-2.0
// Environment: a function that looks up the variables of rendezvous and of launchers. It is passed
// to whoever reads them, so that tests need not change the process's own environment.
#ifndef PARALLAX_RENDEZVOUS_ENVIRONMENT_H_
#define PARALLAX_RENDEZVOUS_ENVIRONMENT_H_

#include <functional>
#include <string>

#include "base/environment.h"  // process_variable: of this process

namespace parallax {

// The value of a variable; "" if it is not set, or empty.
using Environment = std::function<std::string(const char* name)>;

}  // namespace parallax

#endif  // PARALLAX_RENDEZVOUS_ENVIRONMENT_H_
