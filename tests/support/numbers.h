// SPDX-License-Identifier: Apache-2.0
// Numbers: a buffer of any dtype that a test fills and reads as doubles. One thread.
#ifndef PARALLAX_TESTS_SUPPORT_NUMBERS_H_
#define PARALLAX_TESTS_SUPPORT_NUMBERS_H_

#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "base/number.h"

namespace parallax::testkit {

class Numbers {
 public:
  Numbers(uint32_t dtype, size_t count, double value = 0)
      : dtype_(dtype), count_(count), words_(count + 1) {
    for (size_t i = 0; i < count; ++i) set(i, value);
  }
  // Each must be a number of the dtype.
  Numbers(uint32_t dtype, std::span<const double> values) : Numbers(dtype, values.size()) {
    for (size_t i = 0; i < values.size(); ++i) set(i, values[i]);
  }

  uint32_t dtype() const { return dtype_; }
  size_t size() const { return count_; }
  void* data() { return words_.data(); }

  void set(size_t i, double value) {
    with_dtype(dtype_, [&](auto tag) {
      using T = typename decltype(tag)::type;
      T number;
      if constexpr (std::is_same_v<T, Half>) {
        number = to_half(static_cast<float>(value));
      } else if constexpr (std::is_same_v<T, BFloat>) {
        number = to_bfloat(static_cast<float>(value));
      } else {
        number = static_cast<T>(value);
      }
      std::memcpy(bytes() + i * sizeof(T), &number, sizeof number);
    });
  }
  double operator[](size_t i) const { return read(dtype_, bytes(), i); }
  std::vector<double> all() const { return read_all(dtype_, bytes(), count_); }

  static double read(uint32_t dtype, const std::byte* from, size_t i) {
    return with_dtype(dtype, [&](auto tag) {
      using T = typename decltype(tag)::type;
      return static_cast<double>(load<T>(from + i * sizeof(T)));
    });
  }
  static std::vector<double> read_all(uint32_t dtype, const std::byte* from, size_t count) {
    std::vector<double> values;
    for (size_t i = 0; i < count; ++i) values.push_back(read(dtype, from, i));
    return values;
  }

 private:
  std::byte* bytes() { return reinterpret_cast<std::byte*>(words_.data()); }
  const std::byte* bytes() const { return reinterpret_cast<const std::byte*>(words_.data()); }

  uint32_t dtype_;
  size_t count_;
  std::vector<uint64_t> words_;  // aligned for all; one more, so that data() is never null
};

}  // namespace parallax::testkit

#endif  // PARALLAX_TESTS_SUPPORT_NUMBERS_H_
