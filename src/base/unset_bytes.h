// SPDX-License-Identifier: Apache-2.0
// UnsetVector: a vector of numbers that holds, where it grows, whatever was there: for what is
// written right after, or in part, since to write zeros first is a pass over all of it, and memory.
#ifndef PARALLAX_BASE_UNSET_BYTES_H_
#define PARALLAX_BASE_UNSET_BYTES_H_

#include <cstddef>
#include <memory>
#include <type_traits>
#include <vector>

namespace parallax {

template <typename T>
struct UnsetAllocator : std::allocator<T> {
  static_assert(std::is_trivial_v<T>);
  template <typename Other>
  struct rebind {
    using other = UnsetAllocator<Other>;
  };
  // Of resize().
  static void construct(T* /*at*/) {}
  static void construct(T* at, T value) { *at = value; }
};

template <typename T>
using UnsetVector = std::vector<T, UnsetAllocator<T>>;
using UnsetBytes = UnsetVector<std::byte>;

}  // namespace parallax

#endif  // PARALLAX_BASE_UNSET_BYTES_H_
