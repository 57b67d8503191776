// SPDX-License-Identifier: Apache-2.0
// libparallax in bench/peers: a variable of each size, framework-held and dense, reduced in place
// within a step that every iteration begins and ends. Variant `private` is memory of the process,
// `alloc` memory of parallax_buffer_alloc.
#include <map>
#include <sstream>
#include <utility>

#include "contender.h"
#include "parallax/parallax.h"

namespace parallax::peers {
namespace {

void expect(parallax_status_t status, const char* call) {
  if (status == PARALLAX_OK) return;
  fail(std::string(call) + ": " + parallax_status_string(status) + ": " + parallax_last_error());
}

class Ours final : public Contender {
 public:
  // `sizes`: bytes of the variables, with commas.
  explicit Ours(const std::string& sizes) {
    parallax_options_t options = {};
    options.size = sizeof options;
    options.rendezvous = "env";
    expect(parallax_open(&options, &job_), "open");
    std::istringstream list(sizes);
    for (std::string each; std::getline(list, each, ',');) add(std::stoull(each));
    expect(parallax_commit(job_), "commit");
    parallax_job_info_t info = {};
    info.size = sizeof info;
    expect(parallax_query(job_, &info), "query");
    rank_ = info.rank;
    world_ = info.world;
  }
  ~Ours() override {
    expect(parallax_close(job_), "close");
    for (const auto& [bytes, memory] : allocated_) std::free(memory);
  }
  Ours(const Ours&) = delete;
  Ours& operator=(const Ours&) = delete;

  uint32_t rank() const { return rank_; }
  uint32_t world() const { return world_; }

  float* buffer(const std::string& variant, uint64_t bytes) override {
    slice_ = {};
    slice_.size = sizeof slice_;
    slice_.variable = variables_.at(bytes);
    void*& memory = (variant == "alloc" ? shared_ : allocated_)[bytes];
    if (memory == nullptr && variant == "alloc") {
      parallax_buffer_options_t options = {};
      options.size = sizeof options;
      expect(parallax_buffer_alloc(job_, bytes, &options, &memory), "buffer_alloc");
    } else if (memory == nullptr) {
      memory = std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
      if (memory == nullptr) fail("no memory");
    }
    slice_.values = memory;
    return static_cast<float*>(memory);
  }

  Took allreduce() override {
    uint64_t step = 0;
    parallax_step_end_options_t end = {};
    end.size = sizeof end;
    const int64_t start_ns = now_ns();
    expect(parallax_step_begin(job_, &step), "step_begin");
    const int64_t reduce_ns = now_ns();
    parallax_request_t* request = nullptr;
    expect(parallax_reduce(job_, step, &slice_, 1, &request), "reduce");
    finish(request);
    const int64_t reduced_ns = now_ns();
    expect(parallax_step_end(job_, step, &end, &request), "step_end");
    finish(request);
    return {reduced_ns - reduce_ns, now_ns() - start_ns};
  }

 private:
  void add(uint64_t bytes) {
    const std::string name = "bytes" + std::to_string(bytes);
    parallax_variable_t variable = {};
    variable.size = sizeof variable;
    variable.name = name.c_str();
    variable.rows = 1;
    variable.row_elements = bytes / sizeof(float);
    variable.dtype = PARALLAX_F32;
    variable.tag = PARALLAX_DENSE;
    variable.reduction = PARALLAX_SUM;
    variable.rule = PARALLAX_RULE_NONE;
    expect(parallax_register(job_, &variable, &variables_[bytes]), "register");
  }

  void finish(parallax_request_t* request) {
    expect(parallax_wait(&request, 1, PARALLAX_WAIT_DEFAULT), "wait");
    expect(parallax_request_release(request), "release");
  }

  parallax_job_t* job_ = nullptr;
  uint32_t rank_ = 0, world_ = 0;
  std::map<uint64_t, uint32_t> variables_;  // by their bytes
  std::map<uint64_t, void*> shared_, allocated_;
  parallax_slice_t slice_ = {};
};

}  // namespace
}  // namespace parallax::peers

// FOLDER SIZES
int main(int count, char** all) {
  using namespace parallax::peers;
  const std::string folder = argument(count, all, 1);
  Ours ours(argument(count, all, 2));
  serve(ours, ours.rank(), ours.world(), folder);
  return 0;
}
