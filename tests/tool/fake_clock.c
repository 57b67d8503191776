/* SPDX-License-Identifier: Apache-2.0
 *
 * To be preloaded: the wall clock of the process is FAKE_CLOCK_SECONDS ahead of the machine's, and
 * its monotonic clock stands still if FAKE_CLOCK_STILL is set.
 */
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t clock, struct timespec* now) {
  const char* ahead = getenv("FAKE_CLOCK_SECONDS");
  const int result = (int)syscall(SYS_clock_gettime, clock, now);
  if (clock == CLOCK_REALTIME && ahead != NULL) now->tv_sec += atol(ahead);
  if (clock == CLOCK_MONOTONIC && getenv("FAKE_CLOCK_STILL") != NULL) {
    now->tv_sec = 1000;
    now->tv_nsec = 0;
  }
  return result;
}
