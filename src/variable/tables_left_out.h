// SPDX-License-Identifier: Apache-2.0
// TablesLeftOut: of fused tables (fused_tables.h), by Registry::member_of, those that are given by
// nobody in a step, as far as who has said so knows. A plain value; votes carry it.
#ifndef PARALLAX_VARIABLE_TABLES_LEFT_OUT_H_
#define PARALLAX_VARIABLE_TABLES_LEFT_OUT_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "parallax/parallax.h"

namespace parallax {

class TablesLeftOut {
 public:
  static constexpr uint32_t kWordsMax = (PARALLAX_VARIABLES_MAX + 63) / 64;

  TablesLeftOut() = default;
  // It is large, and mostly says nothing: a copy is of what it says.
  TablesLeftOut(const TablesLeftOut& other) { *this = other; }
  TablesLeftOut& operator=(const TablesLeftOut& other) {
    count_ = other.count_;
    std::copy_n(other.words_.begin(), count_, words_.begin());
    return *this;
  }
  ~TablesLeftOut() = default;

  void clear() { count_ = 0; }
  bool any() const { return count_ > 0; }
  bool has(uint32_t table) const {
    return table / 64 < count_ && (words_[table / 64] >> table % 64 & 1) != 0;
  }
  void add(uint32_t table) {
    resize(std::max(count_, table / 64 + 1));
    words_[table / 64] |= uint64_t{1} << table % 64;
  }
  // What another knows nobody to give is left out of its list alone.
  void keep_those_of(const TablesLeftOut& other) {
    count_ = std::min(count_, other.count_);
    for (uint32_t i = 0; i < count_; ++i) words_[i] &= other.words_[i];
    while (count_ > 0 && words_[count_ - 1] == 0) --count_;
  }

  // A bit for each table, up to the last that is left out.
  std::span<const uint64_t> words() const { return std::span(words_).first(count_); }
  // To be written: so many, of kWordsMax.
  std::span<uint64_t> resize(uint32_t count) {
    if (count > count_) std::fill(&words_[count_], words_.data() + count, 0);
    count_ = count;
    return std::span(words_).first(count);
  }

 private:
  uint32_t count_ = 0;
  // What is behind `count_` says nothing.
  std::array<uint64_t, kWordsMax> words_ = {};
};

}  // namespace parallax

#endif  // PARALLAX_VARIABLE_TABLES_LEFT_OUT_H_
