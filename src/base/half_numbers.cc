// SPDX-License-Identifier: Apache-2.0
// f16 by F16C, by AArch64's own type, and by number.h. See half_numbers.h.
#include "base/half_numbers.h"

#include <cstring>
#include <limits>

#include "base/vector_code.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace parallax {

namespace {

void widen_one_by_one(const std::byte* __restrict from, std::byte* __restrict to, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    const float value = load<Half>(from + i * sizeof(Half));
    std::memcpy(to + i * sizeof value, &value, sizeof value);
  }
}

void round_one_by_one(const std::byte* __restrict from, std::byte* __restrict to, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    const Half value = to_half(load<float>(from + i * sizeof(float)));
    std::memcpy(to + i * sizeof value, &value, sizeof value);
  }
}

#if defined(__x86_64__)

// So many as were converted.
[[gnu::target("avx2,f16c")]] size_t widen_by_f16c(const std::byte* from, std::byte* to,
                                                  size_t count) {
  size_t i = 0;
  for (; i + 8 <= count; i += 8) {
    const __m128i halves =
        _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i * sizeof(Half)));
    _mm256_storeu_ps(reinterpret_cast<float*>(to + i * sizeof(float)), _mm256_cvtph_ps(halves));
  }
  return i;
}

[[gnu::target("avx2,f16c")]] size_t round_by_f16c(const std::byte* from, std::byte* to,
                                                  size_t count) {
  const __m256 sign = _mm256_set1_ps(-0.0F);
  const __m256 quiet = _mm256_set1_ps(std::numeric_limits<float>::quiet_NaN());
  size_t i = 0;
  for (; i + 8 <= count; i += 8) {
    const __m256 values = _mm256_loadu_ps(reinterpret_cast<const float*>(from + i * sizeof(float)));
    // The instruction would keep what it can of a NaN's payload.
    const __m256 nan = _mm256_or_ps(_mm256_and_ps(values, sign), quiet);
    const __m256 known = _mm256_blendv_ps(values, nan, _mm256_cmp_ps(values, values, _CMP_UNORD_Q));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i * sizeof(Half)),
                     _mm256_cvtps_ph(known, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  }
  return i;
}

#elif defined(__aarch64__)

// __fp16 is converted by instructions of the baseline.
void widen_natively(const std::byte* __restrict from, std::byte* __restrict to, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    __fp16 half;
    std::memcpy(&half, from + i * sizeof half, sizeof half);
    const auto value = static_cast<float>(half);
    std::memcpy(to + i * sizeof value, &value, sizeof value);
  }
}

void round_natively(const std::byte* __restrict from, std::byte* __restrict to, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    const float value = load<float>(from + i * sizeof(float));
    // Of a NaN it would keep what it can of the payload.
    const float nan = std::copysign(std::numeric_limits<float>::quiet_NaN(), value);
    const auto half = static_cast<__fp16>(value == value ? value : nan);
    std::memcpy(to + i * sizeof half, &half, sizeof half);
  }
}

#endif

}  // namespace

bool has_half_instructions() {
#if defined(__x86_64__)
  return vector_level() >= VectorLevel::kAvx2;
#elif defined(__aarch64__)
  return true;
#else
  return false;
#endif
}

void widen_halves(const std::byte* from, std::byte* to, size_t count) {
  size_t done = 0;
#if defined(__x86_64__)
  if (has_half_instructions()) done = widen_by_f16c(from, to, count);
#elif defined(__aarch64__)
  return widen_natively(from, to, count);
#endif
  widen_one_by_one(from + done * sizeof(Half), to + done * sizeof(float), count - done);
}

void round_to_halves(const std::byte* from, std::byte* to, size_t count) {
  size_t done = 0;
#if defined(__x86_64__)
  if (has_half_instructions()) done = round_by_f16c(from, to, count);
#elif defined(__aarch64__)
  return round_natively(from, to, count);
#endif
  round_one_by_one(from + done * sizeof(float), to + done * sizeof(Half), count - done);
}

}  // namespace parallax
