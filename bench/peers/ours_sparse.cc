// SPDX-License-Identifier: Apache-2.0
// libparallax's sparse steps in bench/peers: a managed variable for each table, all of them pulled
// by one call and pushed by another, and a step_end that applies them. Variant `private` is memory
// of the process, `alloc` one of parallax_buffer_alloc. `fused`, of that memory too, posts push,
// step_end, step_begin and the next step's pull together, and waits for all of them behind what it
// computes: that is then what needs no pulled rows.
#include <array>
#include <bit>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "job.h"
#include "sparse.h"

namespace parallax::peers {
namespace {

constexpr uint64_t kWrittenBytesMax = uint64_t{4} << 30;  // of a table

class Ours final : public Sparse {
 public:
  using Sparse::Sparse;

 protected:
  void open(const SparseStep& step) override {
    step_ = step;
    shared_ = fused_memory_ = own_ = {};
    free_gradients();
    job_.reset();
    job_ = std::make_unique<Job>();
    slices_.assign(step.tables.size(), {});
    for (size_t at = 0; at < step.tables.size(); ++at) {
      const auto& table = step.tables[at];
      parallax_variable_t variable = {};
      variable.rows = table.rows;
      variable.row_elements = table.width;
      variable.rows_max = table.ids;
      variable.dtype = step.is_bf16 ? PARALLAX_BF16 : PARALLAX_F32;
      variable.storage_dtype = PARALLAX_AS(variable.dtype);
      variable.tag = PARALLAX_SPARSE;
      variable.reduction = PARALLAX_SUM;
      variable.rule = PARALLAX_RULE_SGD;
      if (step.rule == Rule::kAdagrad) {
        variable.rule = PARALLAX_RULE_ADAGRAD;
        variable.epsilon = kEpsilon;
      }
      // Zeros that are written, as a model's first values are; of a larger table, where peers and
      // the limit have pages as they touch them, ours has, too.
      const uint64_t bytes = table.rows * table.width * (step.is_bf16 ? 2 : 4);
      if (bytes <= kWrittenBytesMax) variable.init = PARALLAX_INIT_UNIFORM;
      auto& slice = slices_[at];
      slice.size = sizeof slice;
      slice.variable = job_->add(variable);
      slice.form = PARALLAX_FORM_ROWS;
      slice.row_count = table.ids;
    }
    job_->commit();
  }

  Buffers choose(const std::string& variant) override {
    free_gradients();
    is_fused_ = variant == "fused";
    const bool is_shared = variant != "private";
    auto& memory = is_fused_ ? fused_memory_ : is_shared ? shared_ : own_;
    if (memory.gradients.empty()) {
      const uint64_t count = step_.is_bf16 ? (step_.values + 1) / 2 : step_.values;
      const auto take = [&] {
        return is_shared ? job_->shared_memory(count) : job_->own_memory(count);
      };
      memory = {take(), {take(), is_fused_ ? take() : std::span<float>()}};
    }
    memory_ = memory;
    if (!step_.is_bf16) return {memory_.gradients, memory_.values[0]};
    wide_gradients_.resize(step_.values);
    wide_values_.resize(step_.values);
    return {wide_gradients_, wide_values_};
  }

  Took run(const int64_t* ids, const int64_t* next) override {
    if (step_.is_bf16) {
      free_gradients();
      narrow();
    }
    const Took took = is_fused_ ? run_fused(ids, next) : run_managed(ids);
    if (step_.is_bf16) widen();
    return took;
  }
  std::span<const float> looked_up() const override {
    return step_.is_bf16 ? std::span<const float>(wide_values_) : memory_.values[0];
  }

  // By the server, or by what is computed out of the rows of the next step.
  void free_gradients() override {
    if (pushed_ != nullptr) finish(std::array{std::exchange(pushed_, nullptr)});
  }

  void meet() override {
    free_gradients();
    job_->barrier();
  }
  void settle() override {
    free_gradients();
    if (std::exchange(pulled_for_, nullptr) != nullptr) job_->end_without(step_number_);
  }

