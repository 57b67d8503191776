/* SPDX-License-Identifier: Apache-2.0
 *
 * What the library refuses: every refusal has its status and a sentence, and leaves the job as it
 * was. The last test trains a step with the job that all the others tried to break.
 */
#include <math.h>

#include "expect.h"

enum { kRows = 8, kColumns = 2, kRowsMax = 4 };

static parallax_variable_t variable(const char *name) {
  parallax_variable_t v = {.size = sizeof v, .name = name, .rows = kRows, .row_elements = kColumns};
  v.rule = PARALLAX_RULE_SGD;
  return v;
}

static void open_refuses(void) {
  static const char kHuge[] = /* 128 bytes: one too many */
      "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
      "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
  parallax_job_t *job = NULL;
  const parallax_options_t good = {.size = sizeof good};
  parallax_options_t o = good;
  job = (parallax_job_t *)&o; /* whatever stood there */
  PARALLAX_EXPECT_REFUSED(parallax_open(NULL, &job), PARALLAX_INVALID, "options");
  PARALLAX_EXPECT(job == NULL);
  PARALLAX_EXPECT_REFUSED(parallax_open(&o, NULL), PARALLAX_INVALID, "job");
  o.size = 0;
  PARALLAX_EXPECT_REFUSED(parallax_open(&o, &job), PARALLAX_INVALID, "size");
  o.size = sizeof o - 4; /* half of a pointer is the caller's */
  PARALLAX_EXPECT_REFUSED(parallax_open(&o, &job), PARALLAX_INVALID, "size");
  o.size = (size_t)1 << 40;
  PARALLAX_EXPECT_REFUSED(parallax_open(&o, &job), PARALLAX_INVALID, "size");
  o = good;
  o.rank = 1;
  PARALLAX_EXPECT_REFUSED(parallax_open(&o, &job), PARALLAX_INVALID, "rank");
  o = good;
  o.world = 2;
  PARALLAX_EXPECT_REFUSED(parallax_open(&o, &job), PARALLAX_INVALID, "rendezvous");
  o.rendezvous = "pigeon:post";
  PARALLAX_EXPECT_REFUSED(parallax_open(&o, &job), PARALLAX_INVALID, "pigeon");
  o = good;
  o.host = kHuge;
  PARALLAX_EXPECT_REFUSED(parallax_open(&o, &job), PARALLAX_INVALID, "host");
  o.host = "a\nb";
  PARALLAX_EXPECT_REFUSED(parallax_open(&o, &job), PARALLAX_INVALID, "control characters");
  o.host = NULL, o.plan_mode = 99;
  PARALLAX_EXPECT_REFUSED(parallax_open(&o, &job), PARALLAX_INVALID, "plan_mode");
  o.plan_mode = good.plan_mode, o.deterministic = 2;
  PARALLAX_EXPECT_REFUSED(parallax_open(&o, &job), PARALLAX_INVALID, "deterministic");
  o.deterministic = 0, o.manual_progress = 2;
  PARALLAX_EXPECT_REFUSED(parallax_open(&o, &job), PARALLAX_INVALID, "manual_progress");
  o.manual_progress = 0, o.compute_threads = 257;
  PARALLAX_EXPECT_REFUSED(parallax_open(&o, &job), PARALLAX_INVALID, "compute_threads is 257");
  o.compute_threads = 0, o.lease_ms = 49;
  PARALLAX_EXPECT_REFUSED(parallax_open(&o, &job), PARALLAX_INVALID, "lease_ms is 49");
  o.lease_ms = 0, o.world = PARALLAX_WORLD_MAX + 1;
  PARALLAX_EXPECT_REFUSED(parallax_open(&o, &job), PARALLAX_INVALID, "world is 1048577");
  o = good;
  o.reserved = 7;
  PARALLAX_EXPECT_REFUSED(parallax_open(&o, &job), PARALLAX_UNSUPPORTED, "reserved is 7");
  o = good;
  o.transport = "smoke";
  PARALLAX_EXPECT_REFUSED(parallax_open(&o, &job), PARALLAX_INVALID, "smoke");
  PARALLAX_EXPECT(job == NULL);
}

