// SPDX-License-Identifier: Apache-2.0
// Copies of rows by their length. See row_copies.h.
#include "base/row_copies.h"

#include <cstring>

#include "base/vector_code.h"

namespace parallax {

RowCopies::RowCopies(Convert convert, size_t width, size_t to_element_bytes)
    : convert_(convert),
      width_(width),
      to_element_bytes_(to_element_bytes),
      bytes_(width * to_element_bytes),
      copy_(copy_any) {
  if (convert != nullptr) return;
  switch (bytes_) {
    case 32:
      copy_ = copy_narrow<32>;
      break;
    case 64:
      copy_ = copy_narrow<64>;
      break;
    case 128:
      copy_ = copy_narrow<128>;
      break;
    case 256:
      copy_ = copy_narrow<256>;
      break;
    default:
      break;
  }
}

void RowCopies::copy_any(const RowCopies& copies, const Some& some) {
  for (uint32_t i = 0; i < some.count; ++i) {
    if (some.rows[i] == nullptr) {
      std::memset(some.to[i], 0, copies.bytes_);
    } else {
      convert_or_copy(copies.convert_, some.rows[i], some.to[i], copies.width_,
                      copies.to_element_bytes_);
    }
  }
}

template <size_t kBytes>
void RowCopies::copy_narrow(const RowCopies& /*copies*/, const Some& some) {
  in_vectors([&some] {
    for (uint32_t i = 0; i < some.count; ++i) {
      if (some.rows[i] == nullptr) {
        std::memset(some.to[i], 0, kBytes);
      } else {
        std::memcpy(some.to[i], some.rows[i], kBytes);
      }
    }
  });
}

}  // namespace parallax
