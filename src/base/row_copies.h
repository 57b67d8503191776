// SPDX-License-Identifier: Apache-2.0
// RowCopies: rows that are copied from here to there, some at a time, and converted where types
// differ. Narrow ones are copied by a length that the compiler knows: a call for each takes longer
// than the copy. A plain value; any thread.
#ifndef PARALLAX_BASE_ROW_COPIES_H_
#define PARALLAX_BASE_ROW_COPIES_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "base/number.h"
#include "base/prefetch.h"

namespace parallax {

class RowCopies {
 public:
  // Of `width` numbers each; `convert` to a type of so many bytes, null: they have it.
  RowCopies(Convert convert, size_t width, size_t to_element_bytes);

  // Where rows are, and where they go; of null, zeros.
  static constexpr uint32_t kTogether = 32;
  struct Some {
    uint32_t count = 0;
    std::array<const std::byte*, kTogether> rows;
    std::array<std::byte*, kTogether> to;
  };
  void copy(const Some& some) const { copy_(*this, some); }

  // So many rows, one behind the other; row_at(i): where the i-th lies. Of those that lie all over
  // memory, `scattered_bytes` each, some are asked for before their turn; 0: they do not.
  template <typename RowAt>
  void copy_all(uint64_t count, const RowAt& row_at, size_t scattered_bytes, std::byte* to) const {
    const uint64_t ahead = scattered_bytes == 0 ? count : kRowsAhead;
    Some some;
    for (uint64_t first = 0; first < count; first += some.count) {
      some.count = static_cast<uint32_t>(std::min<uint64_t>(count - first, kTogether));
      for (uint32_t i = 0; i < some.count; ++i, to += bytes_) {
        if (first + i + ahead < count) prefetch_row(row_at(first + i + ahead), scattered_bytes);
        some.rows[i] = row_at(first + i);
        some.to[i] = to;
      }
      copy(some);
    }
  }

  // Of each of `count` numbers the row that it has in `rows`, one behind the other; of kNone zeros.
  static constexpr uint32_t kNone = UINT32_MAX;
  struct Numbered {
    const std::byte* const* rows = nullptr;
    const uint32_t* numbers = nullptr;
    uint32_t count = 0;
    std::byte* to = nullptr;
  };
  void copy_numbered(const Numbered& numbered) const { copy_numbered_(*this, numbered); }

  // Of each where it goes.
  size_t bytes() const { return bytes_; }

 private:
  static void copy_any(const RowCopies& copies, const Some& some);
  static void copy_any_numbered(const RowCopies& copies, const Numbered& numbered);
  template <size_t kBytes>
  static void copy_narrow(const RowCopies& copies, const Some& some);
  template <size_t kBytes>
  static void copy_narrow_numbered(const RowCopies& copies, const Numbered& numbered);
  template <size_t kBytes>
  void use_narrow() {
    copy_ = copy_narrow<kBytes>;
    copy_numbered_ = copy_narrow_numbered<kBytes>;
  }

  Convert convert_;
  size_t width_, to_element_bytes_, bytes_;
  void (*copy_)(const RowCopies& copies, const Some& some);
  void (*copy_numbered_)(const RowCopies& copies, const Numbered& numbered);
};

}  // namespace parallax

#endif  // PARALLAX_BASE_ROW_COPIES_H_
