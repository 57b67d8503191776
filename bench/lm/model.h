// SPDX-License-Identifier: Apache-2.0
// The language model: the words before a position predict its word (Bengio et al. 2003, without
// the direct connections).
//
//   x = the embeddings of the context words, side by side       [context * embedding]
//   a = tanh(x W1 + b1)                                          [hidden]
//   h = a W2 + b2                                                [embedding]
//   score(word) = h . softmax[word][0 .. embedding) + softmax[word][embedding], its bias
//
// Trained by sampled softmax (Jean et al. 2015): a batch shares `negatives` distinct words drawn
// from the log-uniform distribution over ids, which are sorted by frequency; from each score the
// log of the expected count of its word is subtracted, and a negative that is a position's target
// is left out for that position. The loss is the mean over the batch, in nats.
//
// Links nothing of libparallax. Single-threaded; a Model may be used by one thread at a time. The
// same input gives the same bits on one machine.
#ifndef BENCH_LM_MODEL_H_
#define BENCH_LM_MODEL_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace lm {

struct Shape {
  uint64_t vocabulary = 0;
  uint32_t context = 4;
  uint32_t embedding = 64;
  uint32_t hidden = 128;
  uint32_t batch = 128;      // positions of one rank and step
  uint32_t negatives = 512;  // fewer than vocabulary
};

enum VariableIndex : size_t {
  kEmbedding,
  kHiddenWeight,
  kHiddenBias,
  kProjectionWeight,
  kProjectionBias,
  kSoftmax,
  kVariableCount
};

struct VariableSpec {
  std::string name;
  uint64_t rows = 0;
  uint64_t row_elements = 0;
  uint64_t rows_max = 0;  // rows of one slice; 0: dense
  float init_low = 0;     // low == high: that constant
  float init_high = 0;
  uint64_t init_seed = 0;

  bool sparse() const { return rows_max > 0; }
  uint64_t elements() const { return rows * row_elements; }
};
using VariableSpecs = std::array<VariableSpec, kVariableCount>;
VariableSpecs variable_specs(const Shape& shape, uint64_t seed);

// The initial value of one element, as parallax.h defines it.
float initial_value(const VariableSpec& spec, uint64_t row, uint64_t column);

// One number array per variable. In a step the sparse ones hold rows, one per entry of the batch's
// ids, repeated ids and all; the dense ones are whole.
using Tensors = std::array<std::vector<float>, kVariableCount>;

// The ids of one rank and step.
struct Batch {
  std::vector<int64_t> context_ids;  // batch * context: rows of kEmbedding
  std::vector<int64_t> softmax_ids;  // batch targets, then the negatives: rows of kSoftmax
  std::vector<float> log_expected;   // one per softmax id

  const std::vector<int64_t>& ids(size_t variable) const {
    return variable == kEmbedding ? context_ids : softmax_ids;
  }
};

class Model {
 public:
  explicit Model(const Shape& shape);

  // The number of floats that a Tensors of a step holds for `variable`.
  size_t step_elements(size_t variable) const;

  // The loss of `batch`; *gradients is resized and filled. A sparse gradient has one row per id of
  // the batch: ids that repeat have their rows still to be summed.
  double gradients(const Batch& batch, const Tensors& values, Tensors* gradients);

  // h of `count` positions whose context rows are x[count x context * embedding]; dense values from
  // `values`. The result is valid until the next call.
  const std::vector<float>& project(size_t count, const float* x, const Tensors& values);

 private:
  void score(const Batch& batch, const std::vector<float>& softmax_rows);
  double scores_backward(const Batch& batch);
  void softmax_backward(const std::vector<float>& softmax_rows, std::vector<float>* gradient);
  void hidden_backward(const float* x, const Tensors& values, Tensors* gradients);

  const float* transposed(size_t rows, size_t columns, const float* in);

  Shape shape_;
  std::vector<float> activation_;  // a
  std::vector<float> output_;      // h
  std::vector<float> negative_rows_;
  std::vector<float> transposed_;
  std::vector<float> scores_;  // of the negatives, then their gradients
  std::vector<float> true_scores_;
  std::vector<float> output_gradient_;
  std::vector<float> hidden_gradient_;
};

}  // namespace lm

#endif  // BENCH_LM_MODEL_H_
