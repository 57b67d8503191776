// SPDX-License-Identifier: Apache-2.0
// Which words a rank sees in a step: a pure function of (seed, rank, step), so that the oracle and
// every placement train on the same batches.
#ifndef BENCH_LM_BATCH_H_
#define BENCH_LM_BATCH_H_

#include <cstdint>

#include "corpus.h"
#include "model.h"

namespace lm {

// Draws distinct ids 0..vocabulary-1 with P(k) = log((k + 2) / (k + 1)) / log(vocabulary + 1): near
// Zipf's law for ids sorted by frequency. Draws until `count` are distinct; the expected count of
// an id is then 1 - (1 - P)^tries, as in TensorFlow's log_uniform_candidate_sampler.
class LogUniformSampler {
 public:
  explicit LogUniformSampler(uint64_t vocabulary);

  // The id that `unit` in [0, 1) falls on.
  int64_t id(double unit) const;
  double probability(int64_t id) const;
  float log_expected(int64_t id, uint64_t tries) const;

 private:
  uint64_t vocabulary_;
  double log_range_;
};

struct BatchSource {
  uint64_t seed;
  uint32_t rank;
  uint64_t step;
};
void make_batch(const Corpus& corpus, const Shape& shape, const BatchSource& source, Batch* batch);

}  // namespace lm

#endif  // BENCH_LM_BATCH_H_
