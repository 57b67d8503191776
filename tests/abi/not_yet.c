/* SPDX-License-Identifier: Apache-2.0
 *
 * Fields that have their place in a struct before what they ask for is built, and memory of devices
 * where there is none: each is refused by its name, and nothing was done.
 */
#define _POSIX_C_SOURCE 200112L /* setenv */
#include <stddef.h>
#include <stdlib.h>

#include "expect.h"

enum { kRows = 8 };

static parallax_variable_t variable(const char *name) {
  parallax_variable_t v = {.size = sizeof v, .name = name, .rows = kRows, .row_elements = 1};
  v.rule = PARALLAX_RULE_SGD;
  v.tag = PARALLAX_SPARSE;
  v.rows_max = kRows;
  return v;
}

/* What has its place in a struct, and is not built yet: each is refused by its name. */
static void not_yet_refused(void) {
  parallax_job_t *none = NULL;
  parallax_options_t o = {.size = sizeof o};
#define PARALLAX_NOT_YET(field, value)                        \
  o = (parallax_options_t){.size = sizeof o, .field = value}; \
  PARALLAX_EXPECT_REFUSED(parallax_open(&o, &none), PARALLAX_UNSUPPORTED, #field)
  PARALLAX_NOT_YET(replicas, 1);
  PARALLAX_NOT_YET(no_local_aggregation, 1);
#undef PARALLAX_NOT_YET
  PARALLAX_EXPECT(none == NULL);
}

/* Slices on devices, of a job that has none: its module is looked for where there is none. */
static void devices_refused(parallax_job_t *job, uint64_t step, parallax_slice_t good) {
  parallax_request_t *request = NULL;
  parallax_slice_t s = good;
  s.stream = &s;
  PARALLAX_EXPECT_REFUSED(parallax_push(job, step, &s, 1, &request), PARALLAX_INVALID, "stream");
  s = good;
  s.device = 1;
  PARALLAX_EXPECT_REFUSED(parallax_pull(job, step, &s, 1, &request), PARALLAX_INVALID, "device");
  s = good;
  s.memory = 2;
  PARALLAX_EXPECT_REFUSED(parallax_pull(job, step, &s, 1, &request), PARALLAX_INVALID,
                          "memory is 2");
  s.memory = PARALLAX_MEMORY_CUDA;
  PARALLAX_EXPECT_REFUSED(parallax_pull(job, step, &s, 1, &request), PARALLAX_UNSUPPORTED,
                          "/nonexistent/libparallax_cuda.so: no such file");
  PARALLAX_EXPECT_REFUSED(parallax_push(job, step, &s, 1, &request), PARALLAX_UNSUPPORTED,
                          "memory");
}

static void variables_refused(parallax_job_t *job) {
  uint32_t id = 77;
  parallax_variable_t v = variable("on a device");
  v.memory = PARALLAX_MEMORY_CUDA;
  PARALLAX_EXPECT_REFUSED(parallax_register(job, &v, &id), PARALLAX_UNSUPPORTED,
                          "no device can be used");
  v.memory = 2;
  PARALLAX_EXPECT_REFUSED(parallax_register(job, &v, &id), PARALLAX_INVALID, "memory is 2");
  v = variable("kept on a device");
  v.table_memory = PARALLAX_MEMORY_CUDA;
  PARALLAX_EXPECT_REFUSED(parallax_register(job, &v, &id), PARALLAX_UNSUPPORTED,
                          "table_memory is PARALLAX_MEMORY_CUDA, and no device can be used");
  v.rule = PARALLAX_RULE_FTRL;
  PARALLAX_EXPECT_REFUSED(parallax_register(job, &v, &id), PARALLAX_UNSUPPORTED,
                          "devices do not have rule FTRL, but SGD");
  v = variable("kept on a device");
  v.dtype = PARALLAX_F64;
  v.table_memory = PARALLAX_MEMORY_CUDA;
  PARALLAX_EXPECT_REFUSED(parallax_register(job, &v, &id), PARALLAX_UNSUPPORTED, "not of");
  v.table_memory = 2;
  PARALLAX_EXPECT_REFUSED(parallax_register(job, &v, &id), PARALLAX_INVALID, "table_memory is 2");
  v = variable("framework's");
  v.rule = PARALLAX_RULE_NONE;
  v.table_memory = PARALLAX_MEMORY_CUDA;
  PARALLAX_EXPECT_REFUSED(parallax_register(job, &v, &id), PARALLAX_INVALID, "table_memory");
  v = variable("at a place");
  v.place_values = &v;
  PARALLAX_EXPECT_REFUSED(parallax_register(job, &v, &id), PARALLAX_UNSUPPORTED, "place_values");
  v.place_into = v.place_values;
  v.place_values = NULL;
  PARALLAX_EXPECT_REFUSED(parallax_register(job, &v, &id), PARALLAX_INVALID, "place_into");
  PARALLAX_EXPECT(id == 77);
}

/* Structs that end before the place, and before `symmetric`: behind them nothing is read. */
static void older_callers(parallax_job_t *job, uint32_t *id) {
  parallax_variable_t v = variable("v");
  v.size = offsetof(parallax_variable_t, place_values);
  v.place_values = v.place_into = &v;
  PARALLAX_EXPECT_OK(parallax_register(job, &v, id));
  v.name = "cut in two";
  v.size += 4;
  PARALLAX_EXPECT_REFUSED(parallax_register(job, &v, id), PARALLAX_INVALID, "size");
  parallax_buffer_options_t b = {.size = offsetof(parallax_buffer_options_t, symmetric)};
  void *memory = NULL;
  b.symmetric = b.reserved = 77;
  PARALLAX_EXPECT_OK(parallax_buffer_alloc(job, 8, &b, &memory));
  PARALLAX_EXPECT_OK(parallax_buffer_free(job, memory));
  b.size = sizeof b;
  PARALLAX_EXPECT_REFUSED(parallax_buffer_alloc(job, 8, &b, &memory), PARALLAX_INVALID,
                          "symmetric is 77");
  b.symmetric = 0;
  PARALLAX_EXPECT_REFUSED(parallax_buffer_alloc(job, 8, &b, &memory), PARALLAX_UNSUPPORTED,
                          "reserved");
}

int main(void) {
  static const int64_t kIds[] = {1};
  float value = 0;
  uint64_t step = 0;
  uint32_t id = 77;
  parallax_job_t *job = NULL;
  parallax_request_t *request = NULL;
  parallax_options_t options = {.size = sizeof options};
  PARALLAX_EXPECT(setenv("PARALLAX_MODULE_DIR", "/nonexistent", 1) == 0);
  PARALLAX_EXPECT_OK(parallax_open(&options, &job));
  not_yet_refused();
  variables_refused(job);
  older_callers(job, &id);
  PARALLAX_EXPECT(id == 0);
  PARALLAX_EXPECT_OK(parallax_commit(job));
  PARALLAX_EXPECT_OK(parallax_step_begin(job, &step));
  parallax_slice_t good = {.size = sizeof good, .form = PARALLAX_FORM_ROWS, .ids = kIds};
  good.row_count = 1;
  good.values = &value;
  devices_refused(job, step, good);
  PARALLAX_EXPECT_OK(parallax_step_end(job, step, NULL, &request));
  PARALLAX_EXPECT_OK(parallax_wait(&request, 1, PARALLAX_WAIT_DEFAULT));
  PARALLAX_EXPECT_OK(parallax_request_release(request));
  PARALLAX_EXPECT_OK(parallax_close(job));
  return parallax_expect_end();
}
