/* SPDX-License-Identifier: Apache-2.0
 *
 * How ranks meet: what is wrong with where and how is told before anybody is waited for.
 */
#include <stdlib.h>

#include "expect.h"

static int gather_nothing(void *context, const void *send, void *recv, size_t bytes) {
  (void)context, (void)send, (void)recv, (void)bytes;
  return 1;
}

static void rendezvous(void) {
  const parallax_options_t good = {.size = sizeof good, .rank = 1, .world = 2};
  parallax_unique_id_t id = {{0}};
  parallax_options_t o = good;
  parallax_job_t *job = NULL;
  static const struct {
    const char *rendezvous, *word;
  } kCases[] = {{"tcp:", "give tcp:HOST:PORT"},
                {"tcp:127.0.0.1", "give tcp:HOST:PORT"},
                {"tcp://127.0.0.1:29500", "write it without //"},
                {"tcp:a/b:29500", "no name or address"},
                {"tcp:127.0.0.1:0", "parallax_unique_id"},
                {"tcp:127.0.0.1:65536", "from 1 to 65535"},
                {"tcp:::1:29500", "in brackets"},
                {"tcp:0.0.0.0:29500", "there is no secret"},
                {"env", "of no launcher"}};
  static const char *const kLaunchers[] = {
      "PARALLAX_RANK",        "PARALLAX_WORLD",       "RANK",        "WORLD_SIZE",
      "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "SLURM_PROCID"};
  for (size_t i = 0; i < sizeof kLaunchers / sizeof kLaunchers[0]; ++i) unsetenv(kLaunchers[i]);
  for (size_t i = 0; i < sizeof kCases / sizeof kCases[0]; ++i) {
    o.rendezvous = kCases[i].rendezvous;
    PARALLAX_EXPECT_REFUSED(parallax_open(&o, &job), PARALLAX_INVALID, kCases[i].word);
  }
  o.rendezvous = "tcp:127.0.0.1:29500";
  o.secret_file = "";
  PARALLAX_EXPECT_REFUSED(parallax_open(&o, &job), PARALLAX_INVALID, "secret_file");
  o.secret_file = "/no/such/file";
  PARALLAX_EXPECT_REFUSED(parallax_open(&o, &job), PARALLAX_IO, "/no/such/file");
  o = good;
  o.unique_id = &id;
  PARALLAX_EXPECT_REFUSED(parallax_open(&o, &job), PARALLAX_INVALID, "parallax_unique_id");
  o.rendezvous = "file:/tmp/x";
  PARALLAX_EXPECT_REFUSED(parallax_open(&o, &job), PARALLAX_INVALID, "more than one");
  o.rendezvous = NULL;
  o.allgather = gather_nothing;
  PARALLAX_EXPECT_REFUSED(parallax_open(&o, &job), PARALLAX_INVALID, "more than one");
  PARALLAX_EXPECT_REFUSED(parallax_unique_id(NULL), PARALLAX_INVALID, "id is null");
  setenv("PARALLAX_NET_DEVICE", "no such device", 1);
  PARALLAX_EXPECT_REFUSED(parallax_unique_id(&id), PARALLAX_INVALID, "no such device");
  unsetenv("PARALLAX_NET_DEVICE");
  PARALLAX_EXPECT(job == NULL);
}

int main(void) {
  rendezvous();
  return parallax_expect_end();
}
