// SPDX-License-Identifier: Apache-2.0
// Counters of a rank. See meter.h.
#include "meter.h"

#include <sys/resource.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "../calls.h"

namespace parallax::many {

using bench::expect;
using bench::fail;

Sent sent_by(parallax_job_t* job) {
  size_t bytes = 0;
  std::string text;
  parallax_status_t status = PARALLAX_LIMIT;
  while (status == PARALLAX_LIMIT) {
    text.resize(bytes);
    status = parallax_report(job, PARALLAX_REPORT_STATS, text.data(), &bytes);
    if (bytes <= text.size()) break;
  }
  expect(status, "report");
  const nlohmann::json stats = nlohmann::json::parse(text.c_str());
  return {stats["wire"]["sent_messages"], stats["wire"]["sent_bytes"],
          stats["local"]["sent_messages"], stats["local"]["sent_bytes"]};
}

int64_t cpu_us() {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  const auto us = [](const timeval& time) {
    return time.tv_sec * int64_t{1'000'000} + time.tv_usec;
  };
  return us(usage.ru_utime) + us(usage.ru_stime);
}

int64_t resident_kib() {
  std::ifstream file("/proc/self/smaps_rollup");
  std::string word;
  int64_t kib = 0;
  while (file >> word) {
    if (word == "Pss:" && file >> kib) return kib;
  }
  fail("no Pss in /proc/self/smaps_rollup");
}

void allgather(parallax_job_t* job, const void* send, void* recv, uint64_t bytes) {
  parallax_collective_t what = {};
  what.size = sizeof what;
  what.kind = PARALLAX_ALLGATHER;
  what.dtype = PARALLAX_BYTES;
  what.send = send;
  what.recv = recv;
  what.count = bytes;
  parallax_request_t* request = nullptr;
  expect(parallax_collective(job, &what, &request), "collective");
  expect(parallax_wait(&request, 1, PARALLAX_WAIT_DEFAULT), "wait");
  expect(parallax_request_release(request), "release");
}

}  // namespace parallax::many