/* An older caller's struct is shorter; a newer one's is longer, and its tail must be zero. */
static void open_of_other_versions(void) {
  struct {
    parallax_options_t options;
    char tail[16];
  } newer;
  parallax_job_t *job = NULL;
  memset(&newer, 0, sizeof newer);
  newer.options.size = sizeof newer;
  newer.tail[3] = 1;
  PARALLAX_EXPECT_REFUSED(parallax_open(&newer.options, &job), PARALLAX_UNSUPPORTED, "");
  newer.tail[3] = 0;
  PARALLAX_EXPECT_OK(parallax_open(&newer.options, &job));
  PARALLAX_EXPECT_OK(parallax_close(job));

  /* Only size, rank and world are the caller's; what lies behind is not looked at. */
  parallax_options_t older;
  memset(&older, 0xff, sizeof older);
  older.size = offsetof(parallax_options_t, rendezvous);
  older.rank = 0;
  older.world = 1;
  job = NULL;
  PARALLAX_EXPECT_OK(parallax_open(&older, &job));
  PARALLAX_EXPECT_OK(parallax_close(job));
}

static void register_refuses(parallax_job_t *job) {
  uint32_t id = 77;
  parallax_variable_t v = variable("bad");
  PARALLAX_EXPECT_REFUSED(parallax_register(job, NULL, &id), PARALLAX_INVALID, "variable");
  PARALLAX_EXPECT_REFUSED(parallax_register(job, &v, NULL), PARALLAX_INVALID, "id");
  v.name = NULL;
  PARALLAX_EXPECT_REFUSED(parallax_register(job, &v, &id), PARALLAX_INVALID, "name");
  v.name = "";
  PARALLAX_EXPECT_REFUSED(parallax_register(job, &v, &id), PARALLAX_INVALID, "name");
  v.name = "table"; /* taken */
  PARALLAX_EXPECT_REFUSED(parallax_register(job, &v, &id), PARALLAX_INVALID, "table");
  v = variable("bad");
  v.rows = 0;
  PARALLAX_EXPECT_REFUSED(parallax_register(job, &v, &id), PARALLAX_INVALID, "rows");
  v.rows = UINT64_C(1) << 32;
  PARALLAX_EXPECT_REFUSED(parallax_register(job, &v, &id), PARALLAX_INVALID, "rows");
  v = variable("bad");
  v.row_elements = (1u << 20) + 1;
  PARALLAX_EXPECT_REFUSED(parallax_register(job, &v, &id), PARALLAX_INVALID, "row_elements");
  v.rows = UINT64_C(1) << 28; /* each alone is legal, the product is 2^50 bytes */
  v.row_elements = 1u << 20;
  PARALLAX_EXPECT_REFUSED(parallax_register(job, &v, &id), PARALLAX_INVALID, "row_elements");
  v = variable("bad");
  v.dtype = 6;
  PARALLAX_EXPECT_REFUSED(parallax_register(job, &v, &id), PARALLAX_UNSUPPORTED, "dtype");
  v = variable("bad");
  v.tag = 9;
  PARALLAX_EXPECT_REFUSED(parallax_register(job, &v, &id), PARALLAX_INVALID, "tag");
  v.tag = PARALLAX_DENSE;
  v.rows_max = 3;
  PARALLAX_EXPECT_REFUSED(parallax_register(job, &v, &id), PARALLAX_INVALID, "rows_max");
  v.tag = PARALLAX_SPARSE;
  v.rows_max = 0;
  PARALLAX_EXPECT_REFUSED(parallax_register(job, &v, &id), PARALLAX_INVALID, "rows_max");
  v = variable("bad");
  v.reduction = 9;
  PARALLAX_EXPECT_REFUSED(parallax_register(job, &v, &id), PARALLAX_INVALID, "reduction");
  v = variable("bad");
  v.rule = 9;
  PARALLAX_EXPECT_REFUSED(parallax_register(job, &v, &id), PARALLAX_UNSUPPORTED, "rule");
  v = variable("bad");
  v.rates = PARALLAX_RATES_MAX;
  PARALLAX_EXPECT_REFUSED(parallax_register(job, &v, &id), PARALLAX_INVALID, "rates is 64");
  v.rates = 1;
  v.rule = PARALLAX_RULE_NONE;
  PARALLAX_EXPECT_REFUSED(parallax_register(job, &v, &id), PARALLAX_INVALID, "rates is 1");
  PARALLAX_EXPECT(id == 77);
}

