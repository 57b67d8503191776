// SPDX-License-Identifier: Apache-2.0
// FloatEnvironment: the default floating-point environment while it lives. The engine runs on
// whatever thread drives it, and a host process may have set rounding or flush-to-zero there
// (torch.set_flush_denormal, -ffast-math start-up code): sums would then depend on who drove.
#ifndef PARALLAX_BASE_FLOAT_ENVIRONMENT_H_
#define PARALLAX_BASE_FLOAT_ENVIRONMENT_H_

#include <cfenv>

namespace parallax {

class FloatEnvironment {
 public:
  FloatEnvironment() {
    std::fegetenv(&caller_);
    std::fesetenv(FE_DFL_ENV);
  }
  ~FloatEnvironment() { std::fesetenv(&caller_); }
  FloatEnvironment(const FloatEnvironment&) = delete;
  FloatEnvironment& operator=(const FloatEnvironment&) = delete;

 private:
  std::fenv_t caller_;
};

}  // namespace parallax

#endif  // PARALLAX_BASE_FLOAT_ENVIRONMENT_H_
