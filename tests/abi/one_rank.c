/* SPDX-License-Identifier: Apache-2.0
 *
 * One rank without a network: the whole life cycle from C, every value checked against a
 * computation by hand.
 */
#include <math.h>
#include <stdlib.h>

#include "expect.h"

enum { kTableRows = 5, kTableColumns = 2, kTableRowsMax = 4, kDense = 6 };

static const uint64_t kSeed = 42;
static const float kLow = -0.5f;
static const float kHigh = 0.25f;

/* The ids that parallax_register gave. */
typedef struct ids {
  uint32_t dense;   /* DENSE, SGD, 2 x 3, all 1 */
  uint32_t table;   /* SPARSE, Adagrad, 5 x 2, all 2 */
  uint32_t seeded;  /* AUTO with ids, SGD, 5 x 2, uniform */
  uint32_t framed;  /* DENSE, framework-held, 2 x 3 */
  uint32_t gathers; /* SPARSE, framework-held, 5 x 2 */
} ids_t;

static parallax_slice_t dense_slice(uint32_t variable, float *values) {
  parallax_slice_t slice = {.size = sizeof slice, .variable = variable, .values = values};
  slice.form = PARALLAX_FORM_DENSE;
  return slice;
}

static parallax_slice_t row_slice(uint32_t variable, const int64_t *ids, uint64_t row_count,
                                  float *values) {
  parallax_slice_t slice = {.size = sizeof slice, .variable = variable, .values = values};
  slice.form = PARALLAX_FORM_ROWS;
  slice.ids = ids;
  slice.row_count = row_count;
  return slice;
}

/* Waits for one request and releases it; its status. */
static int finish(parallax_request_t *request) {
  const int status = parallax_wait(&request, 1, PARALLAX_WAIT_DEFAULT);
  if (status != PARALLAX_OK) fprintf(stderr, "request: %s\n", parallax_request_error(request));
  PARALLAX_EXPECT_OK(parallax_request_release(request));
  return status;
}

static void pull(parallax_job_t *job, uint64_t step, const parallax_slice_t *slices, size_t count) {
  parallax_request_t *request = NULL;
  PARALLAX_EXPECT_OK(parallax_pull(job, step, slices, count, &request));
  PARALLAX_EXPECT_OK(finish(request));
}

static void push(parallax_job_t *job, uint64_t step, const parallax_slice_t *slices, size_t count) {
  parallax_request_t *request = NULL;
  PARALLAX_EXPECT_OK(parallax_push(job, step, slices, count, &request));
  PARALLAX_EXPECT_OK(finish(request));
}

static parallax_step_info_t end_step(parallax_job_t *job, uint64_t step,
                                     const parallax_step_end_options_t *options) {
  parallax_step_info_t info = {.size = sizeof info};
  parallax_request_t *request = NULL;
  PARALLAX_EXPECT_OK(parallax_step_end(job, step, options, &request));
  PARALLAX_EXPECT_OK(parallax_wait(&request, 1, PARALLAX_WAIT_DEFAULT));
  PARALLAX_EXPECT_OK(parallax_request_step(request, &info));
  PARALLAX_EXPECT_OK(parallax_request_release(request));
  PARALLAX_EXPECT(info.step == step);
  return info;
}

static uint64_t begin_step(parallax_job_t *job, uint64_t wanted) {
  uint64_t step = 0;
  PARALLAX_EXPECT_OK(parallax_step_begin(job, &step));
  PARALLAX_EXPECT(step == wanted);
  return step;
}

static uint64_t mix(uint64_t z) {
  z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
  z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
  return z ^ z >> 31;
}

static float seeded_value(uint64_t row, uint64_t column) {
  const uint64_t bits = mix(mix(kSeed + UINT64_C(0x9e3779b97f4a7c15) * (row + 1)) + column);
  const float unit = (float)(bits >> 40) * 0x1p-24f;
  return kLow + (kHigh - kLow) * unit;
}

