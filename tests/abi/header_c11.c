/* SPDX-License-Identifier: Apache-2.0
 *
 * The shape of the ABI: numbers, sizes and places of fields on LP64 machines, which no later
 * version may change; fields are only ever appended.
 */
/* No hole: a field that a later version put into one could not be told from an older caller's
 * garbage. */
#pragma GCC diagnostic push
#pragma GCC diagnostic error "-Wpadded"
#include <parallax/parallax.h>
#pragma GCC diagnostic pop

#include "expect.h"

#define PARALLAX_AT(type, field, offset) \
  _Static_assert(offsetof(type, field) == (offset), #type "." #field " moved")

_Static_assert(sizeof(void *) == 8 && sizeof(size_t) == 8, "the places below are those of LP64");

PARALLAX_AT(parallax_options_t, size, 0);
PARALLAX_AT(parallax_options_t, rank, 8);
PARALLAX_AT(parallax_options_t, world, 12);
PARALLAX_AT(parallax_options_t, rendezvous, 16);
PARALLAX_AT(parallax_options_t, allgather, 24);
PARALLAX_AT(parallax_options_t, allgather_context, 32);
PARALLAX_AT(parallax_options_t, host, 40);
PARALLAX_AT(parallax_options_t, transport, 48);
PARALLAX_AT(parallax_options_t, net_device, 56);
PARALLAX_AT(parallax_options_t, lease_ms, 64);
PARALLAX_AT(parallax_options_t, timeout_ms, 68);
PARALLAX_AT(parallax_options_t, plan_mode, 72);
PARALLAX_AT(parallax_options_t, plan_after_steps, 76);
PARALLAX_AT(parallax_options_t, deterministic, 80);
PARALLAX_AT(parallax_options_t, compute_threads, 84);
PARALLAX_AT(parallax_options_t, manual_progress, 88);
PARALLAX_AT(parallax_options_t, reserved, 92);
PARALLAX_AT(parallax_options_t, memory_max_bytes, 96);
PARALLAX_AT(parallax_options_t, faults, 104);
PARALLAX_AT(parallax_options_t, unique_id, 112);
PARALLAX_AT(parallax_options_t, secret_file, 120);
PARALLAX_AT(parallax_options_t, staleness, 128);
PARALLAX_AT(parallax_options_t, replicas, 132);
PARALLAX_AT(parallax_options_t, sparse_as_dense, 136);
PARALLAX_AT(parallax_options_t, no_local_aggregation, 140);
PARALLAX_AT(parallax_options_t, pins, 144);
_Static_assert(sizeof(parallax_options_t) == 152, "parallax_options_t");
_Static_assert(sizeof(parallax_unique_id_t) == PARALLAX_UNIQUE_ID_BYTES, "parallax_unique_id_t");

PARALLAX_AT(parallax_job_info_t, rank, 8);
PARALLAX_AT(parallax_job_info_t, host, 16);
PARALLAX_AT(parallax_job_info_t, local_rank, 24);
PARALLAX_AT(parallax_job_info_t, variables, 32);
PARALLAX_AT(parallax_job_info_t, committed, 36);
PARALLAX_AT(parallax_job_info_t, step, 40);
PARALLAX_AT(parallax_job_info_t, step_committed, 48);
PARALLAX_AT(parallax_job_info_t, wait_fd, 56);
PARALLAX_AT(parallax_job_info_t, reserved, 60);
PARALLAX_AT(parallax_job_info_t, late_phase, 64);
PARALLAX_AT(parallax_job_info_t, late_rank, 68);
PARALLAX_AT(parallax_job_info_t, late_ms, 72);
PARALLAX_AT(parallax_job_info_t, late_steps, 76);
PARALLAX_AT(parallax_job_info_t, job_rank, 80);
PARALLAX_AT(parallax_job_info_t, epoch, 84);
PARALLAX_AT(parallax_job_info_t, view, 88);
PARALLAX_AT(parallax_job_info_t, reserved_2, 92);
PARALLAX_AT(parallax_job_info_t, bytes_reserved, 96);
PARALLAX_AT(parallax_job_info_t, bytes_touched, 104);
_Static_assert(sizeof(parallax_job_info_t) == 112, "parallax_job_info_t");

PARALLAX_AT(parallax_variable_t, name, 8);
PARALLAX_AT(parallax_variable_t, rows, 16);
PARALLAX_AT(parallax_variable_t, row_elements, 24);
PARALLAX_AT(parallax_variable_t, dtype, 32);
PARALLAX_AT(parallax_variable_t, tag, 36);
PARALLAX_AT(parallax_variable_t, reduction, 40);
PARALLAX_AT(parallax_variable_t, rule, 44);
PARALLAX_AT(parallax_variable_t, rows_max, 48);
PARALLAX_AT(parallax_variable_t, init_seed, 56);
PARALLAX_AT(parallax_variable_t, init, 64);
PARALLAX_AT(parallax_variable_t, init_low, 68);
PARALLAX_AT(parallax_variable_t, init_high, 72);
PARALLAX_AT(parallax_variable_t, epsilon, 76);
PARALLAX_AT(parallax_variable_t, initial_accumulator_value, 80);
PARALLAX_AT(parallax_variable_t, nesterov, 84);
PARALLAX_AT(parallax_variable_t, beta1, 88);
PARALLAX_AT(parallax_variable_t, beta2, 96);
PARALLAX_AT(parallax_variable_t, momentum, 104);
PARALLAX_AT(parallax_variable_t, refuse_nonfinite, 112);
PARALLAX_AT(parallax_variable_t, accumulate, 116);
PARALLAX_AT(parallax_variable_t, rates, 120);
PARALLAX_AT(parallax_variable_t, placement, 124);
PARALLAX_AT(parallax_variable_t, method, 128);
PARALLAX_AT(parallax_variable_t, storage_dtype, 132);
PARALLAX_AT(parallax_variable_t, rounding, 136);
PARALLAX_AT(parallax_variable_t, priority, 140);
PARALLAX_AT(parallax_variable_t, l1, 144);
PARALLAX_AT(parallax_variable_t, l2, 152);
PARALLAX_AT(parallax_variable_t, l2_shrinkage, 160);
PARALLAX_AT(parallax_variable_t, beta, 168);
PARALLAX_AT(parallax_variable_t, learning_rate_power, 176);
PARALLAX_AT(parallax_variable_t, init_mean, 184);
PARALLAX_AT(parallax_variable_t, init_std, 188);
PARALLAX_AT(parallax_variable_t, initial, 192);
PARALLAX_AT(parallax_variable_t, rule_fn, 200);
PARALLAX_AT(parallax_variable_t, rule_context, 208);
PARALLAX_AT(parallax_variable_t, state_elements, 216);
PARALLAX_AT(parallax_variable_t, memory, 224);
PARALLAX_AT(parallax_variable_t, table_memory, 228);
PARALLAX_AT(parallax_variable_t, place_values, 232);
PARALLAX_AT(parallax_variable_t, place_into, 240);
PARALLAX_AT(parallax_variable_t, wire_dtype, 248);
PARALLAX_AT(parallax_variable_t, reserved, 252);
PARALLAX_AT(parallax_variable_t, exchange_bytes_max, 256);
_Static_assert(sizeof(parallax_variable_t) == 264, "parallax_variable_t");

PARALLAX_AT(parallax_rule_block_t, variable, 8);
PARALLAX_AT(parallax_rule_block_t, dtype, 12);
PARALLAX_AT(parallax_rule_block_t, step, 16);
PARALLAX_AT(parallax_rule_block_t, updates, 24);
PARALLAX_AT(parallax_rule_block_t, row_count, 32);
PARALLAX_AT(parallax_rule_block_t, row_elements, 40);
PARALLAX_AT(parallax_rule_block_t, rows, 48);
PARALLAX_AT(parallax_rule_block_t, values, 56);
PARALLAX_AT(parallax_rule_block_t, state, 64);
PARALLAX_AT(parallax_rule_block_t, gradient, 80);
PARALLAX_AT(parallax_rule_block_t, learning_rate, 88);
PARALLAX_AT(parallax_rule_block_t, rates, 96);
_Static_assert(sizeof(parallax_rule_block_t) == 104, "parallax_rule_block_t");

PARALLAX_AT(parallax_slice_t, variable, 8);
PARALLAX_AT(parallax_slice_t, form, 12);
PARALLAX_AT(parallax_slice_t, ids, 16);
PARALLAX_AT(parallax_slice_t, row_count, 24);
PARALLAX_AT(parallax_slice_t, values, 32);
PARALLAX_AT(parallax_slice_t, as_dtype, 40);
PARALLAX_AT(parallax_slice_t, more, 44);
PARALLAX_AT(parallax_slice_t, ids_i32, 48);
PARALLAX_AT(parallax_slice_t, into, 56);
PARALLAX_AT(parallax_slice_t, stream, 64);
PARALLAX_AT(parallax_slice_t, memory, 72);
PARALLAX_AT(parallax_slice_t, device, 76);
_Static_assert(sizeof(parallax_slice_t) == 80, "parallax_slice_t");

PARALLAX_AT(parallax_buffer_options_t, numa_node, 8);
PARALLAX_AT(parallax_buffer_options_t, huge_pages, 12);
PARALLAX_AT(parallax_buffer_options_t, memory, 16);
PARALLAX_AT(parallax_buffer_options_t, device, 20);
PARALLAX_AT(parallax_buffer_options_t, symmetric, 24);
PARALLAX_AT(parallax_buffer_options_t, reserved, 28);
_Static_assert(sizeof(parallax_buffer_options_t) == 32, "parallax_buffer_options_t");

PARALLAX_AT(parallax_rows_t, variable, 8);
PARALLAX_AT(parallax_rows_t, reserved, 12);
PARALLAX_AT(parallax_rows_t, first_row, 16);
PARALLAX_AT(parallax_rows_t, row_count, 24);
PARALLAX_AT(parallax_rows_t, values, 32);
PARALLAX_AT(parallax_rows_t, state, 40);
PARALLAX_AT(parallax_rows_t, updates, 56);
_Static_assert(sizeof(parallax_rows_t) == 64, "parallax_rows_t");

PARALLAX_AT(parallax_collective_t, kind, 8);
PARALLAX_AT(parallax_collective_t, dtype, 12);
PARALLAX_AT(parallax_collective_t, op, 16);
PARALLAX_AT(parallax_collective_t, root, 20);
PARALLAX_AT(parallax_collective_t, send, 24);
PARALLAX_AT(parallax_collective_t, recv, 32);
PARALLAX_AT(parallax_collective_t, send_counts, 40);
PARALLAX_AT(parallax_collective_t, recv_counts, 48);
PARALLAX_AT(parallax_collective_t, count, 56);
PARALLAX_AT(parallax_collective_t, tag, 64);
PARALLAX_AT(parallax_collective_t, memory, 72);
PARALLAX_AT(parallax_collective_t, device, 76);
PARALLAX_AT(parallax_collective_t, stream, 80);
_Static_assert(sizeof(parallax_collective_t) == 88, "parallax_collective_t");

PARALLAX_AT(parallax_step_end_options_t, learning_rate, 8);
PARALLAX_AT(parallax_step_end_options_t, clip_norm, 12);
PARALLAX_AT(parallax_step_end_options_t, found_inf, 16);
PARALLAX_AT(parallax_step_end_options_t, absent, 20);
PARALLAX_AT(parallax_step_end_options_t, rates, 24);
PARALLAX_AT(parallax_step_end_options_t, rates_count, 32);
PARALLAX_AT(parallax_step_end_options_t, reserved, 36);
_Static_assert(sizeof(parallax_step_end_options_t) == 40, "parallax_step_end_options_t");

PARALLAX_AT(parallax_rates_t, learning_rate, 8);
PARALLAX_AT(parallax_rates_t, weight_decay, 12);
PARALLAX_AT(parallax_rates_t, decoupled, 16);
PARALLAX_AT(parallax_rates_t, maximize, 20);
PARALLAX_AT(parallax_rates_t, clip_norm, 24);
PARALLAX_AT(parallax_rates_t, reserved, 28);
_Static_assert(sizeof(parallax_rates_t) == 32, "parallax_rates_t");

PARALLAX_AT(parallax_error_info_t, status, 8);
PARALLAX_AT(parallax_error_info_t, rank, 12);
PARALLAX_AT(parallax_error_info_t, peer, 16);
PARALLAX_AT(parallax_error_info_t, variable, 20);
PARALLAX_AT(parallax_error_info_t, slice, 24);
PARALLAX_AT(parallax_error_info_t, reserved, 28);
PARALLAX_AT(parallax_error_info_t, step, 32);
PARALLAX_AT(parallax_error_info_t, step_committed, 40);
PARALLAX_AT(parallax_error_info_t, row, 48);
PARALLAX_AT(parallax_error_info_t, host, 56);
PARALLAX_AT(parallax_error_info_t, field, 184);
_Static_assert(sizeof(parallax_error_info_t) == 216, "parallax_error_info_t");

PARALLAX_AT(parallax_step_info_t, step, 8);
PARALLAX_AT(parallax_step_info_t, committed, 16);
PARALLAX_AT(parallax_step_info_t, contributors, 20);
PARALLAX_AT(parallax_step_info_t, gradient_norm, 24);
PARALLAX_AT(parallax_step_info_t, clip_scale, 32);
PARALLAX_AT(parallax_step_info_t, plan_changed, 40);
PARALLAX_AT(parallax_step_info_t, reserved, 44);
_Static_assert(sizeof(parallax_step_info_t) == 48, "parallax_step_info_t");

_Static_assert(PARALLAX_OK == 0 && PARALLAX_PENDING == 1 && PARALLAX_INVALID == -1, "status");
_Static_assert(PARALLAX_UNSUPPORTED == -2 && PARALLAX_STATE == -3, "status");
_Static_assert(PARALLAX_TIMEOUT == -4 && PARALLAX_PEER_LOST == -5, "status");
_Static_assert(PARALLAX_CANCELED == -6 && PARALLAX_ABORTED == -7, "status");
_Static_assert(PARALLAX_MISMATCH == -8 && PARALLAX_LIMIT == -9, "status");
_Static_assert(PARALLAX_IO == -10 && PARALLAX_INTERNAL == -11, "status");
_Static_assert(PARALLAX_PLAN_AUTO == 0 && PARALLAX_PLAN_HYBRID == 1, "plan mode");
_Static_assert(PARALLAX_PLAN_PS == 2 && PARALLAX_PLAN_AR == 3, "plan mode");
_Static_assert(PARALLAX_AUTO == 0 && PARALLAX_DENSE == 1 && PARALLAX_SPARSE == 2, "tag");
_Static_assert(PARALLAX_SUM == 0 && PARALLAX_MEAN_WORLD == 1, "reduction");
_Static_assert(PARALLAX_MEAN_CONTRIBUTORS == 2 && PARALLAX_MEAN_ROW == 3, "reduction");
_Static_assert(PARALLAX_F32 == 0 && PARALLAX_F64 == 1 && PARALLAX_F16 == 2, "dtype");
_Static_assert(PARALLAX_BF16 == 3 && PARALLAX_I32 == 4 && PARALLAX_I64 == 5, "dtype");
_Static_assert(PARALLAX_AS(PARALLAX_F32) == 1 && PARALLAX_AS(PARALLAX_I64) == 6, "as_dtype");
_Static_assert(PARALLAX_RULE_NONE == 0 && PARALLAX_RULE_SGD == 1, "rule");
_Static_assert(PARALLAX_RULE_ADAGRAD == 2 && PARALLAX_RULE_ADAM == 3, "rule");
_Static_assert(PARALLAX_RULE_MOMENTUM == 4 && PARALLAX_RULE_ROWWISE_ADAGRAD == 5, "rule");
_Static_assert(PARALLAX_RULE_SUM == 6 && PARALLAX_RULE_FTRL == 7, "rule");
_Static_assert(PARALLAX_RULE_CALLBACK == 8, "rule");
_Static_assert(PARALLAX_INIT_CONSTANT == 0 && PARALLAX_INIT_UNIFORM == 1, "init");
_Static_assert(PARALLAX_INIT_NORMAL == 2 && PARALLAX_INIT_TRUNCATED_NORMAL == 3, "init");
_Static_assert(PARALLAX_INIT_BUFFER == 4 && PARALLAX_INIT_BROADCAST == 5, "init");
_Static_assert(PARALLAX_PLACEMENT_AUTO == 0 && PARALLAX_PLACEMENT_SHARDED == 1, "placement");
_Static_assert(PARALLAX_PLACEMENT_MIRRORED == 2 && PARALLAX_METHOD_AUTO == 0, "placement");
_Static_assert(PARALLAX_METHOD_ALLREDUCE == 1 && PARALLAX_METHOD_ALLGATHERV == 2, "method");
_Static_assert(PARALLAX_METHOD_REDUCE_ROWS == 3 && PARALLAX_METHOD_MADE_DENSE == 4, "method");
_Static_assert(PARALLAX_METHOD_PUSH_PULL == 5 && PARALLAX_ASYNC == UINT32_MAX, "method");
_Static_assert(PARALLAX_ROUNDING_NEAREST_EVEN == 0 && PARALLAX_ROUNDING_STOCHASTIC == 1,
               "rounding");
_Static_assert(PARALLAX_MEMORY_HOST == 0 && PARALLAX_MEMORY_CUDA == 1, "memory");
_Static_assert(PARALLAX_FORM_DENSE == 0 && PARALLAX_FORM_ROWS == 1, "form");
_Static_assert(PARALLAX_REPORT_PLAN == 0 && PARALLAX_REPORT_STATS == 1, "report");
_Static_assert(PARALLAX_REPORT_TOPOLOGY == 2 && PARALLAX_REPORT_SETTINGS == 3, "report");
_Static_assert(PARALLAX_LOG_NONE == 0 && PARALLAX_LOG_WARN == 1, "log level");
_Static_assert(PARALLAX_LOG_INFO == 2 && PARALLAX_LOG_DEBUG == 3, "log level");
_Static_assert(PARALLAX_LOG_TRACE == 4 && PARALLAX_WAIT_DEFAULT == -1, "log level, wait");
_Static_assert(PARALLAX_WORLD_MAX == 1 << 20 && PARALLAX_NAME_MAX == 127, "bounds");
_Static_assert(PARALLAX_VARIABLES_MAX == 4096 && PARALLAX_REQUESTS_MAX == 1024, "bounds");
_Static_assert(PARALLAX_SLICES_MAX == 4096 && PARALLAX_UNIQUE_ID_BYTES == 128, "bounds");
_Static_assert(PARALLAX_NO_RANK == UINT32_MAX && PARALLAX_NO_VARIABLE == UINT32_MAX, "none");
_Static_assert(PARALLAX_NO_SLICE == UINT32_MAX && PARALLAX_NO_STEP == UINT64_MAX, "none");
_Static_assert(PARALLAX_NO_ROW == -1 && PARALLAX_FIELD_MAX == 31, "none");
_Static_assert(PARALLAX_RATES_MAX == 64 && PARALLAX_BYTES == 16, "bounds, bytes");
_Static_assert(PARALLAX_NUMA_NODE(3) == 4, "NUMA node");

/* The signatures: a function whose arguments changed would still link. */
static parallax_status_t (*const kOpen)(const parallax_options_t *,
                                        parallax_job_t **) = parallax_open;
static parallax_status_t (*const kUniqueId)(parallax_unique_id_t *) = parallax_unique_id;
static parallax_status_t (*const kSplit)(parallax_job_t *, const uint32_t *, size_t,
                                         parallax_job_t **) = parallax_split;
static parallax_status_t (*const kRegister)(parallax_job_t *, const parallax_variable_t *,
                                            uint32_t *) = parallax_register;
static parallax_status_t (*const kAbort)(parallax_job_t *, const char *) = parallax_abort;
static parallax_status_t (*const kOfAJob[])(parallax_job_t *) = {parallax_commit, parallax_close,
                                                                 parallax_progress};
static parallax_status_t (*const kQuery)(parallax_job_t *, parallax_job_info_t *) = parallax_query;
static parallax_status_t (*const kBegin)(parallax_job_t *, uint64_t *) = parallax_step_begin;
static parallax_status_t (*const kOfSlices[])(parallax_job_t *, uint64_t, const parallax_slice_t *,
                                              size_t, parallax_request_t **) = {
    parallax_pull, parallax_push, parallax_reduce};
static parallax_status_t (*const kEnd)(parallax_job_t *, uint64_t,
                                       const parallax_step_end_options_t *,
                                       parallax_request_t **) = parallax_step_end;
static parallax_status_t (*const kOfRows[])(parallax_job_t *, const parallax_rows_t *,
                                            parallax_request_t **) = {parallax_read,
                                                                      parallax_write};
static parallax_status_t (*const kBarrier)(parallax_job_t *,
                                           parallax_request_t **) = parallax_barrier;
static parallax_status_t (*const kBroadcast)(parallax_job_t *, void *, size_t, uint32_t,
                                             parallax_request_t **) = parallax_broadcast;
static parallax_status_t (*const kCollective)(parallax_job_t *, const parallax_collective_t *,
                                              parallax_request_t **) = parallax_collective;
static parallax_status_t (*const kSet)(parallax_job_t *, const char *, const char *) = parallax_set;
static parallax_status_t (*const kAlloc)(parallax_job_t *, size_t,
                                         const parallax_buffer_options_t *,
                                         void **) = parallax_buffer_alloc;
static parallax_status_t (*const kOfABuffer[])(parallax_job_t *, void *) = {
    parallax_buffer_free, parallax_buffer_unregister};
static parallax_status_t (*const kTell)(parallax_job_t *, void *,
                                        size_t) = parallax_buffer_register;
static parallax_status_t (*const kWait)(parallax_request_t *const *, size_t,
                                        int64_t) = parallax_wait;
static parallax_status_t (*const kStreamWait)(parallax_request_t *const *, size_t, uint32_t, void *,
                                              int64_t) = parallax_stream_wait;
static parallax_status_t (*const kOfARequest[])(parallax_request_t *) = {
    parallax_request_test, parallax_request_cancel, parallax_request_release};
static const char *(*const kError)(parallax_request_t *) = parallax_request_error;
static parallax_status_t (*const kErrorInfo)(parallax_error_info_t *) = parallax_last_error_info;
static parallax_status_t (*const kItsErrorInfo)(parallax_request_t *, parallax_error_info_t *) =
    parallax_request_error_info;
static parallax_status_t (*const kStep)(parallax_request_t *,
                                        parallax_step_info_t *) = parallax_request_step;
static parallax_status_t (*const kRows)(parallax_request_t *, size_t, const int64_t **,
                                        const void **, uint64_t *) = parallax_request_rows;
static parallax_status_t (*const kReport)(parallax_job_t *, uint32_t, char *,
                                          size_t *) = parallax_report;
static parallax_status_t (*const kLog)(parallax_log_fn, void *,
                                       uint32_t) = parallax_set_log_callback;

static void signatures(void) {
  PARALLAX_EXPECT(kOpen && kSplit && kUniqueId && kRegister && kAbort && kOfAJob[0] && kQuery &&
                  kBegin);
  PARALLAX_EXPECT(kOfSlices[0] && kEnd && kOfRows[0] && kBarrier && kBroadcast);
  PARALLAX_EXPECT(kCollective && kWait && kStreamWait && kSet && kAlloc && kOfABuffer[0] && kTell);
  PARALLAX_EXPECT(PARALLAX_ZERO == -1.0);
  PARALLAX_EXPECT(kOfARequest[0] && kError && kErrorInfo && kItsErrorInfo && kStep && kRows &&
                  kReport && kLog);
}

static void status_strings(void) {
  static const struct {
    int status;
    const char *text;
  } rows[] = {
      {PARALLAX_OK, "OK"},
      {PARALLAX_PENDING, "PENDING"},
      {PARALLAX_INVALID, "INVALID"},
      {PARALLAX_UNSUPPORTED, "UNSUPPORTED"},
      {PARALLAX_STATE, "STATE"},
      {PARALLAX_TIMEOUT, "TIMEOUT"},
      {PARALLAX_PEER_LOST, "PEER_LOST"},
      {PARALLAX_CANCELED, "CANCELED"},
      {PARALLAX_ABORTED, "ABORTED"},
      {PARALLAX_MISMATCH, "MISMATCH"},
      {PARALLAX_LIMIT, "LIMIT"},
      {PARALLAX_IO, "IO"},
      {PARALLAX_INTERNAL, "INTERNAL"},
      {-12, "UNKNOWN"},
      {2, "UNKNOWN"},
      {1 << 30, "UNKNOWN"},
  };
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    const char *text = parallax_status_string(rows[i].status);
    PARALLAX_EXPECT(strcmp(text, rows[i].text) == 0);
  }
}

int main(void) {
  char version[32];
  status_strings();
  signatures();
  snprintf(version, sizeof version, "%d.%d.%d", PARALLAX_VERSION_MAJOR, PARALLAX_VERSION_MINOR,
           PARALLAX_VERSION_PATCH);
  PARALLAX_EXPECT(strcmp(parallax_version_string(), version) == 0);
  PARALLAX_EXPECT(parallax_version() == PARALLAX_VERSION_MAJOR * 10000 +
                                            PARALLAX_VERSION_MINOR * 100 + PARALLAX_VERSION_PATCH);
  PARALLAX_EXPECT(strcmp(parallax_last_error(), "") == 0);
  return parallax_expect_end();
}
