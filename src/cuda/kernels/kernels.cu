// SPDX-License-Identifier: Apache-2.0
// Every kernel by its name: parallax_<what>_<types>. The launchers (launcher.h) find them so.
#include "cuda/kernels/coalesce_kernels.h"
#include "cuda/kernels/row_kernels.h"
#include "cuda/kernels/sum_kernels.h"
#include "cuda/kernels/update_kernels.h"

using namespace parallax::kernels;

#define PARALLAX_COPIES(bytes, Id)                                                                 \
  PARALLAX_KERNEL(parallax_gather_##bytes##_##Id,                                                  \
                  (const unit##bytes* table, uint64_t table_rows, const Id* ids, unit##bytes* out, \
                   uint32_t count, uint32_t units, uint32_t lane_bits, uint32_t* bad),             \
                  { gather(table, table_rows, ids, out, count, units, lane_bits, bad); })          \
  PARALLAX_KERNEL(                                                                                 \
      parallax_scatter_##bytes##_##Id,                                                             \
      (unit##bytes * table, uint64_t table_rows, const Id* ids, const unit##bytes* rows,           \
       uint32_t count, uint32_t units, uint32_t lane_bits, uint32_t* bad),                         \
      { scatter(table, table_rows, ids, rows, count, units, lane_bits, bad); })

#define PARALLAX_GATHER_CAST(From, To, Id)                                                         \
  PARALLAX_KERNEL(parallax_gather_##From##_##To##_##Id,                                            \
                  (const From* table, uint64_t table_rows, const Id* ids, To* out, uint32_t count, \
                   uint32_t elements, uint32_t lane_bits, uint32_t* bad),                          \
                  { gather_cast(table, table_rows, ids, out, count, elements, lane_bits, bad); })

#define PARALLAX_CAST(From, To)                                                            \
  PARALLAX_KERNEL(parallax_cast_##From##_##To, (const From* from, To* to, uint64_t count), \
                  { cast(from, to, count); })                                              \
  PARALLAX_GATHER_CAST(From, To, i32)                                                      \
  PARALLAX_GATHER_CAST(From, To, i64)

#define PARALLAX_SCATTER_ADD(Type, Id)                                                      \
  PARALLAX_KERNEL(                                                                          \
      parallax_scatter_add_##Type##_##Id,                                                   \
      (Type * table, uint64_t table_rows, const Id* ids, const float* rows, uint32_t count, \
       const uint32_t* count_here, uint32_t elements, uint32_t lane_bits, uint32_t* bad),   \
      { scatter_add(table, table_rows, ids, rows, count, count_here, elements, lane_bits, bad); })

#define PARALLAX_SUM_PACKS(Type, width)                                                          \
  PARALLAX_KERNEL(parallax_sum_##Type##_##width,                                                 \
                  (const Pack<Type, width>* rows, const uint32_t* order, const uint32_t* starts, \
                   const uint32_t* unique_count, Pack<float, width>* sums, uint32_t packs,       \
                   uint32_t lane_bits, uint32_t* long_ones, uint32_t* long_count),               \
                  {                                                                              \
                    sum_segments<width, Type>(rows, order, starts, unique_count, sums, packs,    \
                                              lane_bits, long_ones, long_count);                 \
                  })                                                                             \
  PARALLAX_KERNEL(                                                                               \
      parallax_sum_long_##Type##_##width,                                                        \
      (const Pack<Type, width>* rows, const uint32_t* order, const uint32_t* starts,             \
       const uint32_t* long_ones, const uint32_t* long_count, float* sums, uint32_t packs),      \
      {                                                                                          \
        sum_long_segments<width, Type>(rows, order, starts, long_ones, long_count, sums, packs); \
      })

#define PARALLAX_SUM(Type)    \
  PARALLAX_SUM_PACKS(Type, 1) \
  PARALLAX_SUM_PACKS(Type, 4)

#define PARALLAX_SUM_IN_ORDER(Type)                                                              \
  PARALLAX_KERNEL(parallax_sum_in_order_##Type,                                                  \
                  (const Type* gathered, HostEnds ends, uint32_t ranks, double factor, Type* to, \
                   uint64_t count),                                                              \
                  { sum_in_order(gathered, ends, ranks, factor, to, count); })

#define PARALLAX_KEYS(Id, Key)                                                                 \
  PARALLAX_KERNEL(parallax_keys_##Id##_##Key,                                                  \
                  (const Id* ids, uint64_t table_rows, uint32_t count, Key padding, Key* keys, \
                   uint32_t* counts, uint32_t* bad),                                           \
                  { make_keys(ids, table_rows, count, padding, keys, counts, bad); })          \
  PARALLAX_KERNEL(parallax_segments_##Id##_##Key,                                              \
                  (const Key* keys, uint32_t count, Key padding, const uint32_t* heads,        \
                   const uint32_t* totals, Id* unique_ids, uint32_t* starts,                   \
                   uint32_t* unique_count, uint32_t* long_count),                              \
                  {                                                                            \
                    lay_out_segments(keys, count, padding, heads, totals, unique_ids, starts,  \
                                     unique_count, long_count);                                \
                  })

