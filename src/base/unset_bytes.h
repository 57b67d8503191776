// SPDX-License-Identifier: Apache-2.0
// UnsetBytes: a vector of bytes that holds, where it grows, whatever was there: for what is written
// in full right after, since to write zeros first is a pass over all of it.
#ifndef PARALLAX_BASE_UNSET_BYTES_H_
#define PARALLAX_BASE_UNSET_BYTES_H_

#include <cstddef>
#include <memory>
#include <vector>

namespace parallax {

struct UnsetAllocator : std::allocator<std::byte> {
  template <typename Other>
  struct rebind {
    static_assert(sizeof(Other) == 1);
    using other = UnsetAllocator;
  };
  // Of resize().
  static void construct(std::byte* /*at*/) {}
  static void construct(std::byte* at, std::byte value) { *at = value; }
};

using UnsetBytes = std::vector<std::byte, UnsetAllocator>;

}  // namespace parallax

#endif  // PARALLAX_BASE_UNSET_BYTES_H_
