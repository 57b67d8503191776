// SPDX-License-Identifier: Apache-2.0
// RequestQueue: pending requests of one kind in the order of their calls. Those of which the first
// alone is under way are completed by finish_front, those that all are by finish_those. Engine's
// owner only.
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

  // Asks done(request) of each, once and in order, and completes those for which it is true.
  template <typename Done>
  void finish_those(Done done, const Status& status = {}) {
    for (size_t i = 0; i < requests_.size();) {
      Request* request = requests_[i];
      if (!done(*request)) {
        ++i;
        continue;
      }
      // One by one, so that each is completed once whatever done() throws.
      requests_.erase(requests_.begin() + static_cast<std::ptrdiff_t>(i));
      pool_.finish(request, status);
    }
  }

  // The job is over. Completes those whose buffers no compute job and no send reads any more.
  void finish_unborrowed(const Status& status) {
    finish_those([](const Request& request) { return request.pending == 0; }, status);
  }
  void finish_all(const Status& status) {
    finish_those([](const Request&) { return true; }, status);
  }

 private:
  RequestPool& pool_;
  std::vector<Request*> requests_;
};

}  // namespace parallax

#endif  // PARALLAX_ENGINE_REQUEST_QUEUE_H_
