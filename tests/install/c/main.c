/* SPDX-License-Identifier: Apache-2.0
 *
 * Opens a job, trains nothing, closes it. Without arguments one rank alone; as `consumer RANK DIR`
 * one of two ranks on two hosts, which meet in DIR and over the network.
 */
#include <stdio.h>
#include <stdlib.h>

#include <parallax/parallax.h>

static int fail(const char* what) {
  fprintf(stderr, "%s: %s\n", what, parallax_last_error());
  return 1;
}

int main(int argc, char** argv) {
  char rendezvous[4096];
  parallax_job_t* job = NULL;
  parallax_request_t* request = NULL;
  parallax_options_t options = {.size = sizeof options};
  parallax_job_info_t info = {.size = sizeof info};
  if (argc == 3) {
    snprintf(rendezvous, sizeof rendezvous, "file:%s", argv[2]);
    options.rank = (uint32_t)atoi(argv[1]);
    options.world = 2;
    options.rendezvous = rendezvous;
    options.host = options.rank == 0 ? "first" : "second";
    options.net_device = "lo";
    options.timeout_ms = 30000;
  }
  if (parallax_open(&options, &job) != PARALLAX_OK) return fail("open");
  if (parallax_commit(job) != PARALLAX_OK) return fail("commit");
  if (parallax_barrier(job, &request) != PARALLAX_OK) return fail("barrier");
  if (parallax_wait(&request, 1, PARALLAX_WAIT_DEFAULT) != PARALLAX_OK) return fail("wait");
  if (parallax_request_release(request) != PARALLAX_OK) return fail("release");
  if (parallax_query(job, &info) != PARALLAX_OK) return fail("query");
  printf("libparallax %s: rank %u of %u, host %u of %u\n", parallax_version_string(), info.rank,
         info.world, info.host, info.hosts);
  if (parallax_close(job) != PARALLAX_OK) return fail("close");
  return info.hosts == (argc == 3 ? 2u : 1u) ? 0 : 1;
}
