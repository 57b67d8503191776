// SPDX-License-Identifier: Apache-2.0
// Include it in one source of a program that loads UCX: LeakSanitizer passes over what UCX 1.13
// allocates for itself. It keeps 56 bytes of an endpoint whose connection broke in the making.
#ifndef PARALLAX_TESTS_NET_UCX_LEAKS_H_
#define PARALLAX_TESTS_NET_UCX_LEAKS_H_

#ifdef __SANITIZE_ADDRESS__
extern "C" __attribute__((visibility("default"), used)) inline const char*
__lsan_default_suppressions() {
  return "leak:libucs.so\n";
}
#endif

#endif  // PARALLAX_TESTS_NET_UCX_LEAKS_H_
