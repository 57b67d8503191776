/* SPDX-License-Identifier: Apache-2.0
 *
 * Callers of other versions: an older one's structs are shorter, and what lies behind them is
 * neither read nor written; a newer one's are longer, and work as long as their tails are zero.
 */
#include <stddef.h>

#include "expect.h"

enum { kRows = 8, kTail = 16 };

#define PARALLAX_NEWER(type)   \
  struct {                     \
    type now;                  \
    unsigned char tail[kTail]; \
  }

/* `size` bytes of *whole are the caller's; behind them lies what happens to lie there. */
static void cut(void *whole, size_t bytes, size_t size) {
  memset((char *)whole + size, 0xa5, bytes - size);
  memcpy(whole, &size, sizeof size);
}

static int untouched(const void *whole, size_t bytes, size_t size) {
  for (size_t i = size; i < bytes; i++) {
    if (((const unsigned char *)whole)[i] != 0xa5) return 0;
  }
  return 1;
}

static void finish(parallax_request_t *request) {
  PARALLAX_EXPECT_OK(parallax_wait(&request, 1, PARALLAX_WAIT_DEFAULT));
  PARALLAX_EXPECT_OK(parallax_request_release(request));
}

/* 0: registered by an older caller, whose variables end before init_seed; 1: by a newer one. */
static void variables(parallax_job_t *job) {
  uint32_t id = 77;
  parallax_variable_t older = {.name = "older", .rows = kRows, .row_elements = 1};
  older.tag = PARALLAX_SPARSE;
  older.rule = PARALLAX_RULE_SGD;
  older.rows_max = kRows;
  cut(&older, sizeof older, offsetof(parallax_variable_t, init_seed));
  PARALLAX_EXPECT_OK(parallax_register(job, &older, &id));
  PARALLAX_EXPECT(id == 0);
  PARALLAX_NEWER(parallax_variable_t) newer;
  memset(&newer, 0, sizeof newer);
  newer.now.size = sizeof newer;
  newer.now.name = "newer";
  newer.now.rows = kRows;
  newer.now.row_elements = 1;
  newer.now.rule = PARALLAX_RULE_SUM;
  newer.tail[7] = 1;
  PARALLAX_EXPECT_REFUSED(parallax_register(job, &newer.now, &id), PARALLAX_UNSUPPORTED, "newer");
  newer.tail[7] = 0;
  PARALLAX_EXPECT_OK(parallax_register(job, &newer.now, &id));
  PARALLAX_EXPECT(id == 1);
}

/* Several slices in a row, which lie as far apart as the caller's struct is long. */
static void slices(parallax_job_t *job, uint64_t step) {
  enum { kOlder = offsetof(parallax_slice_t, as_dtype) };
  static const int64_t kIds[] = {2, 5};
  float rows[2] = {1, 3};
  float all[kRows] = {0, 1, 2, 3, 4, 5, 6, 7};
  unsigned char older[2 * kOlder + sizeof(parallax_slice_t)];
  PARALLAX_NEWER(parallax_slice_t) newer[2];
  parallax_request_t *request = NULL;
  parallax_slice_t of_rows = {.form = PARALLAX_FORM_ROWS, .ids = kIds, .row_count = 2};
  parallax_slice_t of_all = {.variable = 1};
  of_rows.values = rows;
  of_all.values = all;
  of_rows.size = of_all.size = kOlder;
  memset(older, 0xa5, sizeof older);
  memcpy(older, &of_rows, kOlder);
  memcpy(older + kOlder, &of_all, kOlder);
  PARALLAX_EXPECT_OK(
      parallax_push(job, step, (const parallax_slice_t *)(void *)older, 2, &request));
  finish(request);
  memset(newer, 0, sizeof newer);
  newer[0].now = of_rows;
  newer[1].now = of_all;
  newer[0].now.size = newer[1].now.size = sizeof newer[0];
  newer[1].tail[0] = 1;
  PARALLAX_EXPECT_REFUSED(parallax_pull(job, step, &newer[0].now, 2, &request),
                          PARALLAX_UNSUPPORTED, "newer");
  newer[1].tail[0] = 0;
  PARALLAX_EXPECT_OK(parallax_pull(job, step, &newer[0].now, 2, &request));
  finish(request);
  PARALLAX_EXPECT(rows[0] == 0 && rows[1] == 0 && all[7] == 0); /* as before the push */
}

