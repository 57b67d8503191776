// SPDX-License-Identifier: Apache-2.0
// Rounding of whole rows. See stored_values.h.
#include "server/stored_values.h"

#include <algorithm>
#include <cstring>

#include "base/chance_rounding.h"
#include "base/vector_code.h"
#include "variable/fused_tables.h"
#include "variable/storage.h"

namespace parallax {

namespace {

// Of floats that are open: they stay in the first cache until they are rounded.
constexpr uint64_t kFloats = 1024;

uint64_t most_open(const Variable& variable) {
  if (!variable.ids_declared()) return std::min(kFloats, variable.elements());
  const uint64_t width = variable.row_elements;
  return width * std::clamp<uint64_t>(kFloats / width, 1, variable.rows);
}

template <typename S>
void round_run(const float* __restrict from, std::byte* __restrict to, size_t count,
               const CounterBits bits, uint64_t column) {
  for (size_t i = 0; i < count; ++i) {
    const auto chance = static_cast<uint32_t>(bits.at(column + i) >> 32);
    const S out = round_by_chance(from[i], chance, TypeTag<S>{});
    std::memcpy(to + i * sizeof out, &out, sizeof out);
  }
}

template <typename S>
void round_row(const float* from, std::byte* to, size_t count, const CounterBits& bits,
               uint64_t column) {
  if (count < kVectorCountMin) {
    round_run<S>(from, to, count, bits, column);
  } else {
    in_vectors([=] { round_run<S>(from, to, count, bits, column); });
  }
}

}  // namespace

StoredValues::StoredValues(const Variable& variable)
    : row_elements_(variable.row_elements),
      element_bytes_(bytes_of_dtype(variable.stored_dtype())),
      most_(most_open(variable)),
      widen_(converter(variable.stored_dtype(), PARALLAX_F32)),
      round_(converter(PARALLAX_F32, variable.stored_dtype())),
      by_chance_(variable.rounding != PARALLAX_ROUNDING_STOCHASTIC ? nullptr
                 : variable.stored_dtype() == PARALLAX_BF16        ? &round_row<BFloat>
                                                                   : &round_row<Half>) {
  if (by_chance_ == nullptr) return;
  if (variable.fused.empty()) seeds_.push_back(rounding_seed(variable));
  for (const FusedMember& each : variable.fused) seeds_.push_back(rounding_seed(*each.variable));
}

void StoredValues::lay_out(Arena& arena, std::span<std::byte> values) {
  values_ = values;
  floats_ = arena.take<float>(most_);
}

void StoredValues::close_by_chance(uint64_t at, uint64_t count, uint64_t first) {
  for (uint64_t done = 0; done < count;) {
    const uint64_t row = (first + done) / row_elements_;
    const uint64_t column = (first + done) % row_elements_;
    const uint64_t run = std::min(count - done, row_elements_ - column);
    const UpdateCounts::Of of = updates_->of_row(row);
    const uint64_t seed = mix(seeds_[of.table] + kCounterStep * of.count);
    by_chance_(&floats_[done], place(at + done), run, CounterBits(seed, row - of.first_row),
               column);
    done += run;
  }
}

}  // namespace parallax
