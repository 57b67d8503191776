// SPDX-License-Identifier: Apache-2.0
//
// Hooks of autograd in libtorch, which copies the gradient that a hook was given while the library
// reads it. Out of place the copy and the gradient stay the rank's own, and two ranks learn what
// one process does; in place they train apart, silently. Ranks are threads of this process. Exit
// status 0 if all of that is so; else standard error says what is not.
#include <torch/torch.h>

#include <array>
#include <atomic>
#include <barrier>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <parallax/parallax.hpp>
#include <string>
#include <thread>
#include <vector>

namespace {

constexpr int kSteps = 20;
constexpr uint32_t kWorld = 2;
constexpr int64_t kRows = 4, kColumns = 3;

std::atomic<int> wrong{0};

void expect(bool right, const char* what, uint32_t rank, int step) {
  if (right) return;
  ++wrong;
  std::fprintf(stderr, "rank %u, step %d: %s\n", rank, step, what);
}

torch::Tensor model() {
  return torch::linspace(-1, 1, kRows * kColumns).reshape({kRows, kColumns}).requires_grad_();
}

torch::Tensor loss_of(const torch::Tensor& weight, uint32_t rank, int step) {
  const torch::Tensor numbers = torch::arange(5.0 * kRows).reshape({5, kRows});
  const torch::Tensor data = torch::sin(numbers * static_cast<double>(rank + 1) + step);
  return torch::tanh(data.matmul(weight)).square().mean();
}

bool same_bits(const torch::Tensor& one, const torch::Tensor& other) {
  return one.is_contiguous() && other.is_contiguous() && one.nbytes() == other.nbytes() &&
         std::memcmp(one.data_ptr(), other.data_ptr(), one.nbytes()) == 0;
}

torch::optim::SGD optimizer_of(const torch::Tensor& weight) {
  return torch::optim::SGD({weight}, torch::optim::SGDOptions(0.3).momentum(0.5));
}

// What one process makes of the batches of all ranks.
torch::Tensor reference() {
  torch::Tensor weight = model();
  torch::optim::SGD optimizer = optimizer_of(weight);
  for (int step = 0; step < kSteps; ++step) {
    optimizer.zero_grad();
    for (uint32_t rank = 0; rank < kWorld; ++rank) loss_of(weight, rank, step).backward();
    optimizer.step();
  }
  return weight.detach();
}

// What this rank alone makes of its batch.
torch::Tensor own_gradient(const torch::Tensor& weight, uint32_t rank, int step) {
  torch::Tensor twin = weight.detach().clone().requires_grad_();
  loss_of(twin, rank, step).backward();
  return twin.grad();
}

// One rank's training. In place rank 0 copies before the aggregate is there, and rank 1 after it.
torch::Tensor train(parallax::Job& job, bool in_place, std::barrier<>& copied) {
  const uint32_t rank = job.query().rank;
  auto variable = parallax::sized<parallax_variable_t>();
  variable.name = "weight";
  variable.rows = kRows;
  variable.row_elements = kColumns;
  job.register_variable(variable);
  job.commit();
  torch::Tensor weight = model();
  torch::optim::SGD optimizer = optimizer_of(weight);
  for (int i = 0; i < kSteps; ++i) {
    const torch::Tensor own = own_gradient(weight, rank, i);
    optimizer.zero_grad();
    const uint64_t step = job.step_begin();
    torch::Tensor handed, sum = torch::empty({kRows, kColumns});
    std::vector<parallax::Request> requests;
    const unsigned hook = weight.register_hook([&](const torch::Tensor& gradient) {
      if (in_place && rank == 1) copied.arrive_and_wait();
      handed = gradient;
      auto slice = parallax::sized<parallax_slice_t>();
      slice.values = gradient.data_ptr();
      if (!in_place) slice.into = sum.data_ptr();
      requests.push_back(job.reduce(step, {slice}));
      if (in_place && rank == 1) requests.back().wait();
    });
    loss_of(weight, rank, i).backward();
    weight.remove_hook(hook);
    if (in_place && rank == 0) copied.arrive_and_wait();
    requests.at(0).wait();
    if (in_place) {
      expect(!same_bits(handed, own), "in place the gradient is not the aggregate", rank, i);
      expect(same_bits(weight.grad(), rank == 0 ? own : handed), "the copy is another's", rank, i);
    } else {
      expect(same_bits(handed, own), "the gradient handed over is not the rank's own", rank, i);
      expect(same_bits(weight.grad(), own), "the copy is not the rank's own", rank, i);
      weight.mutable_grad().copy_(sum);
    }
    job.step_end(step, parallax::sized<parallax_step_end_options_t>()).wait();
    optimizer.step();
  }
  return weight.detach();
}

std::array<torch::Tensor, kWorld> train_all(bool in_place) {
  std::array<torch::Tensor, kWorld> weights;
  std::barrier copied(kWorld);
  const std::string rendezvous = in_place ? "inproc:in_place" : "inproc:out_of_place";
  std::vector<std::thread> ranks;
  for (uint32_t rank = 0; rank < kWorld; ++rank) {
    ranks.emplace_back([&, rank] {
      auto options = parallax::sized<parallax_options_t>();
      options.rank = rank;
      options.world = kWorld;
      options.rendezvous = rendezvous.c_str();
      try {
        parallax::Job job(options);
        weights[rank] = train(job, in_place, copied);
        job.close();
      } catch (const std::exception& error) {  // another may wait at the barrier for ever
        std::fprintf(stderr, "rank %u: %s\n", rank, error.what());
        std::_Exit(1);
      }
    });
  }
  for (std::thread& rank : ranks) rank.join();
  return weights;
}

}  // namespace

int main() {
  const torch::Tensor expected = reference();
  for (const torch::Tensor& weight : train_all(false)) {
    expect(torch::allclose(weight, expected, 1e-5, 1e-6), "out of place trains otherwise", 0,
           kSteps);
  }
  const std::array<torch::Tensor, kWorld> apart = train_all(true);
  expect(!torch::allclose(apart[0], apart[1], 1e-2, 1e-2), "in place the ranks agree", 0, kSteps);
  return wrong == 0 ? 0 : 1;
}
