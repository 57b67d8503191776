/* SPDX-License-Identifier: Apache-2.0
 *
 * Initial values, rules of the caller's own, storage, and what rows are pushed in, with a wrong
 * field are refused by its name.
 */
#include "expect.h"

enum { kRows = 8, kColumns = 2 };

static parallax_variable_t variable(const char *name) {
  parallax_variable_t v = {.size = sizeof v, .name = name, .rows = kRows, .row_elements = kColumns};
  v.rule = PARALLAX_RULE_SGD;
  return v;
}

static int own_rule(void *context, const parallax_rule_block_t *block) {
  (void)context;
  return block->row_count == 0;
}

static void initial_values_refused(parallax_job_t *job) {
  uint32_t id = 77;
  parallax_variable_t v = variable("bad");
  v.init = 9;
  PARALLAX_EXPECT_REFUSED(parallax_register(job, &v, &id), PARALLAX_INVALID, "init");
  v = variable("bad");
  v.init = PARALLAX_INIT_NORMAL;
  v.init_std = -1;
  PARALLAX_EXPECT_REFUSED(parallax_register(job, &v, &id), PARALLAX_INVALID, "init_std is -1");
  v.init = PARALLAX_INIT_UNIFORM;
  v.init_std = 1;
  PARALLAX_EXPECT_REFUSED(parallax_register(job, &v, &id), PARALLAX_INVALID, "init_std is set");
  v = variable("bad");
  v.init = PARALLAX_INIT_BUFFER;
  PARALLAX_EXPECT_REFUSED(parallax_register(job, &v, &id), PARALLAX_INVALID, "initial is NULL");
  v.init = PARALLAX_INIT_BROADCAST; /* this is rank 0 */
  PARALLAX_EXPECT_REFUSED(parallax_register(job, &v, &id), PARALLAX_INVALID, "initial is NULL");
  v.init = PARALLAX_INIT_CONSTANT;
  v.initial = &id;
  PARALLAX_EXPECT_REFUSED(parallax_register(job, &v, &id), PARALLAX_INVALID, "initial is set");
  v.init = PARALLAX_INIT_BUFFER;
  v.rule = PARALLAX_RULE_NONE;
  PARALLAX_EXPECT_REFUSED(parallax_register(job, &v, &id), PARALLAX_INVALID, "framework-held");
  PARALLAX_EXPECT(id == 77);
}

static void own_rules_refused(parallax_job_t *job) {
  uint32_t id = 77;
  parallax_variable_t v = variable("bad");
  v.rule = PARALLAX_RULE_CALLBACK;
  PARALLAX_EXPECT_REFUSED(parallax_register(job, &v, &id), PARALLAX_INVALID, "rule_fn is null");
  v.rule_fn = own_rule;
  v.dtype = PARALLAX_I64;
  PARALLAX_EXPECT_REFUSED(parallax_register(job, &v, &id), PARALLAX_INVALID, "rule CALLBACK");
  v.dtype = PARALLAX_F32;
  v.state_elements[0] = (1u << 20) + 1;
  PARALLAX_EXPECT_REFUSED(parallax_register(job, &v, &id), PARALLAX_INVALID, "state_elements");
  v.state_elements[0] = 0;
  v.state_elements[1] = 1;
  PARALLAX_EXPECT_REFUSED(parallax_register(job, &v, &id), PARALLAX_INVALID, "state_elements");
  v = variable("bad");
  v.rule_fn = own_rule;
  PARALLAX_EXPECT_REFUSED(parallax_register(job, &v, &id), PARALLAX_INVALID, "rule_fn");
  v = variable("bad");
  v.rule_context = &v;
  PARALLAX_EXPECT_REFUSED(parallax_register(job, &v, &id), PARALLAX_INVALID, "rule_context");
  v = variable("bad");
  v.state_elements[0] = 1;
  PARALLAX_EXPECT_REFUSED(parallax_register(job, &v, &id), PARALLAX_INVALID, "state_elements");
  PARALLAX_EXPECT(id == 77);
}

