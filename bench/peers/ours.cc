// SPDX-License-Identifier: Apache-2.0
// libparallax's AllReduce in bench/peers: a framework-held, dense variable for each tensor, reduced
// in place by one call within a step that every iteration begins and ends. Each kind of step has a
// job of its own: a variable of which a step gives nothing costs that step a message, and a
// training gives all of its variables.
//
// Variants: `private` is memory of the process, a block for each tensor, `alloc` one of
// parallax_buffer_alloc, in which they lie side by side without gaps, as in a fusion buffer. Both
// wait for the reduce, and again for the end of the step; `alloc-onewait` ends the step first, and
// waits once for both.
#include <map>
#include <memory>
#include <sstream>
#include <vector>

#include "dense.h"
#include "job.h"

namespace parallax::peers {
namespace {

constexpr uint64_t kRowElementsMax = 1 << 20;  // longer rows are refused

class Ours final : public Dense {
 public:
  // `steps`: WORDS of each kind of step, with semicolons.
  Ours(uint32_t rank, uint32_t world, const std::string& steps) : Dense(rank, world) {
    std::istringstream list(steps);
    for (std::string each; std::getline(list, each, ';');) open(DenseStep::read(each));
  }

  Took iterate() override {
    const int64_t start_ns = now_ns();
    const uint64_t step = job_->begin();
    const int64_t reduce_ns = now_ns();
    parallax_request_t* requests[2] = {};
    expect(parallax_reduce(job_->get(), step, slices_.data(), slices_.size(), &requests[0]),
           "reduce");
    if (one_wait_) {
      requests[1] = job_->end(step);
      finish(requests);
      const int64_t end_ns = now_ns();
      return {end_ns - reduce_ns, end_ns - start_ns};
    }
    finish({requests, 1});
    const int64_t reduced_ns = now_ns();
    requests[0] = job_->end(step);
    finish({requests, 1});
    return {reduced_ns - reduce_ns, now_ns() - start_ns};
  }

 protected:
  Memory place(const std::string& variant, const DenseStep& of) override {
    auto& step = steps_.at(of);
    job_ = step.job.get();
    one_wait_ = variant == "alloc-onewait";
    auto& tensors = variant == "private" ? step.own : step.shared;
    if (tensors.empty() && variant == "private") {
      for (const uint64_t each : of.bytes) {
        tensors.push_back(job_->own_memory(each / sizeof(float)));
      }
    } else if (tensors.empty()) {
      float* const slab = job_->shared_memory(slab_elements(of.bytes, Gaps::kNone)).data();
      tensors = on_slab(slab, of.bytes, Gaps::kNone);
    }
    slices_.assign(tensors.size(), {});
    for (size_t at = 0; at < tensors.size(); ++at) {
      slices_[at].size = sizeof slices_[at];
      slices_[at].variable = step.variables[at];
      slices_[at].values = tensors[at].data();
    }
    return memory_of(tensors);
  }

 private:
  struct Opened {
    std::unique_ptr<Job> job;
    std::vector<uint32_t> variables;
    Tensors shared, own;
  };

  void open(const DenseStep& of) {
    auto& step = steps_[of];
    if (step.job != nullptr) return;
    step.job = std::make_unique<Job>();
    const uint64_t number = of.dtype == PARALLAX_F32 ? 4 : 2;  // bytes
    for (const uint64_t each : of.bytes) {
      parallax_variable_t variable = {};
      const uint64_t elements = each / number;
      variable.row_elements = elements <= kRowElementsMax ? elements : 1;
      variable.rows = elements / variable.row_elements;
      variable.dtype = of.dtype;
      variable.tag = PARALLAX_DENSE;
      variable.reduction = of.mean ? PARALLAX_MEAN_WORLD : PARALLAX_SUM;
      variable.rule = PARALLAX_RULE_NONE;
      step.variables.push_back(step.job->add(variable));
    }
    step.job->commit();
  }

  Job* job_ = nullptr;  // of the step that place() was called for last
  bool one_wait_ = false;
  std::map<DenseStep, Opened> steps_;
  std::vector<parallax_slice_t> slices_;
};

}  // namespace
}  // namespace parallax::peers

// FOLDER RANK WORLD STEPS
int main(int count, char** all) {
  using namespace parallax::peers;
  const auto [folder, rank, world] = started_as(count, all);
  Ours ours(rank, world, argument(count, all, 4));
  serve(ours, rank, folder);
  return 0;
}
