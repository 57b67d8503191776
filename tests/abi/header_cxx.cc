// SPDX-License-Identifier: Apache-2.0
// The C header from C++, in every dialect from C++11 on and with every warning an error: that it
// compiles, and is linked as C, is the test.
#include "parallax/parallax.h"

static_assert(sizeof(parallax_status_t) == sizeof(int), "a status is an int");

int main() {
  parallax_options_t options = parallax_options_t();
  options.size = sizeof options;
  parallax_job_t *job = nullptr;
  if (parallax_open(&options, &job) != PARALLAX_OK) return 1;
  if (parallax_version() / 100 != PARALLAX_VERSION_MAJOR * 100 + PARALLAX_VERSION_MINOR) return 1;
  return parallax_close(job) == PARALLAX_OK ? 0 : 1;
}