static void register_all(parallax_job_t *job, ids_t *ids) {
  parallax_variable_t dense = {.size = sizeof dense, .name = "dense", .rows = 2, .row_elements = 3};
  dense.tag = PARALLAX_DENSE;
  dense.rule = PARALLAX_RULE_SGD;
  dense.init_low = 1.0f;
  PARALLAX_EXPECT_OK(parallax_register(job, &dense, &ids->dense));

  parallax_variable_t table = {.size = sizeof table, .name = "table", .rows = kTableRows};
  table.row_elements = kTableColumns;
  table.tag = PARALLAX_SPARSE;
  table.rule = PARALLAX_RULE_ADAGRAD;
  table.rows_max = kTableRowsMax;
  table.init_low = 2.0f;
  PARALLAX_EXPECT_OK(parallax_register(job, &table, &ids->table));

  parallax_variable_t seeded = table;
  seeded.name = "seeded";
  seeded.tag = PARALLAX_AUTO;
  seeded.rule = PARALLAX_RULE_SGD;
  seeded.reduction = PARALLAX_MEAN_WORLD;
  seeded.init = PARALLAX_INIT_UNIFORM;
  seeded.init_low = kLow;
  seeded.init_high = kHigh;
  seeded.init_seed = kSeed;
  PARALLAX_EXPECT_OK(parallax_register(job, &seeded, &ids->seeded));

  parallax_variable_t framed = {.size = sizeof framed, .name = "framed", .rows = 2};
  framed.row_elements = 3;
  framed.tag = PARALLAX_DENSE;
  PARALLAX_EXPECT_OK(parallax_register(job, &framed, &ids->framed));

  parallax_variable_t gathers = {.size = sizeof gathers, .name = "gathers", .rows = kTableRows};
  gathers.row_elements = kTableColumns;
  gathers.tag = PARALLAX_SPARSE;
  gathers.rows_max = kTableRowsMax;
  PARALLAX_EXPECT_OK(parallax_register(job, &gathers, &ids->gathers));
  PARALLAX_EXPECT(ids->dense == 0 && ids->table == 1 && ids->gathers == 4);
}

/* Step 1: initial values as the header's formulas give them; a step without a push commits. */
static void check_initial_values(parallax_job_t *job, const ids_t *ids) {
  static const int64_t kSome[] = {4, 0, 3, 4};
  float dense[kDense];
  float table[4 * kTableColumns];
  float seeded[4 * kTableColumns];
  const uint64_t step = begin_step(job, 1);
  const parallax_slice_t slices[] = {
      dense_slice(ids->dense, dense),
      row_slice(ids->table, kSome, 4, table),
      row_slice(ids->seeded, kSome, 4, seeded),
  };
  pull(job, step, slices, 3);
  for (int i = 0; i < kDense; i++) PARALLAX_EXPECT(dense[i] == 1.0f);
  for (int i = 0; i < 4; i++) {
    for (int c = 0; c < kTableColumns; c++) {
      PARALLAX_EXPECT(table[i * kTableColumns + c] == 2.0f);
      PARALLAX_EXPECT(seeded[i * kTableColumns + c] ==
                      seeded_value((uint64_t)kSome[i], (uint64_t)c));
    }
  }
  const parallax_step_info_t info = end_step(job, step, NULL);
  PARALLAX_EXPECT(info.committed == 1 && info.contributors == 1);
  PARALLAX_EXPECT(info.clip_scale == 1.0 && info.gradient_norm == 0.0);
}

/* Step 2: SGD on the dense one, Adagrad on rows 4 and 1, where row 4 comes twice and is summed. */
static void train_one_step(parallax_job_t *job, const ids_t *ids) {
  static const int64_t kRows[] = {4, 1, 4};
  float gradient[kDense] = {1, -2, 3, -4, 5, 0};
  float rows[] = {1, 2, -3, 0, 2, 2};
  const uint64_t step = begin_step(job, 2);
  const parallax_slice_t slices[] = {
      dense_slice(ids->dense, gradient),
      row_slice(ids->table, kRows, 3, rows),
      row_slice(ids->seeded, NULL, 0, NULL),
  };
  push(job, step, slices, 3);
  const parallax_step_end_options_t options = {.size = sizeof options, .learning_rate = 0.5f};
  const parallax_step_info_t info = end_step(job, step, &options);
  PARALLAX_EXPECT(info.committed == 1 && info.contributors == 1);
}

/* Step 3 sees step 2: dense 1 - 0.5 g; rows of one gradient g: s = g g, 2 - 0.5 g / (|g| + eps).
 * Then it pushes what found_inf discards, and is absent. */
