// SPDX-License-Identifier: Apache-2.0
// What the trainer and the oracle must agree on besides the model: the options of a run, and how
// its outcome is written.
#ifndef BENCH_LM_EXPERIMENT_H_
#define BENCH_LM_EXPERIMENT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "corpus.h"
#include "evaluate.h"
#include "flags.h"
#include "model.h"

namespace lm {

enum class Reduction { kSum, kMeanWorld, kMeanContributors };
enum class Rule { kSgd, kAdagrad };

struct Experiment {
  std::string corpus = "corpus.bin";
  std::string out;  // the JSON to write
  uint32_t world = 1;
  uint64_t seed = 1;
  uint32_t steps = 300;
  std::string rule_name = "adagrad";
  std::string reduction_name = "world";
  double learning_rate = 0.1;
  double learning_rate_end = 0.02;  // reached linearly at decay_steps, held from there on
  uint32_t decay_steps = 300;
  double clip_norm = 0.25;
  // From 0, Adagrad's first step is +-lr whatever the gradient: where that is a rounding error of a
  // sum, another order of the sum turns the step around, and runs drift apart (METRICS.md).
  double initial_accumulator = 1e-6;
  uint64_t evaluate_positions = 1024;  // in each part of the corpus; 0: none
  bool gradient_check = false;
  std::string values;  // gradient check: the file of pulled values
  Shape shape;

  Rule rule = Rule::kAdagrad;
  Reduction reduction = Reduction::kMeanWorld;

  void add_flags(Flags* flags);
  // After parsing: checks the options and fits the shape to the corpus' vocabulary. In a gradient
  // check: SGD, SUM, learning rate 1, no clipping, so that the values become the negated gradient.
  // Throws std::runtime_error.
  void settle(const Corpus& corpus);
  float learning_rate_at(uint64_t step) const;  // step counts from 1
  VariableSpecs specs() const { return variable_specs(shape, mix_seed()); }

 private:
  uint64_t mix_seed() const;
};

// Of the bytes of a variable held whole, as 16 hex digits.
std::string checksum(const std::vector<float>& values);

std::string to_json(const Evaluation& evaluation);
std::string to_json(const std::vector<double>& numbers);
std::string quoted(const std::string& text);
std::string number(double value);

// Throws std::runtime_error.
void write_file(const std::string& path, const std::string& text);
void write_values(const std::string& path, const Tensors& values);
Tensors read_values(const std::string& path, const VariableSpecs& specs);

}  // namespace lm

#endif  // BENCH_LM_EXPERIMENT_H_
