// SPDX-License-Identifier: Apache-2.0
// RequestPool: the requests of a job. It hands out those that a call makes, completes them, and
// takes them back when their caller releases them, so that a step allocates none. Requests stay
// where they are, since callers hold pointers to them, and their memory is the pool's to its end.
// Called by the engine's owner alone; nothing blocks.
#ifndef PARALLAX_ENGINE_REQUEST_POOL_H_
#define PARALLAX_ENGINE_REQUEST_POOL_H_

#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <utility>
#include <vector>

#include "base/status.h"
#include "engine/request.h"

namespace parallax {

// Sees each request before it completes.
class RequestKeeper {
 public:
  virtual ~RequestKeeper() = default;
  // True: it is not to complete yet; whoever keeps it finishes it again.
  virtual bool keep(Request& request, const Status& status) = 0;
};

class RequestPool {
 public:
  // `completed` is called after each request that is done. `group`: whose requests they are.
  explicit RequestPool(std::function<void()> completed, uint32_t group = 0)
      : completed_(std::move(completed)), group_(group) {}

  // Makes room for as many as there may be, with one to close: no call of a step grows the pool's
  // own list, and taking one back never throws.
  void reserve() { free_.reserve(PARALLAX_REQUESTS_MAX + 1); }

  // A pending request, by TakenRequest. LIMIT when PARALLAX_REQUESTS_MAX are not released; kClose
  // always gets one, since a program that holds all requests must still be able to close the job.
  Status take(RequestKind kind, uint64_t step, Request** request);

  // Null: none.
  void keeper(RequestKeeper* keeper) { keeper_ = keeper; }

  // Completes a pending request, unless the keeper keeps it. From then on it is its caller's.
  void finish(Request* request, Status status);

  // Wakes whoever waits for one that is not done, but awaited().
  void tell() {
    if (completed_) completed_();
  }

  // STATE while pending, and when it was released already.
  Status release(Request* request);

  // Takes back one that never reached its caller.
  void take_back(Request* request);

  // The first pending one of which `wanted` is true; null: none.
  template <typename Wanted>
  const Request* find_pending(Wanted wanted) const {
    const auto found = std::find_if(storage_.begin(), storage_.end(), [&](const Request& each) {
      return !each.free && !each.done() && wanted(each);
    });
    return found == storage_.end() ? nullptr : &*found;
  }

  uint32_t outstanding() const { return outstanding_; }  // not released
  // Times that the pool had to grow beyond what any program needs to begin with.
  uint64_t growth_count() const { return growth_count_; }

 private:
  static constexpr size_t kUncounted = 16;  // requests that are no growth yet
  static constexpr size_t kSlicesReserved = 16;

  std::function<void()> completed_;
  RequestKeeper* keeper_ = nullptr;
  const uint32_t group_;
  std::deque<Request> storage_;
  std::vector<Request*> free_;
  uint32_t outstanding_ = 0;
  uint64_t growth_count_ = 0;
};

// The request of a call that is being made: the pool's again, whatever returns or throws, unless it
// is kept. A call that has a request already, `there`, is made with that one, which stays its
// owner's.
class TakenRequest {
 public:
  explicit TakenRequest(RequestPool& pool, Request* there = nullptr)
      : pool_(pool), request_(there), owned_(there == nullptr) {}
  ~TakenRequest() { give_back(); }
  TakenRequest(const TakenRequest&) = delete;
  TakenRequest& operator=(const TakenRequest&) = delete;

  Status take(RequestKind kind, uint64_t step) {
    return owned_ ? pool_.take(kind, step, &request_) : Status();
  }
  Request* operator->() const { return request_; }
  Request& operator*() const { return *request_; }
  void give_back() {
    Request* given = std::exchange(request_, nullptr);
    if (given != nullptr && owned_) pool_.take_back(given);
  }
  // The call is made: nothing after it throws.
  Request* keep() { return std::exchange(request_, nullptr); }

 private:
  RequestPool& pool_;
  Request* request_;
  const bool owned_;
};

}  // namespace parallax

#endif  // PARALLAX_ENGINE_REQUEST_POOL_H_
