// SPDX-License-Identifier: Apache-2.0
// What tests know of the sanitizer that they run under.
#ifndef PARALLAX_TESTS_SUPPORT_SANITIZERS_H_
#define PARALLAX_TESTS_SUPPORT_SANITIZERS_H_

namespace parallax::testkit {

// ThreadSanitizer looks for races: what one thread does alone, or does the thousandth time, shows
// it nothing but takes ten times as long. Such tests do less of it there; the other presets do all.
#ifdef __SANITIZE_THREAD__
inline constexpr bool kThreadSanitizer = true;
#else
inline constexpr bool kThreadSanitizer = false;
#endif

}  // namespace parallax::testkit

#endif  // PARALLAX_TESTS_SUPPORT_SANITIZERS_H_
