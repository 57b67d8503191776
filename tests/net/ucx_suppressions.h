// SPDX-License-Identifier: Apache-2.0
// Include it in one source of a program that loads UCX: what sanitizers pass over in UCX 1.13. It
// keeps 56 bytes of an endpoint whose connection broke in the making, and its own thread runs into
// its own end where a worker is left to it for that reason.
#ifndef PARALLAX_TESTS_NET_UCX_SUPPRESSIONS_H_
#define PARALLAX_TESTS_NET_UCX_SUPPRESSIONS_H_

#if defined(__SANITIZE_ADDRESS__)
extern "C" __attribute__((visibility("default"), used)) inline const char*
__lsan_default_suppressions() {
  return "leak:libucs.so\n";
}
#elif defined(__SANITIZE_THREAD__)
extern "C" __attribute__((visibility("default"), used)) inline const char*
__tsan_default_suppressions() {
  return "race:libucs.so\n";
}
#endif

#endif  // PARALLAX_TESTS_NET_UCX_SUPPRESSIONS_H_
