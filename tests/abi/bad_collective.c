/* SPDX-License-Identifier: Apache-2.0
 *
 * A collective with a wrong field is refused by its name, and nothing was done.
 */
#include "expect.h"

static void collectives_refused(parallax_job_t *job) {
  float numbers[8] = {0};
  const uint64_t counts[2] = {2, 0};
  parallax_request_t *request = NULL;
  parallax_collective_t c = {.size = 0};
  PARALLAX_EXPECT_REFUSED(parallax_collective(job, NULL, &request), PARALLAX_INVALID, "what");
  PARALLAX_EXPECT_REFUSED(parallax_collective(job, &c, &request), PARALLAX_INVALID, "size");
  c.size = sizeof c;
  PARALLAX_EXPECT_REFUSED(parallax_collective(NULL, &c, &request), PARALLAX_INVALID, "job");
  PARALLAX_EXPECT_REFUSED(parallax_collective(job, &c, NULL), PARALLAX_INVALID, "request");
  PARALLAX_EXPECT_REFUSED(parallax_collective(job, &c, &request), PARALLAX_INVALID, "kind");
  c.kind = PARALLAX_ALLREDUCE;
  c.count = 4;
  PARALLAX_EXPECT_REFUSED(parallax_collective(job, &c, &request), PARALLAX_INVALID, "send");
  c.send = numbers;
  PARALLAX_EXPECT_REFUSED(parallax_collective(job, &c, &request), PARALLAX_INVALID, "recv");
  c.recv = numbers + 1;
  PARALLAX_EXPECT_REFUSED(parallax_collective(job, &c, &request), PARALLAX_INVALID, "overlap");
  c.recv = numbers + 4;
  c.dtype = 99;
  PARALLAX_EXPECT_REFUSED(parallax_collective(job, &c, &request), PARALLAX_INVALID, "dtype");
  c.dtype = PARALLAX_BYTES;
  PARALLAX_EXPECT_REFUSED(parallax_collective(job, &c, &request), PARALLAX_INVALID,
                          "PARALLAX_BYTES, which ALLREDUCE");
  c.dtype = PARALLAX_F32;
  c.op = PARALLAX_OP_AND;
  PARALLAX_EXPECT_REFUSED(parallax_collective(job, &c, &request), PARALLAX_INVALID, "op");
  c.op = PARALLAX_OP_SUM;
  c.memory = 1;
  PARALLAX_EXPECT_REFUSED(parallax_collective(job, &c, &request), PARALLAX_UNSUPPORTED, "memory");
  c.memory = 0;
  c.stream = numbers;
  PARALLAX_EXPECT_REFUSED(parallax_collective(job, &c, &request), PARALLAX_UNSUPPORTED, "stream");
  c.stream = NULL;
  c.kind = PARALLAX_BROADCAST;
  c.root = 1;
  PARALLAX_EXPECT_REFUSED(parallax_collective(job, &c, &request), PARALLAX_INVALID, "root");
  c.kind = PARALLAX_ALLGATHERV;
  PARALLAX_EXPECT_REFUSED(parallax_collective(job, &c, &request), PARALLAX_INVALID, "recv_counts");
  c.recv_counts = (const uint64_t *)((const char *)counts + 4);
  PARALLAX_EXPECT_REFUSED(parallax_collective(job, &c, &request), PARALLAX_INVALID, "not aligned");
  c.recv_counts = counts;
  PARALLAX_EXPECT_REFUSED(parallax_collective(job, &c, &request), PARALLAX_INVALID, "count is 4");
  c.kind = PARALLAX_ALLTOALLV;
  PARALLAX_EXPECT_REFUSED(parallax_collective(job, &c, &request), PARALLAX_INVALID, "send_counts");
  PARALLAX_EXPECT(request == NULL);
}

int main(void) {
  parallax_job_t *job = NULL;
  parallax_request_t *request = NULL;
  const parallax_options_t options = {.size = sizeof options};
  float number = 3;
  parallax_collective_t c = {.size = sizeof c, .kind = PARALLAX_ALLREDUCE, .count = 1};
  c.send = c.recv = &number;
  PARALLAX_EXPECT_OK(parallax_open(&options, &job));
  PARALLAX_EXPECT_REFUSED(parallax_collective(job, &c, &request), PARALLAX_STATE, "commit");
  PARALLAX_EXPECT_OK(parallax_commit(job));
  collectives_refused(job);
  PARALLAX_EXPECT_OK(parallax_collective(job, &c, &request));
  PARALLAX_EXPECT_OK(parallax_wait(&request, 1, PARALLAX_WAIT_DEFAULT));
  PARALLAX_EXPECT_OK(parallax_request_release(request));
  PARALLAX_EXPECT(number == 3);
  PARALLAX_EXPECT_OK(parallax_close(job));
  return parallax_expect_end();
}
