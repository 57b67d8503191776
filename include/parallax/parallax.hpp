// SPDX-License-Identifier: Apache-2.0
//
// RAII over parallax.h, and nothing else: what a call does, which threads may call and how long
// buffers are borrowed is stated there. C++17. Failures are thrown as parallax::Error.
//
//   auto options = parallax::sized<parallax_options_t>();
//   parallax::Job job(options);
//   job.commit();
//   uint64_t step = job.step_begin();
//   job.pull(step, {slice}).wait();
//
// Lifetimes. A Request that outlives its Job's close may only be tested and destroyed. A Buffer
// ends before the handle that it is of is closed. All are movable, not copyable; a moved-from
// object may only be assigned or destroyed.
#ifndef PARALLAX_PARALLAX_HPP_
#define PARALLAX_PARALLAX_HPP_

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <stdexcept>
#include <string>
#include <utility>

#include "parallax/parallax.h"

namespace parallax {

// A failure: the status, the library's sentence, and what that names, as data.
class Error : public std::runtime_error {
 public:
  Error(parallax_status_t status, const char* sentence, const parallax_error_info_t& info)
      : std::runtime_error(std::string(parallax_status_string(status)) + ": " + sentence),
        status_(status),
        info_(info) {}

  parallax_status_t status() const noexcept { return status_; }
  const parallax_error_info_t& info() const noexcept { return info_; }

 private:
  parallax_status_t status_;
  parallax_error_info_t info_;
};

// A struct of parallax.h with its size set and zero, the default, everywhere else.
template <typename Struct>
Struct sized() {
  Struct zero = Struct();
  zero.size = sizeof(Struct);
  return zero;
}

// Throws the error of the calling thread's last call, unless status is OK.
inline void check(parallax_status_t status) {
  if (status == PARALLAX_OK) return;
  auto info = sized<parallax_error_info_t>();
  parallax_last_error_info(&info);
  throw Error(status, parallax_last_error(), info);
}

// Gives a variable the caller's own rule: `rule` is called as int(const parallax_rule_block_t&), by
// the rules of parallax_rule_fn, and must live as long as the job. What it throws is answered by
// -1, which fails the job.
template <typename Rule>
void set_rule(parallax_variable_t& variable, Rule& rule) noexcept {
  variable.rule = PARALLAX_RULE_CALLBACK;
  variable.rule_context = const_cast<void*>(static_cast<const void*>(&rule));
  variable.rule_fn = [](void* context, const parallax_rule_block_t* block) noexcept -> int {
    try {
      return (*static_cast<Rule*>(context))(*block);
    } catch (...) {
      return -1;
    }
  };
}

class Request {
 public:
  // The union of rows of a reduce, owned by the request.
  struct Rows {
    const int64_t* ids;
    const void* values;
    uint64_t row_count;
  };

  Request() = default;
  explicit Request(parallax_request_t* request) noexcept : request_(request) {}
  Request(Request&& other) noexcept : request_(std::exchange(other.request_, nullptr)) {}
  Request& operator=(Request&& other) noexcept {
    if (this != &other) {
      release();
      request_ = std::exchange(other.request_, nullptr);
    }
    return *this;
  }

  // Waits up to the job's timeout_ms, because the buffers are borrowed; a request still pending
  // then is cancelled, which aborts the job, and waited for once more.
  ~Request() { release(); }

  void wait(int64_t timeout_ms = PARALLAX_WAIT_DEFAULT) {
    const parallax_status_t status = parallax_wait(&request_, 1, timeout_ms);
    if (status != PARALLAX_OK) fail(status);
  }

  // Makes a stream of a device (CUstream, cudaStream_t) wait for what it gives: see
  // parallax_stream_wait. It stays pending.
  void on_stream(uint32_t device, void* stream, int64_t timeout_ms = PARALLAX_WAIT_DEFAULT) {
    const parallax_status_t status = parallax_stream_wait(&request_, 1, device, stream, timeout_ms);
    if (status != PARALLAX_OK) fail(status);
  }

  // True when it has completed; throws when it has failed.
  bool test() {
    const parallax_status_t status = parallax_request_test(request_);
    if (status < 0) fail(status);
    return status == PARALLAX_OK;
  }

