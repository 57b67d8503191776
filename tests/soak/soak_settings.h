// SPDX-License-Identifier: Apache-2.0
// Numbers that a soak takes from the environment. Tests only.
#ifndef PARALLAX_TESTS_SOAK_SOAK_SETTINGS_H_
#define PARALLAX_TESTS_SOAK_SOAK_SETTINGS_H_

#include <cstdint>
#include <cstdlib>
#include <string>

namespace parallax::net {

// The ranks would warn of a setting they do not know: it leaves the environment.
inline uint64_t soak_setting(const char* name, uint64_t otherwise) {
  const char* const value = std::getenv(name);
  const uint64_t number = value == nullptr ? otherwise : std::strtoull(value, nullptr, 10);
  unsetenv(name);
  return number;
}

inline const uint64_t kSoakSeed = soak_setting("PARALLAX_LOSS_SEED", 1);

}  // namespace parallax::net

#endif  // PARALLAX_TESTS_SOAK_SOAK_SETTINGS_H_