static void register_table_and_framed(parallax_job_t *job) {
  uint32_t id = 77;
  parallax_variable_t v = variable("table");
  v.tag = PARALLAX_SPARSE;
  v.rows_max = kRowsMax;
  PARALLAX_EXPECT_OK(parallax_register(job, &v, &id));
  PARALLAX_EXPECT(id == 0);
  v = variable("framed");
  v.tag = PARALLAX_DENSE;
  v.rule = PARALLAX_RULE_NONE;
  PARALLAX_EXPECT_OK(parallax_register(job, &v, &id));
  PARALLAX_EXPECT(id == 1);
}

static void states_before_commit(parallax_job_t *job) {
  uint64_t step = 77;
  PARALLAX_EXPECT_REFUSED(parallax_step_begin(job, &step), PARALLAX_STATE, "commit");
  PARALLAX_EXPECT(step == 77);
}

static void narrow_ids_refused(parallax_job_t *job, uint64_t step, parallax_slice_t s) {
  static const int32_t kBelow[] = {1, -2};
  static const int32_t kAbove[] = {1, kRows};
  parallax_request_t *request = NULL;
  s.ids_i32 = kAbove;
  PARALLAX_EXPECT_REFUSED(parallax_push(job, step, &s, 1, &request), PARALLAX_INVALID, "ids_i32");
  s.ids = NULL;
  s.row_count = 2;
  PARALLAX_EXPECT_REFUSED(parallax_push(job, step, &s, 1, &request), PARALLAX_INVALID,
                          "ids_i32[1] is 8");
  s.ids_i32 = kBelow;
  PARALLAX_EXPECT_REFUSED(parallax_push(job, step, &s, 1, &request), PARALLAX_INVALID, "is -2");
  s.ids_i32 = (const int32_t *)((const char *)kBelow + 2);
  s.row_count = 1;
  PARALLAX_EXPECT_REFUSED(parallax_push(job, step, &s, 1, &request), PARALLAX_INVALID,
                          "ids_i32 is not aligned");
}

