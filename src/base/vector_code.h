// SPDX-License-Identifier: Apache-2.0
// Vector code: a loop of plain C++ is compiled once for each set of vector instructions that the
// build knows of its architecture, and the one that fits the machine is run. No intrinsics, one
// source; every set gives the same bits, since none contracts or reorders (cmake/flags.cmake).
//
// Any thread.
#ifndef PARALLAX_BASE_VECTOR_CODE_H_
#define PARALLAX_BASE_VECTOR_CODE_H_

#include <cstddef>
#include <cstdint>
#include <span>

namespace parallax {

// By rising width.
enum class VectorLevel : uint8_t {
  kBaseline,  // what each machine of the architecture has: SSE2, NEON
  kAvx2,      // and F16C
  kAvx512,    // F, BW, DQ and VL; by 256 bits, since wider ones gain nothing beyond the first cache
              // and divide and root more slowly
  kSve,
};

// "SSE2", "NEON", "AVX2", ...
const char* vector_level_name(VectorLevel level);
// Those that this build knows and this machine has, the best last.
std::span<const VectorLevel> vector_levels();
// The best, or what a test or a benchmark has set, one of vector_levels(), for the whole process.
VectorLevel vector_level();
void set_vector_level(VectorLevel level);

// Below so many numbers a loop is run as it is: the call costs more than it gains.
inline constexpr size_t kVectorCountMin = 64;

#if defined(__x86_64__)
template <typename Loop>
[[gnu::noinline, gnu::flatten, gnu::target("avx2,f16c")]] void in_avx2(const Loop& loop) {
  loop();
}
template <typename Loop>
[[gnu::noinline, gnu::flatten, gnu::target("avx2,f16c,avx512f,avx512bw,avx512dq,avx512vl")]] void
in_avx512(const Loop& loop) {
  loop();
}
#elif defined(__aarch64__) && defined(__GNUC__) && !defined(__clang__)
#define PARALLAX_HAS_SVE 1
template <typename Loop>
[[gnu::noinline, gnu::flatten, gnu::target("+sve")]] void in_sve(const Loop& loop) {
  loop();
}
#endif

// Calls loop(), of which all that can be is inlined and compiled for the level. It is to use no
// target of its own.
template <typename Loop>
void in_vectors(const Loop& loop) {
  switch (vector_level()) {
#if defined(__x86_64__)
    case VectorLevel::kAvx2:
      return in_avx2(loop);
    case VectorLevel::kAvx512:
      return in_avx512(loop);
#elif defined(PARALLAX_HAS_SVE)
    case VectorLevel::kSve:
      return in_sve(loop);
#endif
    default:
      return loop();
  }
}

}  // namespace parallax

#endif  // PARALLAX_BASE_VECTOR_CODE_H_
