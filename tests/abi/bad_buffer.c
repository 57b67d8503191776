/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory that is none, is not the job's, or is known already: each is refused with its status and a
 * sentence, and nothing is done.
 */
#include "expect.h"

static char own[64];

static void known_once(parallax_job_t *job) {
  void *pointer = NULL;
  PARALLAX_EXPECT_OK(parallax_buffer_register(job, own, sizeof own));
  PARALLAX_EXPECT_REFUSED(parallax_buffer_register(job, own + 8, 8), PARALLAX_INVALID, "overlap");
  PARALLAX_EXPECT_REFUSED(parallax_buffer_free(job, own), PARALLAX_INVALID, "buffer_unregister");
  PARALLAX_EXPECT_OK(parallax_buffer_alloc(job, 8, NULL, &pointer));
  PARALLAX_EXPECT_REFUSED(parallax_buffer_register(job, pointer, 8), PARALLAX_INVALID, "overlap");
  PARALLAX_EXPECT_REFUSED(parallax_buffer_unregister(job, pointer), PARALLAX_INVALID,
                          "buffer_free");
  PARALLAX_EXPECT_REFUSED(parallax_buffer_free(job, (char *)pointer + 1), PARALLAX_INVALID,
                          "1 bytes into");
  PARALLAX_EXPECT_OK(parallax_buffer_free(job, NULL));
  PARALLAX_EXPECT_OK(parallax_buffer_free(job, pointer));
  PARALLAX_EXPECT_REFUSED(parallax_buffer_free(job, pointer), PARALLAX_INVALID, "freed");
  PARALLAX_EXPECT_OK(parallax_buffer_unregister(job, own));
  PARALLAX_EXPECT_REFUSED(parallax_buffer_unregister(job, own), PARALLAX_INVALID, "unregistered");
}

static void buffers_refused(void) {
  const parallax_options_t options = {.size = sizeof options};
  parallax_buffer_options_t wanted = {.size = sizeof wanted};
  parallax_job_t *job = NULL;
  void *pointer = own;
  PARALLAX_EXPECT_REFUSED(parallax_buffer_alloc(NULL, 8, NULL, &pointer), PARALLAX_INVALID, "job");
  PARALLAX_EXPECT(pointer == NULL);
  PARALLAX_EXPECT_REFUSED(parallax_buffer_free(NULL, own), PARALLAX_INVALID, "job");
  PARALLAX_EXPECT_REFUSED(parallax_buffer_register(NULL, own, 8), PARALLAX_INVALID, "job");
  PARALLAX_EXPECT_REFUSED(parallax_buffer_unregister(NULL, own), PARALLAX_INVALID, "job");
  PARALLAX_EXPECT_OK(parallax_open(&options, &job));
  PARALLAX_EXPECT_REFUSED(parallax_buffer_alloc(job, 8, NULL, NULL), PARALLAX_INVALID, "pointer");
  PARALLAX_EXPECT_REFUSED(parallax_buffer_alloc(job, 0, NULL, &pointer), PARALLAX_INVALID,
                          "bytes is 0");
  PARALLAX_EXPECT_REFUSED(parallax_buffer_alloc(job, SIZE_MAX, NULL, &pointer), PARALLAX_LIMIT,
                          "18446744073709551615 bytes");
  wanted.size = 4;
  PARALLAX_EXPECT_REFUSED(parallax_buffer_alloc(job, 8, &wanted, &pointer), PARALLAX_INVALID,
                          "size");
  wanted = (parallax_buffer_options_t){.size = sizeof wanted, .numa_node = UINT32_MAX};
  PARALLAX_EXPECT_REFUSED(parallax_buffer_alloc(job, 8, &wanted, &pointer), PARALLAX_INVALID,
                          "numa_node");
  wanted = (parallax_buffer_options_t){.size = sizeof wanted, .huge_pages = 2};
  PARALLAX_EXPECT_REFUSED(parallax_buffer_alloc(job, 8, &wanted, &pointer), PARALLAX_INVALID,
                          "huge_pages is 2");
  wanted = (parallax_buffer_options_t){.size = sizeof wanted, .memory = 2};
  PARALLAX_EXPECT_REFUSED(parallax_buffer_alloc(job, 8, &wanted, &pointer), PARALLAX_INVALID,
                          "memory is 2");
  wanted = (parallax_buffer_options_t){.size = sizeof wanted, .device = 1};
  PARALLAX_EXPECT_REFUSED(parallax_buffer_alloc(job, 8, &wanted, &pointer), PARALLAX_INVALID,
                          "device is given");
  PARALLAX_EXPECT(pointer == NULL);
  PARALLAX_EXPECT_REFUSED(parallax_buffer_free(job, own), PARALLAX_INVALID, "no buffer");
  PARALLAX_EXPECT_REFUSED(parallax_buffer_unregister(job, own), PARALLAX_INVALID, "registered");
  PARALLAX_EXPECT_REFUSED(parallax_buffer_register(job, NULL, 8), PARALLAX_INVALID, "null");
  PARALLAX_EXPECT_REFUSED(parallax_buffer_register(job, own, 0), PARALLAX_INVALID, "bytes is 0");
  PARALLAX_EXPECT_REFUSED(parallax_buffer_register(job, own, SIZE_MAX), PARALLAX_INVALID, "past");
  PARALLAX_EXPECT_REFUSED(parallax_buffer_register(job, (void *)64, 8), PARALLAX_INVALID,
                          "not mapped");
  known_once(job);
  PARALLAX_EXPECT_OK(parallax_close(job));
}

int main(void) {
  buffers_refused();
  return parallax_expect_end();
}