 private:
  // Numbers of the variables' type, so with bf16 two in a float.
  struct Memory {
    std::span<float> gradients;
    std::array<std::span<float>, 2> values;  // of the step, and, fused, of the next
  };

  Took run_managed(const int64_t* ids) {
    const int64_t start_ns = now_ns();
    const uint64_t step = job_->begin();
    auto* const pull = post_pull(step, ids, memory_.values[0]);
    finish({&pull, 1});
    const int64_t pulled_ns = now_ns();
    free_gradients();
    compute(step_);
    pushed_ = post_push(step, ids);
    auto* const end = job_->end(step, kLearningRate);
    finish({&end, 1});
    return {pulled_ns - start_ns, now_ns() - start_ns};
  }

  // The rows of `ids` have come while the step before ended, but in the first step.
  Took run_fused(const int64_t* ids, const int64_t* next) {
    const int64_t start_ns = now_ns();
    if (pulled_for_ == nullptr) {
      step_number_ = job_->begin();
      auto* const pull = post_pull(step_number_, ids, memory_.values[1]);
      finish({&pull, 1});
    } else if (pulled_for_ != ids) {
      fail("a step has other ids than were said before");
    }
    std::swap(memory_.values[0], memory_.values[1]);
    auto* const push = post_push(step_number_, ids);
    auto* const end = job_->end(step_number_, kLearningRate);
    step_number_ = job_->begin();
    auto* const pull = post_pull(step_number_, next, memory_.values[1]);
    pulled_for_ = next;
    compute(step_);
    finish(std::array{push, end, pull});
    const int64_t took_ns = now_ns() - start_ns;
    return {took_ns, took_ns};
  }

  parallax_request_t* post_pull(uint64_t step, const int64_t* ids, std::span<float> values) {
    place(ids, values);
    parallax_request_t* request = nullptr;
    expect(parallax_pull(job_->get(), step, slices_.data(), slices_.size(), &request), "pull");
    return request;
  }
  parallax_request_t* post_push(uint64_t step, const int64_t* ids) {
    place(ids, memory_.gradients);
    parallax_request_t* request = nullptr;
    expect(parallax_push(job_->get(), step, slices_.data(), slices_.size(), &request), "push");
    return request;
  }
  void place(const int64_t* ids, std::span<float> values) {
    const uint64_t number_bytes = step_.is_bf16 ? 2 : 4;
    for (size_t at = 0; at < slices_.size(); ++at) {
      slices_[at].ids = ids + step_.tables[at].first_id;
      slices_[at].values =
          std::as_writable_bytes(values).data() + step_.tables[at].first_value * number_bytes;
    }
  }

  // What is given has no more digits than bf16 has.
  void narrow() {
    auto* const to = reinterpret_cast<uint16_t*>(memory_.gradients.data());
    for (uint64_t at = 0; at < step_.values; ++at) {
      to[at] = static_cast<uint16_t>(std::bit_cast<uint32_t>(wide_gradients_[at]) >> 16);
    }
  }
  void widen() {
    const auto* const from = reinterpret_cast<const uint16_t*>(memory_.values[0].data());
    for (uint64_t at = 0; at < step_.values; ++at) {
      wide_values_[at] = std::bit_cast<float>(static_cast<uint32_t>(from[at]) << 16);
    }
  }

  SparseStep step_;
  std::unique_ptr<Job> job_;
  Memory shared_, fused_memory_, own_, memory_;      // the last: of the variant that was chosen
  std::vector<float> wide_gradients_, wide_values_;  // of bf16
  std::vector<parallax_slice_t> slices_;
  bool is_fused_ = false;
  parallax_request_t* pushed_ = nullptr;  // which has the gradients, since the last step
  uint64_t step_number_ = 0;              // fused: that is begun
  const int64_t* pulled_for_ = nullptr;   // and of which these ids' rows are there
};

}  // namespace
}  // namespace parallax::peers

// FOLDER RANK WORLD
int main(int count, char** all) {
  using namespace parallax::peers;
  const auto [folder, rank, world] = started_as(count, all);
  Ours ours(rank, world);
  serve(ours, rank, folder);
  return 0;
}
