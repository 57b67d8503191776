/* SPDX-License-Identifier: Apache-2.0
 *
 * A program of version 0.1: compiled with that version's header, whose structs are shorter and
 * whose symbols are of PARALLAX_0.1, it trains on today's library as it did then. It calls every
 * function that 0.1 had, and does not change any more. Two ranks as threads.
 */
#include <pthread.h>

#include "expect.h"

_Static_assert(PARALLAX_VERSION_MAJOR == 0 && PARALLAX_VERSION_MINOR == 1, "0.1's header");

enum { kRows = 8, kColumns = 2, kWorld = 2, kSteps = 3 };

/* Expectations belong to one thread: ranks return the line of what does not hold. */
#define PARALLAX_HOLDS(holds)      \
  do {                             \
    if (!(holds)) return __LINE__; \
  } while (0)
#define PARALLAX_TRY(call)                                       \
  do {                                                           \
    if ((call) != PARALLAX_OK) {                                 \
      fprintf(stderr, "%s: %s\n", #call, parallax_last_error()); \
      return __LINE__;                                           \
    }                                                            \
  } while (0)

typedef struct rank {
  uint32_t number;
  parallax_job_t *job;
  uint32_t table; /* managed, rows, SGD */
  uint32_t dense; /* framework-held */
  uint32_t rows;  /* framework-held, rows */
  int line;       /* of what did not hold; 0: all did */
} rank_t;

static int finish(parallax_request_t *request) {
  PARALLAX_TRY(parallax_wait(&request, 1, PARALLAX_WAIT_DEFAULT));
  PARALLAX_TRY(parallax_request_test(request));
  PARALLAX_TRY(parallax_request_cancel(request)); /* a complete one is left alone */
  PARALLAX_HOLDS(parallax_request_error(request)[0] == '\0');
  PARALLAX_TRY(parallax_request_release(request));
  return 0;
}

static int begin(rank_t *self) {
  const parallax_options_t options = {.size = sizeof options,
                                      .rank = self->number,
                                      .world = kWorld,
                                      .rendezvous = "inproc:caller of 0.1",
                                      .host = "one"};
  parallax_variable_t variable = {.size = sizeof variable, .name = "table", .rows = kRows};
  variable.row_elements = kColumns;
  variable.tag = PARALLAX_SPARSE;
  variable.rows_max = kRows;
  variable.rule = PARALLAX_RULE_SGD;
  PARALLAX_TRY(parallax_open(&options, &self->job));
  PARALLAX_TRY(parallax_register(self->job, &variable, &self->table));
  variable.name = "rows";
  variable.rule = PARALLAX_RULE_NONE;
  PARALLAX_TRY(parallax_register(self->job, &variable, &self->rows));
  variable.name = "dense";
  variable.tag = PARALLAX_DENSE;
  variable.rows_max = 0;
  variable.reduction = PARALLAX_MEAN_WORLD;
  PARALLAX_TRY(parallax_register(self->job, &variable, &self->dense));
  PARALLAX_TRY(parallax_commit(self->job));
  PARALLAX_TRY(parallax_progress(self->job));
  return 0;
}

/* Rank 0 writes every row as 10; a broadcast tells what it wrote. */
static int fill(rank_t *self) {
  parallax_request_t *request = NULL;
  float values[kRows * kColumns] = {0};
  parallax_rows_t rows = {.size = sizeof rows, .variable = self->table, .row_count = kRows};
  PARALLAX_TRY(parallax_barrier(self->job, &request));
  PARALLAX_HOLDS(finish(request) == 0);
  if (self->number == 0) {
    for (int i = 0; i < kRows * kColumns; i++) values[i] = 10;
    rows.values = values;
    PARALLAX_TRY(parallax_write(self->job, &rows, &request));
    PARALLAX_HOLDS(finish(request) == 0);
  }
  PARALLAX_TRY(parallax_broadcast(self->job, values, sizeof values, 0, &request));
  PARALLAX_HOLDS(finish(request) == 0);
  PARALLAX_HOLDS(values[0] == 10 && values[kRows * kColumns - 1] == 10);
  PARALLAX_TRY(parallax_barrier(self->job, &request));
  return finish(request);
}

/* Both ranks give row 1, rank r also row 2 + r, of ones. */
static int gradients(rank_t *self, uint64_t step, int64_t *ids, float *rows) {
  parallax_request_t *requests[2] = {NULL, NULL};
  float held[kRows * kColumns];
  const int64_t *sum_ids = NULL;
  const void *sums = NULL;
  uint64_t count = 0;
  parallax_slice_t slices[2] = {{.size = sizeof slices[0]}, {.size = sizeof slices[0]}};
  slices[0].variable = self->table;
  slices[0].form = PARALLAX_FORM_ROWS;
  slices[0].ids = ids;
  slices[0].row_count = 2;
  slices[0].values = rows;
  for (int i = 0; i < 2 * kColumns; i++) rows[i] = 1;
  PARALLAX_TRY(parallax_push(self->job, step, slices, 1, &requests[0]));
  slices[0].variable = self->rows;
  slices[1].variable = self->dense;
  slices[1].values = held;
  for (int i = 0; i < kRows * kColumns; i++) held[i] = (float)(self->number * 2);
  PARALLAX_TRY(parallax_reduce(self->job, step, slices, 2, &requests[1]));
  PARALLAX_TRY(parallax_wait(requests, 2, PARALLAX_WAIT_DEFAULT));
  PARALLAX_TRY(parallax_request_rows(requests[1], 0, &sum_ids, &sums, &count));
  PARALLAX_HOLDS(count == 3 && sum_ids[0] == 1 && sum_ids[2] == 3);
  PARALLAX_HOLDS(((const float *)sums)[0] == 2 && ((const float *)sums)[kColumns] == 1);
  PARALLAX_HOLDS(held[0] == 1 && held[kRows * kColumns - 1] == 1); /* the mean of 0 and 2 */
  PARALLAX_TRY(parallax_request_release(requests[0]));
  PARALLAX_TRY(parallax_request_release(requests[1]));
  return 0;
}

static int train(rank_t *self) {
  int64_t ids[2] = {1, 2 + self->number};
  float rows[2 * kColumns];
  for (int i = 0; i < kSteps; i++) {
    uint64_t step = 0;
    int line = 0;
    parallax_request_t *request = NULL;
    parallax_step_info_t info = {.size = sizeof info};
    const parallax_step_end_options_t end = {.size = sizeof end, .learning_rate = 0.5f};
    parallax_slice_t slice = {.size = sizeof slice, .variable = self->table};
    slice.form = PARALLAX_FORM_ROWS;
    slice.ids = ids;
    slice.row_count = 2;
    slice.values = rows;
    PARALLAX_TRY(parallax_step_begin(self->job, &step));
    PARALLAX_TRY(parallax_pull(self->job, step, &slice, 1, &request));
    if ((line = finish(request)) != 0) return line;
    PARALLAX_HOLDS(rows[0] == 10 - (float)i && rows[kColumns] == 10 - 0.5f * (float)i);
    if ((line = gradients(self, step, ids, rows)) != 0) return line;
    PARALLAX_TRY(parallax_step_end(self->job, step, &end, &request));
    PARALLAX_TRY(parallax_wait(&request, 1, PARALLAX_WAIT_DEFAULT));
    PARALLAX_TRY(parallax_request_step(request, &info));
    PARALLAX_HOLDS(info.step == step && info.committed == 1 && info.contributors == kWorld);
    PARALLAX_TRY(parallax_request_release(request));
  }
  return 0;
}

static int ask(rank_t *self) {
  parallax_request_t *request = NULL;
  float values[kRows * kColumns];
  size_t bytes = 0;
  parallax_job_info_t info = {.size = sizeof info};
  parallax_rows_t rows = {.size = sizeof rows, .variable = self->table, .row_count = kRows};
  rows.values = values;
  PARALLAX_TRY(parallax_read(self->job, &rows, &request));
  PARALLAX_HOLDS(finish(request) == 0);
  PARALLAX_HOLDS(values[0] == 10 && values[kColumns] == 7 && values[2 * kColumns] == 8.5f);
  PARALLAX_TRY(parallax_query(self->job, &info));
  PARALLAX_HOLDS(info.size == sizeof info && info.rank == self->number && info.world == kWorld);
  PARALLAX_HOLDS(info.variables == 3 && info.step == kSteps && info.step_committed == kSteps);
  PARALLAX_HOLDS(parallax_report(self->job, PARALLAX_REPORT_PLAN, NULL, &bytes) == PARALLAX_LIMIT);
  PARALLAX_HOLDS(bytes > 2);
  PARALLAX_TRY(parallax_close(self->job));
  return 0;
}

static void *run(void *argument) {
  static int (*const kParts[])(rank_t *) = {begin, fill, train, ask};
  rank_t *self = argument;
  for (size_t i = 0; i < sizeof kParts / sizeof kParts[0] && self->line == 0; i++) {
    self->line = kParts[i](self);
  }
  return NULL;
}

static void heard(void *context, int level, const char *subsystem, const char *message) {
  (void)level, (void)subsystem, (void)message;
  ++*(int *)context;
}

int main(void) {
  int lines = 0;
  rank_t ranks[kWorld] = {{.number = 0}, {.number = 1}};
  pthread_t other;
  parallax_unique_id_t id = {{0}};
  parallax_job_t *alone = NULL;
  const parallax_options_t options = {.size = sizeof options};
  PARALLAX_EXPECT_OK(parallax_set_log_callback(heard, &lines, PARALLAX_LOG_WARN));
  PARALLAX_EXPECT(parallax_version() >= 100 && parallax_version_string()[0] != '\0');
  PARALLAX_EXPECT(strcmp(parallax_status_string(PARALLAX_OK), "OK") == 0);
  PARALLAX_EXPECT(pthread_create(&other, NULL, run, &ranks[1]) == 0);
  run(&ranks[0]);
  PARALLAX_EXPECT(pthread_join(other, NULL) == 0);
  for (int i = 0; i < kWorld; i++) {
    if (ranks[i].line != 0) fprintf(stderr, "rank %d: line %d\n", i, ranks[i].line);
    PARALLAX_EXPECT(ranks[i].line == 0);
  }
  PARALLAX_EXPECT_OK(parallax_open(&options, &alone));
  PARALLAX_EXPECT_OK(parallax_abort(alone, "enough"));
  PARALLAX_EXPECT_REFUSED(parallax_commit(alone), PARALLAX_ABORTED, "enough");
  PARALLAX_EXPECT(parallax_close(alone) == PARALLAX_ABORTED);
  PARALLAX_EXPECT_OK(parallax_unique_id(&id));
  PARALLAX_EXPECT_OK(parallax_set_log_callback(NULL, NULL, 0));
  return parallax_expect_end();
}