static void slices_refused(parallax_job_t *job, uint64_t step) {
  static const int64_t kIds[kRowsMax + 1] = {0, 1, 2, 3, 4};
  static const int64_t kBelow[] = {-2};
  static const int64_t kAbove[] = {kRows};
  float values[(kRowsMax + 1) * kColumns + 1] = {0};
  parallax_request_t *request = NULL;
  parallax_slice_t good = {.size = sizeof good, .form = PARALLAX_FORM_ROWS, .ids = kIds};
  good.row_count = 1;
  good.values = values;
  parallax_slice_t s = good;
  request = (parallax_request_t *)(void *)values; /* whatever stood there */
  PARALLAX_EXPECT_REFUSED(parallax_pull(job, step, NULL, 1, &request), PARALLAX_INVALID, "slices");
  PARALLAX_EXPECT(request == NULL);
  PARALLAX_EXPECT_REFUSED(parallax_pull(job, step, &s, 1, NULL), PARALLAX_INVALID, "request");
  PARALLAX_EXPECT_REFUSED(parallax_pull(job, step, &s, PARALLAX_SLICES_MAX + 1, &request),
                          PARALLAX_INVALID, "slices");
  s.size = 0;
  PARALLAX_EXPECT_REFUSED(parallax_pull(job, step, &s, 1, &request), PARALLAX_INVALID, "size");
  s = good;
  s.variable = 2;
  PARALLAX_EXPECT_REFUSED(parallax_pull(job, step, &s, 1, &request), PARALLAX_INVALID, "variable");
  s = good;
  s.form = 9;
  PARALLAX_EXPECT_REFUSED(parallax_pull(job, step, &s, 1, &request), PARALLAX_INVALID, "form");
  s = good;
  s.ids = NULL;
  PARALLAX_EXPECT_REFUSED(parallax_pull(job, step, &s, 1, &request), PARALLAX_INVALID, "ids");
  s.ids = kBelow;
  PARALLAX_EXPECT_REFUSED(parallax_push(job, step, &s, 1, &request), PARALLAX_INVALID, "table");
  s.ids = kAbove;
  PARALLAX_EXPECT_REFUSED(parallax_push(job, step, &s, 1, &request), PARALLAX_INVALID, "table");
  s = good;
  s.row_count = kRowsMax + 1;
  PARALLAX_EXPECT_REFUSED(parallax_push(job, step, &s, 1, &request), PARALLAX_LIMIT, "rows_max");
  s = good;
  s.values = NULL;
  PARALLAX_EXPECT_REFUSED(parallax_pull(job, step, &s, 1, &request), PARALLAX_INVALID, "values");
  s.values = (char *)values + 1;
  PARALLAX_EXPECT_REFUSED(parallax_pull(job, step, &s, 1, &request), PARALLAX_INVALID, "values");
  narrow_ids_refused(job, step, good);
  s = good;
  s.as_dtype = 7;
  PARALLAX_EXPECT_REFUSED(parallax_pull(job, step, &s, 1, &request), PARALLAX_INVALID, "as_dtype");
  s.as_dtype = PARALLAX_AS(PARALLAX_I32); /* of a floating variable */
  PARALLAX_EXPECT_REFUSED(parallax_push(job, step, &s, 1, &request), PARALLAX_INVALID, "as_dtype");
  s = good;
  s.more = 1;
  PARALLAX_EXPECT_REFUSED(parallax_push(job, step, &s, 1, &request), PARALLAX_INVALID, "more is 1");
  parallax_slice_t both[] = {good, good}; /* the first is right, and nothing of it is taken */
  both[1].variable = 2;
  PARALLAX_EXPECT_REFUSED(parallax_push(job, step, both, 2, &request), PARALLAX_INVALID, "slice 1");
  both[1].size = sizeof both[1] - 8;
  PARALLAX_EXPECT_REFUSED(parallax_push(job, step, both, 2, &request), PARALLAX_INVALID,
                          "slices[1]");
  PARALLAX_EXPECT(request == NULL);
}

/* The sentence names the right one. */
static void wrong_verbs_refused(parallax_job_t *job, uint64_t step) {
  static const int64_t kIds[] = {0};
  float values[kRows * kColumns] = {0};
  parallax_request_t *request = NULL;
  parallax_slice_t s = {.size = sizeof s, .form = PARALLAX_FORM_ROWS, .ids = kIds};
  s.row_count = 1;
  s.values = values;
  PARALLAX_EXPECT_REFUSED(parallax_reduce(job, step, &s, 1, &request), PARALLAX_INVALID, "push");
  s.variable = 1;
  s.form = PARALLAX_FORM_DENSE;
  PARALLAX_EXPECT_REFUSED(parallax_push(job, step, &s, 1, &request), PARALLAX_INVALID, "reduce");
  PARALLAX_EXPECT_REFUSED(parallax_pull(job, step, &s, 1, &request), PARALLAX_INVALID, "framed");
  s.form = PARALLAX_FORM_ROWS; /* of a variable tagged DENSE */
  PARALLAX_EXPECT_REFUSED(parallax_reduce(job, step, &s, 1, &request), PARALLAX_INVALID, "framed");
  PARALLAX_EXPECT(request == NULL);
}

