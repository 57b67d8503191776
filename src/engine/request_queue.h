// SPDX-License-Identifier: Apache-2.0
// RequestQueue: pending requests of one kind in the order of their calls, of which the first is
// under way. Engine's owner only.
#ifndef PARALLAX_ENGINE_REQUEST_QUEUE_H_
#define PARALLAX_ENGINE_REQUEST_QUEUE_H_

#include <cstddef>
#include <utility>
#include <vector>

#include "base/status.h"
#include "engine/request_pool.h"

namespace parallax {

class RequestQueue {
 public:
  explicit RequestQueue(RequestPool& pool) : pool_(pool) {}

  // At its bound, so that no call of a step grows it.
  void reserve() { requests_.reserve(PARALLAX_REQUESTS_MAX); }
  void push(Request* request) { requests_.push_back(request); }
  bool empty() const { return requests_.empty(); }
  Request& front() const { return *requests_.front(); }
  // Completes the first.
  void finish_front(Status status) {
    Request* first = requests_.front();
    requests_.erase(requests_.begin());
    pool_.finish(first, std::move(status));
  }

  // The job is over. Completes those whose buffers no compute job and no send reads any more.
  void finish_unborrowed(const Status& status) { finish(status, false); }
  void finish_all(const Status& status) { finish(status, true); }

 private:
  void finish(const Status& status, bool borrowed_too) {
    size_t kept = 0;
    for (size_t i = 0; i < requests_.size(); ++i) {
      Request* request = requests_[i];
      if (borrowed_too || request->pending == 0) {
        pool_.finish(request, status);
      } else {
        requests_[kept++] = request;
      }
    }
    requests_.resize(kept);
  }

  RequestPool& pool_;
  std::vector<Request*> requests_;
};

}  // namespace parallax

#endif  // PARALLAX_ENGINE_REQUEST_QUEUE_H_
