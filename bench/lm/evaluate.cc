// SPDX-License-Identifier: Apache-2.0
#include "evaluate.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels.h"

namespace lm {
namespace {

constexpr size_t kPositionsAtOnce = 128;
constexpr size_t kWordsAtOnce = 256;

struct Places {
  std::vector<float> x;  // context rows
  std::vector<uint32_t> targets;
};

// Running log-sum-exp of one position.
struct LogSum {
  float most = -INFINITY;
  double total = 0;

  void add(const float* scores, size_t count) {
    float top = most;
    for (size_t j = 0; j < count; ++j) top = std::max(top, scores[j]);
    if (top > most) total *= std::exp(static_cast<double>(most) - static_cast<double>(top));
    most = top;
    float sum = 0;
    for (size_t j = 0; j < count; ++j) sum += std::exp(scores[j] - most);
    total += static_cast<double>(sum);
  }
  double value() const { return static_cast<double>(most) + std::log(total); }
};

void score_all(const Shape& shape, const std::vector<float>& output, const Places& places,
               const std::vector<float>& softmax, std::vector<double>* losses) {
  const size_t count = places.targets.size();
  const size_t width = shape.embedding;
  std::vector<LogSum> sums(count);
  std::vector<float> target_scores(count, 0.0F);
  std::vector<float> tile(width * kWordsAtOnce);
  std::vector<float> scores;
  for (size_t first = 0; first < shape.vocabulary; first += kWordsAtOnce) {
    const size_t words = std::min<size_t>(kWordsAtOnce, shape.vocabulary - first);
    const float* rows = softmax.data() + first * (width + 1);
    transpose({.rows = words, .columns = width, .in_stride = width + 1}, rows, tile.data());
    scores.resize(count * words);
    for (size_t i = 0; i < count; ++i) {
      for (size_t j = 0; j < words; ++j) scores[i * words + j] = rows[j * (width + 1) + width];
    }
    multiply_add({.m = count, .n = words, .k = width}, output.data(), tile.data(), scores.data());
    for (size_t i = 0; i < count; ++i) {
      sums[i].add(scores.data() + i * words, words);
      const size_t target = places.targets[i];
      if (target >= first && target < first + words) {
        target_scores[i] = scores[i * words + target - first];
      }
    }
  }
  losses->resize(count);
  for (size_t i = 0; i < count; ++i) {
    (*losses)[i] = sums[i].value() - static_cast<double>(target_scores[i]);
  }
}

// Calls visit(place in the text) for each position of `part`.
template <typename Visit>
void for_each_position(const Corpus& corpus, const Shape& shape, const EvaluationPart& part,
                       Visit visit) {
  const uint64_t available = corpus.positions(part.held_out, shape.context);
  const uint64_t wanted = std::min(part.positions, available);
  for (uint64_t i = part.share; i < wanted; i += part.shares) {
    visit(corpus.position(part.held_out, shape.context, i * available / wanted));
  }
}

}  // namespace

double WordCounts::loss(uint64_t word) const {
  return std::log(static_cast<double>(total_ + counts_.size())) -
         std::log(static_cast<double>(counts_[word] + 1));
}

double counting_loss_sum(const Corpus& corpus, const Shape& shape, const EvaluationPart& part,
                         const WordCounts& counts) {
  double sum = 0;
  for_each_position(corpus, shape, part,
                    [&](uint64_t at) { sum += counts.loss(corpus.word_ids()[at]); });
  return sum;
}

Evaluation evaluate(const Corpus& corpus, const Shape& shape, const EvaluationPart& part,
                    const Tensors& values) {
  Model model(shape);
  Evaluation result;
  Places places;
  std::vector<double> losses;

  const auto flush = [&] {
    const size_t count = places.targets.size();
    score_all(shape, model.project(count, places.x.data(), values), places, values[kSoftmax],
              &losses);
    for (size_t i = 0; i < count; ++i) {
      result.loss_sum += losses[i];
      result.loss_square_sum += losses[i] * losses[i];
    }
    result.positions += count;
    places = {};
  };
  for_each_position(corpus, shape, part, [&](uint64_t at) {
    for (uint32_t c = 0; c < shape.context; ++c) {
      const uint64_t row = corpus.word_ids()[at - shape.context + c];
      const auto first = values[kEmbedding].begin() + static_cast<ptrdiff_t>(row * shape.embedding);
      places.x.insert(places.x.end(), first, first + shape.embedding);
    }
    places.targets.push_back(corpus.word_ids()[at]);
    if (places.targets.size() == kPositionsAtOnce) flush();
  });
  if (!places.targets.empty()) flush();
  return result;
}

}  // namespace lm
