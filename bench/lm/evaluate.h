// SPDX-License-Identifier: Apache-2.0
// The loss over the whole vocabulary, which training by samples never computes.
#ifndef BENCH_LM_EVALUATE_H_
#define BENCH_LM_EVALUATE_H_

#include <cstdint>
#include <vector>

#include "corpus.h"
#include "model.h"

namespace lm {

// Sums over some positions; add the fields of disjoint sets to join them.
struct Evaluation {
  uint64_t positions = 0;
  double loss_sum = 0;         // nats, softmax over the whole vocabulary
  double loss_square_sum = 0;  // for the standard error
};

// What somebody learns who counts the words of the batches and nothing else: by Laplace's rule of
// succession a word seen c times among n has probability (c + 1) / (n + vocabulary).
class WordCounts {
 public:
  explicit WordCounts(uint64_t vocabulary) : counts_(vocabulary) {}
  void add(uint64_t word) {
    ++counts_[word];
    ++total_;
  }
  double loss(uint64_t word) const;  // nats

 private:
  std::vector<uint64_t> counts_;
  uint64_t total_ = 0;
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

// The sum of WordCounts::loss over the positions that evaluate() takes.
double counting_loss_sum(const Corpus& corpus, const Shape& shape, const EvaluationPart& part,
                         const WordCounts& counts);

}  // namespace lm

#endif  // BENCH_LM_EVALUATE_H_
