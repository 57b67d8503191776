// SPDX-License-Identifier: Apache-2.0
// How the programs of the benches that use the C ABI alone end at what they did not expect: with a
// sentence that names them. Any thread.
#ifndef PARALLAX_BENCH_CALLS_H_
#define PARALLAX_BENCH_CALLS_H_

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "parallax/parallax.h"

namespace parallax::bench {

[[noreturn]] inline void fail(const std::string& what) {
  std::fprintf(stderr, "%s: %s\n", program_invocation_short_name, what.c_str());
  std::exit(1);
}

// `call`: its name, without "parallax_".
inline void expect(parallax_status_t status, const char* call) {
  if (status == PARALLAX_OK) return;
  fail(std::string(call) + ": " + parallax_status_string(status) + ": " + parallax_last_error());
}

}  // namespace parallax::bench

#endif  // PARALLAX_BENCH_CALLS_H_
