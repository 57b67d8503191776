// SPDX-License-Identifier: Apache-2.0
// EnvironmentVariable: a variable of this process's environment, set for as long as the object
// lives. Tests only, while no other thread reads the environment.
#ifndef PARALLAX_TESTS_SUPPORT_ENVIRONMENT_VARIABLE_H_
#define PARALLAX_TESTS_SUPPORT_ENVIRONMENT_VARIABLE_H_

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

namespace parallax::testkit {

class EnvironmentVariable {
 public:
  EnvironmentVariable(const char* name, const std::string& value) : name_(name) {
    EXPECT_EQ(setenv(name, value.c_str(), 1), 0);
  }
  ~EnvironmentVariable() { unsetenv(name_); }
  EnvironmentVariable(const EnvironmentVariable&) = delete;
  EnvironmentVariable& operator=(const EnvironmentVariable&) = delete;

 private:
  const char* name_;
};

}  // namespace parallax::testkit

#endif  // PARALLAX_TESTS_SUPPORT_ENVIRONMENT_VARIABLE_H_
