// SPDX-License-Identifier: Apache-2.0
// Compiles the C header as C++11 and as C++20 with every warning an error: that is the test.
#include "parallax/parallax.h"

static_assert(sizeof(parallax_status_t) == sizeof(int), "a status is an int");

int main() {
  parallax_options_t options = parallax_options_t();
  options.size = sizeof options;
  return options.rank == 0 ? 0 : 1;
}
