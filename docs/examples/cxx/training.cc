// SPDX-License-Identifier: Apache-2.0
//
// The training of ../model.h in C++, by several ranks: the library holds the variables.
//
//   ./training [FILE]                            alone
//   parallax run -n 2 -- ./training [FILE]       as two ranks of this machine
//
// Each rank takes its part of every batch, and what they learn is what one would. FILE.RANK gets
// the losses of that part, and the values at the end.
#include <array>
#include <numeric>
#include <parallax/parallax.hpp>
#include <vector>

#include "../model.h"

namespace {

using Slices = std::array<parallax_slice_t, kVariables>;

// ---- libparallax ----------------------------------------------------------------------------

class Trainer {
 public:
  // Joins the job that the launcher says.
  explicit Trainer(model& m) : job_(parallax::sized<parallax_options_t>()) {
    for (uint64_t i = 0; i < kVariables; ++i) {
      auto variable = parallax::sized<parallax_variable_t>();
      variable.name = kVariable[i].name;
      variable.rows = kVariable[i].rows;
      variable.row_elements = kVariable[i].row_elements;
      variable.rows_max = kVariable[i].rows_max;
      variable.rule = PARALLAX_RULE_SGD;
      variable.init = PARALLAX_INIT_UNIFORM;
      variable.init_low = -kInitial;
      variable.init_high = kInitial;
      variable.init_seed = i;
      values_[i] = parallax::sized<parallax_slice_t>();
      values_[i].variable = job_.register_variable(variable);
      values_[i].form = i == kEmbedding ? PARALLAX_FORM_ROWS : PARALLAX_FORM_DENSE;
      gradients_[i] = values_[i];
      values_[i].values = m.values[i];
      gradients_[i].values = m.gradients[i];
    }
    job_.commit();
  }

  uint64_t begin() { return job_.step_begin(); }

  // Reads the rows of `words`, and the other variables whole. Step 0 is between steps.
  void pull(uint64_t step, const std::vector<int64_t>& words) {
    values_[kEmbedding].ids = gradients_[kEmbedding].ids = words.data();
    values_[kEmbedding].row_count = gradients_[kEmbedding].row_count = words.size();
    job_.pull(step, values_.data(), values_.size()).wait();
  }

  // Every rank's gradients become one update, everywhere alike.
  void update(uint64_t step, float learning_rate) {
    auto end = parallax::sized<parallax_step_end_options_t>();
    end.learning_rate = learning_rate;
    job_.push(step, gradients_.data(), gradients_.size()).wait();
    job_.step_end(step, end).wait();
  }

  parallax_job_info_t info() const { return job_.query(); }
  void close() { job_.close(); }

 private:
  parallax::Job job_;
  Slices values_{}, gradients_{};
};

// ---- The training ---------------------------------------------------------------------------

bool train(const char* path) {
  static model m;
  Trainer trainer(m);
  const parallax_job_info_t info = trainer.info();
  const int samples = kBatch / static_cast<int>(info.world);
  const int first = static_cast<int>(info.rank) * samples;
  std::vector<int64_t> words(static_cast<size_t>(samples * kBag));
  std::array<float, kBatch> wanted{};
  std::array<float, kSteps> losses{};
  for (int i = 0; i < kSteps; ++i) {
    for (int k = 0; k < samples; ++k) wanted[k] = sample_of(i, first + k, &words[k * kBag]);
    const uint64_t step = trainer.begin();
    trainer.pull(step, words);
    losses[i] = learn(&m, wanted.data(), samples);
    trainer.update(step, kRate);
  }
  std::printf("rank %u of %u: loss of its part %g, then %g\n", info.rank, info.world,
              double{losses.front()}, double{losses.back()});

  std::vector<int64_t> all(kWords);
  std::iota(all.begin(), all.end(), 0);
  trainer.pull(0, all);
  trainer.close();
  save(path, static_cast<int>(info.rank), losses.data(), m.values);
  return losses.back() < losses.front();
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return train(argc > 1 ? argv[1] : nullptr) ? 0 : 1;
  } catch (const parallax::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
