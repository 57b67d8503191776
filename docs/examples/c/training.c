/* SPDX-License-Identifier: Apache-2.0
 *
 * The training of ../model.h in C, by several ranks: the library holds the variables.
 *
 *   ./training [FILE]                            alone
 *   parallax run -n 2 -- ./training [FILE]       as two ranks of this machine
 *
 * Each rank takes its part of every batch, and what they learn is what one would. FILE.RANK gets
 * the losses of that part, and the values at the end. */
#include <parallax/parallax.h>

#include "../model.h"

static model m;
static int64_t words[kBatch * kBag];

/* ---- libparallax -------------------------------------------------------------------------- */

static parallax_job_t* job;
static parallax_slice_t values[kVariables], gradients[kVariables]; /* where m has them */

static void must(parallax_status_t status) {
  if (status == PARALLAX_OK) return;
  fprintf(stderr, "%s\n", parallax_last_error());
  exit(1);
}

static void finish(parallax_status_t posted, parallax_request_t** request) {
  must(posted);
  must(parallax_wait(request, 1, PARALLAX_WAIT_DEFAULT));
  must(parallax_request_release(*request));
}

/* Joins the job that the launcher says, with all variables. */
static void start(void) {
  const parallax_options_t options = {.size = sizeof options};
  must(parallax_open(&options, &job));
  for (int i = 0; i < kVariables; ++i) {
    parallax_variable_t v = {.size = sizeof v, .name = kVariable[i].name, .init_seed = (uint64_t)i};
    v.rows = kVariable[i].rows;
    v.row_elements = kVariable[i].row_elements;
    v.rows_max = kVariable[i].rows_max;
    v.rule = PARALLAX_RULE_SGD;
    v.init = PARALLAX_INIT_UNIFORM;
    v.init_low = -kInitial;
    v.init_high = kInitial;
    values[i] = (parallax_slice_t){.size = sizeof *values, .values = m.values[i]};
    must(parallax_register(job, &v, &values[i].variable));
    if (i == kEmbedding) values[i].form = PARALLAX_FORM_ROWS, values[i].ids = words;
    gradients[i] = values[i];
    gradients[i].values = m.gradients[i];
  }
  must(parallax_commit(job));
}

/* ---- The training ------------------------------------------------------------------------- */

int main(int argc, char** argv) {
  float wanted[kBatch], losses[kSteps];
  parallax_job_info_t info = {.size = sizeof info};
  parallax_request_t* request;
  uint64_t step;
  start();
  must(parallax_query(job, &info));
  const int samples = kBatch / (int)info.world, first = (int)info.rank * samples;
  values[kEmbedding].row_count = gradients[kEmbedding].row_count = (uint64_t)(samples * kBag);
  for (int i = 0; i < kSteps; ++i) {
    const parallax_step_end_options_t end = {.size = sizeof end, .learning_rate = kRate};
    for (int k = 0; k < samples; ++k) wanted[k] = sample_of(i, first + k, words + k * kBag);
    must(parallax_step_begin(job, &step));
    finish(parallax_pull(job, step, values, kVariables, &request), &request);
    losses[i] = learn(&m, wanted, samples);
    finish(parallax_push(job, step, gradients, kVariables, &request), &request);
    finish(parallax_step_end(job, step, &end, &request), &request);
  }
  printf("rank %u of %u: loss of its part %g, then %g\n", info.rank, info.world, (double)losses[0],
         (double)losses[kSteps - 1]);

  for (int i = 0; i < kWords; ++i) words[i] = i;
  values[kEmbedding].row_count = kWords;
  finish(parallax_pull(job, 0, values, kVariables, &request), &request); /* between steps */
  must(parallax_close(job));
  save(argc > 1 ? argv[1] : NULL, (int)info.rank, losses, m.values);
  return losses[kSteps - 1] < losses[0] ? 0 : 1;
}