static void check_and_discard(parallax_job_t *job, const ids_t *ids) {
  static const float kDenseWanted[kDense] = {0.5f, 2.0f, -0.5f, 3.0f, -1.5f, 1.0f};
  /* Row 1: g = (-3, 0); row 4: g = (3, 4); row 0: untouched. */
  static const int64_t kRows[] = {1, 4, 0};
  static const float kRowsWanted[] = {2.5f, 2.0f, 1.5f, 1.5f, 2.0f, 2.0f};
  float dense[kDense];
  float rows[3 * kTableColumns];
  const uint64_t step = begin_step(job, 3);
  const parallax_slice_t slices[] = {
      dense_slice(ids->dense, dense),
      row_slice(ids->table, kRows, 3, rows),
  };
  pull(job, step, slices, 2);
  for (int i = 0; i < kDense; i++) PARALLAX_EXPECT(dense[i] == kDenseWanted[i]);
  for (int i = 0; i < 3 * kTableColumns; i++) PARALLAX_EXPECT(rows[i] == kRowsWanted[i]);

  push(job, step, slices, 2);
  const parallax_step_end_options_t options = {
      .size = sizeof options, .learning_rate = 0.5f, .found_inf = 1};
  parallax_step_end_options_t absent = options;
  absent.absent = 1; /* contradicts the push */
  parallax_request_t *request = NULL;
  PARALLAX_EXPECT(parallax_step_end(job, step, &absent, &request) == PARALLAX_INVALID);
  const parallax_step_info_t info = end_step(job, step, &options);
  PARALLAX_EXPECT(info.committed == 0 && info.contributors == 1);
}

/* Step 4: nothing of step 3 is there. A gradient of norm 5 (3 in the dense one, 4 in a row) is
 * clipped to 2.5. */
static void clip_one_step(parallax_job_t *job, const ids_t *ids) {
  static const int64_t kRow[] = {2};
  float dense[kDense];
  float gradient[kDense] = {3, 0, 0, 0, 0, 0};
  float row[] = {0, -4};
  const uint64_t step = begin_step(job, 4);
  const parallax_slice_t read = dense_slice(ids->dense, dense);
  pull(job, step, &read, 1);
  PARALLAX_EXPECT(dense[0] == 0.5f && dense[4] == -1.5f);

  const parallax_slice_t slices[] = {
      dense_slice(ids->dense, gradient),
      row_slice(ids->seeded, kRow, 1, row),
  };
  push(job, step, slices, 2);
  const parallax_step_end_options_t options = {
      .size = sizeof options, .learning_rate = 0.25f, .clip_norm = 2.5f};
  const parallax_step_info_t info = end_step(job, step, &options);
  PARALLAX_EXPECT(info.committed == 1);
  PARALLAX_EXPECT(info.gradient_norm == 5.0);
  PARALLAX_EXPECT(info.clip_scale == 2.5 / (5.0 + 1e-6));
}

/* Step 5 sees the clipped update. The adagrad state of row 4 is (9, 16): its second gradient (4, 0)
 * makes s = 25 and moves the value by 0.5 * 4 / 5. */
static void check_clip_and_state(parallax_job_t *job, const ids_t *ids) {
  static const int64_t kTwo[] = {2};
  static const int64_t kFour[] = {4};
  const float scale = (float)(2.5 / (5.0 + 1e-6));
  float dense[kDense];
  float row[kTableColumns];
  float gradient[] = {4, 0};
  uint64_t step = begin_step(job, 5);
  const parallax_slice_t slices[] = {
      dense_slice(ids->dense, dense),
      row_slice(ids->seeded, kTwo, 1, row),
  };
  pull(job, step, slices, 2);
  const float clipped = 3.0f * scale;
  PARALLAX_EXPECT(dense[0] == 0.5f - 0.25f * clipped);
  PARALLAX_EXPECT(dense[1] == 2.0f);
  const float clipped_row = -4.0f * scale;
  PARALLAX_EXPECT(row[0] == seeded_value(2, 0));
  PARALLAX_EXPECT(row[1] == seeded_value(2, 1) - 0.25f * clipped_row);

  const parallax_slice_t pushed = row_slice(ids->table, kFour, 1, gradient);
  push(job, step, &pushed, 1);
  const parallax_step_end_options_t options = {.size = sizeof options, .learning_rate = 0.5f};
  end_step(job, step, &options);

  step = begin_step(job, 6);
  const parallax_slice_t read = row_slice(ids->table, kFour, 1, row);
  pull(job, step, &read, 1);
  PARALLAX_EXPECT(row[0] == 1.5f - 2.0f / (5.0f + 1e-10f) && row[1] == 1.5f);
  end_step(job, step, NULL);
}

