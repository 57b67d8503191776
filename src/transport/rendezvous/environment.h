// SPDX-License-Identifier: Apache-2.0
// Environment: where the meeting's settings and a launcher's names are looked up. Given to those
// that read it, so that tests need not change the process's own. Any thread that may call getenv.
#ifndef PARALLAX_TRANSPORT_RENDEZVOUS_ENVIRONMENT_H_
#define PARALLAX_TRANSPORT_RENDEZVOUS_ENVIRONMENT_H_

#include <cstdlib>
#include <functional>
#include <string>

namespace parallax {

// The value of a variable; "" if it is not set, or empty.
using Environment = std::function<std::string(const char* name)>;

inline std::string process_variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace parallax

#endif  // PARALLAX_TRANSPORT_RENDEZVOUS_ENVIRONMENT_H_
