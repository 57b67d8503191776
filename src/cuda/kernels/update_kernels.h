// SPDX-License-Identifier: Apache-2.0
// Update rules on a device: the arithmetic of server/update_rules.h, operation for operation, so
// that a table on a device and one on a host have the same bits. Rows are those that ids name, or
// all from the first on. Built without contraction into fused multiply-adds.
#ifndef PARALLAX_CUDA_KERNELS_UPDATE_KERNELS_H_
#define PARALLAX_CUDA_KERNELS_UPDATE_KERNELS_H_

#include "cuda/kernels/row_kernels.h"
#include "cuda/kernels/shapes.h"

namespace parallax::kernels {

// What an update is given beside its numbers. Ids occur once; null: row i is row i.
template <typename Id>
struct Rows {
  uint64_t table_rows;
  const Id* ids;
  uint32_t count;
  const uint32_t* count_here;  // null: `count`
  uint32_t elements;
  uint32_t lane_bits;
  uint32_t* bad;
};

template <typename Id>
PARALLAX_DEVICE uint32_t count_of(const Rows<Id>& rows) {
  return rows.count_here == nullptr ? rows.count : *rows.count_here;
}

// Row i of the gradient is row *to of the table; false: none.
template <typename Id>
PARALLAX_DEVICE bool row_of(const Rows<Id>& rows, uint64_t i, bool first, uint64_t* to) {
  if (rows.ids == nullptr) {
    *to = i;
    return i < rows.table_rows;
  }
  if (!is_row(rows.ids, i, rows.table_rows, rows.bad, first)) return false;
  *to = static_cast<uint64_t>(rows.ids[i]);
  return true;
}

// The gradient as the rule takes it.
PARALLAX_DEVICE float taken(const RuleNumbers& with, float gradient, float value) {
  return with.coupled != 0 ? gradient * with.scale + with.coupled * value : gradient * with.scale;
}
PARALLAX_DEVICE float kept(const RuleNumbers& with, float value) {
  return with.kept != 1 ? value * with.kept : value;
}

// update(value, g, at): the new value of element `at` of the table.
template <typename Id, typename Update>
PARALLAX_DEVICE void update_each(const RuleNumbers& with, const Rows<Id>& rows, float* values,
                                 const float* gradients, Update update) {
  each_element(count_of(rows), rows.elements, rows.lane_bits, [&](uint64_t i, uint32_t e) {
    uint64_t row;
    if (!row_of(rows, i, e == 0, &row)) return;
    const uint64_t at = row * rows.elements + e;
    const float value = kept(with, values[at]);
    const float g = taken(with, gradients[i * rows.elements + e], value);
    values[at] = update(value, g, at);
  });
}

template <typename Id>
PARALLAX_DEVICE void update_sgd(const RuleNumbers& with, const Rows<Id>& rows, float* values,
                                const float* gradients) {
  update_each(with, rows, values, gradients,
              [&](float value, float g, uint64_t) { return value - with.rate * g; });
}

template <typename Id>
PARALLAX_DEVICE void update_momentum(const RuleNumbers& with, const Rows<Id>& rows, float* values,
                                     float* state0, const float* gradients) {
  update_each(with, rows, values, gradients, [&](float value, float g, uint64_t at) {
    const float velocity = with.momentum * state0[at] + g;
    state0[at] = velocity;
    return value - with.rate * (with.nesterov != 0 ? g + with.momentum * velocity : velocity);
  });
}

template <typename Id>
PARALLAX_DEVICE void update_adagrad(const RuleNumbers& with, const Rows<Id>& rows, float* values,
                                    float* state0, const float* gradients) {
  update_each(with, rows, values, gradients, [&](float value, float g, uint64_t at) {
    const float squares = state0[at] + g * g;
    state0[at] = squares;
    return value - with.rate * g / (square_root(squares) + with.epsilon);
  });
}

template <typename Id>
PARALLAX_DEVICE void update_adam(const RuleNumbers& with, const Rows<Id>& rows, float* values,
                                 float* state0, float* state1, const float* gradients) {
  update_each(with, rows, values, gradients, [&](float value, float g, uint64_t at) {
    float m = state0[at], v = state1[at];
    float divisor;
    if (with.sparse != 0) {
      m += with.rest1 * (g - m);
      v += with.rest2 * (g * g - v);
      divisor = square_root(v) + with.epsilon;
    } else {
      m = with.beta1 * m + with.rest1 * g;
      v = with.beta2 * v + with.rest2 * (g * g);
      divisor = square_root(v) / with.root2 + with.epsilon;
    }
    state0[at] = m;
    state1[at] = v;
    return value - with.size * (m / divisor);
  });
}

// A block a row: its squares are added by one thread in the order of elements, in double, as the
// host adds them; what they are made of is read by all threads.
template <typename Id>
PARALLAX_DEVICE void update_rowwise_adagrad(const RuleNumbers& with, const Rows<Id>& rows,
                                            float* values, float* state0, const float* gradients) {
  PARALLAX_SHARED float staged[kBlockThreads];
  PARALLAX_SHARED double squares;
  PARALLAX_SHARED float root;
  const uint32_t count = count_of(rows), elements = rows.elements;
  for (uint64_t i = block_index(); i < count; i += block_count()) {
    uint64_t row;
    if (!row_of(rows, i, true, &row)) continue;  // of all threads alike
    float* const value = values + row * elements;
    const float* const gradient = gradients + i * elements;
    each_thread([&](uint32_t thread) {
      if (thread == 0) squares = 0;
    });
    for (uint32_t first = 0; first < elements; first += kBlockThreads) {
      each_thread([&](uint32_t thread) {
        const uint32_t e = first + thread;
        if (e >= elements) return;
        value[e] = kept(with, value[e]);
        staged[thread] = taken(with, gradient[e], value[e]);
      });
      each_thread([&](uint32_t thread) {
        if (thread != 0) return;
        for (uint32_t k = 0; k < kBlockThreads && first + k < elements; ++k) {
          const double g = staged[k];
          squares += g * g;
        }
      });
    }
    each_thread([&](uint32_t thread) {
      if (thread != 0) return;
      state0[row] += static_cast<float>(squares / static_cast<double>(elements));
      root = square_root(state0[row]) + with.epsilon;
    });
    each_thread([&](uint32_t thread) {
      for (uint32_t e = thread; e < elements; e += kBlockThreads) {
        value[e] -= with.rate * taken(with, gradient[e], value[e]) / root;
      }
    });
  }
}

}  // namespace parallax::kernels

#endif  // PARALLAX_CUDA_KERNELS_UPDATE_KERNELS_H_
