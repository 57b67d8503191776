/* SPDX-License-Identifier: Apache-2.0
 *
 * The library leaves when it is closed, though a thread that called it lives on: nothing of it is
 * to run at that thread's end. Loaded by path (argv[1]), not linked.
 */
#include <dlfcn.h>
#include <pthread.h>

#include "parallax/parallax.h"

#include <stdio.h>
#include <string.h>

typedef parallax_status_t (*query_fn)(parallax_job_t *, parallax_job_info_t *);
typedef const char *(*last_error_fn)(void);

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

int main(int argc, char **argv) {
  pthread_t thread;
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
  return failures == 0 ? 0 : 1;
}
