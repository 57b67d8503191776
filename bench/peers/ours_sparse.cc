// SPDX-License-Identifier: Apache-2.0
// libparallax's sparse steps in bench/peers: a managed variable for each table, all of them pulled
// by one call and pushed by another, and a step_end that applies them. Variant `private` is memory
// of the process, `alloc` one of parallax_buffer_alloc.
#include <memory>
#include <vector>

#include "job.h"
#include "sparse.h"

namespace parallax::peers {
namespace {

class Ours final : public Sparse {
 public:
  using Sparse::Sparse;

 protected:
  void open(const SparseStep& step) override {
    step_ = step;
    shared_ = own_ = {};
    job_.reset();
    job_ = std::make_unique<Job>();
    slices_.assign(step.tables.size(), {});
    for (size_t at = 0; at < step.tables.size(); ++at) {
      const auto& table = step.tables[at];
      parallax_variable_t variable = {};
      variable.rows = table.rows;
      variable.row_elements = table.width;
      variable.rows_max = table.ids;
      variable.dtype = PARALLAX_F32;
      variable.tag = PARALLAX_SPARSE;
      variable.reduction = PARALLAX_SUM;
      variable.rule = PARALLAX_RULE_SGD;
      if (step.rule == Rule::kAdagrad) {
        variable.rule = PARALLAX_RULE_ADAGRAD;
        variable.epsilon = kEpsilon;
      }
      auto& slice = slices_[at];
      slice.size = sizeof slice;
      slice.variable = job_->add(variable);
      slice.form = PARALLAX_FORM_ROWS;
      slice.row_count = table.ids;
    }
    job_->commit();
  }

  Buffers choose(const std::string& variant) override {
    auto& buffers = variant == "alloc" ? shared_ : own_;
    if (buffers.values.empty() && variant == "alloc") {
      buffers = {job_->shared_memory(step_.values), job_->shared_memory(step_.values)};
    } else if (buffers.values.empty()) {
      buffers = {job_->own_memory(step_.values), job_->own_memory(step_.values)};
    }
    buffers_ = buffers;
    return buffers;
  }

  Took run(const int64_t* ids) override {
    const int64_t start_ns = now_ns();
    const uint64_t step = job_->begin();
    parallax_request_t* requests[2] = {};
    place(ids, buffers_.values.data());
    expect(parallax_pull(job_->get(), step, slices_.data(), slices_.size(), &requests[0]), "pull");
    finish({requests, 1});
    const int64_t pulled_ns = now_ns();
    place(ids, buffers_.gradients.data());
    expect(parallax_push(job_->get(), step, slices_.data(), slices_.size(), &requests[0]), "push");
    requests[1] = job_->end(step, kLearningRate);
    finish(requests);
    return {pulled_ns - start_ns, now_ns() - start_ns};
  }

 private:
  void place(const int64_t* ids, float* values) {
    for (size_t at = 0; at < slices_.size(); ++at) {
      slices_[at].ids = ids + step_.tables[at].first_id;
      slices_[at].values = values + step_.tables[at].first_value;
    }
  }

  SparseStep step_;
  std::unique_ptr<Job> job_;
  Buffers shared_, own_, buffers_;
  std::vector<parallax_slice_t> slices_;
};

}  // namespace
}  // namespace parallax::peers

// FOLDER RANK WORLD
int main(int count, char** all) {
  using namespace parallax::peers;
  const std::string folder = argument(count, all, 1);
  const auto rank = static_cast<uint32_t>(std::stoul(argument(count, all, 2)));
  const auto world = static_cast<uint32_t>(std::stoul(argument(count, all, 3)));
  Ours ours(rank, world);
  serve(ours, rank, folder);
  return 0;
}
