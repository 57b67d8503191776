/* SPDX-License-Identifier: Apache-2.0
 *
 * An optimizer step in C: a factorisation of ratings, user x item, trained by several ranks.
 *
 *   ./optimizer_step                            alone
 *   parallax run -n 4 -- ./optimizer_step       as four ranks of this machine
 *   mpirun -n 4 -x PARALLAX_RENDEZVOUS=env ./optimizer_step
 *
 * The part between the lines is what a framework would write once: parameters are registered with
 * how sparse their gradients are, fetch() brings the rows that a batch needs, and step() hands over
 * the gradients; mean_over_ranks() is for what is no gradient, such as the loss that is printed.
 * Where a parameter lies and how its gradient travels is the library's business. The rest is the
 * model. The exit status is 0 if the loss fell to less than half.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <parallax/parallax.h>

static void must(parallax_status_t status, const char* what) {
  if (status == PARALLAX_OK) return;
  fprintf(stderr, "%s: %s: %s\n", what, parallax_status_string(status), parallax_last_error());
  exit(1);
}

/* ---- The optimizer ------------------------------------------------------------------------ */

enum { kParametersMax = 8 };

typedef struct parameter {
  parallax_slice_t values;   /* where the model reads */
  parallax_slice_t gradient; /* where the model writes; of the rows that values holds */
  uint64_t row_elements;
} parameter;

typedef struct optimizer {
  parallax_job_t* job;
  uint64_t step;
  float learning_rate, clip_norm;
  uint32_t count;
  parameter parameters[kParametersMax];
} optimizer;

/* rows_max 0: a dense parameter; else an embedding of which a batch touches at most that many. */
static parameter* add_parameter(optimizer* o, const char* name, uint64_t rows,
                                uint64_t row_elements, uint64_t rows_max) {
  const uint64_t held = rows_max == 0 ? rows : rows_max;
  parallax_variable_t v = {.size = sizeof v, .name = name, .rows = rows};
  v.row_elements = row_elements;
  v.tag = rows_max == 0 ? PARALLAX_DENSE : PARALLAX_SPARSE;
  v.rows_max = rows_max;
  v.reduction = PARALLAX_MEAN_WORLD;
  v.rule = PARALLAX_RULE_ADAGRAD;
  v.initial_accumulator_value = 0.01f;
  v.init = PARALLAX_INIT_UNIFORM;
  v.init_low = -0.5f;
  v.init_high = 0.5f;
  v.init_seed = o->count;
  parameter* p = &o->parameters[o->count++];
  p->row_elements = row_elements;
  p->values.size = sizeof p->values;
  must(parallax_register(o->job, &v, &p->values.variable), name);
  p->values.form = rows_max == 0 ? PARALLAX_FORM_DENSE : PARALLAX_FORM_ROWS;
  p->gradient = p->values;
  p->values.values = calloc(held * row_elements, sizeof(float));
  p->gradient.values = calloc(held * row_elements, sizeof(float));
  if (p->values.values == NULL || p->gradient.values == NULL) abort();
  return p;
}

/* Ids may repeat; gradients of equal ids are summed. They must live until step(). */
static void use_rows(parameter* p, const int64_t* ids, uint64_t row_count) {
  p->values.ids = p->gradient.ids = ids;
  p->values.row_count = p->gradient.row_count = row_count;
}

/* Values as of the last step, and gradients at zero. All parameters in one exchange. */
static void fetch(optimizer* o) {
  parallax_slice_t slices[kParametersMax];
  parallax_request_t* pull = NULL;
  must(parallax_step_begin(o->job, &o->step), "step_begin");
  for (uint32_t i = 0; i < o->count; ++i) {
    parameter* p = &o->parameters[i];
    slices[i] = p->values;
    const uint64_t rows = p->values.form == PARALLAX_FORM_ROWS ? p->values.row_count : 1;
    memset(p->gradient.values, 0, rows * p->row_elements * sizeof(float));
  }
  must(parallax_pull(o->job, o->step, slices, o->count, &pull), "pull");
  must(parallax_wait(&pull, 1, PARALLAX_WAIT_DEFAULT), "pull");
  must(parallax_request_release(pull), "release");
}

