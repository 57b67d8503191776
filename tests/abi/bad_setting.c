/* SPDX-License-Identifier: Apache-2.0
 *
 * Settings of an open job: what parallax_set takes and what it refuses, and what parallax_query
 * tells to callers of every size.
 */
#include "expect.h"

static void settings_refused(parallax_job_t *job) {
  PARALLAX_EXPECT_REFUSED(parallax_set(NULL, "timeout_ms", "1"), PARALLAX_INVALID, "job");
  PARALLAX_EXPECT_REFUSED(parallax_set(job, NULL, "1"), PARALLAX_INVALID, "name");
  PARALLAX_EXPECT_REFUSED(parallax_set(job, "timeout_ms", NULL), PARALLAX_INVALID, "value");
  PARALLAX_EXPECT_REFUSED(parallax_set(job, "", ""), PARALLAX_INVALID, "not a setting");
  PARALLAX_EXPECT_REFUSED(parallax_set(job, "timeout", "1"), PARALLAX_INVALID, "timeout_ms?");
  PARALLAX_EXPECT_REFUSED(parallax_set(job, "timeout_ms", "-1"), PARALLAX_INVALID, "'-1'");
  PARALLAX_EXPECT_REFUSED(parallax_set(job, "timeout_ms", "99999999999"), PARALLAX_INVALID,
                          "1..4294967295");
  PARALLAX_EXPECT_REFUSED(parallax_set(job, "debug", "loud"), PARALLAX_INVALID, "one of none");
  PARALLAX_EXPECT_REFUSED(parallax_set(job, "world", "2"), PARALLAX_UNSUPPORTED, "fixed at open");
  PARALLAX_EXPECT_REFUSED(parallax_set(job, "secret", "x"), PARALLAX_UNSUPPORTED, "fixed at open");
  PARALLAX_EXPECT_OK(parallax_set(job, "timeout_ms", "60000"));
  PARALLAX_EXPECT_OK(parallax_set(job, "memory_max_bytes", "1G"));
  PARALLAX_EXPECT_OK(parallax_set(job, "memory_check", "off"));
  PARALLAX_EXPECT_OK(parallax_set(job, "debug", "warn"));
  PARALLAX_EXPECT_OK(parallax_set(job, "debug_subsys", "^shm"));
  PARALLAX_EXPECT_OK(parallax_set(job, "debug_file", ""));
}

/* Touched bytes are counted for whom asks for them, and has room for them. */
static void query_of_every_size(parallax_job_t *job) {
  parallax_job_info_t info = {.size = sizeof info};
  PARALLAX_EXPECT_OK(parallax_query(job, &info));
  PARALLAX_EXPECT(info.epoch != 0 && info.view == 0 && info.reserved_2 == 0);
  PARALLAX_EXPECT(info.bytes_reserved > 0 && info.bytes_touched == 0);
  info.bytes_touched = 1;
  PARALLAX_EXPECT_OK(parallax_query(job, &info));
  PARALLAX_EXPECT(info.bytes_touched > 0 && info.bytes_touched <= info.bytes_reserved);
  memset(&info, 0x55, sizeof info);
  info.size = offsetof(parallax_job_info_t, bytes_touched);
  PARALLAX_EXPECT_OK(parallax_query(job, &info));
  PARALLAX_EXPECT(info.bytes_reserved < UINT64_C(0x5555555555555555));
  PARALLAX_EXPECT(info.bytes_touched == UINT64_C(0x5555555555555555));
  PARALLAX_EXPECT_REFUSED(parallax_query(job, NULL), PARALLAX_INVALID, "info");
}

int main(void) {
  const parallax_options_t options = {.size = sizeof options};
  parallax_variable_t v = {.size = sizeof v, .name = "v", .rows = 4096, .row_elements = 4};
  parallax_job_t *job = NULL;
  uint32_t id = 0;
  v.rule = PARALLAX_RULE_SGD;
  PARALLAX_EXPECT_OK(parallax_open(&options, &job));
  settings_refused(job);
  PARALLAX_EXPECT_OK(parallax_register(job, &v, &id));
  PARALLAX_EXPECT_OK(parallax_commit(job));
  query_of_every_size(job);
  PARALLAX_EXPECT_OK(parallax_close(job));
  return parallax_expect_end();
}
