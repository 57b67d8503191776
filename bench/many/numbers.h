// SPDX-License-Identifier: Apache-2.0
// Numbers that a rank of parallax_many gives or gets, as float or as bf16. One thread.
#ifndef PARALLAX_BENCH_MANY_NUMBERS_H_
#define PARALLAX_BENCH_MANY_NUMBERS_H_

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace parallax::many {

// The nearest bf16, of ties the even one; of what is finite.
inline uint16_t to_bf16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
inline float of_bf16(uint16_t value) {
  return std::bit_cast<float>(static_cast<uint32_t>(value) << 16);
}

class Numbers {
 public:
  explicit Numbers(bool is_bf16) : is_bf16_(is_bf16) {}

  void resize(size_t count) { is_bf16_ ? halves_.resize(count) : floats_.resize(count); }
  size_t size() const { return is_bf16_ ? halves_.size() : floats_.size(); }
  void* from(size_t at) {
    return is_bf16_ ? static_cast<void*>(halves_.data() + at) : floats_.data() + at;
  }
  float operator[](size_t at) const { return is_bf16_ ? of_bf16(halves_[at]) : floats_[at]; }
  void fill(size_t first, size_t count, float value) {
    for (size_t at = first; at < first + count; ++at) {
      if (is_bf16_) {
        halves_[at] = to_bf16(value);
      } else {
        floats_[at] = value;
      }
    }
  }
  // What is kept of it.
  float rounded(float value) const { return is_bf16_ ? of_bf16(to_bf16(value)) : value; }

 private:
  bool is_bf16_;
  std::vector<float> floats_;
  std::vector<uint16_t> halves_;
};

}  // namespace parallax::many

#endif  // PARALLAX_BENCH_MANY_NUMBERS_H_