/* Every rank's gradients become one update, everywhere alike. */
static parallax_step_info_t step(optimizer* o) {
  parallax_slice_t slices[kParametersMax];
  parallax_request_t* requests[2] = {NULL, NULL};
  parallax_step_info_t info = {.size = sizeof info};
  const parallax_step_end_options_t end = {
      .size = sizeof end, .learning_rate = o->learning_rate, .clip_norm = o->clip_norm};
  for (uint32_t i = 0; i < o->count; ++i) slices[i] = o->parameters[i].gradient;
  must(parallax_push(o->job, o->step, slices, o->count, &requests[0]), "push");
  must(parallax_step_end(o->job, o->step, &end, &requests[1]), "step_end");
  must(parallax_wait(requests, 2, PARALLAX_WAIT_DEFAULT), "step");
  must(parallax_request_step(requests[1], &info), "step");
  for (int i = 0; i < 2; ++i) must(parallax_request_release(requests[i]), "release");
  return info;
}

/* A collective beside the steps: no variable is needed. */
static float mean_over_ranks(optimizer* o, float number) {
  parallax_request_t* request = NULL;
  parallax_collective_t all = {.size = sizeof all, .kind = PARALLAX_ALLREDUCE};
  all.dtype = PARALLAX_F32;
  all.op = PARALLAX_OP_MEAN;
  all.send = all.recv = &number; /* in place */
  all.count = 1;
  must(parallax_collective(o->job, &all, &request), "collective");
  must(parallax_wait(&request, 1, PARALLAX_WAIT_DEFAULT), "collective");
  must(parallax_request_release(request), "release");
  return number;
}

static void free_optimizer(optimizer* o) {
  for (uint32_t i = 0; i < o->count; ++i) {
    free(o->parameters[i].values.values);
    free(o->parameters[i].gradient.values);
  }
  must(parallax_close(o->job), "close");
}

/* ---- The model ---------------------------------------------------------------------------- */

enum { kUsers = 400, kItems = 100, kFactors = 8, kBatch = 64, kSteps = 600, kReport = 100 };

static uint32_t draw(uint32_t* state, uint32_t below) {
  *state = *state * 1664525u + 1013904223u;
  return (uint32_t)((uint64_t)(*state >> 8) * below >> 24);
}

/* Users and items come in four kinds, and like their own. */
static float rating(int64_t user, int64_t item) { return user % 4 == item % 4 ? 4.0f : 1.0f; }

/* One batch: fetches its rows, adds up its gradients, and gives its mean squared error. */
static float train_batch(optimizer* o, parameter* users, parameter* items, parameter* bias,
                         uint32_t* state) {
  int64_t user[kBatch], item[kBatch];
  float loss = 0;
  for (int i = 0; i < kBatch; ++i) {
    user[i] = draw(state, kUsers);
    item[i] = draw(state, kItems);
  }
  use_rows(users, user, kBatch);
  use_rows(items, item, kBatch);
  fetch(o);
  float *b = bias->values.values, *db = bias->gradient.values;
  for (int i = 0; i < kBatch; ++i) {
    const float* u = (float*)users->values.values + i * kFactors;
    const float* v = (float*)items->values.values + i * kFactors;
    float* du = (float*)users->gradient.values + i * kFactors;
    float* dv = (float*)items->gradient.values + i * kFactors;
    float guess = b[0];
    for (int k = 0; k < kFactors; ++k) guess += u[k] * v[k];
    const float miss = guess - rating(user[i], item[i]);
    for (int k = 0; k < kFactors; ++k) {
      du[k] = miss * v[k];
      dv[k] = miss * u[k];
    }
    db[0] += miss / kBatch;
    loss += miss * miss / kBatch;
  }
  step(o); /* while the ids still live */
  return loss;
}

int main(void) {
  /* All zero: the place among the ranks comes from whoever started them. */
  const parallax_options_t options = {.size = sizeof options};
  optimizer o = {.learning_rate = 0.3f, .clip_norm = 10.0f};
  must(parallax_open(&options, &o.job), "open");
  parameter* users = add_parameter(&o, "users", kUsers, kFactors, kBatch);
  parameter* items = add_parameter(&o, "items", kItems, kFactors, kBatch);
  parameter* bias = add_parameter(&o, "bias", 1, 1, 0);
  must(parallax_commit(o.job), "commit");

  parallax_job_info_t info = {.size = sizeof info};
  must(parallax_query(o.job, &info), "query");
  uint32_t state = 1 + info.rank; /* every rank has ratings of its own */
  float first = 0, mean = 0;
  for (int i = 1; i <= kSteps; ++i) {
    mean += train_batch(&o, users, items, bias, &state) / kReport;
    if (i % kReport != 0) continue;
    mean = mean_over_ranks(&o, mean);
    if (info.rank == 0) {
      printf("step %d: mean squared error %.3f (ranks: %u)\n", i, mean, info.world);
    }
    if (first == 0) first = mean;
    if (i < kSteps) mean = 0;
  }
  free_optimizer(&o);
  return isfinite(mean) && mean < first / 2 ? 0 : 1;
}