static void end_of_step(parallax_job_t *job, uint64_t step) {
  parallax_request_t *request = NULL;
  parallax_step_end_options_t older = {.learning_rate = 0.5f};
  cut(&older, sizeof older, offsetof(parallax_step_end_options_t, found_inf));
  PARALLAX_NEWER(parallax_step_end_options_t) newer;
  memset(&newer, 0, sizeof newer);
  newer.now.size = sizeof newer;
  newer.tail[1] = 1;
  PARALLAX_EXPECT_REFUSED(parallax_step_end(job, step, &newer.now, &request), PARALLAX_UNSUPPORTED,
                          "newer");
  PARALLAX_EXPECT_OK(parallax_step_end(job, step, &older, &request));
  PARALLAX_EXPECT_OK(parallax_wait(&request, 1, PARALLAX_WAIT_DEFAULT));
  parallax_step_info_t info;
  cut(&info, sizeof info, offsetof(parallax_step_info_t, gradient_norm));
  PARALLAX_EXPECT_OK(parallax_request_step(request, &info));
  PARALLAX_EXPECT(info.step == step && info.committed == 1 && info.contributors == 1);
  PARALLAX_EXPECT(untouched(&info, sizeof info, offsetof(parallax_step_info_t, gradient_norm)));
  PARALLAX_NEWER(parallax_step_info_t) longer;
  cut(&longer, sizeof longer, sizeof longer.now);
  longer.now.size = sizeof longer;
  PARALLAX_EXPECT_OK(parallax_request_step(request, &longer.now));
  PARALLAX_EXPECT(longer.now.size == sizeof longer && longer.now.clip_scale == 1);
  PARALLAX_EXPECT(untouched(&longer, sizeof longer, sizeof longer.now));
  PARALLAX_EXPECT_OK(parallax_request_release(request));
}

static void info_of_the_job(parallax_job_t *job) {
  parallax_job_info_t info;
  cut(&info, sizeof info, offsetof(parallax_job_info_t, variables));
  PARALLAX_EXPECT_OK(parallax_query(job, &info));
  PARALLAX_EXPECT(info.world == 1 && info.local_world == 1);
  PARALLAX_EXPECT(info.size == offsetof(parallax_job_info_t, variables));
  PARALLAX_EXPECT(untouched(&info, sizeof info, offsetof(parallax_job_info_t, variables)));
  PARALLAX_NEWER(parallax_job_info_t) newer;
  cut(&newer, sizeof newer, sizeof newer.now);
  newer.now.size = sizeof newer;
  PARALLAX_EXPECT_OK(parallax_query(job, &newer.now));
  PARALLAX_EXPECT(newer.now.variables == 2 && newer.now.step_committed == 1);
  PARALLAX_EXPECT(untouched(&newer, sizeof newer, sizeof newer.now));
}

static void rows(parallax_job_t *job) {
  float values[kRows] = {0};
  parallax_request_t *request = NULL;
  parallax_rows_t older = {.row_count = kRows, .values = values};
  cut(&older, sizeof older, offsetof(parallax_rows_t, state));
  PARALLAX_EXPECT_OK(parallax_read(job, &older, &request));
  finish(request);
  PARALLAX_EXPECT(values[1] == 0 && values[2] == -0.5f && values[5] == -1.5f);
  PARALLAX_NEWER(parallax_rows_t) newer;
  memset(&newer, 0, sizeof newer);
  newer.now.size = sizeof newer;
  newer.now.variable = 1;
  newer.now.row_count = kRows;
  newer.now.values = values;
  PARALLAX_EXPECT_OK(parallax_read(job, &newer.now, &request));
  finish(request);
  PARALLAX_EXPECT(values[0] == 0 && values[7] == 7);
}

int main(void) {
  const parallax_options_t options = {.size = sizeof options};
  parallax_job_t *job = NULL;
  uint64_t step = 0;
  PARALLAX_EXPECT_OK(parallax_open(&options, &job));
  variables(job);
  PARALLAX_EXPECT_OK(parallax_commit(job));
  PARALLAX_EXPECT_OK(parallax_step_begin(job, &step));
  slices(job, step);
  end_of_step(job, step);
  info_of_the_job(job);
  rows(job);
  PARALLAX_EXPECT_OK(parallax_close(job));
  return parallax_expect_end();
}
