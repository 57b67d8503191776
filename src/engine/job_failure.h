// SPDX-License-Identifier: Apache-2.0
// JobFailure: why a job fails, as a part of the engine hands it up: the sentence, and the rank that
// it names to the others. OK: it does not.
#ifndef PARALLAX_ENGINE_JOB_FAILURE_H_
#define PARALLAX_ENGINE_JOB_FAILURE_H_

#include <cstdint>
#include <string>

#include "base/status.h"

namespace parallax {

struct JobFailure {
  Status status = {};
  uint32_t culprit = 0;
  std::string variable = {};  // its name, which the status has by the id of this rank, if at all
};

}  // namespace parallax

#endif  // PARALLAX_ENGINE_JOB_FAILURE_H_