  void cancel() { check(parallax_request_cancel(request_)); }
  const char* error() const { return parallax_request_error(request_); }

  parallax_step_info_t step_info() const {
    auto info = sized<parallax_step_info_t>();
    check(parallax_request_step(request_, &info));
    return info;
  }

  Rows rows(size_t index) const {
    Rows rows = {};
    check(parallax_request_rows(request_, index, &rows.ids, &rows.values, &rows.row_count));
    return rows;
  }

  parallax_request_t* get() const noexcept { return request_; }

 private:
  // With the request's own failure, or, where it is still pending, the call's.
  [[noreturn]] void fail(parallax_status_t status) const {
    const char* own = request_ == nullptr ? "" : parallax_request_error(request_);
    auto info = sized<parallax_error_info_t>();
    if (own[0] == '\0') {
      parallax_last_error_info(&info);
      throw Error(status, parallax_last_error(), info);
    }
    parallax_request_error_info(request_, &info);
    throw Error(status, own, info);
  }

  void release() noexcept {
    if (request_ == nullptr) return;
    parallax_wait(&request_, 1, PARALLAX_WAIT_DEFAULT);
    if (parallax_request_test(request_) == PARALLAX_PENDING) {
      parallax_request_cancel(request_);
      parallax_wait(&request_, 1, PARALLAX_WAIT_DEFAULT);
    }
    parallax_request_release(std::exchange(request_, nullptr));
  }

  parallax_request_t* request_ = nullptr;
};

// Memory of a job's own (parallax_buffer_alloc), freed at the end, which is before the handle is
// closed that it was given. Where a pending request borrows it then, or a variable has its place
// there (place_values), it stays until the job is gone.
class Buffer {
 public:
  Buffer() = default;
  Buffer(parallax_job_t* job, size_t bytes, const parallax_buffer_options_t* options = nullptr)
      : job_(job), bytes_(bytes) {
    check(parallax_buffer_alloc(job, bytes, options, &data_));
  }
  Buffer(Buffer&& other) noexcept
      : job_(other.job_),
        data_(std::exchange(other.data_, nullptr)),
        bytes_(std::exchange(other.bytes_, 0)) {}
  Buffer& operator=(Buffer&& other) noexcept {
    if (this != &other) {
      release();
      job_ = other.job_;
      data_ = std::exchange(other.data_, nullptr);
      bytes_ = std::exchange(other.bytes_, 0);
    }
    return *this;
  }
  ~Buffer() { release(); }

  void* data() const noexcept { return data_; }
  size_t size() const noexcept { return bytes_; }  // in bytes
  template <typename Element>
  Element* as() const noexcept {
    return static_cast<Element*>(data_);
  }

  // As the end does, but throws where a pending request borrows it or a variable has its place.
  void free() {
    if (data_ == nullptr) return;
    check(parallax_buffer_free(job_, data_));
    data_ = nullptr;
    bytes_ = 0;
  }

 private:
  void release() noexcept {
    if (data_ != nullptr) parallax_buffer_free(job_, data_);
  }

  parallax_job_t* job_ = nullptr;
  void* data_ = nullptr;
  size_t bytes_ = 0;
};

class Job {
 public:
  // Meets the other ranks. Blocks.
  explicit Job(const parallax_options_t& options) { check(parallax_open(&options, &job_)); }
  Job(Job&& other) noexcept : job_(std::exchange(other.job_, nullptr)) {}
  Job& operator=(Job&& other) noexcept {
    if (this != &other) {
      parallax_close(job_);
      job_ = std::exchange(other.job_, nullptr);
    }
    return *this;
  }

  // Closes as close() does, but ignores failures.
  ~Job() { parallax_close(job_); }

  // A part of this job, for the ranks that the list names; closed before the job.
  Job split(const uint32_t* ranks, size_t count) {
    Job part;
    check(parallax_split(job_, ranks, count, &part.job_));
    return part;
  }
  Job split(std::initializer_list<uint32_t> ranks) { return split(ranks.begin(), ranks.size()); }

  Buffer buffer(size_t bytes) { return Buffer(job_, bytes); }
  Buffer buffer(size_t bytes, const parallax_buffer_options_t& options) {
    return Buffer(job_, bytes, &options);
  }
  // Of the caller's own memory, which stays so.
  void register_buffer(void* pointer, size_t bytes) {
    check(parallax_buffer_register(job_, pointer, bytes));
  }
  void unregister_buffer(void* pointer) { check(parallax_buffer_unregister(job_, pointer)); }

