/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows that the framework holds, reduced as one (fuse_tables = all): who waits for one of them
 * before all are called is told so, and loses nothing.
 */
#include <stdlib.h>

#include "expect.h"

#define TABLES 5

static const int64_t ids[] = {3, 1};
static const float gradients[] = {30, 31, 10, 11};

static parallax_request_t *reduce(parallax_job_t *job, uint64_t step, const uint32_t *variables,
                                  size_t count) {
  parallax_slice_t slices[TABLES] = {{0}};
  parallax_request_t *request = NULL;
  for (size_t i = 0; i < count; ++i) {
    slices[i].size = sizeof slices[i];
    slices[i].variable = variables[i];
    slices[i].form = PARALLAX_FORM_ROWS;
    slices[i].ids = ids;
    slices[i].row_count = 2;
    slices[i].values = (void *)(uintptr_t)gradients;
  }
  PARALLAX_EXPECT_OK(parallax_reduce(job, step, slices, count, &request));
  return request;
}

static void expect_sum(parallax_request_t *request, size_t index) {
  const int64_t *sum_ids = NULL;
  const void *values = NULL;
  uint64_t rows = 0;
  PARALLAX_EXPECT_OK(parallax_request_rows(request, index, &sum_ids, &values, &rows));
  PARALLAX_EXPECT(rows == 2 && sum_ids[0] == 1 && sum_ids[1] == 3);
  PARALLAX_EXPECT(((const float *)values)[0] == 10 && ((const float *)values)[3] == 31);
}

int main(void) {
  const parallax_options_t options = {.size = sizeof options};
  const char *names[TABLES] = {"t0", "t1", "t2", "t3", "t4"};
  uint32_t variables[TABLES];
  parallax_job_t *job = NULL;
  parallax_request_t *requests[3] = {NULL, NULL, NULL};
  parallax_step_end_options_t end = {.size = sizeof end};
  uint64_t step = 0;
  setenv("PARALLAX_FUSE_TABLES", "all", 1);
  PARALLAX_EXPECT_OK(parallax_open(&options, &job));
  for (size_t i = 0; i < TABLES; ++i) {
    parallax_variable_t table = {.size = sizeof table, .name = names[i], .rows = 9};
    table.row_elements = 2;
    table.tag = PARALLAX_SPARSE;
    table.rows_max = 4;
    PARALLAX_EXPECT_OK(parallax_register(job, &table, &variables[i]));
  }
  PARALLAX_EXPECT_OK(parallax_commit(job));
  PARALLAX_EXPECT_OK(parallax_step_begin(job, &step));
  requests[0] = reduce(job, step, variables, 3);
  PARALLAX_EXPECT_REFUSED(parallax_wait(requests, 1, PARALLAX_WAIT_DEFAULT), PARALLAX_STATE,
                          "'t0' goes with that of 't3' and 1 more");
  PARALLAX_EXPECT(parallax_request_test(requests[0]) == PARALLAX_PENDING);
  requests[1] = reduce(job, step, variables + 3, 2);
  PARALLAX_EXPECT_OK(parallax_wait(requests, 2, PARALLAX_WAIT_DEFAULT));
  for (size_t i = 0; i < TABLES; ++i) expect_sum(requests[i < 3 ? 0 : 1], i < 3 ? i : i - 3);
  PARALLAX_EXPECT_OK(parallax_step_end(job, step, &end, &requests[2]));
  PARALLAX_EXPECT_OK(parallax_wait(requests, 3, PARALLAX_WAIT_DEFAULT));
  for (size_t i = 0; i < 3; ++i) PARALLAX_EXPECT_OK(parallax_request_release(requests[i]));
  PARALLAX_EXPECT_OK(parallax_close(job));
  return parallax_expect_end();
}