static void storage_refused(parallax_job_t *job) {
  uint32_t id = 77;
  parallax_variable_t v = variable("bad");
  v.storage_dtype = 77;
  PARALLAX_EXPECT_REFUSED(parallax_register(job, &v, &id), PARALLAX_INVALID, "storage_dtype is 77");
  v.storage_dtype = PARALLAX_AS(PARALLAX_I32);
  PARALLAX_EXPECT_REFUSED(parallax_register(job, &v, &id), PARALLAX_INVALID, "storage_dtype");
  v.storage_dtype = PARALLAX_AS(PARALLAX_F64);
  PARALLAX_EXPECT_REFUSED(parallax_register(job, &v, &id), PARALLAX_UNSUPPORTED,
                          "dtype is "
                          "PARALLAX_F32");
  v.storage_dtype = PARALLAX_AS(PARALLAX_BF16);
  v.dtype = PARALLAX_F64;
  PARALLAX_EXPECT_REFUSED(parallax_register(job, &v, &id), PARALLAX_UNSUPPORTED,
                          "dtype is "
                          "PARALLAX_F64");
  v.dtype = PARALLAX_F32;
  v.rule = PARALLAX_RULE_NONE;
  PARALLAX_EXPECT_REFUSED(parallax_register(job, &v, &id), PARALLAX_INVALID, "framework-held");
  v.rule = PARALLAX_RULE_CALLBACK;
  v.rule_fn = own_rule;
  PARALLAX_EXPECT_REFUSED(parallax_register(job, &v, &id), PARALLAX_UNSUPPORTED, "CALLBACK");
  v = variable("bad");
  v.rounding = 2;
  PARALLAX_EXPECT_REFUSED(parallax_register(job, &v, &id), PARALLAX_INVALID, "rounding is 2");
  v.rounding = PARALLAX_ROUNDING_STOCHASTIC;
  PARALLAX_EXPECT_REFUSED(parallax_register(job, &v, &id), PARALLAX_INVALID, "set storage_dtype");
  v.storage_dtype = PARALLAX_AS(PARALLAX_F32); /* which it is anyway */
  PARALLAX_EXPECT_REFUSED(parallax_register(job, &v, &id), PARALLAX_INVALID, "set storage_dtype");
  PARALLAX_EXPECT(id == 77);
  v.rounding = PARALLAX_ROUNDING_NEAREST_EVEN;
  PARALLAX_EXPECT_OK(parallax_register(job, &v, &id));
}

static void wire_refused(parallax_job_t *job) {
  uint32_t id = 77;
  parallax_variable_t v = variable("pushed");
  v.wire_dtype = 77;
  PARALLAX_EXPECT_REFUSED(parallax_register(job, &v, &id), PARALLAX_INVALID, "wire_dtype is 77");
  v.wire_dtype = 0;
  v.reserved = 1;
  PARALLAX_EXPECT_REFUSED(parallax_register(job, &v, &id), PARALLAX_UNSUPPORTED, "reserved");
  v.reserved = 0;
  v.wire_dtype = PARALLAX_AS(PARALLAX_I64);
  PARALLAX_EXPECT_REFUSED(parallax_register(job, &v, &id), PARALLAX_INVALID, "wire_dtype");
  v.wire_dtype = PARALLAX_AS(PARALLAX_BF16);
  v.rows_max = 0;
  PARALLAX_EXPECT_REFUSED(parallax_register(job, &v, &id), PARALLAX_INVALID, "every row");
  v.rows_max = 4;
  v.rule = PARALLAX_RULE_NONE;
  PARALLAX_EXPECT_REFUSED(parallax_register(job, &v, &id), PARALLAX_INVALID, "framework-held");
  v.rule = PARALLAX_RULE_SGD;
  v.wire_dtype = PARALLAX_AS(PARALLAX_F16);
  PARALLAX_EXPECT_REFUSED(parallax_register(job, &v, &id), PARALLAX_UNSUPPORTED, "alone");
  v.wire_dtype = PARALLAX_AS(PARALLAX_BF16);
  v.reduction = PARALLAX_MEAN_ROW;
  PARALLAX_EXPECT_REFUSED(parallax_register(job, &v, &id), PARALLAX_UNSUPPORTED, "MEAN_ROW");
  v.reduction = PARALLAX_SUM;
  v.dtype = PARALLAX_F64;
  PARALLAX_EXPECT_REFUSED(parallax_register(job, &v, &id), PARALLAX_UNSUPPORTED,
                          "dtype is PARALLAX_F64");
  PARALLAX_EXPECT(id == 77);
  v.dtype = PARALLAX_F16;
  PARALLAX_EXPECT_OK(parallax_register(job, &v, &id));
}

static void ceilings_refused(parallax_job_t *job) {
  uint32_t id = 77;
  parallax_variable_t v = variable("capped");
  v.exchange_bytes_max = 1 << 20;
  PARALLAX_EXPECT_REFUSED(parallax_register(job, &v, &id), PARALLAX_INVALID,
                          "exchange_bytes_max is 1048576, but it has an update rule");
  v.rule = PARALLAX_RULE_NONE;
  v.rows_max = 0;
  PARALLAX_EXPECT_REFUSED(parallax_register(job, &v, &id), PARALLAX_INVALID,
                          "its slices carry every row");
  PARALLAX_EXPECT(id == 77);
  v.rows_max = 4;
  PARALLAX_EXPECT_OK(parallax_register(job, &v, &id));
}

int main(void) {
  parallax_job_t *job = NULL;
  const parallax_options_t options = {.size = sizeof options};
  PARALLAX_EXPECT_OK(parallax_open(&options, &job));
  if (job == NULL) return parallax_expect_end();
  initial_values_refused(job);
  own_rules_refused(job);
  storage_refused(job);
  wire_refused(job);
  ceilings_refused(job);
  PARALLAX_EXPECT_OK(parallax_close(job));
  return parallax_expect_end();
}
