// SPDX-License-Identifier: Apache-2.0
// What a module and the library compare before they pass C++ objects: version, layout number of
// what crosses between them, and the standard library's own ABI switch, as one text.
#ifndef PARALLAX_BASE_MODULE_BUILD_H_
#define PARALLAX_BASE_MODULE_BUILD_H_

#include "parallax/parallax.h"

#define PARALLAX_MODULE_TEXT_OF(x) #x
#define PARALLAX_MODULE_TEXT(x) PARALLAX_MODULE_TEXT_OF(x)
#ifdef _GLIBCXX_USE_CXX11_ABI
#define PARALLAX_MODULE_CXX PARALLAX_MODULE_TEXT(_GLIBCXX_USE_CXX11_ABI)
#else
#define PARALLAX_MODULE_CXX "other"
#endif
#define PARALLAX_BUILD_TEXT(layout)                                          \
  PARALLAX_MODULE_TEXT(PARALLAX_VERSION_MAJOR)                               \
  "." PARALLAX_MODULE_TEXT(PARALLAX_VERSION_MINOR) "." PARALLAX_MODULE_TEXT( \
      PARALLAX_VERSION_PATCH) " layout " PARALLAX_MODULE_TEXT(layout) " c++ " PARALLAX_MODULE_CXX

#endif  // PARALLAX_BASE_MODULE_BUILD_H_
