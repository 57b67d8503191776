// SPDX-License-Identifier: Apache-2.0
//
// An optimizer step in C++: a bag of words, trained to tell two topics apart by several ranks.
//
//   ./optimizer_step                            alone
//   parallax run -n 4 -- ./optimizer_step       as four ranks of this machine
//   mpirun -n 4 -x PARALLAX_RENDEZVOUS=env ./optimizer_step
//
// Optimizer and Parameter are what a framework would write once; the rest is the model. The exit
// status is 0 if the last answers are nearly all right.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <parallax/parallax.hpp>
#include <random>
#include <string>
#include <vector>

namespace {

// ---- The optimizer --------------------------------------------------------------------------

// Rows of a variable: `rows_max` of them, chosen by `ids`, for an embedding; all for a dense one.
struct Parameter {
  uint32_t id = 0;
  size_t width = 0;
  bool sparse = false;
  std::vector<int64_t> ids;  // of this batch; may repeat
  std::vector<float> values, gradient;

  float* row(size_t index) { return &values[index * width]; }
  float* row_gradient(size_t index) { return &gradient[index * width]; }

  parallax_slice_t slice(std::vector<float>& buffer) {
    auto slice = parallax::sized<parallax_slice_t>();
    slice.variable = id;
    slice.form = sparse ? PARALLAX_FORM_ROWS : PARALLAX_FORM_DENSE;
    slice.ids = ids.data();
    slice.row_count = ids.size();
    slice.values = buffer.data();
    return slice;
  }
};

class Optimizer {
 public:
  Optimizer(const parallax_options_t& options, float learning_rate) : job_(options) {
    end_.learning_rate = learning_rate;
    end_.clip_norm = 5;
  }

  Parameter& embedding(const std::string& name, uint64_t rows, size_t width, uint64_t rows_max) {
    return add(name, rows, width, rows_max, 0.1F);
  }
  Parameter& dense(const std::string& name, uint64_t rows, size_t width) {
    return add(name, rows, width, 0, 0.1F);
  }
  // Agrees on the parameters with the other ranks and plans where each lies.
  void commit() { job_.commit(); }

  // Values as of the last step, and gradients at zero. One exchange.
  void fetch() {
    step_ = job_.step_begin();
    std::vector<parallax_slice_t> slices;
    for (auto& parameter : parameters_) {
      if (parameter->sparse) parameter->values.resize(parameter->ids.size() * parameter->width);
      parameter->gradient.assign(parameter->values.size(), 0);
      slices.push_back(parameter->slice(parameter->values));
    }
    job_.pull(step_, slices.data(), slices.size()).wait();
  }

  // Every rank's gradients become one update, everywhere alike.
  parallax_step_info_t step() {
    std::vector<parallax_slice_t> slices;
    for (auto& parameter : parameters_) slices.push_back(parameter->slice(parameter->gradient));
    parallax::Request push = job_.push(step_, slices.data(), slices.size());
    parallax::Request end = job_.step_end(step_, end_);
    push.wait();
    end.wait();
    return end.step_info();
  }

  // A collective beside the steps, for what is no gradient: no variable is needed.
  float mean_over_ranks(float number) {
    auto all = parallax::sized<parallax_collective_t>();
    all.kind = PARALLAX_ALLREDUCE;
    all.dtype = PARALLAX_F32;
    all.op = PARALLAX_OP_MEAN;
    all.send = all.recv = &number;  // in place
    all.count = 1;
    job_.collective(all).wait();
    return number;
  }

  parallax::Job& job() { return job_; }

 private:
  Parameter& add(const std::string& name, uint64_t rows, size_t width, uint64_t rows_max,
                 float spread) {
    auto variable = parallax::sized<parallax_variable_t>();
    variable.name = name.c_str();
    variable.rows = rows;
    variable.row_elements = width;
    variable.tag = rows_max == 0 ? PARALLAX_DENSE : PARALLAX_SPARSE;
    variable.rows_max = rows_max;
    variable.reduction = PARALLAX_MEAN_WORLD;
    variable.rule = PARALLAX_RULE_ADAGRAD;
    variable.initial_accumulator_value = 1e-6F;
    variable.init = PARALLAX_INIT_UNIFORM;
    variable.init_low = -spread;
    variable.init_high = spread;
    variable.init_seed = parameters_.size();
    auto parameter = std::make_unique<Parameter>();
    parameter->id = job_.register_variable(variable);
    parameter->width = width;
    parameter->sparse = rows_max != 0;
    if (!parameter->sparse) parameter->values.resize(rows * width);
    return *parameters_.emplace_back(std::move(parameter));
  }

