// SPDX-License-Identifier: Apache-2.0
// EventQueue: the simulator's future, ordered by (time, order of insertion), so that two runs of
// one seed are the same run; and SimClock, the Clock over its present. One thread; never blocks.
#ifndef PARALLAX_TRANSPORT_SIM_EVENT_QUEUE_H_
#define PARALLAX_TRANSPORT_SIM_EVENT_QUEUE_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/clock.h"

namespace parallax {

struct SimMessage;

enum class SimEventKind : uint8_t {
  kRun,      // subject: rank
  kArrive,   // message reaches the receiver's port
  kDeliver,  // message is in the receiver's inbox
  kHeal,     // some silence is over
  kFault,    // subject: index into the fault plan
  kResume,   // subject: rank
};

struct SimEvent {
  int64_t at_ns = 0;
  uint64_t sequence = 0;
  SimMessage* message = nullptr;
  uint32_t subject = 0;
  SimEventKind kind = SimEventKind::kRun;
};

class EventQueue {
 public:
  int64_t now_ns() const { return now_ns_; }
  bool empty() const { return heap_.empty(); }
  int64_t next_ns() const { return heap_.empty() ? kNever : heap_.front().at_ns; }

  void push(int64_t at_ns, SimEventKind kind, uint32_t subject, SimMessage* message = nullptr) {
    heap_.push_back({std::max(at_ns, now_ns_), sequence_++, message, subject, kind});
    std::push_heap(heap_.begin(), heap_.end(), later);
  }

  // The earliest event; the present moves to its time.
  SimEvent pop() {
    std::pop_heap(heap_.begin(), heap_.end(), later);
    const SimEvent event = heap_.back();
    heap_.pop_back();
    now_ns_ = event.at_ns;
    return event;
  }

  // Moves the present on when nothing happens before `at_ns`.
  void advance_to(int64_t at_ns) { now_ns_ = std::max(now_ns_, std::min(at_ns, next_ns())); }

 private:
  static bool later(const SimEvent& a, const SimEvent& b) {
    return a.at_ns != b.at_ns ? a.at_ns > b.at_ns : a.sequence > b.sequence;
  }

  std::vector<SimEvent> heap_;
  uint64_t sequence_ = 0;
  int64_t now_ns_ = 0;
};

class SimClock final : public Clock {
 public:
  explicit SimClock(const EventQueue& queue) : queue_(queue) {}
  int64_t now_ns() const override { return queue_.now_ns(); }

 private:
  const EventQueue& queue_;
};

}  // namespace parallax

#endif  // PARALLAX_TRANSPORT_SIM_EVENT_QUEUE_H_
