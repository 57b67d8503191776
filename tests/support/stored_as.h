// SPDX-License-Identifier: Apache-2.0
// A variable whose values are kept in a narrower type than they are updated in.
#ifndef PARALLAX_TESTS_SUPPORT_STORED_AS_H_
#define PARALLAX_TESTS_SUPPORT_STORED_AS_H_

#include <cstdint>

#include "variable/variable.h"

namespace parallax::testkit {

inline Variable stored_as(Variable variable, uint32_t dtype) {
  variable.storage_dtype = PARALLAX_AS(dtype);
  return variable;
}

}  // namespace parallax::testkit

#endif  // PARALLAX_TESTS_SUPPORT_STORED_AS_H_
