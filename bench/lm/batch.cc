// SPDX-License-Identifier: Apache-2.0
#include "batch.h"

#include <algorithm>
#include <cmath>
#include <unordered_set>

#include "bits.h"

namespace lm {

LogUniformSampler::LogUniformSampler(uint64_t vocabulary)
    : vocabulary_(vocabulary), log_range_(std::log1p(static_cast<double>(vocabulary))) {}

int64_t LogUniformSampler::id(double unit) const {
  const auto drawn = static_cast<int64_t>(std::exp(unit * log_range_)) - 1;
  return std::clamp<int64_t>(drawn, 0, static_cast<int64_t>(vocabulary_) - 1);
}

double LogUniformSampler::probability(int64_t id) const {
  return std::log1p(1.0 / (static_cast<double>(id) + 1.0)) / log_range_;
}

float LogUniformSampler::log_expected(int64_t id, uint64_t tries) const {
  const double missed = static_cast<double>(tries) * std::log1p(-probability(id));
  return static_cast<float>(std::log(-std::expm1(missed)));
}

void make_batch(const Corpus& corpus, const Shape& shape, const BatchSource& source, Batch* batch) {
  const uint64_t stream = (uint64_t{source.rank} << 40) + source.step;
  const uint64_t positions = corpus.positions(false, shape.context);
  batch->context_ids.resize(uint64_t{shape.batch} * shape.context);
  batch->softmax_ids.resize(uint64_t{shape.batch} + shape.negatives);
  batch->log_expected.resize(batch->softmax_ids.size());

  for (uint32_t i = 0; i < shape.batch; ++i) {
    const auto drawn =
        static_cast<uint64_t>(random_unit(source.seed, stream, i) * static_cast<double>(positions));
    const uint64_t at = corpus.position(false, shape.context, std::min(drawn, positions - 1));
    for (uint32_t c = 0; c < shape.context; ++c) {
      batch->context_ids[i * shape.context + c] = corpus.word_ids()[at - shape.context + c];
    }
    batch->softmax_ids[i] = corpus.word_ids()[at];
  }

  const LogUniformSampler sampler(shape.vocabulary);
  std::unordered_set<int64_t> drawn;
  uint64_t tries = 0;
  while (drawn.size() < shape.negatives) {
    const int64_t id = sampler.id(random_unit(~source.seed, stream, tries++));
    if (drawn.insert(id).second) batch->softmax_ids[shape.batch + drawn.size() - 1] = id;
  }
  for (size_t i = 0; i < batch->softmax_ids.size(); ++i) {
    batch->log_expected[i] = sampler.log_expected(batch->softmax_ids[i], tries);
  }
}

}  // namespace lm
