// SPDX-License-Identifier: Apache-2.0
// One rank of the training example, whatever carries its steps: pull the rows of the batch,
// compute, give all gradients and end the step; the next step's pull is posted at once, and one
// wait covers all three. Single-threaded; what fails throws.
#ifndef BENCH_LM_TRAINER_H_
#define BENCH_LM_TRAINER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "corpus.h"
#include "exchange.h"
#include "experiment.h"
#include "flags.h"
#include "model.h"

namespace lm {

struct TrainerOptions {
  uint32_t rank = 0;
  std::string net_device;
  uint32_t mark_step = 0;  // counters are read after it and at the end

  void add_flags(Flags* flags);
};

class Trainer {
 public:
  // The others outlive this object.
  Trainer(const Experiment& experiment, const TrainerOptions& options, const Corpus& corpus,
          std::unique_ptr<Exchange> exchange)
      : experiment_(experiment),
        options_(options),
        corpus_(corpus),
        specs_(experiment.specs()),
        model_(experiment.shape),
        exchange_(std::move(exchange)) {}

  // Trains, or checks one gradient, closes the exchange and writes the outcome.
  void run();

 private:
  struct Trace {
    std::vector<double> losses, norms, step_seconds, wait_seconds, compute_seconds;
    std::vector<double> plan_changes;  // steps
    std::vector<std::string> marks;
  };

  void train();
  void check_gradient();
  void fill_from_initial(const Batch& batch, Tensors* values) const;
  void make_batch(uint64_t step, Batch* batch) const;
  void mark(uint64_t step);
  void note(const StepOutcome& outcome, uint64_t step);
  std::string outcome(const Tensors& values);

  const Experiment& experiment_;
  const TrainerOptions& options_;
  const Corpus& corpus_;
  const VariableSpecs specs_;
  Model model_;
  Trace trace_;
  Batch batch_, next_batch_;
  Tensors values_, gradients_;
  std::unique_ptr<Exchange> exchange_;  // goes first: after an error it may have these still
};

}  // namespace lm

#endif  // BENCH_LM_TRAINER_H_
