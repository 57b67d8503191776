// SPDX-License-Identifier: Apache-2.0
// Which vector instructions there are. See vector_code.h.
#include "base/vector_code.h"

#include <array>
#include <atomic>

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(PARALLAX_HAS_SVE)
#include <sys/auxv.h>
#endif

namespace parallax {

namespace {

#if defined(__x86_64__)
// __builtin_cpu_supports() of clang 14 doesn't know the name.
bool has_f16c() {
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
}
#endif

struct Levels {
  std::array<VectorLevel, 3> all = {VectorLevel::kBaseline};
  size_t count = 1;

  Levels() {
#if defined(__x86_64__)
    // Of each the operating system saves the registers, too: libgcc asks for that.
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("avx2") || !has_f16c()) return;
    all[count++] = VectorLevel::kAvx2;
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")) {
      all[count++] = VectorLevel::kAvx512;
    }
#elif defined(PARALLAX_HAS_SVE)
    constexpr unsigned long kHasSve = 1UL << 22;  // HWCAP_SVE
    if ((getauxval(AT_HWCAP) & kHasSve) != 0) all[count++] = VectorLevel::kSve;
#endif
  }
};

const Levels& levels() {
  static const Levels found;
  return found;
}

// The baseline until the libraries' objects are made.
std::atomic<VectorLevel> level_in_use{levels().all[levels().count - 1]};

}  // namespace

const char* vector_level_name(VectorLevel level) {
  switch (level) {
    case VectorLevel::kAvx2:
      return "AVX2";
    case VectorLevel::kAvx512:
      return "AVX-512";
    case VectorLevel::kSve:
      return "SVE";
    case VectorLevel::kBaseline:
      break;
  }
#if defined(__x86_64__)
  return "SSE2";
#elif defined(__aarch64__)
  return "NEON";
#else
  return "baseline";
#endif
}

std::span<const VectorLevel> vector_levels() {
  return std::span(levels().all).first(levels().count);
}

VectorLevel vector_level() { return level_in_use.load(std::memory_order_relaxed); }

void set_vector_level(VectorLevel level) { level_in_use.store(level, std::memory_order_relaxed); }

}  // namespace parallax
