// SPDX-License-Identifier: Apache-2.0
// Numbers in kernels: f16 and bf16 as their bits, widened and rounded by the arithmetic of
// base/number.h, so that a device and a host have the same bits, of a NaN too.
#ifndef PARALLAX_CUDA_KERNELS_NUMBERS_H_
#define PARALLAX_CUDA_KERNELS_NUMBERS_H_

#include "cuda/kernels/device.h"

namespace parallax::kernels {

struct f16 {
  uint16_t bits;
};
struct bf16 {
  uint16_t bits;
};
using f32 = float;
using f64 = double;
using i32 = int32_t;
using i64 = int64_t;
using u32 = uint32_t;  // keys of ids
using u64 = uint64_t;

PARALLAX_DEVICE float widen(float value) { return value; }
PARALLAX_DEVICE double widen(double value) { return value; }
PARALLAX_DEVICE int32_t widen(int32_t value) { return value; }
PARALLAX_DEVICE int64_t widen(int64_t value) { return value; }
PARALLAX_DEVICE float widen(bf16 value) {
  return float_of(static_cast<uint32_t>(value.bits) << 16);
}
PARALLAX_DEVICE float widen(f16 value) {
  const uint32_t bias = (127 - 15) << 23;
  const uint32_t sign = static_cast<uint32_t>(value.bits) << 16 & 0x80000000u;
  const uint32_t magnitude = (value.bits & 0x7fffu) << 13;
  if (magnitude >= 0x7c00u << 13) {
    const uint32_t quiet = magnitude > 0x7c00u << 13 ? 0x400000u : 0;
    return float_of(sign | (magnitude + 2 * bias) | quiet);
  }
  if (magnitude >= 0x0400u << 13) return float_of(sign | (magnitude + bias));
  const uint32_t least_normal = (127 - 14) << 23;
  const float small = float_of(magnitude + least_normal) - float_of(least_normal);
  return float_of(sign | bits_of(small));
}

// What a number is summed in, and back.
template <typename T>
struct Narrow {
  using Sum = T;
  static PARALLAX_DEVICE T of(T value) { return value; }
};
template <>
struct Narrow<bf16> {
  using Sum = float;
  static PARALLAX_DEVICE bf16 of(float value) {
    const uint32_t bits = bits_of(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return {static_cast<uint16_t>(bits >> 16 | 0x40u)};
    return {static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16)};
  }
};
template <>
struct Narrow<f16> {
  using Sum = float;
  static PARALLAX_DEVICE f16 of(float value) {
    const uint32_t all = bits_of(value);
    const uint32_t sign = all & 0x80000000u;
    uint32_t bits = all ^ sign;
    uint32_t out;
    if (bits >= (127u + 16) << 23) {
      out = bits > 0xffu << 23 ? 0x7e00u : 0x7c00u;
    } else if (bits < (127u - 14) << 23) {
      const uint32_t magic = ((127u - 15) + (23 - 10) + 1) << 23;
      out = bits_of(float_of(bits) + float_of(magic)) - magic;
    } else {
      const uint32_t odd = bits >> 13 & 1;
      bits -= (127u - 15) << 23;
      out = (bits + 0xfff + odd) >> 13;
    }
    return {static_cast<uint16_t>(out | sign >> 16)};
  }
};

// Of a NaN the host's bits, which a device's conversion need not have.
template <>
struct Narrow<f64> {
  using Sum = double;
  static PARALLAX_DEVICE f64 of(double value) { return value; }
  static PARALLAX_DEVICE f64 of(float value) {
    const uint32_t bits = bits_of(value);
    if ((bits & 0x7fffffffu) <= 0x7f800000u) return static_cast<double>(value);
    return double_of(uint64_t{bits & 0x80000000u} << 32 | uint64_t{0x7ff80000u} << 32 |
                     uint64_t{bits & 0x7fffffu} << 29);
  }
};

// Neighbouring numbers that a thread loads or stores at once.
template <typename T, uint32_t kWidth>
struct alignas(kWidth == 1 ? alignof(T)
                           : (sizeof(T) * kWidth < 16 ? sizeof(T) * kWidth : 16)) Pack {
  T of[kWidth];
};

// What is added to a sum in float.
template <typename T>
PARALLAX_DEVICE float addend(T value) {
  return widen(value);
}
PARALLAX_DEVICE float addend(f64 value) { return static_cast<float>(value); }

// a + b; integers wrap.
PARALLAX_DEVICE float plus(float a, float b) { return a + b; }
PARALLAX_DEVICE double plus(double a, double b) { return a + b; }
PARALLAX_DEVICE int32_t plus(int32_t a, int32_t b) {
  return static_cast<int32_t>(static_cast<uint32_t>(a) + static_cast<uint32_t>(b));
}
PARALLAX_DEVICE int64_t plus(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
}

// A mean's factor; integers have none.
PARALLAX_DEVICE float times(float value, double factor) {
  return value * static_cast<float>(factor);
}
PARALLAX_DEVICE double times(double value, double factor) { return value * factor; }
PARALLAX_DEVICE int32_t times(int32_t value, double) { return value; }
PARALLAX_DEVICE int64_t times(int64_t value, double) { return value; }

}  // namespace parallax::kernels

#endif  // PARALLAX_CUDA_KERNELS_NUMBERS_H_