  parallax::Job job_;
  std::vector<std::unique_ptr<Parameter>> parameters_;
  parallax_step_end_options_t end_ = parallax::sized<parallax_step_end_options_t>();
  uint64_t step_ = 0;
};

// ---- The model ------------------------------------------------------------------------------

constexpr size_t kWords = 1000, kWidth = 16, kBatch = 32, kLength = 12;
constexpr int kSteps = 300, kReport = 50;

// Texts of topic 1 lean to odd words, those of topic 0 to even ones.
class Texts {
 public:
  explicit Texts(uint32_t seed) : random_(seed) {}
  int topic() { return static_cast<int>(random_() & 1); }
  int64_t word(int topic) {
    const auto pair = static_cast<int64_t>(random_() % (kWords / 2));
    const bool lean = random_() % 10 < 7;
    return 2 * pair + (lean ? topic : 1 - topic);
  }

 private:
  std::mt19937 random_;
};

// One batch: the share of right answers before its step.
float train_batch(Optimizer& optimizer, Parameter& words, Parameter& weights, Texts& texts) {
  std::vector<int> topics(kBatch);
  words.ids.clear();
  for (int& topic : topics) {
    topic = texts.topic();
    for (size_t i = 0; i < kLength; ++i) words.ids.push_back(texts.word(topic));
  }
  optimizer.fetch();
  float right = 0;
  for (size_t text = 0; text < kBatch; ++text) {
    std::vector<float> mean(kWidth, 0);
    float score = 0;
    for (size_t i = 0; i < kLength; ++i) {
      const float* row = words.row(text * kLength + i);
      for (size_t k = 0; k < kWidth; ++k) mean[k] += row[k] / kLength;
    }
    for (size_t k = 0; k < kWidth; ++k) score += mean[k] * weights.row(0)[k];
    const float probability = 1 / (1 + std::exp(-score));
    const float miss = (probability - static_cast<float>(topics[text])) / kBatch;
    for (size_t k = 0; k < kWidth; ++k) weights.row_gradient(0)[k] += miss * mean[k];
    for (size_t i = 0; i < kLength; ++i) {
      float* gradient = words.row_gradient(text * kLength + i);
      for (size_t k = 0; k < kWidth; ++k) gradient[k] = miss * weights.row(0)[k] / kLength;
    }
    right += (score > 0) == (topics[text] == 1) ? 1.0F / kBatch : 0;
  }
  optimizer.step();
  return right;
}

float train(const parallax_options_t& options) {
  Optimizer optimizer(options, 0.1F);
  Parameter& words = optimizer.embedding("words", kWords, kWidth, kBatch * kLength);
  Parameter& weights = optimizer.dense("weights", 1, kWidth);
  optimizer.commit();
  const parallax_job_info_t info = optimizer.job().query();
  Texts texts(info.rank + 1);  // every rank has texts of its own
  float right = 0;
  for (int i = 1; i <= kSteps; ++i) {
    if (i % kReport == 1) right = 0;
    right += train_batch(optimizer, words, weights, texts) / kReport;
    if (i % kReport != 0) continue;
    right = optimizer.mean_over_ranks(right);
    if (info.rank == 0) {
      std::printf("step %d: %.0f%% right (ranks: %u)\n", i, 100 * right, info.world);
    }
  }
  optimizer.job().close();
  return right;
}

}  // namespace

int main() {
  try {
    // All zero: the place among the ranks comes from whoever started them.
    return train(parallax::sized<parallax_options_t>()) > 0.9F ? 0 : 1;
  } catch (const parallax::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
