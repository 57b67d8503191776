// SPDX-License-Identifier: Apache-2.0
// Handing out requests and taking them back. See request_pool.h.
#include "engine/request_pool.h"

#include "base/check.h"

namespace parallax {

Status RequestPool::take(RequestKind kind, uint64_t step, Request** request) {
  if (outstanding_ >= PARALLAX_REQUESTS_MAX && kind != RequestKind::kClose) {
    return limit("more than " + std::to_string(PARALLAX_REQUESTS_MAX) +
                 " requests are not released; wait for some and release them");
  }
  if (free_.empty()) {
    if (storage_.size() > kUncounted) ++growth_count_;
    Request& grown = storage_.emplace_back();
    grown.group = group_;
    free_.push_back(&grown);  // first: if there is no memory for the rest, it is not lost
    grown.slices.reserve(kSlicesReserved);
    grown.parts.reserve(kSlicesReserved);
    grown.slice_done.reserve(kSlicesReserved);
  }
  *request = free_.back();
  free_.pop_back();
  ++outstanding_;
  (*request)->reset(kind, step);
  return {};
}

void RequestPool::finish(Request* request, Status status) {
  PARALLAX_CHECK(!request->done());
  if (keeper_ != nullptr && keeper_->keep(*request, status)) return;
  request->complete(std::move(status));
  if (completed_) completed_();
}

Status RequestPool::release(Request* request) {
  if (!request->done()) {
    return bad_state("release: the request is pending; wait for it, or cancel it and wait");
  }
  if (request->free) return bad_state("release: the request was released already");
  take_back(request);
  return {};
}

void RequestPool::take_back(Request* request) {
  request->free = true;
  --outstanding_;
  free_.push_back(request);
}

}  // namespace parallax
