// SPDX-License-Identifier: Apache-2.0
// WaitedRequests: the requests that a call of the C ABI waits for, from its check of the arguments
// on: marked as waited for, since one thread waits for a request, and unmarked on every way out.
// One thread; take() does not block.
#ifndef PARALLAX_CAPI_WAITED_REQUESTS_H_
#define PARALLAX_CAPI_WAITED_REQUESTS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/status.h"
#include "capi/boundary.h"
#include "engine/request.h"
#include "job/job.h"
#include "parallax/parallax.h"

namespace parallax {

class WaitedRequests {
 public:
  explicit WaitedRequests(const char* call) : call_(call) {}
  ~WaitedRequests();
  WaitedRequests(const WaitedRequests&) = delete;
  WaitedRequests& operator=(const WaitedRequests&) = delete;

  // One or more. INVALID names the argument; STATE: one has another waiter, or the process may not.
  Status take(parallax_request_t* const* requests, size_t count, int64_t timeout_ms);

  std::span<Request* const> all() const { return {marked_.data(), count_}; }
  Job& job() const { return job_of(*marked_[0]); }
  // PARALLAX_WAIT_DEFAULT is the job's.
  int64_t timeout_ns() const { return timeout_ns_; }
  // The first failure of those that are done.
  Status outcome() const;
  // What the first of these that is not awaited() still waits for: TIMEOUT. OK: all are by now.
  Status missing(std::span<Request* const> pending) const;

 private:
  Status refuse(parallax_request_t* const* requests, size_t count, int64_t timeout_ms) const;
  Status refuse_one(size_t at, bool null) const;
  Status check_sets() const;

  const char* const call_;
  std::array<Request*, PARALLAX_REQUESTS_MAX> marked_;
  size_t count_ = 0;
  int64_t timeout_ns_ = 0;
};

}  // namespace parallax

#endif  // PARALLAX_CAPI_WAITED_REQUESTS_H_
