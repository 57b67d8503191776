// SPDX-License-Identifier: Apache-2.0
// Kernels over rows that ids name: gather, scatter, scatter-add, and casts. An id of -1 is padding:
// gathered as zeros, scattered nowhere. An id that is neither padding nor below `table_rows` is
// treated as padding, and *bad becomes the least position of one (all ones before).
#ifndef PARALLAX_CUDA_KERNELS_ROW_KERNELS_H_
#define PARALLAX_CUDA_KERNELS_ROW_KERNELS_H_

#include "cuda/kernels/numbers.h"

namespace parallax::kernels {

// What bytes of a row are copied by.
struct alignas(16) Unit16 {
  uint32_t words[4];
};
using unit2 = uint16_t;
using unit4 = uint32_t;
using unit16 = Unit16;

// Whether row i is one of the table; `first`: of the threads that ask, the one that tells.
template <typename Id>
PARALLAX_DEVICE bool is_row(const Id* ids, uint64_t i, uint64_t table_rows, uint32_t* bad,
                            bool first) {
  const Id id = ids[i];
  if (id >= 0 && static_cast<uint64_t>(id) < table_rows) return true;
  if (id != -1 && first) lower_atomically(bad, static_cast<uint32_t>(i));
  return false;
}

template <typename Unit, typename Id>
PARALLAX_DEVICE void gather(const Unit* table, uint64_t table_rows, const Id* ids, Unit* out,
                            uint32_t count, uint32_t units, uint32_t lane_bits, uint32_t* bad) {
  each_element(count, units, lane_bits, [&](uint64_t i, uint32_t e) {
    const bool there = is_row(ids, i, table_rows, bad, e == 0);
    out[i * units + e] = there ? table[static_cast<uint64_t>(ids[i]) * units + e] : Unit{};
  });
}

template <typename From, typename To, typename Id>
PARALLAX_DEVICE void gather_cast(const From* table, uint64_t table_rows, const Id* ids, To* out,
                                 uint32_t count, uint32_t elements, uint32_t lane_bits,
                                 uint32_t* bad) {
  each_element(count, elements, lane_bits, [&](uint64_t i, uint32_t e) {
    const bool there = is_row(ids, i, table_rows, bad, e == 0);
    const float value = there ? widen(table[static_cast<uint64_t>(ids[i]) * elements + e]) : 0.0f;
    out[i * elements + e] = Narrow<To>::of(value);
  });
}

// Ids occur once.
template <typename Unit, typename Id>
PARALLAX_DEVICE void scatter(Unit* table, uint64_t table_rows, const Id* ids, const Unit* rows,
                             uint32_t count, uint32_t units, uint32_t lane_bits, uint32_t* bad) {
  each_element(count, units, lane_bits, [&](uint64_t i, uint32_t e) {
    if (!is_row(ids, i, table_rows, bad, e == 0)) return;
    table[static_cast<uint64_t>(ids[i]) * units + e] = rows[i * units + e];
  });
}

// Ids occur once; of `count` rows those that *count_here says, if it is given.
template <typename T, typename Id>
PARALLAX_DEVICE void scatter_add(T* table, uint64_t table_rows, const Id* ids, const float* rows,
                                 uint32_t count, const uint32_t* count_here, uint32_t elements,
                                 uint32_t lane_bits, uint32_t* bad) {
  const uint32_t most = count_here == nullptr ? count : *count_here;
  each_element(most, elements, lane_bits, [&](uint64_t i, uint32_t e) {
    if (!is_row(ids, i, table_rows, bad, e == 0)) return;
    T* const value = &table[static_cast<uint64_t>(ids[i]) * elements + e];
    *value = Narrow<T>::of(widen(*value) + rows[i * elements + e]);
  });
}

template <typename From, typename To>
PARALLAX_DEVICE void cast(const From* from, To* to, uint64_t count) {
  each_index(count, [&](uint64_t i) { to[i] = Narrow<To>::of(widen(from[i])); });
}

}  // namespace parallax::kernels

#endif  // PARALLAX_CUDA_KERNELS_ROW_KERNELS_H_
