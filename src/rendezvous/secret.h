// SPDX-License-Identifier: Apache-2.0
// The job's secret, by which ranks know each other at a tcp rendezvous: from a file that only its
// owner can read, or from the environment; never from the command line. Blocks on the file system.
#ifndef PARALLAX_RENDEZVOUS_SECRET_H_
#define PARALLAX_RENDEZVOUS_SECRET_H_

#include <string>

#include "base/status.h"
#include "rendezvous/environment.h"

namespace parallax {

inline constexpr size_t kSecretBytesMin = 16;
inline constexpr size_t kSecretBytesMax = 4096;

// From `file` (options.secret_file), else the file that PARALLAX_SECRET_FILE names, else
// PARALLAX_SECRET; *secret is "" if there is none. Blanks and line ends after it do not count.
// INVALID: the file can be read by others (the message has the chmod) or belongs to another user,
// the secret is too short, or both variables are set. IO: the file cannot be read.
Status find_secret(const char* file, const Environment& environment, std::string* secret);

}  // namespace parallax

#endif  // PARALLAX_RENDEZVOUS_SECRET_H_
