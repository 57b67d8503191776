// SPDX-License-Identifier: Apache-2.0
// FloatEnvironment: the default floating-point environment while it lives. The engine runs on
// whatever thread drives it, and a host process may have set rounding or flush-to-zero there
// (torch.set_flush_denormal, -ffast-math start-up code): sums would then depend on who drove.
//
// Afterwards the environment is as before, exception flags too. Nearly every thread has the default
// one, and setting it takes 100 ns, more than the rest of an idle pass: where the processor's
// registers can be read by an instruction, they are compared first, and set only if they differ.
//
// SumEnvironment is that for the library's own code alone, which has no x87 instruction: reading
// that unit's registers takes about as long as a look at the rings. Whoever calls a program's code
// within makes a FloatEnvironment around the call.
#ifndef PARALLAX_BASE_FLOAT_ENVIRONMENT_H_
#define PARALLAX_BASE_FLOAT_ENVIRONMENT_H_

#include <cfenv>
#include <cstdint>

#ifdef __x86_64__
#include <xmmintrin.h>
#endif

namespace parallax {

#ifdef __x86_64__
// Intel 64 and IA-32 Architectures Software Developer's Manual, volume 1, 10.2.3 and 8.1.5.
inline constexpr uint32_t kSseFlags = 0x3f;  // of exceptions that were raised
inline constexpr uint32_t kSseDefault = 0x1f80;
#endif

class FloatEnvironment {
 public:
#ifdef __x86_64__
  // A few cycles where nothing differs.
  FloatEnvironment() : sse_(_mm_getcsr()), x87_(X87::now()) {
    switched_ = (sse_ & ~kSseFlags) != kSseDefault || x87_.control != kX87Default;
    if (switched_) switch_to_default();
  }
  ~FloatEnvironment() {
    if (switched_) {
      std::fesetenv(&caller_);
    } else if (X87::now() != x87_) {
      switch_back();
    } else if (_mm_getcsr() != sse_) {
      _mm_setcsr(sse_);
    }
  }
#else
  FloatEnvironment() { switch_to_default(); }
  ~FloatEnvironment() { std::fesetenv(&caller_); }
#endif
  FloatEnvironment(const FloatEnvironment&) = delete;
  FloatEnvironment& operator=(const FloatEnvironment&) = delete;

 private:
  void switch_to_default() {
    std::fegetenv(&caller_);
    std::fesetenv(FE_DFL_ENV);
  }

#ifdef __x86_64__
  static constexpr uint16_t kX87Default = 0x37f;

  struct X87 {
    uint16_t control = 0, flags = 0;

    static X87 now() {
      X87 read;
      __asm__ volatile("fnstcw %0\n\tfnstsw %1" : "=m"(read.control), "=m"(read.flags));
      read.flags &= kSseFlags;  // the same bits
      return read;
    }
    bool operator==(const X87&) const = default;
  };
  // What was done within: by a caller's own rule, since the library has no x87 instruction.
  void switch_back() {
    std::fegetenv(&caller_);
    caller_.__control_word = x87_.control;
    caller_.__status_word &= static_cast<uint16_t>(~kSseFlags);
    caller_.__status_word |= x87_.flags;
    caller_.__mxcsr = sse_;
    std::fesetenv(&caller_);
  }

  const uint32_t sse_;
  const X87 x87_;
  bool switched_ = false;
#endif
  std::fenv_t caller_;  // if switched
};

#ifdef __x86_64__
class SumEnvironment {
 public:
  SumEnvironment() : before_(_mm_getcsr()) {
    // The flags that are raised already stay so.
    if ((before_ & ~kSseFlags) != kSseDefault) _mm_setcsr((before_ & kSseFlags) | kSseDefault);
  }
  ~SumEnvironment() {
    if (_mm_getcsr() != before_) _mm_setcsr(before_);
  }
  SumEnvironment(const SumEnvironment&) = delete;
  SumEnvironment& operator=(const SumEnvironment&) = delete;

 private:
  const uint32_t before_;
};
#else
using SumEnvironment = FloatEnvironment;
#endif

}  // namespace parallax

#endif  // PARALLAX_BASE_FLOAT_ENVIRONMENT_H_
