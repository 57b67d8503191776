// SPDX-License-Identifier: Apache-2.0
// ByteRange: some memory of this process, by its addresses. Nothing is read there. A plain value.
#ifndef PARALLAX_BASE_BYTE_RANGE_H_
#define PARALLAX_BASE_BYTE_RANGE_H_

#include <cstdint>

namespace parallax {

struct ByteRange {
  uintptr_t first = 0;
  uint64_t bytes = 0;  // first + bytes does not wrap

  static ByteRange at(const void* pointer, uint64_t bytes) {
    return {reinterpret_cast<uintptr_t>(pointer), bytes};
  }
  // Have a byte in common.
  bool overlaps(const ByteRange& other) const {
    return bytes > 0 && other.bytes > 0 && first < other.first + other.bytes &&
           other.first < first + bytes;
  }
};

}  // namespace parallax

#endif  // PARALLAX_BASE_BYTE_RANGE_H_
