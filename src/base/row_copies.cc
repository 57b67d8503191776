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
      copy_(copy_any),
      copy_numbered_(copy_any_numbered) {
  if (convert != nullptr) return;
  switch (bytes_) {
    case 32:
      use_narrow<32>();
      break;
    case 64:
      use_narrow<64>();
      break;
    case 128:
      use_narrow<128>();
      break;
    case 256:
      use_narrow<256>();
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

void RowCopies::copy_any_numbered(const RowCopies& copies, const Numbered& numbered) {
  std::byte* to = numbered.to;
  for (uint32_t i = 0; i < numbered.count; ++i, to += copies.bytes_) {
    if (numbered.numbers[i] == kNone) {
      std::memset(to, 0, copies.bytes_);
    } else {
      convert_or_copy(copies.convert_, numbered.rows[numbered.numbers[i]], to, copies.width_,
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

template <size_t kBytes>
void RowCopies::copy_narrow_numbered(const RowCopies& /*copies*/, const Numbered& numbered) {
  in_vectors([&numbered] {
    // In registers, since bytes that are written might else be these.
    auto [rows, numbers, count, to] = numbered;
    for (uint32_t i = 0; i < count; ++i, to += kBytes) {
      if (numbers[i] == kNone) {
        std::memset(to, 0, kBytes);
      } else {
        std::memcpy(to, rows[numbers[i]], kBytes);
      }
    }
  });
}

}  // namespace parallax