/* Step 7: what the framework holds comes back as the sum over one rank: itself, rows merged. */
static void reduce_framed(parallax_job_t *job, const ids_t *ids) {
  static const int64_t kRows[] = {3, 0, 3};
  float gradient[kDense] = {1, 2, 3, 4, 5, 6};
  float rows[] = {1, 2, 3, 4, 5, 6};
  const int64_t *union_ids = NULL;
  const void *union_values = NULL;
  uint64_t union_count = 0;
  parallax_request_t *request = NULL;
  const uint64_t step = begin_step(job, 7);
  const parallax_slice_t slices[] = {
      dense_slice(ids->framed, gradient),
      row_slice(ids->gathers, kRows, 3, rows),
  };
  PARALLAX_EXPECT_OK(parallax_reduce(job, step, slices, 2, &request));
  PARALLAX_EXPECT_OK(parallax_wait(&request, 1, PARALLAX_WAIT_DEFAULT));
  for (int i = 0; i < kDense; i++) PARALLAX_EXPECT(gradient[i] == (float)(i + 1));
  PARALLAX_EXPECT_OK(parallax_request_rows(request, 1, &union_ids, &union_values, &union_count));
  PARALLAX_EXPECT(union_count == 2);
  if (union_count == 2) {
    const float *values = union_values;
    PARALLAX_EXPECT(union_ids[0] == 0 && union_ids[1] == 3);
    PARALLAX_EXPECT(values[0] == 3.0f && values[1] == 4.0f);
    PARALLAX_EXPECT(values[2] == 6.0f && values[3] == 8.0f);
  }
  PARALLAX_EXPECT_OK(parallax_request_release(request));
  end_step(job, step, NULL);
}

/* Every kind, alone: what is given comes back. */
static void on_buffers(parallax_job_t *job) {
  static const double given[3] = {1.5, -2, 3};
  const uint64_t counts[1] = {3};
  for (uint32_t kind = PARALLAX_ALLREDUCE; kind <= PARALLAX_GATHER; ++kind) {
    double got[3] = {0};
    parallax_request_t *request = NULL;
    parallax_collective_t c = {.size = sizeof c, .kind = kind, .dtype = PARALLAX_F64};
    c.send = given;
    c.recv = got;
    c.send_counts = c.recv_counts = counts;
    c.count = 3;
    c.tag = kind % 2;
    PARALLAX_EXPECT_OK(parallax_collective(job, &c, &request));
    PARALLAX_EXPECT_OK(parallax_wait(&request, 1, 10000));
    PARALLAX_EXPECT(memcmp(given, got, sizeof got) == 0);
    PARALLAX_EXPECT_OK(parallax_request_release(request));
  }
}

static void collectives(parallax_job_t *job) {
  on_buffers(job);
  char text[] = "unchanged";
  parallax_request_t *requests[2] = {NULL, NULL};
  PARALLAX_EXPECT_OK(parallax_barrier(job, &requests[0]));
  PARALLAX_EXPECT_OK(parallax_broadcast(job, text, sizeof text, 0, &requests[1]));
  /* Without slices on a device a stream has nothing to wait for once they are complete. */
  PARALLAX_EXPECT_OK(parallax_stream_wait(requests, 2, 0, NULL, 10000));
  PARALLAX_EXPECT(parallax_request_test(requests[1]) == PARALLAX_OK);
  PARALLAX_EXPECT_OK(parallax_wait(requests, 2, 10000));
  PARALLAX_EXPECT(parallax_request_test(requests[0]) == PARALLAX_OK);
  PARALLAX_EXPECT(strcmp(parallax_request_error(requests[1]), "") == 0);
  PARALLAX_EXPECT(strcmp(text, "unchanged") == 0);
  PARALLAX_EXPECT_OK(parallax_request_cancel(requests[0])); /* complete: left alone */
  PARALLAX_EXPECT_OK(parallax_request_release(requests[0]));
  PARALLAX_EXPECT_OK(parallax_request_release(requests[1]));
}

/* A report is one JSON object that names what it is about; asking with no room tells the size. */
static void check_report(parallax_job_t *job, uint32_t report, const char *word) {
  size_t bytes = 0;
  PARALLAX_EXPECT_REFUSED(parallax_report(job, report, NULL, &bytes), PARALLAX_LIMIT, "");
  PARALLAX_EXPECT(bytes > 2);
  bytes += 4096; /* counters may grow by digits between the calls */
  char *text = malloc(bytes);
  if (text == NULL) return;
  PARALLAX_EXPECT_OK(parallax_report(job, report, text, &bytes));
  PARALLAX_EXPECT(bytes == strlen(text) + 1);
  PARALLAX_EXPECT(text[0] == '{' && strrchr(text, '}') != NULL);
  PARALLAX_EXPECT(strstr(text, word) != NULL);
  free(text);
}

