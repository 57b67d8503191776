// SPDX-License-Identifier: Apache-2.0
// FusedValues: the numbers of a collective that is so small that they travel with its reports
// (kFusedBytesMax): all of the whole, as far as the ranks below have given it. Those of several
// ranks become one in the order of the tree, so the bits do not hang on who was first. Of what is
// only copied each byte is one rank's, and 0 where it is another's.
#ifndef PARALLAX_COLLECTIVES_FUSED_VALUES_H_
#define PARALLAX_COLLECTIVES_FUSED_VALUES_H_

#include <cstddef>
#include <span>
#include <vector>

#include "collectives/collective.h"

namespace parallax {

class FusedValues {
 public:
  // This rank's own; none if the collective is not fused.
  explicit FusedValues(const Collective& what);

  // Those of the ranks below a child, of as many bytes. Unaligned.
  void add(const Collective& what, std::span<const std::byte> values);
  // The answer's instead of them.
  void assign(std::span<const std::byte> values) { bytes_.assign(values.begin(), values.end()); }
  std::span<const std::byte> bytes() const { return bytes_; }
  // Into the caller's buffer, what this rank gets.
  void give(const Collective& what) const;

 private:
  std::vector<std::byte> bytes_;
};

}  // namespace parallax

#endif  // PARALLAX_COLLECTIVES_FUSED_VALUES_H_
