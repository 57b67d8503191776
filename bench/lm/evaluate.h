// SPDX-License-Identifier: Apache-2.0
// The loss over the whole vocabulary, which training by samples never computes.
#ifndef BENCH_LM_EVALUATE_H_
#define BENCH_LM_EVALUATE_H_

#include <cstdint>

#include "corpus.h"
#include "model.h"

namespace lm {

// Sums over some positions; add the fields of disjoint sets to join them.
struct Evaluation {
  uint64_t positions = 0;
  double loss_sum = 0;         // nats, softmax over the whole vocabulary
  double loss_square_sum = 0;  // for the standard error
  double unigram_sum = 0;      // what the corpus' word frequencies alone give there
};

// Of `positions` places spread evenly over one part of the corpus, those that fall to `share` of
// `shares`. Fewer when the part is smaller.
struct EvaluationPart {
  bool held_out;
  uint64_t positions;
  uint32_t share, shares;
};

// `values` holds every variable whole. Deterministic; single-threaded.
Evaluation evaluate(const Corpus& corpus, const Shape& shape, const EvaluationPart& part,
                    const Tensors& values);

}  // namespace lm

#endif  // BENCH_LM_EVALUATE_H_
