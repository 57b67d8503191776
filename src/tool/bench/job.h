// SPDX-License-Identifier: Apache-2.0
// Job: a job of libparallax as `parallax bench` uses it, through parallax.h alone. Failures are
// thrown; whoever catches ends the process, which the other ranks then notice. One thread.
#ifndef PARALLAX_TOOL_BENCH_JOB_H_
#define PARALLAX_TOOL_BENCH_JOB_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>

#include "parallax/parallax.h"

namespace parallax::tool::bench {

class BenchError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// What was asked for cannot be had; every rank finds so.
class Unsupported : public BenchError {
 public:
  using BenchError::BenchError;
};

// Throws "WHAT: STATUS: the library's sentence" unless OK.
void expect(parallax_status_t status, const std::string& what);

// What a command line says, else the environment. `rendezvous` outlives what is returned.
parallax_options_t open_options(uint32_t rank, uint32_t world, uint32_t timeout_ms,
                                const std::string& rendezvous);

class Waitable {
 public:
  explicit Waitable(std::string what) : what_(std::move(what)) {}
  ~Waitable();
  Waitable(const Waitable&) = delete;
  Waitable& operator=(const Waitable&) = delete;

  parallax_request_t** out() { return &request_; }
  parallax_request_t* get() const { return request_; }
  void wait();
  void release();

 private:
  std::string what_;
  parallax_request_t* request_ = nullptr;
};

class Job {
 public:
  explicit Job(const parallax_options_t& options);
  ~Job();
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  uint32_t add(const parallax_variable_t& variable);
  void commit();
  void barrier();
  void broadcast(void* buffer, size_t bytes, uint32_t root);
  nlohmann::json report(uint32_t kind);
  parallax_job_info_t info();
  void close();
  parallax_job_t* get() const { return job_; }

 private:
  parallax_job_t* job_ = nullptr;
};

// The ranks of this run, met once; they exchange figures, and the jobs that are measured meet
// through it, so that any rendezvous serves for any number of jobs.
class Group {
 public:
  explicit Group(const parallax_options_t& options);
  uint32_t rank() const { return info_.rank; }
  uint32_t world() const { return info_.world; }
  uint32_t hosts() const { return info_.hosts; }
  // What carries messages between hosts: "tcp on eth0"; "" on one host.
  std::string network();
  // `recv` gets `bytes` of every rank.
  void allgather(const void* send, void* recv, size_t bytes);
  // Whether every rank said true.
  bool all_ok(bool mine);
  // Options of a job among the same ranks.
  parallax_options_t job_options();
  void close() { job_.close(); }

 private:
  static int exchange(void* context, const void* send, void* recv, size_t bytes);

  uint32_t timeout_ms_;
  Job job_;
  parallax_job_info_t info_ = {};
};

}  // namespace parallax::tool::bench

#endif  // PARALLAX_TOOL_BENCH_JOB_H_
