// SPDX-License-Identifier: Apache-2.0
// Place: where a variable's gradient and its aggregate lie on this rank, where its caller promised
// that at registration (place_values, place_into), and what is wrong with a slice that breaks the
// promise. A plain value; any thread.
#ifndef PARALLAX_VARIABLE_PLACE_H_
#define PARALLAX_VARIABLE_PLACE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/device_buffer.h"
#include "base/status.h"
#include "parallax/parallax.h"

namespace parallax {

struct Place {
  // The gradient's and the aggregate's, which may be one.
  static constexpr size_t kEnds = 2;

  std::array<std::byte*, kEnds> ends = {};  // null: nothing is promised
  uint64_t bytes = 0;                       // at each
  std::array<DeviceBuffer, kEnds> buffers;  // that they lie in, once they are kept

  bool given() const { return ends[0] != nullptr; }
  bool in_place() const { return ends[0] == ends[1]; }
  uint32_t device() const { return buffers[0].device; }
  ByteRange range(size_t end) const { return ByteRange::at(ends[end], bytes); }
};

// Of a description whose other fields are right. UNSUPPORTED, INVALID: `name` is how sentences
// begin.
Status check_place(const parallax_variable_t& in, const std::string& name, Place* place);

// Keeps the buffers of a place; `name` is the variable's. INVALID: it lies in none, or in those of
// two devices; nothing is kept.
Status keep_place(BufferKeeper* keeper, const std::string& name, Place* place);
void let_go(BufferKeeper* keeper, const Place& place);

// A slice of that variable, of its dtype unless it says otherwise. INVALID.
Status check_slice(const parallax_slice_t& slice, const Place& place, uint32_t dtype);

}  // namespace parallax

#endif  // PARALLAX_VARIABLE_PLACE_H_
