// SPDX-License-Identifier: Apache-2.0
// A job of libparallax in bench/peers, and memory for what a rank gives and gets. Any failure ends
// the process.
#ifndef PARALLAX_BENCH_PEERS_JOB_H_
#define PARALLAX_BENCH_PEERS_JOB_H_

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "parallax/parallax.h"

namespace parallax::peers {

void expect(parallax_status_t status, const char* call);

class Job {
 public:
  // Opens it, with every rank that PARALLAX_RENDEZVOUS leads to it.
  Job();
  ~Job();
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  parallax_job_t* get() const { return job_; }
  // Registers a variable under a name of its own; `variable` needs no size and no name.
  uint32_t add(parallax_variable_t variable);
  void commit();
  // Of parallax_buffer_alloc, or pages of this process; zeros.
  std::span<float> shared_memory(uint64_t elements);
  std::span<float> own_memory(uint64_t elements);

  uint64_t begin();
  parallax_request_t* end(uint64_t step, float learning_rate = 0);
  // Of a step to which this rank gives nothing; returns when it is over.
  void end_without(uint64_t step);
  void barrier();

 private:
  parallax_request_t* end_by(uint64_t step, const parallax_step_end_options_t& options);

  parallax_job_t* job_ = nullptr;
  uint32_t variables_ = 0;
  std::vector<std::unique_ptr<void, decltype(&std::free)>> own_;
};

// Waits, and releases them.
void finish(std::span<parallax_request_t* const> requests);

}  // namespace parallax::peers

#endif  // PARALLAX_BENCH_PEERS_JOB_H_
