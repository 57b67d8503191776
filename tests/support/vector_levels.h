// SPDX-License-Identifier: Apache-2.0
// A test at each level of vector code that the machine has.
#ifndef PARALLAX_TESTS_SUPPORT_VECTOR_LEVELS_H_
#define PARALLAX_TESTS_SUPPORT_VECTOR_LEVELS_H_

#include <gtest/gtest.h>

#include "base/vector_code.h"

namespace parallax::testkit {

template <typename Body>
void at_each_vector_level(Body body) {
  const VectorLevel before = vector_level();
  for (const VectorLevel level : vector_levels()) {
    SCOPED_TRACE(vector_level_name(level));
    set_vector_level(level);
    body();
    if (testing::Test::HasFatalFailure()) break;
  }
  set_vector_level(before);
}

}  // namespace parallax::testkit

#endif  // PARALLAX_TESTS_SUPPORT_VECTOR_LEVELS_H_
