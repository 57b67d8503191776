// SPDX-License-Identifier: Apache-2.0
// LeavingElements: a result that leaves for where its caller wants it, a device, while it is
// written: whoever writes it tells which elements, or rows, are as they will be. What is never told
// of leaves in the end. Whoever hands this on owns it, and keeps it until the result is whole.
// Engine's owner only.
#ifndef PARALLAX_BASE_LEAVING_ELEMENTS_H_
#define PARALLAX_BASE_LEAVING_ELEMENTS_H_

#include <cstdint>
#include <functional>

namespace parallax {

struct LeavingElements {
  // Each of them once, in any order.
  std::function<void(uint64_t first, uint64_t count)> there;
};

// Where there are any who want to know.
inline void tell_there(const LeavingElements* leaving, uint64_t first, uint64_t count) {
  if (leaving != nullptr && count > 0) leaving->there(first, count);
}

}  // namespace parallax

#endif  // PARALLAX_BASE_LEAVING_ELEMENTS_H_