static void steps_refused(parallax_job_t *job, uint64_t step) {
  uint64_t next = 77;
  uint32_t id = 77;
  parallax_request_t *request = NULL;
  const parallax_variable_t late = variable("late");
  PARALLAX_EXPECT_REFUSED(parallax_commit(job), PARALLAX_STATE, "commit: step ");
  PARALLAX_EXPECT_REFUSED(parallax_register(job, &late, &id), PARALLAX_STATE, "register: step ");
  PARALLAX_EXPECT_REFUSED(parallax_step_begin(job, &next), PARALLAX_STATE, "step");
  PARALLAX_EXPECT_REFUSED(parallax_step_end(job, step + 1, NULL, &request), PARALLAX_STATE, "step");
  parallax_step_end_options_t o = {.size = sizeof o, .learning_rate = -1.0f};
  PARALLAX_EXPECT_REFUSED(parallax_step_end(job, step, &o, &request), PARALLAX_INVALID,
                          "learning_rate");
  o.learning_rate = NAN;
  PARALLAX_EXPECT_REFUSED(parallax_step_end(job, step, &o, &request), PARALLAX_INVALID,
                          "learning_rate");
  o.learning_rate = 0.0f;
  o.found_inf = 2;
  PARALLAX_EXPECT_REFUSED(parallax_step_end(job, step, &o, &request), PARALLAX_INVALID,
                          "found_inf");
  o.found_inf = 0;
  o.absent = 2;
  PARALLAX_EXPECT_REFUSED(parallax_step_end(job, step, &o, &request), PARALLAX_INVALID, "absent");
  o.absent = 0;
  o.clip_norm = -1.0f;
  PARALLAX_EXPECT_REFUSED(parallax_step_end(job, step, &o, &request), PARALLAX_INVALID,
                          "clip_norm");
  PARALLAX_EXPECT(next == 77 && id == 77 && request == NULL);
}

static void others_refused(parallax_job_t *job) {
  char byte = 0;
  size_t bytes = 0;
  parallax_request_t *request = NULL;
  parallax_job_info_t info = {.size = 0};
  PARALLAX_EXPECT_REFUSED(parallax_broadcast(job, &byte, 1, 1, &request), PARALLAX_INVALID, "root");
  PARALLAX_EXPECT_REFUSED(parallax_broadcast(job, NULL, 1, 0, &request), PARALLAX_INVALID,
                          "buffer");
  PARALLAX_EXPECT_REFUSED(parallax_barrier(job, NULL), PARALLAX_INVALID, "request");
  PARALLAX_EXPECT_REFUSED(parallax_report(job, 9, NULL, &bytes), PARALLAX_INVALID, "report");
  PARALLAX_EXPECT_REFUSED(parallax_report(job, PARALLAX_REPORT_PLAN, NULL, NULL), PARALLAX_INVALID,
                          "bytes");
  PARALLAX_EXPECT_REFUSED(parallax_query(job, &info), PARALLAX_INVALID, "size");
  PARALLAX_EXPECT_REFUSED(parallax_query(job, NULL), PARALLAX_INVALID, "info");
  PARALLAX_EXPECT_REFUSED(parallax_wait(NULL, 1, 0), PARALLAX_INVALID, "requests");
  PARALLAX_EXPECT_OK(parallax_wait(NULL, 0, 0));
  PARALLAX_EXPECT_REFUSED(parallax_stream_wait(NULL, 1, 0, NULL, 0), PARALLAX_INVALID, "requests");
  PARALLAX_EXPECT_OK(parallax_stream_wait(NULL, 0, 0, NULL, 0));
  PARALLAX_EXPECT_OK(parallax_request_release(NULL));
  PARALLAX_EXPECT_OK(parallax_close(NULL));
  PARALLAX_EXPECT_REFUSED(parallax_commit(NULL), PARALLAX_INVALID, "job");
  PARALLAX_EXPECT(request == NULL);
}

