// SPDX-License-Identifier: Apache-2.0
#include "model.h"

#include <algorithm>
#include <cmath>

#include "bits.h"
#include "kernels.h"

namespace lm {
namespace {

// Repeats `bias` in each of `count` rows.
void fill_rows(std::vector<float>* rows, size_t count, const std::vector<float>& bias) {
  rows->resize(count * bias.size());
  for (size_t i = 0; i < count; ++i) {
    std::copy(bias.begin(), bias.end(), rows->begin() + static_cast<ptrdiff_t>(i * bias.size()));
  }
}

// *out[columns] = the sum of the rows, first to last.
void sum_rows(const std::vector<float>& rows, size_t columns, std::vector<float>* out) {
  out->assign(columns, 0.0F);
  for (size_t i = 0; i < rows.size(); i += columns) {
    for (size_t j = 0; j < columns; ++j) (*out)[j] += rows[i + j];
  }
}

}  // namespace

VariableSpecs variable_specs(const Shape& shape, uint64_t seed) {
  const auto glorot = [](double in, double out) {
    return static_cast<float>(std::sqrt(6.0 / (in + out)));
  };
  const uint64_t inputs = uint64_t{shape.context} * shape.embedding;
  const float hidden_range = glorot(static_cast<double>(inputs), shape.hidden);
  const float projection_range = glorot(shape.hidden, shape.embedding);
  VariableSpecs specs;
  specs[kEmbedding] = {.name = "embedding",
                       .rows = shape.vocabulary,
                       .row_elements = shape.embedding,
                       .rows_max = uint64_t{shape.batch} * shape.context,
                       .init_low = -0.25F,
                       .init_high = 0.25F};
  specs[kHiddenWeight] = {.name = "hidden.weight",
                          .rows = inputs,
                          .row_elements = shape.hidden,
                          .init_low = -hidden_range,
                          .init_high = hidden_range};
  specs[kHiddenBias] = {.name = "hidden.bias", .rows = 1, .row_elements = shape.hidden};
  specs[kProjectionWeight] = {.name = "projection.weight",
                              .rows = shape.hidden,
                              .row_elements = shape.embedding,
                              .init_low = -projection_range,
                              .init_high = projection_range};
  specs[kProjectionBias] = {.name = "projection.bias", .rows = 1, .row_elements = shape.embedding};
  specs[kSoftmax] = {.name = "softmax",
                     .rows = shape.vocabulary,
                     .row_elements = uint64_t{shape.embedding} + 1,
                     .rows_max = uint64_t{shape.batch} + shape.negatives,
                     .init_low = -0.05F,
                     .init_high = 0.05F};
  for (size_t i = 0; i < specs.size(); ++i) specs[i].init_seed = mix(seed + i);
  return specs;
}

float initial_value(const VariableSpec& spec, uint64_t row, uint64_t column) {
  if (spec.init_low == spec.init_high) return spec.init_low;
  return uniform_initial(spec.init_seed, row, column, spec.init_low, spec.init_high);
}

Model::Model(const Shape& shape) : shape_(shape) {}

size_t Model::step_elements(size_t variable) const {
  const VariableSpec spec = variable_specs(shape_, 0)[variable];
  return (spec.sparse() ? spec.rows_max : spec.rows) * spec.row_elements;
}

const std::vector<float>& Model::project(size_t count, const float* x, const Tensors& values) {
  const size_t inputs = size_t{shape_.context} * shape_.embedding;
  fill_rows(&activation_, count, values[kHiddenBias]);
  multiply_add({.m = count, .n = shape_.hidden, .k = inputs}, x, values[kHiddenWeight].data(),
               activation_.data());
  for (float& a : activation_) a = std::tanh(a);
  fill_rows(&output_, count, values[kProjectionBias]);
  multiply_add({.m = count, .n = shape_.embedding, .k = shape_.hidden}, activation_.data(),
               values[kProjectionWeight].data(), output_.data());
  return output_;
}

double Model::gradients(const Batch& batch, const Tensors& values, Tensors* gradients) {
  project(shape_.batch, values[kEmbedding].data(), values);
  score(batch, values[kSoftmax]);
  const double loss = scores_backward(batch);  // scores become their gradients
  softmax_backward(values[kSoftmax], &(*gradients)[kSoftmax]);
  hidden_backward(values[kEmbedding].data(), values, gradients);
  return loss;
}

// Scores of each position's own target, and of all positions against the negatives.
void Model::score(const Batch& batch, const std::vector<float>& softmax_rows) {
  const size_t width = shape_.embedding;
  const size_t positions = shape_.batch;
  const size_t negatives = shape_.negatives;
  true_scores_.resize(positions);
  for (size_t i = 0; i < positions; ++i) {
    const float* row = softmax_rows.data() + i * (width + 1);
    float score = row[width] - batch.log_expected[i];
    for (size_t e = 0; e < width; ++e) score += output_[i * width + e] * row[e];
    true_scores_[i] = score;
  }
  std::vector<float>& offsets = hidden_gradient_;  // free until the backward pass
  offsets.resize(negatives);
  negative_rows_.resize(negatives * width);
  for (size_t j = 0; j < negatives; ++j) {
    const float* row = softmax_rows.data() + (positions + j) * (width + 1);
    std::copy_n(row, width, negative_rows_.data() + j * width);
    offsets[j] = row[width] - batch.log_expected[positions + j];
  }
  fill_rows(&scores_, positions, offsets);
  multiply_add({.m = positions, .n = negatives, .k = width}, output_.data(),
               transposed(negatives, width, negative_rows_.data()), scores_.data());
}

// Turns the scores into the gradients of the mean loss by them; returns that loss.
double Model::scores_backward(const Batch& batch) {
  const size_t positions = shape_.batch;
  const size_t negatives = shape_.negatives;
  const float share = 1.0F / static_cast<float>(positions);
  double loss = 0;
  for (size_t i = 0; i < positions; ++i) {
    float* row = scores_.data() + i * negatives;
    const int64_t target = batch.softmax_ids[i];
    const int64_t* sampled = batch.softmax_ids.data() + positions;
    float most = true_scores_[i];
    for (size_t j = 0; j < negatives; ++j) {
      if (sampled[j] == target) row[j] = -INFINITY;  // an accidental hit
      most = std::max(most, row[j]);
    }
    const float true_score = true_scores_[i];
    const float true_weight = std::exp(true_score - most);
    float total = true_weight;
    for (size_t j = 0; j < negatives; ++j) {
      row[j] = std::exp(row[j] - most);
      total += row[j];
    }
    loss += static_cast<double>(std::log(total)) + static_cast<double>(most - true_score);
    const float scale = share / total;
    for (size_t j = 0; j < negatives; ++j) row[j] *= scale;
    true_scores_[i] = true_weight * scale - share;
  }
  return loss / static_cast<double>(positions);
}

// The gradients of the softmax rows and of h.
void Model::softmax_backward(const std::vector<float>& softmax_rows, std::vector<float>* gradient) {
  const size_t width = shape_.embedding;
  const size_t positions = shape_.batch;
  const size_t negatives = shape_.negatives;
  gradient->assign((positions + negatives) * (width + 1), 0.0F);
  output_gradient_.assign(positions * width, 0.0F);
  for (size_t i = 0; i < positions; ++i) {
    const float* row = softmax_rows.data() + i * (width + 1);
    float* row_gradient = gradient->data() + i * (width + 1);
    for (size_t e = 0; e < width; ++e) {
      row_gradient[e] = true_scores_[i] * output_[i * width + e];
      output_gradient_[i * width + e] = true_scores_[i] * row[e];
    }
    row_gradient[width] = true_scores_[i];
  }
  multiply_add({.m = positions, .n = width, .k = negatives}, scores_.data(), negative_rows_.data(),
               output_gradient_.data());
  std::vector<float>& sampled_gradient = negative_rows_;  // their values are no longer needed
  std::fill(sampled_gradient.begin(), sampled_gradient.end(), 0.0F);
  const float* by_negative = transposed(positions, negatives, scores_.data());
  multiply_add({.m = negatives, .n = width, .k = positions}, by_negative, output_.data(),
               sampled_gradient.data());
  for (size_t j = 0; j < negatives; ++j) {
    float* row_gradient = gradient->data() + (positions + j) * (width + 1);
    std::copy_n(sampled_gradient.data() + j * width, width, row_gradient);
    for (size_t i = 0; i < positions; ++i) row_gradient[width] += by_negative[j * positions + i];
  }
}

// in[rows x columns] the other way round; valid until the next call.
const float* Model::transposed(size_t rows, size_t columns, const float* in) {
  transposed_.resize(rows * columns);
  transpose({.rows = rows, .columns = columns, .in_stride = columns}, in, transposed_.data());
  return transposed_.data();
}

void Model::hidden_backward(const float* x, const Tensors& values, Tensors* gradients) {
  const size_t positions = shape_.batch;
  const size_t inputs = size_t{shape_.context} * shape_.embedding;
  const size_t hidden = shape_.hidden;
  const size_t width = shape_.embedding;

  sum_rows(output_gradient_, width, &(*gradients)[kProjectionBias]);
  (*gradients)[kProjectionWeight].assign(hidden * width, 0.0F);
  multiply_add({.m = hidden, .n = width, .k = positions},
               transposed(positions, hidden, activation_.data()), output_gradient_.data(),
               (*gradients)[kProjectionWeight].data());

  hidden_gradient_.assign(positions * hidden, 0.0F);
  multiply_add({.m = positions, .n = hidden, .k = width}, output_gradient_.data(),
               transposed(hidden, width, values[kProjectionWeight].data()),
               hidden_gradient_.data());
  for (size_t i = 0; i < hidden_gradient_.size(); ++i) {
    hidden_gradient_[i] *= 1.0F - activation_[i] * activation_[i];
  }

  sum_rows(hidden_gradient_, hidden, &(*gradients)[kHiddenBias]);
  (*gradients)[kHiddenWeight].assign(inputs * hidden, 0.0F);
  multiply_add({.m = inputs, .n = hidden, .k = positions}, transposed(positions, inputs, x),
               hidden_gradient_.data(), (*gradients)[kHiddenWeight].data());

  (*gradients)[kEmbedding].assign(positions * inputs, 0.0F);
  multiply_add({.m = positions, .n = inputs, .k = hidden}, hidden_gradient_.data(),
               transposed(inputs, hidden, values[kHiddenWeight].data()),
               (*gradients)[kEmbedding].data());
}

}  // namespace lm