  uint32_t register_variable(const parallax_variable_t& variable) {
    uint32_t id = 0;
    check(parallax_register(job_, &variable, &id));
    return id;
  }

  void commit() { check(parallax_commit(job_)); }

  uint64_t step_begin() {
    uint64_t step = 0;
    check(parallax_step_begin(job_, &step));
    return step;
  }

  Request read(const parallax_rows_t& rows) {
    return request([&](auto** out) { return parallax_read(job_, &rows, out); });
  }
  Request write(const parallax_rows_t& rows) {
    return request([&](auto** out) { return parallax_write(job_, &rows, out); });
  }

  Request pull(uint64_t step, const parallax_slice_t* slices, size_t count) {
    return request([&](auto** out) { return parallax_pull(job_, step, slices, count, out); });
  }
  Request pull(uint64_t step, std::initializer_list<parallax_slice_t> slices) {
    return pull(step, slices.begin(), slices.size());
  }

  Request push(uint64_t step, const parallax_slice_t* slices, size_t count) {
    return request([&](auto** out) { return parallax_push(job_, step, slices, count, out); });
  }
  Request push(uint64_t step, std::initializer_list<parallax_slice_t> slices) {
    return push(step, slices.begin(), slices.size());
  }

  Request reduce(uint64_t step, const parallax_slice_t* slices, size_t count) {
    return request([&](auto** out) { return parallax_reduce(job_, step, slices, count, out); });
  }
  Request reduce(uint64_t step, std::initializer_list<parallax_slice_t> slices) {
    return reduce(step, slices.begin(), slices.size());
  }

  Request step_end(uint64_t step, const parallax_step_end_options_t& options) {
    return request([&](auto** out) { return parallax_step_end(job_, step, &options, out); });
  }

  Request barrier() {
    return request([&](auto** out) { return parallax_barrier(job_, out); });
  }

  Request broadcast(void* buffer, size_t bytes, uint32_t root) {
    return request([&](auto** out) { return parallax_broadcast(job_, buffer, bytes, root, out); });
  }

  // send, recv and the counts are the caller's: the buffers until the request is complete.
  Request collective(const parallax_collective_t& what) {
    return request([&](auto** out) { return parallax_collective(job_, &what, out); });
  }

  // What of the settings may change while the job is open: set("timeout_ms", "5000").
  void set(const char* name, const char* value) { check(parallax_set(job_, name, value)); }

  // count_touched: counts bytes_touched too, which takes some ms for GiB.
  parallax_job_info_t query(bool count_touched = false) const {
    auto info = sized<parallax_job_info_t>();
    info.bytes_touched = count_touched ? 1 : 0;
    check(parallax_query(job_, &info));
    return info;
  }

  // The JSON of a report. It may grow between two calls, so it is asked for until it fits.
  std::string report(parallax_report_t kind) const {
    std::string text;
    size_t bytes = 0;
    parallax_status_t status = parallax_report(job_, kind, nullptr, &bytes);
    while (status == PARALLAX_LIMIT) {
      text.resize(bytes);
      status = parallax_report(job_, kind, text.data(), &bytes);
    }
    check(status);
    text.resize(bytes - 1);
    return text;
  }

  // Runs the engine once; only needed with manual_progress.
  void progress() { check(parallax_progress(job_)); }

  void abort(const char* reason) { check(parallax_abort(job_, reason)); }

  // Waits for all ranks; the job is gone whether or not this throws. A job that had failed throws
  // its failure here too: where it was caught before, leave the closing to the destructor.
  // It stays where parts of it are open.
  void close() {
    const parallax_status_t status = parallax_close(job_);
    if (status != PARALLAX_STATE) job_ = nullptr;
    check(status);
  }

  parallax_job_t* get() const noexcept { return job_; }

 private:
  template <typename Call>
  static Request request(Call call) {
    parallax_request_t* out = nullptr;
    check(call(&out));
    return Request(out);
  }

  Job() = default;

  parallax_job_t* job_ = nullptr;
};

}  // namespace parallax

#endif  // PARALLAX_PARALLAX_HPP_