/* In a step, and for the wrong reasons too. */
static void rows_refused(parallax_job_t *job) {
  float values[2 * kColumns];
  parallax_request_t *request = NULL;
  struct {
    parallax_rows_t rows;
    char tail[16];
  } newer;
  memset(&newer, 0, sizeof newer);
  const parallax_rows_t good = {.size = sizeof good, .row_count = 2, .values = values};
  parallax_rows_t r = good;
  PARALLAX_EXPECT_REFUSED(parallax_read(job, NULL, &request), PARALLAX_INVALID, "read: rows");
  PARALLAX_EXPECT_REFUSED(parallax_write(job, NULL, &request), PARALLAX_INVALID, "write: rows");
  PARALLAX_EXPECT_REFUSED(parallax_read(NULL, &r, &request), PARALLAX_INVALID, "job");
  PARALLAX_EXPECT_REFUSED(parallax_read(job, &r, NULL), PARALLAX_INVALID, "request");
  r.size = 0;
  PARALLAX_EXPECT_REFUSED(parallax_read(job, &r, &request), PARALLAX_INVALID, "size");
  newer.rows = good;
  newer.rows.size = sizeof newer;
  newer.tail[9] = 1;
  PARALLAX_EXPECT_REFUSED(parallax_write(job, &newer.rows, &request), PARALLAX_UNSUPPORTED,
                          "newer");
  r = good;
  r.variable = 9;
  PARALLAX_EXPECT_REFUSED(parallax_read(job, &r, &request), PARALLAX_INVALID, "variable is 9");
  r.variable = 1;
  PARALLAX_EXPECT_REFUSED(parallax_read(job, &r, &request), PARALLAX_INVALID, "'framed'");
  r = good;
  r.first_row = kRows - 1;
  PARALLAX_EXPECT_REFUSED(parallax_write(job, &r, &request), PARALLAX_INVALID, "'table'");
  r = good;
  r.row_count = UINT64_MAX;
  PARALLAX_EXPECT_REFUSED(parallax_write(job, &r, &request), PARALLAX_INVALID, "'table'");
  r = good;
  r.state[1] = values;
  PARALLAX_EXPECT_REFUSED(parallax_write(job, &r, &request), PARALLAX_INVALID, "state[1]");
  PARALLAX_EXPECT_REFUSED(parallax_read(job, &good, &request), PARALLAX_STATE, "step 1");
  PARALLAX_EXPECT(request == NULL);
}

/* Requests not yet released are bounded, and releasing one makes room. */
static void requests_are_bounded(parallax_job_t *job) {
  static parallax_request_t *requests[PARALLAX_REQUESTS_MAX];
  parallax_request_t *one_more = NULL;
  parallax_step_info_t info = {.size = sizeof info};
  const int64_t *ids = NULL;
  const void *values = NULL;
  uint64_t row_count = 0;
  for (int i = 0; i < PARALLAX_REQUESTS_MAX; i++) {
    PARALLAX_EXPECT_OK(parallax_barrier(job, &requests[i]));
  }
  PARALLAX_EXPECT_REFUSED(parallax_barrier(job, &one_more), PARALLAX_LIMIT, "release");
  PARALLAX_EXPECT(one_more == NULL);
  PARALLAX_EXPECT_OK(parallax_wait(requests, PARALLAX_REQUESTS_MAX, PARALLAX_WAIT_DEFAULT));
  PARALLAX_EXPECT_REFUSED(parallax_request_step(requests[0], &info), PARALLAX_STATE, "step_end");
  PARALLAX_EXPECT_REFUSED(parallax_request_rows(requests[0], 0, &ids, &values, &row_count),
                          PARALLAX_STATE, "reduce");
  for (int i = 0; i < PARALLAX_REQUESTS_MAX; i++) {
    PARALLAX_EXPECT_OK(parallax_request_release(requests[i]));
  }
  PARALLAX_EXPECT_OK(parallax_barrier(job, &one_more));
  PARALLAX_EXPECT_OK(parallax_wait(&one_more, 1, PARALLAX_WAIT_DEFAULT));
  PARALLAX_EXPECT_OK(parallax_request_release(one_more));
}

