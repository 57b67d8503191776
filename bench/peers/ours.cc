// SPDX-License-Identifier: Apache-2.0
// libparallax's AllReduce in bench/peers: a framework-held, dense variable for each tensor, reduced
// in place by one call within a step that every iteration begins and ends. Each kind of step has a
// job of its own: a variable of which a step gives nothing costs that step a message, and a
// training gives all of its variables. Variant `private` is memory of the process, a block for each
// tensor, `alloc` one of parallax_buffer_alloc, in which they lie side by side.
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
  // `steps`: the bytes of the tensors of each kind of step, with commas; steps with semicolons.
  Ours(uint32_t rank, uint32_t world, const std::string& steps) : Dense(rank, world) {
    std::istringstream list(steps);
    for (std::string each; std::getline(list, each, ';');) add(each);
  }

 protected:
  Tensors tensors(const std::string& variant, const std::vector<uint64_t>& bytes) override {
    auto& step = steps_.at(bytes);
    job_ = step.job.get();
    auto& tensors = variant == "alloc" ? step.shared : step.own;
    if (tensors.empty() && variant == "alloc") {
      tensors = on_slab(job_->shared_memory(slab_elements(bytes)).data(), bytes);
    } else if (tensors.empty()) {
      for (const uint64_t each : bytes) {
        tensors.push_back(job_->own_memory(each / sizeof(float)));
      }
    }
    slices_.assign(bytes.size(), {});
    for (size_t at = 0; at < bytes.size(); ++at) {
      slices_[at].size = sizeof slices_[at];
      slices_[at].variable = step.variables[at];
      slices_[at].values = tensors[at].data();
    }
    return tensors;
  }

  Took allreduce() override {
    const int64_t start_ns = now_ns();
    const uint64_t step = job_->begin();
    const int64_t reduce_ns = now_ns();
    parallax_request_t* request = nullptr;
    expect(parallax_reduce(job_->get(), step, slices_.data(), slices_.size(), &request), "reduce");
    finish({&request, 1});
    const int64_t reduced_ns = now_ns();
    request = job_->end(step);
    finish({&request, 1});
    return {reduced_ns - reduce_ns, now_ns() - start_ns};
  }

 private:
  struct Step {
    std::unique_ptr<Job> job;
    std::vector<uint32_t> variables;
    Tensors shared, own;
  };

  void add(const std::string& words) {
    std::istringstream list(words);
    std::vector<uint64_t> bytes;
    for (std::string each; std::getline(list, each, ',');) bytes.push_back(std::stoull(each));
    auto& step = steps_[bytes];
    if (step.job != nullptr) return;
    step.job = std::make_unique<Job>();
    for (const uint64_t each : bytes) {
      parallax_variable_t variable = {};
      const uint64_t elements = each / sizeof(float);
      variable.row_elements = elements <= kRowElementsMax ? elements : 1;
      variable.rows = elements / variable.row_elements;
      variable.dtype = PARALLAX_F32;
      variable.tag = PARALLAX_DENSE;
      variable.reduction = PARALLAX_SUM;
      variable.rule = PARALLAX_RULE_NONE;
      step.variables.push_back(step.job->add(variable));
    }
    step.job->commit();
  }

  Job* job_ = nullptr;                           // of the step that tensors() was called for last
  std::map<std::vector<uint64_t>, Step> steps_;  // by the bytes of their tensors
  std::vector<parallax_slice_t> slices_;
};

}  // namespace
}  // namespace parallax::peers

// FOLDER RANK WORLD STEPS
int main(int count, char** all) {
  using namespace parallax::peers;
  const std::string folder = argument(count, all, 1);
  const auto rank = static_cast<uint32_t>(std::stoul(argument(count, all, 2)));
  const auto world = static_cast<uint32_t>(std::stoul(argument(count, all, 3)));
  Ours ours(rank, world, argument(count, all, 4));
  serve(ours, rank, folder);
  return 0;
}
