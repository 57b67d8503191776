// SPDX-License-Identifier: Apache-2.0
// libparallax in bench/peers: a framework-held, dense variable for each tensor, reduced in place by
// one call within a step that every iteration begins and ends. Each kind of step has a job of its
// own: a variable of which a step gives nothing costs that step a message, and a training gives all
// of its variables. Variant `private` is memory of the process, a block for each tensor, `alloc`
// one of parallax_buffer_alloc, in which they lie side by side.
#include <cstdlib>
#include <map>
#include <memory>
#include <span>
#include <sstream>
#include <utility>
#include <vector>

#include "contender.h"
#include "parallax/parallax.h"

namespace parallax::peers {
namespace {

constexpr uint64_t kRowElementsMax = 1 << 20;  // longer rows are refused

void expect(parallax_status_t status, const char* call) {
  if (status == PARALLAX_OK) return;
  fail(std::string(call) + ": " + parallax_status_string(status) + ": " + parallax_last_error());
}

class Ours final : public Contender {
 public:
  // `steps`: the bytes of the tensors of each kind of step, with commas; steps with semicolons.
  explicit Ours(const std::string& steps) {
    std::istringstream list(steps);
    for (std::string each; std::getline(list, each, ';');) add(each);
  }
  ~Ours() override {
    for (const auto& [bytes, step] : steps_) expect(parallax_close(step.job), "close");
  }
  Ours(const Ours&) = delete;
  Ours& operator=(const Ours&) = delete;

  uint32_t rank() const { return rank_; }
  uint32_t world() const { return world_; }

  Tensors tensors(const std::string& variant, const std::vector<uint64_t>& bytes) override {
    auto& step = steps_.at(bytes);
    job_ = step.job;
    auto& tensors = variant == "alloc" ? step.shared : step.own;
    if (tensors.empty() && variant == "alloc") {
      tensors = on_slab(shared_slab(slab_elements(bytes) * sizeof(float)), bytes);
    } else if (tensors.empty()) {
      for (const uint64_t each : bytes) tensors.push_back(own_memory(each));
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
    uint64_t step = 0;
    parallax_step_end_options_t end = {};
    end.size = sizeof end;
    const int64_t start_ns = now_ns();
    expect(parallax_step_begin(job_, &step), "step_begin");
    const int64_t reduce_ns = now_ns();
    parallax_request_t* request = nullptr;
    expect(parallax_reduce(job_, step, slices_.data(), slices_.size(), &request), "reduce");
    finish(request);
    const int64_t reduced_ns = now_ns();
    expect(parallax_step_end(job_, step, &end, &request), "step_end");
    finish(request);
    return {reduced_ns - reduce_ns, now_ns() - start_ns};
  }

 private:
  struct Step {
    parallax_job_t* job = nullptr;
    std::vector<uint32_t> variables;
    Tensors shared, own;
  };

  void add(const std::string& words) {
    std::istringstream list(words);
    std::vector<uint64_t> bytes;
    for (std::string each; std::getline(list, each, ',');) bytes.push_back(std::stoull(each));
    auto& step = steps_[bytes];
    if (step.job != nullptr) return;
    open(step);
    for (size_t at = 0; at < bytes.size(); ++at) {
      const std::string name = std::to_string(at);
      parallax_variable_t variable = {};
      variable.size = sizeof variable;
      variable.name = name.c_str();
      const uint64_t elements = bytes[at] / sizeof(float);
      variable.row_elements = elements <= kRowElementsMax ? elements : 1;
      variable.rows = elements / variable.row_elements;
      variable.dtype = PARALLAX_F32;
      variable.tag = PARALLAX_DENSE;
      variable.reduction = PARALLAX_SUM;
      variable.rule = PARALLAX_RULE_NONE;
      step.variables.push_back(0);
      expect(parallax_register(step.job, &variable, &step.variables.back()), "register");
    }
    expect(parallax_commit(step.job), "commit");
  }

  void open(Step& step) {
    parallax_options_t options = {};
    options.size = sizeof options;
    options.rendezvous = "env";
    expect(parallax_open(&options, &step.job), "open");
    parallax_job_info_t info = {};
    info.size = sizeof info;
    expect(parallax_query(step.job, &info), "query");
    rank_ = info.rank;
    world_ = info.world;
  }

  float* shared_slab(uint64_t bytes) {
    parallax_buffer_options_t options = {};
    options.size = sizeof options;
    void* memory = nullptr;
    expect(parallax_buffer_alloc(job_, bytes, &options, &memory), "buffer_alloc");
    return static_cast<float*>(memory);
  }

  std::span<float> own_memory(uint64_t bytes) {
    void* const memory = std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
    if (memory == nullptr) fail("no memory");
    own_.emplace_back(memory, &std::free);
    return {static_cast<float*>(memory), bytes / sizeof(float)};
  }

  void finish(parallax_request_t* request) {
    expect(parallax_wait(&request, 1, PARALLAX_WAIT_DEFAULT), "wait");
    expect(parallax_request_release(request), "release");
  }

  parallax_job_t* job_ = nullptr;  // of the step that tensors() was called for last
  uint32_t rank_ = 0, world_ = 0;
  std::map<std::vector<uint64_t>, Step> steps_;  // by the bytes of their tensors
  std::vector<std::unique_ptr<void, decltype(&std::free)>> own_;
  std::vector<parallax_slice_t> slices_;
};

}  // namespace
}  // namespace parallax::peers

// FOLDER STEPS
int main(int count, char** all) {
  using namespace parallax::peers;
  const std::string folder = argument(count, all, 1);
  Ours ours(argument(count, all, 2));
  serve(ours, ours.rank(), ours.world(), folder);
  return 0;
}
