// SPDX-License-Identifier: Apache-2.0
// Checks and marks of what is waited for. See waited_requests.h.
#include "capi/waited_requests.h"

#include <algorithm>
#include <string>

#include "capi/boundary.h"
#include "capi/wait.h"

namespace parallax {

WaitedRequests::~WaitedRequests() {
  for (Request* each : all()) each->waiter.there.store(false, std::memory_order_release);
}

// What is wrong with the arguments themselves.
Status WaitedRequests::refuse(parallax_request_t* const* requests, size_t count,
                              int64_t timeout_ms) const {
  const std::string call = call_;
  if (requests == nullptr) return invalid(call + ": requests is null").about_field("requests");
  if (count > PARALLAX_REQUESTS_MAX) {
    return invalid(call + ": " + std::to_string(count) + " requests; at most " +
                   std::to_string(PARALLAX_REQUESTS_MAX))
        .about_field("count");
  }
  return invalid(call + ": timeout_ms is " + std::to_string(timeout_ms) +
                 "; it must be 0 or more, or PARALLAX_WAIT_DEFAULT")
      .about_field("timeout_ms");
}

// Of one of them: it is null, or not of the first one's job.
Status WaitedRequests::refuse_one(size_t at, bool null) const {
  return invalid(std::string(call_) + ": requests[" + std::to_string(at) + "] is " +
                 (null ? "null" : "of another job"))
      .about_field("requests");
}

Status WaitedRequests::take(parallax_request_t* const* requests, size_t count, int64_t timeout_ms) {
  if (requests == nullptr || count > PARALLAX_REQUESTS_MAX || timeout_ms < PARALLAX_WAIT_DEFAULT) {
    return refuse(requests, count, timeout_ms);
  }
  for (size_t i = 0; i < count; ++i) {
    Request* const request = from_c(requests[i]);
    if (request == nullptr) return refuse_one(i, true);
    if (request->owner != from_c(requests[0])->owner) return refuse_one(i, false);
    if (request->waiter.there.exchange(true, std::memory_order_acquire)) {
      return bad_state(std::string(call_) +
                       ": another thread waits for this request, or it is given twice");
    }
    marked_[count_++] = request;
  }
  PARALLAX_RETURN_IF_ERROR(job().check_process(call_));
  PARALLAX_RETURN_IF_ERROR(check_sets());
  timeout_ns_ = job().timeout_ns();
  if (timeout_ms != PARALLAX_WAIT_DEFAULT) {
    constexpr int64_t kMostMs = kNever / 2 / kNanosecondsPerMillisecond;
    timeout_ns_ = std::min(timeout_ms, kMostMs) * kNanosecondsPerMillisecond;
  }
  return {};
}

// Who waits for some of what goes as one would wait for itself to give the rest.
Status WaitedRequests::check_sets() const {
  if (!job().fuses_reduces()) return {};
  for (const Request* each : all()) {
    if (each->kind != RequestKind::kReduce || each->done()) continue;
    const Status refused = job().progress().look(each->group, [each](const Engine& engine) {
      return engine.step_calls().check_wait(*each);
    });
    if (!refused.ok()) return refused.prefixed(std::string(call_) + ": ");
  }
  return {};
}

Status WaitedRequests::outcome() const {
  for (const Request* each : all()) {
    if (each->done() && !each->status.ok()) return each->status;
  }
  return {};
}

Status WaitedRequests::missing(std::span<Request* const> pending) const {
  for (const Request* each : pending) {
    if (!each->awaited()) {
      PARALLAX_RETURN_IF_ERROR(missing_of(job(), *each, call_, timeout_ns_));
    }
  }
  return {};
}

}  // namespace parallax
