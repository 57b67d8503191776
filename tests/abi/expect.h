/* SPDX-License-Identifier: Apache-2.0
 *
 * Expectations of the C tests. A failed one prints where and goes on; parallax_expect_end() gives
 * main's exit status. One thread only.
 */
#ifndef PARALLAX_TESTS_ABI_EXPECT_H_
#define PARALLAX_TESTS_ABI_EXPECT_H_

#include <stdio.h>
#include <string.h>

#include "parallax/parallax.h"

static int parallax_expect_count;
static int parallax_expect_failures;

static inline void parallax_expect(int holds, const char *text, const char *file, int line) {
  parallax_expect_count++;
  if (!holds) {
    parallax_expect_failures++;
    fprintf(stderr, "%s:%d: expected %s\n", file, line, text);
  }
}

static inline void parallax_expect_ok(int status, const char *text, const char *file, int line) {
  parallax_expect_count++;
  if (status != PARALLAX_OK) {
    parallax_expect_failures++;
    fprintf(stderr, "%s:%d: %s: %s: %s\n", file, line, text, parallax_status_string(status),
            parallax_last_error());
  }
}

/* A refusal gives the status and a sentence that contains `word`. */
static inline void parallax_expect_refused(int status, int wanted, const char *word,
                                           const char *text, const char *file, int line) {
  const char *error = parallax_last_error();
  parallax_expect_count++;
  if (status != wanted || error[0] == '\0' || strstr(error, word) == NULL) {
    parallax_expect_failures++;
    fprintf(stderr, "%s:%d: %s: expected %s and a sentence with '%s', got %s: %s\n", file, line,
            text, parallax_status_string(wanted), word, parallax_status_string(status), error);
  }
}

static inline int parallax_expect_end(void) {
  printf("%d expectations, %d failures\n", parallax_expect_count, parallax_expect_failures);
  return parallax_expect_failures == 0 ? 0 : 1;
}

#define PARALLAX_EXPECT(holds) parallax_expect((holds) ? 1 : 0, #holds, __FILE__, __LINE__)
#define PARALLAX_EXPECT_OK(call) parallax_expect_ok((call), #call, __FILE__, __LINE__)
#define PARALLAX_EXPECT_REFUSED(call, wanted, word) \
  parallax_expect_refused((call), wanted, word, #call, __FILE__, __LINE__)
#endif /* PARALLAX_TESTS_ABI_EXPECT_H_ */