static void check_query(parallax_job_t *job, uint64_t step) {
  parallax_job_info_t info = {.size = sizeof info};
  PARALLAX_EXPECT_OK(parallax_query(job, &info));
  PARALLAX_EXPECT(info.rank == 0 && info.world == 1 && info.host == 0 && info.hosts == 1);
  PARALLAX_EXPECT(info.local_rank == 0 && info.local_world == 1 && info.variables == 5);
  PARALLAX_EXPECT(info.committed == (step > 0));
  PARALLAX_EXPECT(info.step == step && info.wait_fd >= 0);
  PARALLAX_EXPECT(info.late_phase == PARALLAX_PHASE_NONE && info.late_steps == 0);
}

/* Runs the whole cycle as one job; a second job of the process stays out of its way. */
/* Rows with their state out and in again, and read by a pull between steps. */
static void rows_out_and_in(parallax_job_t *job, const ids_t *ids) {
  static const int64_t kSome[] = {1, -1};
  float values[2 * kTableColumns], sums[2 * kTableColumns], pulled[2 * kTableColumns];
  uint64_t updates = 77;
  parallax_request_t *request = NULL;
  parallax_rows_t rows = {.size = sizeof rows, .variable = ids->table, .first_row = 1};
  rows.row_count = 2;
  rows.values = values;
  rows.state[0] = sums;
  rows.updates = &updates;
  PARALLAX_EXPECT_OK(parallax_read(job, &rows, &request));
  PARALLAX_EXPECT_OK(finish(request));
  PARALLAX_EXPECT(updates > 0 && updates < 77);
  values[0] = 99.0f;
  sums[3] = 0.5f;
  updates = 5;
  PARALLAX_EXPECT_OK(parallax_write(job, &rows, &request));
  PARALLAX_EXPECT_OK(finish(request));
  values[0] = sums[3] = 0.0f;
  updates = 0;
  PARALLAX_EXPECT_OK(parallax_read(job, &rows, &request));
  PARALLAX_EXPECT_OK(finish(request));
  PARALLAX_EXPECT(values[0] == 99.0f && sums[3] == 0.5f && updates == 5);
  const parallax_slice_t slice = row_slice(ids->table, kSome, 2, pulled);
  pull(job, 0, &slice, 1);
  PARALLAX_EXPECT(pulled[0] == 99.0f && pulled[1] == values[1]);
  PARALLAX_EXPECT(pulled[2] == 0.0f && pulled[3] == 0.0f);
}

static void run(const parallax_options_t *options) {
  ids_t ids = {0};
  parallax_job_t *job = NULL;
  parallax_job_t *other = NULL;
  PARALLAX_EXPECT_OK(parallax_open(options, &job));
  if (job == NULL) return;
  PARALLAX_EXPECT_OK(parallax_open(options, &other));
  register_all(job, &ids);
  check_query(job, 0);
  PARALLAX_EXPECT_OK(parallax_commit(job));
  check_initial_values(job, &ids);
  train_one_step(job, &ids);
  check_and_discard(job, &ids);
  clip_one_step(job, &ids);
  check_clip_and_state(job, &ids);
  reduce_framed(job, &ids);
  collectives(job);
  check_query(job, 7);
  rows_out_and_in(job, &ids);
  check_report(job, PARALLAX_REPORT_PLAN, "\"table\"");
  check_report(job, PARALLAX_REPORT_STATS, "bytes");
  check_report(job, PARALLAX_REPORT_TOPOLOGY, "host");
  PARALLAX_EXPECT_OK(parallax_close(other));
  PARALLAX_EXPECT_OK(parallax_close(job));
}

int main(void) {
  static const uint32_t kPlans[] = {PARALLAX_PLAN_AUTO, PARALLAX_PLAN_HYBRID, PARALLAX_PLAN_PS,
                                    PARALLAX_PLAN_AR};
  for (size_t i = 0; i < sizeof kPlans / sizeof kPlans[0]; i++) {
    for (uint32_t deterministic = 0; deterministic < 2; deterministic++) {
      parallax_options_t options = {.size = sizeof options, .plan_mode = kPlans[i]};
      options.deterministic = deterministic;
      options.plan_after_steps = 3; /* the plan settles within the steps above */
      run(&options);
      options.manual_progress = 1; /* a wait drives progress itself */
      run(&options);
    }
  }
  return parallax_expect_end();
}
