/* SPDX-License-Identifier: Apache-2.0
 *
 * A rank that says nothing of itself: everything comes from the environment. Prints its identity,
 * the settings as the library reports them, and, given an argument, the log lines that it is called
 * back with.
 */
#include <parallax/parallax.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void heard(void* context, int level, const char* subsystem, const char* message) {
  (void)context;
  printf("log %d %s %s\n", level, subsystem, message);
}

static int fail(const char* call) {
  fprintf(stderr, "%s: %s\n", call, parallax_last_error());
  return 1;
}

int main(int argc, char** argv) {
  const parallax_options_t options = {.size = sizeof options};
  parallax_job_info_t info = {.size = sizeof info};
  parallax_job_t* job;
  char* report;
  size_t bytes = 0;
  int opens = argc > 2 ? atoi(argv[2]) : 1;
  if (argc > 1 && strcmp(argv[1], "log") == 0 &&
      parallax_set_log_callback(heard, NULL, PARALLAX_LOG_INFO) != PARALLAX_OK) {
    return fail("set_log_callback");
  }
  if (parallax_set_log_callback(heard, NULL, 99) != PARALLAX_INVALID) return 2;
  for (int i = 1; i < opens; ++i) {
    if (parallax_open(&options, &job) != PARALLAX_OK) return fail("open");
    if (parallax_close(job) != PARALLAX_OK) return fail("close");
  }
  if (parallax_open(&options, &job) != PARALLAX_OK) return fail("open");
  if (parallax_query(job, &info) != PARALLAX_OK) return fail("query");
  printf("identity %u %u %u %u\n", info.rank, info.world, info.host, info.local_rank);
  (void)parallax_report(job, PARALLAX_REPORT_SETTINGS, NULL, &bytes);
  report = malloc(bytes);
  if (report == NULL) return 3;
  if (parallax_report(job, PARALLAX_REPORT_SETTINGS, report, &bytes) != PARALLAX_OK) {
    return fail("report");
  }
  printf("settings %s\n", report);
  free(report);
  if (parallax_commit(job) != PARALLAX_OK) return fail("commit");
  if (parallax_close(job) != PARALLAX_OK) return fail("close");
  if (parallax_set_log_callback(NULL, NULL, 0) != PARALLAX_OK) return fail("set_log_callback");
  return 0;
}
