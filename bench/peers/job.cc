// SPDX-License-Identifier: Apache-2.0
// A job and its memory. See job.h.
#include "job.h"

#include <cstring>

#include "contender.h"

namespace parallax::peers {

void expect(parallax_status_t status, const char* call) {
  if (status == PARALLAX_OK) return;
  fail(std::string(call) + ": " + parallax_status_string(status) + ": " + parallax_last_error());
}

Job::Job() {
  parallax_options_t options = {};
  options.size = sizeof options;
  options.rendezvous = "env";
  expect(parallax_open(&options, &job_), "open");
}

Job::~Job() { expect(parallax_close(job_), "close"); }

uint32_t Job::add(parallax_variable_t variable) {
  const std::string name = std::to_string(variables_++);
  variable.size = sizeof variable;
  variable.name = name.c_str();
  uint32_t id = 0;
  expect(parallax_register(job_, &variable, &id), "register");
  return id;
}

void Job::commit() { expect(parallax_commit(job_), "commit"); }

std::span<float> Job::shared_memory(uint64_t elements) {
  parallax_buffer_options_t options = {};
  options.size = sizeof options;
  void* memory = nullptr;
  expect(parallax_buffer_alloc(job_, elements * sizeof(float), &options, &memory), "buffer_alloc");
  return {static_cast<float*>(memory), elements};
}

std::span<float> Job::own_memory(uint64_t elements) {
  const uint64_t bytes = (elements * sizeof(float) + 4095) / 4096 * 4096;
  void* const memory = std::aligned_alloc(4096, bytes);
  if (memory == nullptr) fail("no memory");
  own_.emplace_back(memory, &std::free);
  std::memset(memory, 0, bytes);
  return {static_cast<float*>(memory), elements};
}

uint64_t Job::begin() {
  uint64_t step = 0;
  expect(parallax_step_begin(job_, &step), "step_begin");
  return step;
}

parallax_request_t* Job::end(uint64_t step, float learning_rate) {
  parallax_step_end_options_t options = {};
  options.size = sizeof options;
  options.learning_rate = learning_rate;
  return end_by(step, options);
}

void Job::end_without(uint64_t step) {
  parallax_step_end_options_t options = {};
  options.size = sizeof options;
  options.absent = 1;
  parallax_request_t* const request = end_by(step, options);
  finish({&request, 1});
}

parallax_request_t* Job::end_by(uint64_t step, const parallax_step_end_options_t& options) {
  parallax_request_t* request = nullptr;
  expect(parallax_step_end(job_, step, &options, &request), "step_end");
  return request;
}

void Job::barrier() {
  parallax_request_t* request = nullptr;
  expect(parallax_barrier(job_, &request), "barrier");
  finish({&request, 1});
}

void finish(std::span<parallax_request_t* const> requests) {
  expect(parallax_wait(requests.data(), requests.size(), PARALLAX_WAIT_DEFAULT), "wait");
  for (auto* const request : requests) expect(parallax_request_release(request), "release");
}

}  // namespace parallax::peers
