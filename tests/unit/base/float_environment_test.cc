// SPDX-License-Identifier: Apache-2.0
// Whatever a thread has set, within it sums are by the default environment, and afterwards all is
// as it was.
#include "base/float_environment.h"

#include <gtest/gtest.h>

#include <array>
#include <cfenv>

namespace parallax {
namespace {

constexpr std::array kModes = {FE_TONEAREST, FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO};

// The thread's own environment comes back, whatever a test does to it.
class FloatEnvironmentTest : public testing::Test {
 protected:
  void SetUp() override { std::fegetenv(&before_); }
  void TearDown() override { std::fesetenv(&before_); }

  // Neither the compiler nor the linker knows the operands.
  static float third() {
    volatile float one = 1, three = 3;
    return one / three;
  }

 private:
  std::fenv_t before_;
};

TEST_F(FloatEnvironmentTest, RoundingIsToNearestWithinAndAsBeforeAfterwards) {
  std::fesetround(FE_TONEAREST);
  const float nearest = third();
  for (const int mode : kModes) {
    std::fesetround(mode);
    const float by_mode = third();
    {
      const FloatEnvironment environment;
      EXPECT_EQ(std::fegetround(), FE_TONEAREST);
      EXPECT_EQ(third(), nearest);
    }
    EXPECT_EQ(std::fegetround(), mode);
    EXPECT_EQ(third(), by_mode);
  }
}

TEST_F(FloatEnvironmentTest, WhatIsSetWithinEndsWithIt) {
  for (const int outer : kModes) {
    for (const int inner : kModes) {
      std::fesetround(outer);
      {
        const FloatEnvironment environment;
        std::fesetround(inner);
      }
      EXPECT_EQ(std::fegetround(), outer) << "set within: " << inner;
    }
  }
}

TEST_F(FloatEnvironmentTest, ExceptionFlagsAreTheThreadsOwn) {
  for (const int mode : kModes) {
    std::fesetround(mode);
    for (const int raised : {0, FE_OVERFLOW, FE_DIVBYZERO | FE_INVALID}) {
      std::feclearexcept(FE_ALL_EXCEPT);
      std::feraiseexcept(raised);
      const int flags = std::fetestexcept(FE_ALL_EXCEPT);
      {
        const FloatEnvironment environment;
        third();  // inexact
        std::feraiseexcept(FE_UNDERFLOW);
      }
      EXPECT_EQ(std::fetestexcept(FE_ALL_EXCEPT), flags) << "rounding mode " << mode;
    }
  }
}

#ifdef __x86_64__
// Given whatever a thread has set, expect sums by the default environment, and afterwards all as it
// was, of what the library's instructions read.
TEST_F(FloatEnvironmentTest, SumsAreByTheDefaultEnvironment) {
  std::fesetround(FE_TONEAREST);
  const float nearest = third();
  constexpr uint32_t kFlush = 0x8040;  // to zero, and small numbers are zeros
  volatile float tiny = 1.5e-38F, half = 0.5F;
  for (const int mode : kModes) {
    for (const uint32_t flush : {0u, kFlush}) {
      for (const int raised : {0, FE_OVERFLOW, FE_DIVBYZERO | FE_INVALID}) {
        std::fesetround(mode);
        std::feclearexcept(FE_ALL_EXCEPT);
        std::feraiseexcept(raised);
        _mm_setcsr(_mm_getcsr() | flush);
        const uint32_t before = _mm_getcsr();
        {
          const SumEnvironment environment;
          EXPECT_EQ(third(), nearest);
          const float smaller = tiny * half;
          EXPECT_GT(smaller, 0.0F);
          const FloatEnvironment callers_own;
          EXPECT_EQ(std::fegetround(), FE_TONEAREST) << "of a program's code within";
          std::feraiseexcept(FE_UNDERFLOW);
        }
        EXPECT_EQ(_mm_getcsr(), before) << "mode " << mode << " raised " << raised;
        _mm_setcsr(before & ~kFlush);
      }
    }
  }
}

TEST_F(FloatEnvironmentTest, SmallNumbersAreNotFlushedWithin) {
  constexpr uint32_t kFlushToZero = 0x8000, kDenormalsAreZero = 0x40;
  volatile float tiny = 1.5e-38F, half = 0.5F;
  for (const uint32_t flush : {kFlushToZero, kDenormalsAreZero, kFlushToZero | kDenormalsAreZero}) {
    _mm_setcsr(_mm_getcsr() | flush);
    {
      const FloatEnvironment environment;
      const float smaller = tiny * half;
      EXPECT_GT(smaller, 0.0F);
      EXPECT_GT(smaller * (1 / half), 0.0F);
    }
    EXPECT_EQ(_mm_getcsr() & flush, flush);
    _mm_setcsr(_mm_getcsr() & ~flush);
  }
}
#endif

}  // namespace
}  // namespace parallax
