/* SPDX-License-Identifier: Apache-2.0
 *
 * One rank as a launcher starts it: meets the others, trains two small variables for some steps and
 * checks every value against a computation by hand. Options come in pairs, "--name value":
 *
 *   --rendezvous R        default env; "": none --secret-file F
 *   --rank R --world W    default: none given   --host H
 *   --id-file F           meets by a unique id: rank 0 makes it and writes it there, the others
 *                         wait for the file
 *   --lease-ms N --timeout-ms N --steps N (default 5) --pace-ms N (a pause in each step)
 *   --topology 1          asks for the topology report
 *
 * Prints "ok rank R of W on H hosts" and ends with 0; or "status S: sentence" and 10 - S.
 */
#include <parallax/parallax.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { kExitWrong = 1, kExitUsage = 2, kExitStatusBase = 10, kPollMicroseconds = 10000 };
enum { kRows = 100000, kColumns = 4, kShared = 99999, kDenseRows = 3, kDense = 12 };

static const float kLearningRate = 0.5f;

#define PARALLAX_MUST(call)                 \
  do {                                      \
    parallax_status_t status_ = (call);     \
    if (status_ != PARALLAX_OK) {           \
      fail(status_, parallax_last_error()); \
    }                                       \
  } while (0)

static void fail(parallax_status_t status, const char* sentence) {
  printf("status %d: %s\n", (int)status, sentence);
  fflush(stdout);
  _exit(kExitStatusBase - (int)status);
}

static const char* text(int count, char** arguments, const char* name, const char* otherwise) {
  for (int i = 1; i + 1 < count; i += 2) {
    if (strcmp(arguments[i], name) == 0) return arguments[i + 1];
  }
  return otherwise;
}

static uint32_t number(int count, char** arguments, const char* name, const char* otherwise) {
  return (uint32_t)strtoul(text(count, arguments, name, otherwise), NULL, 10);
}

/* Rank 0 makes the id and renames it into place whole; the others wait for it. */
static void share_id(const char* path, uint32_t rank, parallax_unique_id_t* id) {
  if (rank == 0) {
    char whole[4096];
    snprintf(whole, sizeof whole, "%s.part", path);
    PARALLAX_MUST(parallax_unique_id(id));
    FILE* file = fopen(whole, "wb");
    if (file == NULL || fwrite(id, sizeof *id, 1, file) != 1 || fclose(file) != 0 ||
        rename(whole, path) != 0) {
      perror(path);
      exit(kExitUsage);
    }
    return;
  }
  FILE* file = NULL;
  while ((file = fopen(path, "rb")) == NULL) usleep(kPollMicroseconds);
  if (fread(id, sizeof *id, 1, file) != 1) exit(kExitUsage);
  fclose(file);
}

static void finish(parallax_request_t* request) {
  PARALLAX_MUST(parallax_wait(&request, 1, PARALLAX_WAIT_DEFAULT));
  PARALLAX_MUST(parallax_request_release(request));
}

static void expect(float value, double expected, const char* what, uint64_t step) {
  if (value == (float)expected) return;
  printf("wrong: step %d: %s is %g, expected %g\n", (int)step, what, (double)value, expected);
  exit(kExitWrong);
}

/* Every rank gives 1 for its own row twice and for a shared row once, and rank + 1 for the dense
 * variable: sums that float holds exactly. */
