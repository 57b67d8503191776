// SPDX-License-Identifier: Apache-2.0
// What tests know of the sanitizer that they run under.
#ifndef PARALLAX_TESTS_SUPPORT_SANITIZERS_H_
#define PARALLAX_TESTS_SUPPORT_SANITIZERS_H_

namespace parallax::testkit {

#ifdef __SANITIZE_THREAD__
inline constexpr bool kThreadSanitizer = true;
#else
inline constexpr bool kThreadSanitizer = false;
#endif

// Sanitizers look for races and for accesses out of place, which the tenth case of a sweep shows as
// well as the hundredth, and make each take up to ten times as long. So the longest sweeps take a
// sample there; the other presets judge every case.
#ifdef __SANITIZE_ADDRESS__
inline constexpr bool kBrief = true;
#else
inline constexpr bool kBrief = kThreadSanitizer;
#endif

}  // namespace parallax::testkit

#endif  // PARALLAX_TESTS_SUPPORT_SANITIZERS_H_
