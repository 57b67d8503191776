// SPDX-License-Identifier: Apache-2.0
// One rank's side of parallax.h, as a framework's optimizer would hold it: errors become
// exceptions, requests are always released. Calls the C ABI and nothing else of libparallax.
// One thread at a time.
#ifndef BENCH_LM_RANK_H_
#define BENCH_LM_RANK_H_

#include <array>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "device_memory.h"
#include "model.h"
#include "parallax/parallax.h"

namespace lm {

// Carries the status and the library's sentence.
class RankError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// A request that is released when it leaves its scope. Its buffers may be borrowed until wait().
class Request {
 public:
  Request() = default;
  Request(Request&& other) noexcept;
  Request& operator=(Request&& other) noexcept;
  ~Request();
  parallax_request_t** out() { return &request_; }
  parallax_request_t* get() const { return request_; }

 private:
  void release();
  parallax_request_t* request_ = nullptr;
};

struct VariableOptions {
  uint32_t rule = PARALLAX_RULE_ADAGRAD;
  uint32_t reduction = PARALLAX_MEAN_WORLD;
  float initial_accumulator = 0;
  bool declare_tags = true;  // false: AUTO for all
  bool start_at_zero = false;
};

class Rank {
 public:
  // Opens, registers `specs` in order, commits.
  Rank(const parallax_options_t& options, const VariableSpecs& specs,
       const VariableOptions& variable_options);
  ~Rank();
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;

  // From here on gradients, pulled rows and their ids pass through memory of a CUDA device.
  void use_device();

  uint64_t step_begin();
  // Posts pulls of what `batch` needs into *values, which is resized and borrowed; on a device, it
  // is filled in by the wait for it.
  Request pull(uint64_t step, const Batch& batch, Tensors* values);
  Request push(uint64_t step, const Batch& batch, Tensors* gradients);
  Request step_end(uint64_t step, const parallax_step_end_options_t& options);
  parallax_step_info_t step_info(const Request& request);
  // Waits for all of them. Adds the time to wait_seconds().
  void wait(const std::vector<const Request*>& requests, const std::string& what);
  void barrier();

  // All of every variable, as of the last commit, in a step of its own that pushes nothing: the
  // dense ones at once, the sparse ones in chunks of rows_max. In host memory always.
  Tensors read_all(uint64_t step);

  std::string report(uint32_t kind);
  parallax_job_info_t info();
  void close();
  double wait_seconds() const { return wait_seconds_; }

 private:
  void check(parallax_status_t status, const std::string& what) const;
  void register_variables(const VariableOptions& options);
  parallax_slice_t slice(size_t variable, const Batch& batch, Tensors* tensors) const;
  void place(parallax_slice_t* slice, size_t variable, const Batch& batch, Tensors* tensors,
             bool pushed);
  void land(const std::vector<parallax_request_t*>& completed);

  parallax_job_t* job_ = nullptr;
  uint32_t rank_;
  VariableSpecs specs_;
  std::array<uint32_t, kVariableCount> ids_ = {};
  double wait_seconds_ = 0;

  // What was pulled to the device, and goes to `to` once `request` is complete.
  struct Landing {
    parallax_request_t* request = nullptr;
    Tensors* to = nullptr;
    std::array<const void*, kVariableCount> from = {};
  };
  std::unique_ptr<DeviceMemory> device_;  // null: host memory
  Landing landing_;
};

}  // namespace lm

#endif  // BENCH_LM_RANK_H_
