// SPDX-License-Identifier: Apache-2.0
// Levels and fences. See send_queue.h.
#include "message/send_queue.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace parallax {

SendQueue::Level& SendQueue::level(int32_t priority) {
  const auto found =
      std::lower_bound(levels_.begin(), levels_.end(), priority,
                       [](const Level& each, int32_t wanted) { return each.priority > wanted; });
  const auto at = static_cast<size_t>(found - levels_.begin());
  if (found == levels_.end() || found->priority != priority) {
    levels_.insert(found, Level{.priority = priority});
    // With one level a fence was a send of it like any other.
    if (fences_ > 0 && levels_.size() == 2) close();
    first_ = 0;
  }
  first_ = std::min(first_, at);
  return levels_[at];
}

// What is queued keeps its order, and is passed by nothing any more.
void SendQueue::close() {
  for (Level& each : levels_) {
    closed_.append(&each.ahead);
    closed_.append(&each.data);
  }
  first_ = 0;
}

void SendQueue::add(Send* send) {
  if (send->fence && levels_.size() > 1) {
    close();
    closed_.push(send);
  } else {
    // It may throw, and nothing has changed then.
    Level& own = level(send->fence ? levels_[0].priority : send->priority);
    (send->ahead ? own.ahead : own.data).push(send);
  }
  ++count_;
  if (send->fence) ++fences_;
}

SendList* SendQueue::next_list() {
  if (!closed_.empty()) return &closed_;
  while (first_ < levels_.size()) {
    Level& each = levels_[first_];
    if (!each.ahead.empty()) return &each.ahead;
    if (!each.data.empty()) return &each.data;
    ++first_;
  }
  PARALLAX_CHECK(!"a queue that has none");
  return nullptr;
}

Send* SendQueue::pop() {
  --count_;
  Send* const send = next_list()->pop();
  if (send->fence) --fences_;
  return send;
}

void SendQueue::hasten(const uint32_t* pending) {
  for (Level& each : levels_) {
    SendList all = std::exchange(each.data, {});
    while (!all.empty()) {
      Send* const send = all.pop();
      (send->pending == pending ? each.ahead : each.data).push(send);
    }
  }
}

}  // namespace parallax
