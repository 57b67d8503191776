/* SPDX-License-Identifier: Apache-2.0
 *
 * The library stays when it is closed (dlclose) while a thread of its own is in NCCL, which does
 * not come back from an abort before: that thread runs the library's code then. Loaded by path
 * (argv[1]), not linked; over the doubles, which the loader finds.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "parallax/parallax.h"

enum { kCount = 16, kSettleUs = 200000 };

static void *library, *driver;
static int failures;

static void expect(int holds, const char* what) {
  if (holds) return;
  failures++;
  fprintf(stderr, "expected %s\n", what);
}

/* Of a library: FROM(library, function) has its type. */
static void* symbol(void* of, const char* name) {
  void* found = dlsym(of, name);
  expect(found != NULL, name);
  return found;
}
#define FROM(of, function) ((__typeof__(&function))(uintptr_t)symbol(of, #function))

void cuda_double_hold_call(const char* function);

/* A sum among devices, of one, by a communicator. */
static void sum(parallax_job_t* job) {
  parallax_variable_t variable;
  parallax_buffer_options_t options;
  parallax_slice_t slice;
  parallax_request_t* requests[2] = {NULL, NULL};
  uint32_t id = 0;
  uint64_t step = 0;
  void* memory = NULL;
  memset(&variable, 0, sizeof variable);
  variable.size = sizeof variable;
  variable.name = "w";
  variable.rows = kCount;
  variable.row_elements = 1;
  variable.memory = PARALLAX_MEMORY_CUDA;
  memset(&options, 0, sizeof options);
  options.size = sizeof options;
  options.memory = PARALLAX_MEMORY_CUDA;
  expect(FROM(library, parallax_register)(job, &variable, &id) == PARALLAX_OK, "a variable");
  expect(FROM(library, parallax_commit)(job) == PARALLAX_OK, "its commit");
  expect(FROM(library, parallax_buffer_alloc)(job, kCount * sizeof(float), &options, &memory) ==
             PARALLAX_OK,
         "a buffer");
  memset(&slice, 0, sizeof slice);
  slice.size = sizeof slice;
  slice.variable = id;
  slice.values = memory;
  slice.memory = PARALLAX_MEMORY_CUDA;
  expect(FROM(library, parallax_step_begin)(job, &step) == PARALLAX_OK, "a step");
  expect(FROM(library, parallax_reduce)(job, step, &slice, 1, &requests[0]) == PARALLAX_OK,
         "a sum");
  expect(FROM(library, parallax_step_end)(job, step, NULL, &requests[1]) == PARALLAX_OK, "its end");
  expect(FROM(library, parallax_wait)(requests, 2, PARALLAX_WAIT_DEFAULT) == PARALLAX_OK, "both");
  for (int i = 0; i < 2; i++) FROM(library, parallax_request_release)(requests[i]);
}

int main(int argc, char** argv) {
  parallax_options_t options;
  parallax_job_t* job = NULL;
  if (argc != 2 || (library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL)) == NULL ||
      (driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL)) == NULL) {
    fprintf(stderr, "usage: unload LIBRARY: %s\n", argc == 2 ? dlerror() : "one argument");
    return 2;
  }
  memset(&options, 0, sizeof options);
  options.size = sizeof options;
  expect(FROM(library, parallax_open)(&options, &job) == PARALLAX_OK, "a job");
  sum(job);
  FROM(driver, cuda_double_hold_call)("ncclCommAbort");
  expect(FROM(library, parallax_abort)(job, "enough") == PARALLAX_OK, "its end by force");
  expect(FROM(library, parallax_close)(job) != PARALLAX_OK, "to be told of it");
  expect(dlclose(library) == 0, "dlclose");
  expect(dlopen(argv[1], RTLD_NOW | RTLD_NOLOAD) != NULL, "the library to be there");
  FROM(driver, cuda_double_hold_call)(NULL);
  usleep(kSettleUs); /* the thread comes back */
  return failures == 0 ? 0 : 1;
}
