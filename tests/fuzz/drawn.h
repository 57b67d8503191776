// SPDX-License-Identifier: Apache-2.0
// Drawn: numbers for the fields of structs of the C ABI, drawn from a fuzzer's bytes: mostly what
// is right, so that calls go deep; now and then anything.
#ifndef PARALLAX_TESTS_FUZZ_DRAWN_H_
#define PARALLAX_TESTS_FUZZ_DRAWN_H_

#include <fuzzer/FuzzedDataProvider.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "add_gradient.h"
#include "parallax/parallax.h"

namespace parallax::testkit {

inline constexpr size_t kElements = 4096;  // of every buffer that is handed in
inline constexpr uint64_t kRowsMaxTaken = 64;

class Drawn {
 protected:
  explicit Drawn(FuzzedDataProvider& data) : data_(data), right_(data.ConsumeBool()) {}

  // Mostly what is right; now and then anything, unless all calls of the run are to be about right:
  // those go deeper.
  template <typename T>
  T number(T right, T most) {
    return rarely()              ? data_.ConsumeIntegral<T>()
           : data_.ConsumeBool() ? right
                                 : static_cast<T>(data_.ConsumeIntegralInRange<uint64_t>(0, most));
  }
  // Mostly zero or what is right, which most structs need to be taken.
  template <typename T>
  T real(T right) {
    return rarely() ? data_.ConsumeFloatingPoint<T>() : data_.ConsumeBool() ? T() : right;
  }
  bool rarely() { return !right_ && data_.ConsumeIntegralInRange<int>(0, 15) == 0; }

  // A struct as callers of other versions have it, too: shorter, or with a tail.
  template <typename Struct>
  struct Sized {
    Struct now = {};
    std::array<unsigned char, 32> tail = {};
  };
  template <typename Struct>
  void set_size(Sized<Struct>* sized) {
    sized->now.size = sizeof sized->now;
    if (!rarely()) return;
    sized->now.size = data_.ConsumeIntegralInRange<size_t>(0, sizeof *sized);
    if (rarely()) sized->tail[data_.ConsumeIntegralInRange<size_t>(0, 31)] = 1;
  }

  // A variable whose rows, where it is taken, fit the buffers.
  void draw(parallax_variable_t* described) {
    parallax_variable_t& variable = *described;
    text_ = data_.ConsumeRandomLengthString(8);
    if (text_.size() < 8) {  // most names have to be taken, or there is nothing to train
      for (char& each : text_)
        each = static_cast<char>('!' + static_cast<unsigned char>(each) % 90);
    }
    variable.name = rarely() ? nullptr : text_.c_str();
    variable.rows = number<uint64_t>(8, 64);
    variable.row_elements = number<uint64_t>(2, 64);
    // What it takes must fit the buffers; what is refused may be any size.
    if (variable.rows > kRowsMaxTaken || variable.row_elements > kElements / kRowsMaxTaken) {
      variable.rows = data_.ConsumeBool() ? 0 : uint64_t{1} << 33;
    }
    variable.dtype = number<uint32_t>(0, 6);
    variable.tag = number<uint32_t>(0, 2);
    variable.reduction = number<uint32_t>(0, 3);
    variable.rule = number<uint32_t>(1, 8);
    // Also more than there are rows: ids may come more than once.
    variable.rows_max = number<uint64_t>(data_.ConsumeBool() ? 4 : kRowsMaxTaken, kRowsMaxTaken);
    if (variable.rows_max > kRowsMaxTaken) variable.rows_max = 0;
    variable.init = number<uint32_t>(0, 5);
    if (variable.init <= PARALLAX_INIT_UNIFORM) variable.init_low = real<float>(-1);
    if (variable.init == PARALLAX_INIT_UNIFORM) variable.init_high = real<float>(1);
    const bool given = variable.init >= PARALLAX_INIT_BUFFER;
    if (variable.init > PARALLAX_INIT_UNIFORM && !given) variable.init_mean = real<float>(0.5f);
    if (variable.init > PARALLAX_INIT_UNIFORM && !given) variable.init_std = real<float>(2);
    static const std::array<double, kElements> initial = {};  // of the widest type
    if (given != rarely()) variable.initial = initial.data();
    draw_rule(described);
    variable.refuse_nonfinite = number<uint32_t>(0, 1);
    variable.accumulate = number<uint32_t>(0, 1);
    variable.rates = number<uint32_t>(0, 1);
    variable.priority = number<int32_t>(-1, 1);
    if (data_.ConsumeIntegralInRange<int>(0, 3) == 0) {
      variable.placement = number<uint32_t>(0, 2);
      variable.method = number<uint32_t>(0, 5);
    }
    if (rarely()) {  // of these most are refused
      variable.storage_dtype = number<uint32_t>(0, PARALLAX_AS(PARALLAX_I64));
      variable.rounding = number<uint32_t>(0, 1);
      variable.wire_dtype = number<uint32_t>(0, PARALLAX_AS(PARALLAX_I64));
      variable.exchange_bytes_max = number<uint64_t>(0, 1 << 16);
      variable.memory = number<uint32_t>(0, 1);
      variable.table_memory = number<uint32_t>(0, 1);
    }
  }

  FuzzedDataProvider& data_;
  const bool right_;
  std::string text_;

 private:
  void give_rule(parallax_variable_t* variable) {
    variable->rule_fn = add_gradient;
    variable->rule_context = this;
    variable->state_elements[0] = number<uint32_t>(3, 100);
    variable->state_elements[1] = number<uint32_t>(0, 2);
    // What is taken must fit the buffers that rows are read into.
    for (uint32_t& elements : variable->state_elements) {
      if (elements > kElements / kRowsMaxTaken) elements = UINT32_MAX;
    }
  }

  void draw_rule(parallax_variable_t* described) {
    parallax_variable_t& variable = *described;
    const bool adam = variable.rule == PARALLAX_RULE_ADAM;
    const bool momentum = variable.rule == PARALLAX_RULE_MOMENTUM;
    const bool ftrl = variable.rule == PARALLAX_RULE_FTRL;
    if ((variable.rule == PARALLAX_RULE_CALLBACK) != rarely()) give_rule(described);
    const bool squares =
        variable.rule == PARALLAX_RULE_ADAGRAD || variable.rule == PARALLAX_RULE_ROWWISE_ADAGRAD;
    variable.epsilon = real<float>(adam || squares ? 1e-3f : 0);
    variable.initial_accumulator_value = real<float>(squares || ftrl ? 0.5f : 0);
    variable.l1 = real(ftrl ? 0.25 : 0);
    variable.beta = real(ftrl ? 1.0 : 0);
    variable.learning_rate_power = real(ftrl ? -0.5 : 0);
    variable.beta1 = real(adam ? PARALLAX_ZERO : 0);
    variable.beta2 = real(adam ? 0.5 : 0);
    variable.momentum = momentum ? real(0.5) : 0;
    variable.nesterov = momentum ? number<uint32_t>(0, 1) : 0;
    variable.l2 = real(ftrl ? 0.25 : 0);
    variable.l2_shrinkage = real(ftrl ? 0.125 : 0);
  }
};

}  // namespace parallax::testkit

#endif  // PARALLAX_TESTS_FUZZ_DRAWN_H_
