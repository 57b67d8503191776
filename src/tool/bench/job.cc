// SPDX-License-Identifier: Apache-2.0
// The C ABI's calls with their failures thrown, and an allgather made of broadcasts.
#include "tool/bench/job.h"

#include "base/environment.h"
#include "rendezvous/launcher.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

namespace parallax::tool::bench {

namespace {

constexpr int64_t kReturnBuffersMs = 10'000;

}  // namespace

void expect(parallax_status_t status, const std::string& what) {
  if (status == PARALLAX_OK) return;
  throw BenchError(what + ": " + parallax_status_string(status) + ": " + parallax_last_error());
}

// Pending here means that an error is on its way up; the buffers must come back first.
parallax_options_t open_options(uint32_t rank, uint32_t world, uint32_t timeout_ms,
                                const std::string& rendezvous) {
  parallax_options_t options = {};
  options.size = sizeof options;
  options.rank = rank;
  options.world = world;
  options.timeout_ms = timeout_ms;
  if (!rendezvous.empty()) {
    options.rendezvous = rendezvous.c_str();
  } else if (world == 0 && is_launched(process_variable)) {
    options.rendezvous = "env";
  }
  return options;
}

Waitable::~Waitable() {
  if (request_ == nullptr) return;
  if (parallax_request_test(request_) == PARALLAX_PENDING) {
    (void)parallax_request_cancel(request_);
    (void)parallax_wait(&request_, 1, kReturnBuffersMs);
  }
  (void)parallax_request_release(request_);
}

void Waitable::wait() { expect(parallax_wait(&request_, 1, PARALLAX_WAIT_DEFAULT), what_); }

void Waitable::release() {
  expect(parallax_request_release(std::exchange(request_, nullptr)), what_);
}

Job::Job(const parallax_options_t& options) { expect(parallax_open(&options, &job_), "open"); }

// Only after an error; close() reports.
Job::~Job() {
  if (job_ == nullptr) return;
  (void)parallax_abort(job_, "a rank of parallax bench gave up");
  (void)parallax_close(job_);
}

uint32_t Job::add(const parallax_variable_t& variable) {
  uint32_t id = 0;
  expect(parallax_register(job_, &variable, &id), "register");
  return id;
}

void Job::commit() { expect(parallax_commit(job_), "commit"); }

void Job::barrier() {
  Waitable request("barrier");
  expect(parallax_barrier(job_, request.out()), "barrier");
  request.wait();
}

void Job::broadcast(void* buffer, size_t bytes, uint32_t root) {
  Waitable request("broadcast");
  expect(parallax_broadcast(job_, buffer, bytes, root, request.out()), "broadcast");
  request.wait();
}

nlohmann::json Job::report(uint32_t kind) {
  size_t bytes = 0;
  std::string text;
  parallax_status_t status = PARALLAX_LIMIT;
  while (status == PARALLAX_LIMIT) {
    text.resize(bytes);
    status = parallax_report(job_, kind, text.data(), &bytes);
    if (status == PARALLAX_LIMIT && bytes <= text.size()) break;
  }
  expect(status, "report");
  return nlohmann::json::parse(text.c_str());
}

parallax_job_info_t Job::info() {
  parallax_job_info_t info = {};
  info.size = sizeof info;
  expect(parallax_query(job_, &info), "query");
  return info;
}

void Job::close() { expect(parallax_close(std::exchange(job_, nullptr)), "close"); }

Group::Group(const parallax_options_t& options) : timeout_ms_(options.timeout_ms), job_(options) {
  job_.commit();
  info_ = job_.info();
}

std::string Group::network() {
  return job_.report(PARALLAX_REPORT_TOPOLOGY).at("network").get<std::string>();
}

void Group::allgather(const void* send, void* recv, size_t bytes) {
  auto* const all = static_cast<std::byte*>(recv);
  std::memcpy(all + rank() * bytes, send, bytes);
  for (uint32_t root = 0; root < world(); ++root) job_.broadcast(all + root * bytes, bytes, root);
}

bool Group::all_ok(bool mine) {
  const uint8_t said = mine ? 1 : 0;
  std::vector<uint8_t> all(world());
  allgather(&said, all.data(), sizeof said);
  return std::find(all.begin(), all.end(), 0) == all.end();
}

parallax_options_t Group::job_options() {
  parallax_options_t options = {};
  options.size = sizeof options;
  options.rank = rank();
  options.world = world();
  options.timeout_ms = timeout_ms_;
  if (world() > 1) {
    options.allgather = exchange;
    options.allgather_context = this;
  }
  return options;
}

int Group::exchange(void* context, const void* send, void* recv, size_t bytes) {
  try {
    static_cast<Group*>(context)->allgather(send, recv, bytes);
    return 0;
  } catch (const std::exception&) {
    return 1;  // the open that called says that the exchange failed
  }
}

}  // namespace parallax::tool::bench