/* After all that the step trains, refuses a second push, and what comes after its end. */
static void step_still_trains(parallax_job_t *job, uint64_t step) {
  static const int64_t kId[] = {7};
  float values[kColumns] = {1, 2};
  uint64_t next = 0;
  parallax_request_t *requests[3] = {NULL, NULL, NULL};
  parallax_slice_t s = {.size = sizeof s, .form = PARALLAX_FORM_ROWS, .ids = kId, .row_count = 1};
  s.values = values;
  PARALLAX_EXPECT_OK(parallax_push(job, step, &s, 1, &requests[0]));
  PARALLAX_EXPECT_REFUSED(parallax_push(job, step, &s, 1, &requests[1]), PARALLAX_INVALID, "table");
  const parallax_step_end_options_t o = {.size = sizeof o, .learning_rate = 2.0f};
  PARALLAX_EXPECT_OK(parallax_step_end(job, step, &o, &requests[1]));
  PARALLAX_EXPECT_REFUSED(parallax_push(job, step, &s, 1, &requests[2]), PARALLAX_STATE, "step");
  PARALLAX_EXPECT_REFUSED(parallax_pull(job, step, &s, 1, &requests[2]), PARALLAX_STATE, "step");
  PARALLAX_EXPECT(requests[2] == NULL);
  PARALLAX_EXPECT_OK(parallax_wait(requests, 2, PARALLAX_WAIT_DEFAULT));
  PARALLAX_EXPECT_OK(parallax_request_release(requests[0]));
  PARALLAX_EXPECT_OK(parallax_request_release(requests[1]));

  PARALLAX_EXPECT_OK(parallax_step_begin(job, &next));
  PARALLAX_EXPECT_OK(parallax_pull(job, next, &s, 1, &requests[0]));
  PARALLAX_EXPECT_OK(parallax_wait(requests, 1, PARALLAX_WAIT_DEFAULT));
  PARALLAX_EXPECT(values[0] == -2.0f && values[1] == -4.0f);
  PARALLAX_EXPECT_OK(parallax_request_release(requests[0]));
}

static void abort_ends_the_job(parallax_job_t *job) {
  uint64_t step = 0;
  parallax_request_t *request = NULL;
  PARALLAX_EXPECT_OK(parallax_abort(job, "the milk boiled over"));
  PARALLAX_EXPECT_REFUSED(parallax_barrier(job, &request), PARALLAX_ABORTED, "milk");
  PARALLAX_EXPECT_REFUSED(parallax_step_begin(job, &step), PARALLAX_ABORTED, "milk");
}

/* With manual_progress the caller's own loop completes a request. */
static void manual_progress(void) {
  const parallax_options_t options = {.size = sizeof options, .manual_progress = 1};
  parallax_job_t *job = NULL;
  parallax_request_t *request = NULL;
  int status = PARALLAX_PENDING;
  PARALLAX_EXPECT_OK(parallax_open(&options, &job));
  PARALLAX_EXPECT_OK(parallax_commit(job));
  PARALLAX_EXPECT_OK(parallax_barrier(job, &request));
  for (int i = 0; i < 1000 && status == PARALLAX_PENDING; i++) {
    PARALLAX_EXPECT_OK(parallax_progress(job));
    status = parallax_request_test(request);
  }
  PARALLAX_EXPECT(status == PARALLAX_OK);
  PARALLAX_EXPECT_OK(parallax_request_release(request));
  PARALLAX_EXPECT_OK(parallax_close(job));
}

/* A job that would reserve more than it may is refused at commit. */
static void memory_ceiling(void) {
  const parallax_options_t options = {.size = sizeof options, .memory_max_bytes = 1 << 20};
  parallax_job_t *job = NULL;
  uint32_t id = 0;
  parallax_variable_t v = variable("large");
  v.rows = 1 << 20;
  PARALLAX_EXPECT_OK(parallax_open(&options, &job));
  PARALLAX_EXPECT_OK(parallax_register(job, &v, &id));
  PARALLAX_EXPECT_REFUSED(parallax_commit(job), PARALLAX_LIMIT, "memory_max_bytes");
  parallax_close(job); /* what it answers after a failed commit is its own affair */
}

int main(void) {
  const parallax_options_t options = {.size = sizeof options};
  parallax_job_t *job = NULL;
  uint64_t step = 0;
  open_refuses();
  open_of_other_versions();
  manual_progress();
  memory_ceiling();
  PARALLAX_EXPECT_OK(parallax_open(&options, &job));
  if (job == NULL) return parallax_expect_end();
  register_table_and_framed(job);
  register_refuses(job);
  states_before_commit(job);
  PARALLAX_EXPECT_OK(parallax_commit(job));
  PARALLAX_EXPECT_OK(parallax_step_begin(job, &step));
  slices_refused(job, step);
  wrong_verbs_refused(job, step);
  steps_refused(job, step);
  others_refused(job);
  rows_refused(job);
  requests_are_bounded(job);
  step_still_trains(job, step);
  abort_ends_the_job(job);
  parallax_close(job);
  return parallax_expect_end();
}