#define PARALLAX_SORT(Key)                                                                  \
  PARALLAX_KERNEL(parallax_digits_##Key,                                                    \
                  (const Key* keys, uint32_t count, uint32_t shift, uint32_t* counts),      \
                  { count_digits(keys, count, shift, counts); })                            \
  PARALLAX_KERNEL(                                                                          \
      parallax_move_##Key,                                                                  \
      (const Key* keys, const uint32_t* order, uint32_t count, uint32_t shift,              \
       const uint32_t* counts, const uint32_t* totals, Key* keys_out, uint32_t* order_out), \
      { move_keys(keys, order, count, shift, counts, totals, keys_out, order_out); })       \
  PARALLAX_KERNEL(                                                                          \
      parallax_heads_##Key,                                                                 \
      (const Key* keys, uint32_t count, Key padding, uint32_t* heads, uint32_t* totals),    \
      { scan_heads(keys, count, padding, heads, totals); })

#define PARALLAX_ROWS(Id) \
  Rows<Id> { table_rows, ids, count, count_here, elements, lane_bits, bad }
#define PARALLAX_ROW_PARAMETERS(Id)                                               \
  uint64_t table_rows, const Id *ids, uint32_t count, const uint32_t *count_here, \
      uint32_t elements, uint32_t lane_bits, uint32_t *bad

#define PARALLAX_UPDATES(Id)                                                                       \
  PARALLAX_KERNEL(                                                                                 \
      parallax_update_sgd_##Id,                                                                    \
      (RuleNumbers with, PARALLAX_ROW_PARAMETERS(Id), float* values, const float* gradients),      \
      { update_sgd(with, PARALLAX_ROWS(Id), values, gradients); })                                 \
  PARALLAX_KERNEL(parallax_update_momentum_##Id,                                                   \
                  (RuleNumbers with, PARALLAX_ROW_PARAMETERS(Id), float* values, float* state0,    \
                   const float* gradients),                                                        \
                  { update_momentum(with, PARALLAX_ROWS(Id), values, state0, gradients); })        \
  PARALLAX_KERNEL(parallax_update_adagrad_##Id,                                                    \
                  (RuleNumbers with, PARALLAX_ROW_PARAMETERS(Id), float* values, float* state0,    \
                   const float* gradients),                                                        \
                  { update_adagrad(with, PARALLAX_ROWS(Id), values, state0, gradients); })         \
  PARALLAX_KERNEL(parallax_update_rowwise_adagrad_##Id,                                            \
                  (RuleNumbers with, PARALLAX_ROW_PARAMETERS(Id), float* values, float* state0,    \
                   const float* gradients),                                                        \
                  { update_rowwise_adagrad(with, PARALLAX_ROWS(Id), values, state0, gradients); }) \
  PARALLAX_KERNEL(parallax_update_adam_##Id,                                                       \
                  (RuleNumbers with, PARALLAX_ROW_PARAMETERS(Id), float* values, float* state0,    \
                   float* state1, const float* gradients),                                         \
                  { update_adam(with, PARALLAX_ROWS(Id), values, state0, state1, gradients); })

PARALLAX_COPIES(2, i32)
PARALLAX_COPIES(2, i64)
PARALLAX_COPIES(4, i32)
PARALLAX_COPIES(4, i64)
PARALLAX_COPIES(16, i32)
PARALLAX_COPIES(16, i64)
PARALLAX_CAST(f32, f16)
PARALLAX_CAST(f32, bf16)
PARALLAX_CAST(f32, f64)
PARALLAX_CAST(f16, f32)
PARALLAX_CAST(f16, bf16)
PARALLAX_CAST(bf16, f32)
PARALLAX_CAST(bf16, f16)
PARALLAX_SCATTER_ADD(f32, i32)
PARALLAX_SCATTER_ADD(f32, i64)
PARALLAX_SCATTER_ADD(f16, i32)
PARALLAX_SCATTER_ADD(f16, i64)
PARALLAX_SCATTER_ADD(bf16, i32)
PARALLAX_SCATTER_ADD(bf16, i64)
PARALLAX_SUM(f32)
PARALLAX_SUM(f16)
PARALLAX_SUM(bf16)
PARALLAX_SUM(f64)
PARALLAX_SUM_IN_ORDER(f32)
PARALLAX_SUM_IN_ORDER(f64)
PARALLAX_SUM_IN_ORDER(f16)
PARALLAX_SUM_IN_ORDER(bf16)
PARALLAX_SUM_IN_ORDER(i32)
PARALLAX_SUM_IN_ORDER(i64)
PARALLAX_KEYS(i32, u32)
PARALLAX_KEYS(i64, u32)
PARALLAX_KEYS(i64, u64)
PARALLAX_SORT(u32)
PARALLAX_SORT(u64)
PARALLAX_UPDATES(i32)
PARALLAX_UPDATES(i64)

PARALLAX_KERNEL(parallax_scan_counts, (uint32_t * counts, uint32_t tiles, uint32_t* totals),
                { scan_counts(counts, tiles, totals); })
PARALLAX_KERNEL(parallax_scan_totals, (uint32_t * totals, uint32_t tiles),
                { scan_all(totals, tiles, nullptr); })