static void train(parallax_job_t* job, uint32_t rank, uint32_t world, uint32_t steps,
                  uint32_t pace_ms) {
  parallax_variable_t table = {.size = sizeof table,
                               .name = "embedding",
                               .rows = kRows,
                               .row_elements = kColumns,
                               .tag = PARALLAX_SPARSE,
                               .rows_max = 16,
                               .rule = PARALLAX_RULE_SGD};
  parallax_variable_t dense = {.size = sizeof dense,
                               .name = "dense",
                               .rows = kDenseRows,
                               .row_elements = kDense / kDenseRows,
                               .tag = PARALLAX_DENSE,
                               .rule = PARALLAX_RULE_SGD};
  uint32_t ids_of[2];
  PARALLAX_MUST(parallax_register(job, &table, &ids_of[0]));
  PARALLAX_MUST(parallax_register(job, &dense, &ids_of[1]));
  PARALLAX_MUST(parallax_commit(job));
  const int64_t ids[3] = {(int64_t)rank, kShared, (int64_t)rank};
  float rows[3 * kColumns];
  float values[kDense];
  parallax_slice_t slices[2] = {{.size = sizeof slices[0],
                                 .variable = ids_of[0],
                                 .form = PARALLAX_FORM_ROWS,
                                 .ids = ids,
                                 .row_count = 3,
                                 .values = rows},
                                {.size = sizeof slices[1],
                                 .variable = ids_of[1],
                                 .form = PARALLAX_FORM_DENSE,
                                 .values = values}};
  for (uint32_t i = 0; i < steps; ++i) {
    uint64_t step;
    parallax_request_t* request;
    const parallax_step_end_options_t end = {.size = sizeof end, .learning_rate = kLearningRate};
    PARALLAX_MUST(parallax_step_begin(job, &step));
    PARALLAX_MUST(parallax_pull(job, step, slices, 2, &request));
    finish(request);
    for (int k = 0; k < kColumns; ++k) {
      expect(rows[k], -1.0 * i, "this rank's row", step);
      expect(rows[kColumns + k], -0.5 * world * i, "the shared row", step);
    }
    for (int k = 0; k < kDense; ++k) {
      expect(values[k], -0.25 * world * (world + 1) * i, "the dense variable", step);
      values[k] = (float)(rank + 1);
    }
    for (int k = 0; k < 3 * kColumns; ++k) rows[k] = 1.0f;
    PARALLAX_MUST(parallax_push(job, step, slices, 2, &request));
    finish(request);
    PARALLAX_MUST(parallax_step_end(job, step, &end, &request));
    finish(request);
    if (pace_ms > 0) usleep(1000 * pace_ms);
  }
}

int main(int count, char** arguments) {
  if (count % 2 == 0) {
    fprintf(stderr, "usage: %s [--name value]...\n", arguments[0]);
    return kExitUsage;
  }
  parallax_options_t options = {.size = sizeof options};
  options.rank = number(count, arguments, "--rank", "0");
  options.world = number(count, arguments, "--world", "0");
  options.host = text(count, arguments, "--host", NULL);
  options.secret_file = text(count, arguments, "--secret-file", NULL);
  options.transport = text(count, arguments, "--transport", NULL);
  options.lease_ms = number(count, arguments, "--lease-ms", "0");
  options.timeout_ms = number(count, arguments, "--timeout-ms", "60000");
  parallax_unique_id_t id;
  const char* id_file = text(count, arguments, "--id-file", NULL);
  if (id_file != NULL) {
    share_id(id_file, options.rank, &id);
    options.unique_id = &id;
  } else {
    const char* where = text(count, arguments, "--rendezvous", "env");
    if (*where != '\0') options.rendezvous = where;
  }
  parallax_job_t* job;
  PARALLAX_MUST(parallax_open(&options, &job));
  parallax_job_info_t info = {.size = sizeof info};
  PARALLAX_MUST(parallax_query(job, &info));
  size_t bytes = 0; /* too few: the report is made, and its size told */
  if (number(count, arguments, "--topology", "0") != 0 &&
      parallax_report(job, PARALLAX_REPORT_TOPOLOGY, NULL, &bytes) != PARALLAX_LIMIT) {
    fail(PARALLAX_INTERNAL, parallax_last_error());
  }
  printf("open\n");
  fflush(stdout);
  train(job, info.rank, info.world, number(count, arguments, "--steps", "5"),
        number(count, arguments, "--pace-ms", "0"));
  PARALLAX_MUST(parallax_close(job));
  printf("ok rank %u of %u on %u hosts\n", info.rank, info.world, info.hosts);
  return 0;
}
