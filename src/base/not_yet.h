// SPDX-License-Identifier: Apache-2.0
// NotYet: fields of the C ABI that have their place in a struct before what they ask for is built.
// They are refused by name. Pure; any thread; nothing blocks.
#ifndef PARALLAX_BASE_NOT_YET_H_
#define PARALLAX_BASE_NOT_YET_H_

#include <initializer_list>
#include <string>
#include <string_view>

#include "base/status.h"

namespace parallax {

struct NotYet {
  const char* field;
  bool given;  // it is not zero
};

// UNSUPPORTED for the first that is given. `what` leads the sentence: "open: ", "variable 'x': ".
inline Status refuse_not_yet(std::string_view what, std::initializer_list<NotYet> fields) {
  for (const NotYet& each : fields) {
    if (!each.given) continue;
    return unsupported(std::string(what) + each.field +
                       " is given, and this version cannot do that yet; leave it zero")
        .about_field(each.field);
  }
  return {};
}

}  // namespace parallax

#endif  // PARALLAX_BASE_NOT_YET_H_
