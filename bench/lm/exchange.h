// SPDX-License-Identifier: Apache-2.0
// What carries a rank's steps in the training example: libparallax (job_exchange.h), or
// TensorFlow's way by hand (servers_exchange.h). One thread; what fails throws.
#ifndef BENCH_LM_EXCHANGE_H_
#define BENCH_LM_EXCHANGE_H_

#include <cstdint>
#include <string>

#include "model.h"

namespace lm {

struct StepRates {
  float learning_rate = 0;
  float clip_norm = 0;  // 0: nothing is clipped
};

struct StepOutcome {
  double gradient_norm = 0;  // of the reduced gradient, before it was clipped
  bool plan_changed = false;
};

class Exchange {
 public:
  virtual ~Exchange() = default;

  // Begins a step: its number, from 1 on.
  virtual uint64_t begin() = 0;
  // What `batch` needs, in the step that was begun last, into *values, which is resized.
  virtual void pull(const Batch& batch, Tensors* values) = 0;
  // Gives the gradients of `batch` and ends the step that was begun last. All stay as they are
  // until settle().
  virtual void give(const Batch& batch, Tensors* gradients, const StepRates& rates) = 0;
  // Waits for that, and for what `next` needs in the step begun since. Null: there is no such step.
  virtual StepOutcome settle(const Batch* next, Tensors* values) = 0;

  // All of every variable, in a step that was begun and pushes nothing, which it ends.
  virtual Tensors read_all() = 0;
  virtual void barrier() = 0;
  // In JSON: counters so far, and fields of the outcome, which begin with a comma.
  virtual std::string counters() = 0;
  virtual std::string report() = 0;
  // Ends it with all ranks.
  virtual void close() = 0;
  // That this rank has waited for others so far.
  virtual double wait_seconds() const = 0;
};

}  // namespace lm

#endif  // BENCH_LM_EXCHANGE_H_
