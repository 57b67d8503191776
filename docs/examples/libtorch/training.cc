// SPDX-License-Identifier: Apache-2.0
//
// The training of ../model.h in libtorch, by several ranks: PyTorch holds the variables, and each
// gradient is on its way as soon as autograd has it.
//
//   ./training [FILE]                            alone
//   parallax run -n 2 -- ./training [FILE]       as two ranks of this machine
//
// Each rank takes its part of every batch, and what they learn is what one would. FILE.RANK gets
// the losses of that part, and the values at the end.
#include <torch/torch.h>

#include <array>
#include <cstdio>
#include <cstring>
#include <parallax/parallax.hpp>
#include <utility>
#include <vector>

#include "../model.h"

namespace {

// ---- libparallax ----------------------------------------------------------------------------

// Makes gradients those of all ranks together. Lives as long as what it was given.
struct Reducer {
  struct Pending {
    torch::Tensor value, mine, sum;
    parallax::Request request;  // reads mine, writes sum
  };

  // A tensor that every rank has alike. rows_max: of a gradient that is sparse; else 0.
  void add(const char* name, const torch::Tensor& value, uint64_t rows_max) {
    auto variable = parallax::sized<parallax_variable_t>();
    variable.name = name;
    variable.rows = static_cast<uint64_t>(value.size(0));
    variable.row_elements = static_cast<uint64_t>(value.size(1));
    variable.rows_max = rows_max;
    const uint32_t id = job.register_variable(variable);
    // Out of place: autograd copies the gradient that a hook gets before the sum is there.
    value.register_hook([=, this](const torch::Tensor& gradient) {
      torch::Tensor sum, mine = gradient.is_sparse() ? gradient.coalesce() : gradient.contiguous();
      auto slice = parallax::sized<parallax_slice_t>();
      slice.variable = id;
      slice.values = mine.is_sparse() ? mine.values().data_ptr() : mine.data_ptr();
      if (mine.is_sparse()) {
        slice.form = PARALLAX_FORM_ROWS;
        slice.ids = mine.indices().data_ptr<int64_t>();
        slice.row_count = static_cast<uint64_t>(mine.indices().size(1));
      }
      if (!mine.is_sparse()) slice.into = (sum = torch::empty_like(mine)).data_ptr();
      pending.push_back({value, mine, sum, job.reduce(step, {slice})});
    });
  }

  // After backward(): waits for the sums, and ends the step.
  void finish() {
    for (Pending& each : std::exchange(pending, {})) {
      each.request.wait();
      each.value.mutable_grad() = each.sum.defined() ? each.sum : rows_of(each);
    }
    job.step_end(step, parallax::sized<parallax_step_end_options_t>()).wait();
  }

  static torch::Tensor rows_of(const Pending& each) {
    const parallax::Request::Rows rows = each.request.rows(0);
    const auto count = static_cast<int64_t>(rows.row_count);
    auto ids = torch::from_blob(const_cast<int64_t*>(rows.ids), {1, count}, torch::kInt64);
    auto values = torch::from_blob(const_cast<void*>(rows.values), {count, each.value.size(1)});
    return torch::sparse_coo_tensor(ids.clone(), values.clone(), each.value.sizes());
  }

  parallax::Job job{parallax::sized<parallax_options_t>()};
  uint64_t step = 0;
  std::vector<Pending> pending;
};

// ---- The training ---------------------------------------------------------------------------

// The values that the library would make.
torch::Tensor value_of(int variable) {
  const auto rows = static_cast<int64_t>(kVariable[variable].rows);
  const auto row_elements = static_cast<int64_t>(kVariable[variable].row_elements);
  torch::Tensor value = torch::empty({rows, row_elements});
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t column = 0; column < row_elements; ++column) {
      value[row][column] = initial(static_cast<uint64_t>(variable), static_cast<uint64_t>(row),
                                   static_cast<uint64_t>(column));
    }
  }
  return value.requires_grad_();
}

torch::Tensor loss_of(const std::vector<torch::Tensor>& values, int step, int first, int samples) {
  torch::Tensor words = torch::empty({samples, kBag}, torch::kInt64);
  torch::Tensor wanted = torch::empty({samples, 1});
  for (int i = 0; i < samples; ++i) {
    wanted[i] = sample_of(step, first + i, words.data_ptr<int64_t>() + i * kBag);
  }
  const bool sparse = true;
  torch::Tensor rows = torch::embedding(values[kEmbedding], words, -1, false, sparse);
  torch::Tensor hidden = torch::tanh(rows.mean(1).matmul(values[kWeights]) + values[kBias]);
  return (hidden.matmul(values[kOutput]) - wanted).square().sum() / kBatch;
}

bool train(const char* path) {
  Reducer reducer;
  std::vector<torch::Tensor> values;
  for (int i = 0; i < kVariables; ++i) {
    values.push_back(value_of(i));
    reducer.add(kVariable[i].name, values.back(), kVariable[i].rows_max);
  }
  reducer.job.commit();
  const parallax_job_info_t info = reducer.job.query();
  const int samples = kBatch / static_cast<int>(info.world);
  const int first = static_cast<int>(info.rank) * samples;
  torch::optim::SGD optimizer(values, kRate);
  std::array<float, kSteps> losses{};
  for (int i = 0; i < kSteps; ++i) {
    optimizer.zero_grad();
    reducer.step = reducer.job.step_begin();
    torch::Tensor loss = loss_of(values, i, first, samples);
    loss.backward();
    reducer.finish();
    optimizer.step();
    losses[i] = loss.item<float>();
  }
  std::printf("rank %u of %u: loss of its part %g, then %g\n", info.rank, info.world,
              double{losses.front()}, double{losses.back()});
  reducer.job.close();

  static model m;
  for (int i = 0; i < kVariables; ++i) {
    std::memcpy(m.values[i], values[i].data_ptr(), values[i].nbytes());
  }
  save(path, static_cast<int>(info.rank), losses.data(), m.values);
  return losses.back() < losses.front();
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return train(argc > 1 ? argv[1] : nullptr) ? 0 : 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
