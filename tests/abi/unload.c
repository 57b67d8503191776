/* SPDX-License-Identifier: Apache-2.0
 *
 * The library leaves when it is closed, though a thread that called it lives on: nothing of it is
 * to run at that thread's end, and nothing stays behind on the heap. Loaded by path (argv[1]), not
 * linked.
 */
#include <dlfcn.h>
#include <malloc.h>
#include <pthread.h>

#include "parallax/parallax.h"

#include <stdio.h>
#include <string.h>

typedef parallax_status_t (*query_fn)(parallax_job_t *, parallax_job_info_t *);
typedef const char *(*last_error_fn)(void);
typedef parallax_status_t (*open_fn)(const parallax_options_t *, parallax_job_t **);
typedef parallax_status_t (*close_fn)(parallax_job_t *);

/* A sanitizer's own allocator answers no mallinfo2; it looks for leaks itself. */
enum { kVisits = 24, kWarmUp = 8, kLeftBytesMax = 8192 };

static void *library;
static pthread_barrier_t called, closed;
static int failures;

static void expect(int holds, const char *what) {
  if (holds) return;
  failures++;
  fprintf(stderr, "expected %s\n", what);
}

static void *symbol(const char *name) {
  void *found = dlsym(library, name);
  expect(found != NULL, name);
  return found;
}

/* A call that fails, so that the thread has a sentence of its own. */
static void *guest(void *unused) {
  query_fn query;
  last_error_fn last_error;
  void *found = symbol("parallax_query");
  (void)unused;
  memcpy(&query, &found, sizeof query);
  found = symbol("parallax_last_error");
  memcpy(&last_error, &found, sizeof last_error);
  expect(query(NULL, NULL) == PARALLAX_INVALID, "INVALID");
  expect(strstr(last_error(), "query: job is null") != NULL, "the sentence of the call");
  pthread_barrier_wait(&called);
  pthread_barrier_wait(&closed);
  return NULL;
}

/* A job of one rank in a library that comes and goes. */
static void visit(const char *path) {
  parallax_options_t options;
  parallax_job_t *job = NULL;
  open_fn open_job;
  close_fn close_job;
  void *found;
  library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  found = symbol("parallax_open");
  memcpy(&open_job, &found, sizeof open_job);
  found = symbol("parallax_close");
  memcpy(&close_job, &found, sizeof close_job);
  memset(&options, 0, sizeof options);
  options.size = sizeof options;
  expect(open_job(&options, &job) == PARALLAX_OK, "a job");
  expect(close_job(job) == PARALLAX_OK, "its end");
  expect(dlclose(library) == 0, "dlclose");
}

int main(int argc, char **argv) {
  pthread_t thread;
  size_t before = 0;
  long left;
  if (argc != 2 || (library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL)) == NULL) {
    fprintf(stderr, "usage: unload LIBRARY: %s\n", argc == 2 ? dlerror() : "one argument");
    return 2;
  }
  if (pthread_barrier_init(&called, NULL, 2) != 0 || pthread_barrier_init(&closed, NULL, 2) != 0 ||
      pthread_create(&thread, NULL, guest, NULL) != 0) {
    return 2;
  }
  pthread_barrier_wait(&called);
  expect(dlclose(library) == 0, "dlclose");
  expect(dlopen(argv[1], RTLD_NOW | RTLD_NOLOAD) == NULL, "the library to be gone");
  pthread_barrier_wait(&closed);
  expect(pthread_join(thread, NULL) == 0, "the thread to end");
  for (int i = 0; i < kVisits; i++) {
    if (i == kWarmUp) before = mallinfo2().uordblks;
    visit(argv[1]);
  }
  left = (long)(mallinfo2().uordblks - before);
  expect(left < kLeftBytesMax, "nothing on the heap");
  if (left >= kLeftBytesMax) fprintf(stderr, "%ld bytes\n", left);
  return failures == 0 ? 0 : 1;
}
