/* SPDX-License-Identifier: Apache-2.0
 *
 * What parallax.h of version 0.2 declared, without its comments: what programs built
 * against it see. Written by compare_releases --keep.
 */
/* clang-format off */
#ifndef PARALLAX_TESTS_ABI_RELEASED_0_2_PARALLAX_PARALLAX_H_
#define PARALLAX_TESTS_ABI_RELEASED_0_2_PARALLAX_PARALLAX_H_
#include <stddef.h>
#include <stdint.h>
#define PARALLAX_VERSION_MAJOR 0
#define PARALLAX_VERSION_MINOR 2
#define PARALLAX_VERSION_PATCH 0
#if defined(__GNUC__)
#define PARALLAX_API __attribute__((visibility("default")))
#else
#define PARALLAX_API
#endif
#ifdef __cplusplus
extern "C" {
#endif
#define PARALLAX_WORLD_MAX 1048576
#define PARALLAX_NAME_MAX 127
#define PARALLAX_FIELD_MAX 31
#define PARALLAX_VARIABLES_MAX 4096
#define PARALLAX_REQUESTS_MAX 1024
#define PARALLAX_SLICES_MAX 4096
#define PARALLAX_RATES_MAX 64
typedef enum parallax_status {
  PARALLAX_OK = 0,
  PARALLAX_PENDING = 1,
  PARALLAX_INVALID = -1,
  PARALLAX_UNSUPPORTED = -2,
  PARALLAX_STATE = -3,
  PARALLAX_TIMEOUT = -4,
  PARALLAX_PEER_LOST = -5,
  PARALLAX_CANCELED = -6,
  PARALLAX_ABORTED = -7,
  PARALLAX_MISMATCH = -8,
  PARALLAX_LIMIT = -9,
  PARALLAX_IO = -10,
  PARALLAX_INTERNAL = -11
} parallax_status_t;
PARALLAX_API const char *parallax_status_string(int status);
PARALLAX_API const char *parallax_last_error(void);
#define PARALLAX_NO_RANK UINT32_MAX
#define PARALLAX_NO_VARIABLE UINT32_MAX
#define PARALLAX_NO_SLICE UINT32_MAX
#define PARALLAX_NO_STEP UINT64_MAX
#define PARALLAX_NO_ROW (-1)
typedef struct parallax_error_info {
  size_t size;
  int32_t status;
  uint32_t rank;
  uint32_t peer;
  uint32_t variable;
  uint32_t slice;
  uint32_t reserved;
  uint64_t step;
  uint64_t step_committed;
  int64_t row;
  char host[PARALLAX_NAME_MAX + 1];
  char field[PARALLAX_FIELD_MAX + 1];
} parallax_error_info_t;
PARALLAX_API parallax_status_t parallax_last_error_info(parallax_error_info_t *info);
PARALLAX_API const char *parallax_version_string(void);
PARALLAX_API uint32_t parallax_version(void);
typedef enum parallax_log_level {
  PARALLAX_LOG_NONE = 0,
  PARALLAX_LOG_WARN = 1,
  PARALLAX_LOG_INFO = 2,
  PARALLAX_LOG_DEBUG = 3,
  PARALLAX_LOG_TRACE = 4
} parallax_log_level_t;
typedef void (*parallax_log_fn)(void *context, int level, const char *subsystem,
                                const char *message);
PARALLAX_API parallax_status_t parallax_set_log_callback(parallax_log_fn callback, void *context,
                                                         uint32_t level);
typedef struct parallax_job parallax_job_t;
typedef struct parallax_request parallax_request_t;
typedef enum parallax_plan_mode {
  PARALLAX_PLAN_AUTO = 0,
  PARALLAX_PLAN_HYBRID = 1,
  PARALLAX_PLAN_PS = 2,
  PARALLAX_PLAN_AR = 3
} parallax_plan_mode_t;
typedef int (*parallax_allgather_fn)(void *context, const void *send, void *recv, size_t bytes);
#define PARALLAX_UNIQUE_ID_BYTES 128
typedef struct parallax_unique_id_bytes {
  unsigned char bytes[PARALLAX_UNIQUE_ID_BYTES];
} parallax_unique_id_t;
PARALLAX_API parallax_status_t parallax_unique_id(parallax_unique_id_t *id);
typedef struct parallax_options {
  size_t size;
  uint32_t rank;
  uint32_t world;
  const char *rendezvous;
  parallax_allgather_fn allgather;
  void *allgather_context;
  const char *host;
  const char *transport;
  const char *net_device;
  uint32_t lease_ms;
  uint32_t timeout_ms;
  uint32_t plan_mode;
  uint32_t plan_after_steps;
  uint32_t deterministic;
  uint32_t compute_threads;
  uint32_t manual_progress;
  uint32_t reserved;
  uint64_t memory_max_bytes;
  const char *faults;
  const parallax_unique_id_t *unique_id;
  const char *secret_file;
  uint32_t staleness;
  uint32_t replicas;
  uint32_t sparse_as_dense;
  uint32_t no_local_aggregation;
  const char *pins;
} parallax_options_t;
#define PARALLAX_STALENESS_MAX 62
#define PARALLAX_ASYNC UINT32_MAX
PARALLAX_API parallax_status_t parallax_open(const parallax_options_t *options,
                                             parallax_job_t **job);
PARALLAX_API parallax_status_t parallax_commit(parallax_job_t *job);
PARALLAX_API parallax_status_t parallax_abort(parallax_job_t *job, const char *reason);
PARALLAX_API parallax_status_t parallax_close(parallax_job_t *job);
PARALLAX_API parallax_status_t parallax_split(parallax_job_t *job, const uint32_t *ranks,
                                              size_t count, parallax_job_t **part);
typedef enum parallax_phase {
  PARALLAX_PHASE_NONE = 0,
  PARALLAX_PHASE_PULL = 1,
  PARALLAX_PHASE_PUSH = 2,
  PARALLAX_PHASE_STEP_END = 3
} parallax_phase_t;
typedef struct parallax_job_info {
  size_t size;
  uint32_t rank, world;
  uint32_t host, hosts;
  uint32_t local_rank, local_world;
  uint32_t variables;
  uint32_t committed;
  uint64_t step;
  uint64_t step_committed;
  int32_t wait_fd;
  uint32_t reserved;
  uint32_t late_phase;
  uint32_t late_rank;
  uint32_t late_ms;
  uint32_t late_steps;
  uint32_t job_rank;
  uint32_t epoch;
  uint32_t view;
  uint32_t reserved_2;
  uint64_t bytes_reserved;
  uint64_t bytes_touched;
} parallax_job_info_t;
PARALLAX_API parallax_status_t parallax_query(parallax_job_t *job, parallax_job_info_t *info);
PARALLAX_API parallax_status_t parallax_set(parallax_job_t *job, const char *name,
                                            const char *value);
PARALLAX_API parallax_status_t parallax_progress(parallax_job_t *job);
typedef enum parallax_memory {
  PARALLAX_MEMORY_HOST = 0,
  PARALLAX_MEMORY_CUDA = 1
} parallax_memory_t;
#define PARALLAX_NUMA_NODE(number) ((uint32_t)(number) + 1u)
typedef struct parallax_buffer_options {
  size_t size;
  uint32_t numa_node;
  uint32_t huge_pages;
  uint32_t memory;
  uint32_t device;
  uint32_t symmetric;
  uint32_t reserved;
} parallax_buffer_options_t;
PARALLAX_API parallax_status_t parallax_buffer_alloc(parallax_job_t *job, size_t bytes,
                                                     const parallax_buffer_options_t *options,
                                                     void **pointer);
PARALLAX_API parallax_status_t parallax_buffer_free(parallax_job_t *job, void *pointer);
PARALLAX_API parallax_status_t parallax_buffer_register(parallax_job_t *job, void *pointer,
                                                        size_t bytes);
PARALLAX_API parallax_status_t parallax_buffer_unregister(parallax_job_t *job, void *pointer);
typedef enum parallax_dtype {
  PARALLAX_F32 = 0,
  PARALLAX_F64 = 1,
  PARALLAX_F16 = 2,
  PARALLAX_BF16 = 3,
  PARALLAX_I32 = 4,
  PARALLAX_I64 = 5
} parallax_dtype_t;
#define PARALLAX_BYTES 16u
typedef enum parallax_tag {
  PARALLAX_AUTO = 0,
  PARALLAX_DENSE = 1,
  PARALLAX_SPARSE = 2
} parallax_tag_t;
typedef enum parallax_reduction {
  PARALLAX_SUM = 0,
  PARALLAX_MEAN_WORLD = 1,
  PARALLAX_MEAN_CONTRIBUTORS = 2,
  PARALLAX_MEAN_ROW = 3
} parallax_reduction_t;
typedef enum parallax_rule {
  PARALLAX_RULE_NONE = 0,
  PARALLAX_RULE_SGD = 1,
  PARALLAX_RULE_ADAGRAD = 2,
  PARALLAX_RULE_ADAM = 3,
  PARALLAX_RULE_MOMENTUM = 4,
  PARALLAX_RULE_ROWWISE_ADAGRAD = 5,
  PARALLAX_RULE_SUM = 6,
  PARALLAX_RULE_FTRL = 7,
  PARALLAX_RULE_CALLBACK = 8
} parallax_rule_t;
typedef struct parallax_rule_block {
  size_t size;
  uint32_t variable;
  uint32_t dtype;
  uint64_t step;
  uint64_t updates;
  uint64_t row_count;
  uint64_t row_elements;
  const int64_t *rows;
  void *values;
  void *state[2];
  const void *gradient;
  double learning_rate;
  const struct parallax_rates *rates;
} parallax_rule_block_t;
typedef int (*parallax_rule_fn)(void *context, const parallax_rule_block_t *block);
typedef enum parallax_init {
  PARALLAX_INIT_CONSTANT = 0,
  PARALLAX_INIT_UNIFORM = 1,
  PARALLAX_INIT_NORMAL = 2,
  PARALLAX_INIT_TRUNCATED_NORMAL = 3,
  PARALLAX_INIT_BUFFER = 4,
  PARALLAX_INIT_BROADCAST = 5
} parallax_init_t;
typedef enum parallax_placement {
  PARALLAX_PLACEMENT_AUTO = 0,
  PARALLAX_PLACEMENT_SHARDED = 1,
  PARALLAX_PLACEMENT_MIRRORED = 2
} parallax_placement_t;
typedef enum parallax_method {
  PARALLAX_METHOD_AUTO = 0,
  PARALLAX_METHOD_ALLREDUCE = 1,
  PARALLAX_METHOD_ALLGATHERV = 2,
  PARALLAX_METHOD_REDUCE_ROWS = 3,
  PARALLAX_METHOD_MADE_DENSE = 4,
  PARALLAX_METHOD_PUSH_PULL = 5
} parallax_method_t;
typedef enum parallax_rounding {
  PARALLAX_ROUNDING_NEAREST_EVEN = 0,
  PARALLAX_ROUNDING_STOCHASTIC = 1
} parallax_rounding_t;
#define PARALLAX_ZERO (-1.0)
typedef struct parallax_variable {
  size_t size;
  const char *name;
  uint64_t rows;
  uint64_t row_elements;
  uint32_t dtype;
  uint32_t tag;
  uint32_t reduction;
  uint32_t rule;
  uint64_t rows_max;
  uint64_t init_seed;
  uint32_t init;
  float init_low, init_high;
  float epsilon;
  float initial_accumulator_value;
  uint32_t nesterov;
  double beta1, beta2;
  double momentum;
  uint32_t refuse_nonfinite;
  uint32_t accumulate;
  uint32_t rates;
  uint32_t placement;
  uint32_t method;
  uint32_t storage_dtype;
  uint32_t rounding;
  int32_t priority;
  double l1, l2;
  double l2_shrinkage;
  double beta;
  double learning_rate_power;
  float init_mean;
  float init_std;
  const void *initial;
  parallax_rule_fn rule_fn;
  void *rule_context;
  uint32_t state_elements[2];
  uint32_t memory;
  uint32_t table_memory;
  void *place_values;
  void *place_into;
  uint32_t wire_dtype;
  uint32_t reserved;
  uint64_t exchange_bytes_max;
} parallax_variable_t;
PARALLAX_API parallax_status_t parallax_register(parallax_job_t *job,
                                                 const parallax_variable_t *variable,
                                                 uint32_t *id);
typedef enum parallax_form {
  PARALLAX_FORM_DENSE = 0,
  PARALLAX_FORM_ROWS = 1
} parallax_form_t;
#define PARALLAX_AS(dtype) ((uint32_t)(dtype) + 1u)
typedef struct parallax_slice {
  size_t size;
  uint32_t variable;
  uint32_t form;
  const int64_t *ids;
  uint64_t row_count;
  void *values;
  uint32_t as_dtype;
  uint32_t more;
  const int32_t *ids_i32;
  void *into;
  void *stream;
  uint32_t memory;
  uint32_t device;
} parallax_slice_t;
PARALLAX_API parallax_status_t parallax_step_begin(parallax_job_t *job, uint64_t *step);
PARALLAX_API parallax_status_t parallax_pull(parallax_job_t *job, uint64_t step,
                                             const parallax_slice_t *slices, size_t count,
                                             parallax_request_t **request);
PARALLAX_API parallax_status_t parallax_push(parallax_job_t *job, uint64_t step,
                                             const parallax_slice_t *slices, size_t count,
                                             parallax_request_t **request);
PARALLAX_API parallax_status_t parallax_reduce(parallax_job_t *job, uint64_t step,
                                               const parallax_slice_t *slices, size_t count,
                                               parallax_request_t **request);
typedef struct parallax_rates {
  size_t size;
  float learning_rate;
  float weight_decay;
  uint32_t decoupled;
  uint32_t maximize;
  float clip_norm;
  uint32_t reserved;
} parallax_rates_t;
typedef struct parallax_step_end_options {
  size_t size;
  float learning_rate;
  float clip_norm;
  uint32_t found_inf;
  uint32_t absent;
  const parallax_rates_t *rates;
  uint32_t rates_count;
  uint32_t reserved;
} parallax_step_end_options_t;
PARALLAX_API parallax_status_t parallax_step_end(parallax_job_t *job, uint64_t step,
                                                 const parallax_step_end_options_t *options,
                                                 parallax_request_t **request);
typedef struct parallax_step_info {
  size_t size;
  uint64_t step;
  uint32_t committed;
  uint32_t contributors;
  double gradient_norm;
  double clip_scale;
  uint32_t plan_changed;
  uint32_t reserved;
} parallax_step_info_t;
typedef struct parallax_rows {
  size_t size;
  uint32_t variable;
  uint32_t reserved;
  uint64_t first_row;
  uint64_t row_count;
  void *values;
  void *state[2];
  uint64_t *updates;
} parallax_rows_t;
PARALLAX_API parallax_status_t parallax_read(parallax_job_t *job, const parallax_rows_t *rows,
                                             parallax_request_t **request);
PARALLAX_API parallax_status_t parallax_write(parallax_job_t *job, const parallax_rows_t *rows,
                                              parallax_request_t **request);
PARALLAX_API parallax_status_t parallax_barrier(parallax_job_t *job, parallax_request_t **request);
PARALLAX_API parallax_status_t parallax_broadcast(parallax_job_t *job, void *buffer, size_t bytes,
                                                  uint32_t root, parallax_request_t **request);
typedef enum parallax_collective_kind {
  PARALLAX_ALLREDUCE = 1,
  PARALLAX_REDUCE_SCATTER = 2,
  PARALLAX_ALLGATHER = 3,
  PARALLAX_ALLGATHERV = 4,
  PARALLAX_ALLTOALLV = 5,
  PARALLAX_BROADCAST = 6,
  PARALLAX_REDUCE = 7,
  PARALLAX_GATHER = 8
} parallax_collective_kind_t;
typedef enum parallax_op {
  PARALLAX_OP_SUM = 0,
  PARALLAX_OP_MEAN = 1,
  PARALLAX_OP_MIN = 2,
  PARALLAX_OP_MAX = 3,
  PARALLAX_OP_PRODUCT = 4,
  PARALLAX_OP_AND = 5,
  PARALLAX_OP_OR = 6,
  PARALLAX_OP_XOR = 7
} parallax_op_t;
typedef struct parallax_collective {
  size_t size;
  uint32_t kind;
  uint32_t dtype;
  uint32_t op;
  uint32_t root;
  const void *send;
  void *recv;
  const uint64_t *send_counts;
  const uint64_t *recv_counts;
  uint64_t count;
  uint64_t tag;
  uint32_t memory;
  uint32_t device;
  void *stream;
} parallax_collective_t;
PARALLAX_API parallax_status_t parallax_collective(parallax_job_t *job,
                                                   const parallax_collective_t *what,
                                                   parallax_request_t **request);
#define PARALLAX_WAIT_DEFAULT (-1)
PARALLAX_API parallax_status_t parallax_wait(parallax_request_t *const *requests, size_t count,
                                             int64_t timeout_ms);
PARALLAX_API parallax_status_t parallax_stream_wait(parallax_request_t *const *requests,
                                                    size_t count, uint32_t device, void *stream,
                                                    int64_t timeout_ms);
PARALLAX_API parallax_status_t parallax_request_test(parallax_request_t *request);
PARALLAX_API parallax_status_t parallax_request_cancel(parallax_request_t *request);
PARALLAX_API const char *parallax_request_error(parallax_request_t *request);
PARALLAX_API parallax_status_t parallax_request_error_info(parallax_request_t *request,
                                                           parallax_error_info_t *info);
PARALLAX_API parallax_status_t parallax_request_step(parallax_request_t *request,
                                                     parallax_step_info_t *info);
PARALLAX_API parallax_status_t parallax_request_rows(parallax_request_t *request, size_t index,
                                                     const int64_t **ids, const void **values,
                                                     uint64_t *row_count);
PARALLAX_API parallax_status_t parallax_request_release(parallax_request_t *request);
typedef enum parallax_report {
  PARALLAX_REPORT_PLAN = 0,
  PARALLAX_REPORT_STATS = 1,
  PARALLAX_REPORT_TOPOLOGY = 2,
  PARALLAX_REPORT_SETTINGS = 3
} parallax_report_t;
PARALLAX_API parallax_status_t parallax_report(parallax_job_t *job, uint32_t report, char *buffer,
                                               size_t *bytes);
#ifdef __cplusplus
}
#endif
#endif
