/* SPDX-License-Identifier: Apache-2.0
 *
 * Rates by group that step_end refuses, each by its name, and what they do once they are right.
 */
#include <math.h>

#include "expect.h"

static void rates_refused(parallax_job_t *job, uint64_t step) {
  parallax_request_t *request = NULL;
  parallax_rates_t rates[2] = {{.size = sizeof *rates}, {.size = sizeof *rates}};
  parallax_step_end_options_t o = {.size = sizeof o};
#define PARALLAX_REFUSED(why) \
  PARALLAX_EXPECT_REFUSED(parallax_step_end(job, step, &o, &request), PARALLAX_INVALID, why)
  o.rates_count = 2;
  PARALLAX_REFUSED("rates is null");
  o.rates = rates;
  o.rates_count = PARALLAX_RATES_MAX + 1;
  PARALLAX_REFUSED("rates_count");
  o.rates_count = 2;
  o.learning_rate = 1;
  PARALLAX_REFUSED("learning_rate");
  o.learning_rate = 0;
  rates[1].learning_rate = -1;
  PARALLAX_REFUSED("rates[1].learning_rate");
  rates[1].learning_rate = 0;
  rates[1].weight_decay = NAN;
  PARALLAX_REFUSED("rates[1].weight_decay");
  rates[1].weight_decay = 0;
  rates[1].decoupled = 2;
  PARALLAX_REFUSED("rates[1].decoupled");
  rates[1].decoupled = 0;
  rates[1].maximize = 2;
  PARALLAX_REFUSED("rates[1].maximize");
  rates[1].maximize = 0;
  rates[1].clip_norm = -1;
  PARALLAX_REFUSED("rates[1].clip_norm");
  rates[1].clip_norm = 0;
  rates[1].reserved = 1;
  PARALLAX_REFUSED("rates[1].reserved");
  rates[1].reserved = 0;
  rates[1].size = sizeof *rates + 8;
  PARALLAX_REFUSED("rates[1]: size");
  rates[0].size = 3;
  PARALLAX_REFUSED("rates: size is 3");
#undef PARALLAX_REFUSED
  PARALLAX_EXPECT(request == NULL);
}

int main(void) {
  uint64_t step = 0;
  uint32_t id = 77;
  float value = 3;
  parallax_job_t *job = NULL;
  parallax_request_t *request = NULL;
  const parallax_options_t options = {.size = sizeof options};
  PARALLAX_EXPECT_OK(parallax_open(&options, &job));
  const parallax_variable_t v = {.size = sizeof v,
                                 .name = "v",
                                 .rows = 1,
                                 .row_elements = 1,
                                 .rule = PARALLAX_RULE_SGD,
                                 .init_low = 8,
                                 .rates = 1};
  PARALLAX_EXPECT_OK(parallax_register(job, &v, &id));
  PARALLAX_EXPECT_OK(parallax_commit(job));
  PARALLAX_EXPECT_OK(parallax_step_begin(job, &step));
  parallax_slice_t slice = {.size = sizeof slice, .variable = id, .values = &value};
  PARALLAX_EXPECT_OK(parallax_push(job, step, &slice, 1, &request));
  PARALLAX_EXPECT_OK(parallax_wait(&request, 1, PARALLAX_WAIT_DEFAULT));
  PARALLAX_EXPECT_OK(parallax_request_release(request));
  rates_refused(job, step);
  /* Of a newer caller, whose struct is longer. */
  struct {
    parallax_rates_t now;
    uint64_t later;
  } rates[2] = {{.now = {.size = sizeof *rates, .learning_rate = 9}},
                {.now = {.size = sizeof *rates, .learning_rate = 0.5F, .weight_decay = 0.25F}}};
  const parallax_step_end_options_t end = {
      .size = sizeof end, .rates = &rates->now, .rates_count = 2};
  PARALLAX_EXPECT_OK(parallax_step_end(job, step, &end, &request));
  PARALLAX_EXPECT_OK(parallax_wait(&request, 1, PARALLAX_WAIT_DEFAULT));
  PARALLAX_EXPECT_OK(parallax_request_release(request));
  PARALLAX_EXPECT_OK(parallax_step_begin(job, &step));
  PARALLAX_EXPECT_OK(parallax_pull(job, step, &slice, 1, &request));
  PARALLAX_EXPECT_OK(parallax_wait(&request, 1, PARALLAX_WAIT_DEFAULT));
  PARALLAX_EXPECT_OK(parallax_request_release(request));
  PARALLAX_EXPECT(value == 8 - 0.5F * (3 + 0.25F * 8));
  PARALLAX_EXPECT_OK(parallax_close(job));
  return parallax_expect_end();
}
