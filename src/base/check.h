// SPDX-License-Identifier: Apache-2.0
// PARALLAX_CHECK: an assertion about our own code that stays on in release. A failure throws
// InternalError, which the engine's driver and the C ABI turn into INTERNAL on the job: the host
// process is never ended. Wrong input of a peer or a caller is a Status, never a check.
#ifndef PARALLAX_BASE_CHECK_H_
#define PARALLAX_BASE_CHECK_H_

#include <stdexcept>
#include <string>

namespace parallax {

class InternalError : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

[[noreturn]] inline void check_failed(const char* expression, const char* file, int line) {
  throw InternalError(std::string("check failed: ") + expression + " (" + file + ":" +
                      std::to_string(line) + ")");
}

#define PARALLAX_CHECK(expression) \
  ((expression) ? (void)0 : ::parallax::check_failed(#expression, __FILE__, __LINE__))

}  // namespace parallax

#endif  // PARALLAX_BASE_CHECK_H_
