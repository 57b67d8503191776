// SPDX-License-Identifier: Apache-2.0
// Parking: when the progress thread drives the engine, and who wakes it. It drives where nobody
// else does: no caller waits, and none has for a moment. A caller that waits drives the engine
// itself, and one that has just left comes back soon more often than not; to wake the thread for
// each of these moments would cost the caller a system call and, where ranks are as many as cores,
// the core.
//
//   kOnDuty   asleep on the armed transport, which wakes it. A caller that comes does nothing about
//             it; the last to leave rings its bell, since their passes have used up the arming.
//   kRests    a caller waits, or has left less than kRestNs ago. Asleep, and looks again by itself
//             when the rest is over: callers come and go without a word. A rest in which they came
//             again and again is followed by one twice as long, where that is allowed: to look
//             costs what several small steps do, and the core of a rank in the midst of one.
//   kParked   the same callers have waited for a whole rest. Asleep until the last one that leaves
//             rings its bell: after so long a wait that costs nothing.
//   kAwake    it drives; or there is no thread.
//
// Pure: no clock, no system call. One thread at a time changes it, with a lock; `waiters` and
// `thread` can be read by any thread without.
#ifndef PARALLAX_JOB_PARKING_H_
#define PARALLAX_JOB_PARKING_H_

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "base/clock.h"

namespace parallax {

class Parking {
 public:
  // How long after the last caller left the thread takes over.
  static constexpr int64_t kRestNs = kNanosecondsPerMillisecond;
  static constexpr int64_t kRestNsMax = 16 * kRestNs;
  // Callers that wait so often come again and again.
  static constexpr int64_t kOftenNs = kRestNs / 10;

  enum class Thread : uint8_t { kAwake, kOnDuty, kRests, kParked };

  uint32_t waiters() const { return waiters_; }
  Thread thread() const { return thread_; }

  // Rests may grow to kRestNsMax, which is then how late the thread may be after the last of many
  // callers. Before any comes.
  void rest_longer() { rest_ns_max_ = kRestNsMax; }

  // A caller waits.
  void came() { waiters_ = waiters_ + 1; }
  // It waits no more. `drove`: it made passes until `now_ns`; others say nothing of how well the
  // engine is driven. True: the thread's bell is to be rung.
  bool left(int64_t now_ns, bool drove) {
    waiters_ = waiters_ - 1;
    if (drove) {
      ++drove_count_;
      last_drove_ns_ = now_ns;
    }
    if (waiters_ > 0 || (thread_ != Thread::kOnDuty && thread_ != Thread::kParked)) return false;
    thread_ = Thread::kAwake;  // soon: nobody rings again meanwhile
    return true;
  }

  // What the thread does next: kAwake (drive), kRests until wake_ns(), or kParked. `needed`:
  // something has happened that nobody sees but by driving; it does not wait for the rest's end.
  Thread next(int64_t now_ns, bool needed) {
    const bool rested = thread_ == Thread::kRests && now_ns >= wake_ns_;
    if (rested) choose_rest();
    thread_ = waiters_ > 0 ? beside_waiters(now_ns, rested) : without_waiters(now_ns, needed);
    return thread_;
  }
  int64_t wake_ns() const { return wake_ns_; }

  // The transport is armed, and the thread about to sleep on it. False: a caller waits by now.
  bool go_on_duty() {
    if (waiters_ > 0) return false;
    thread_ = Thread::kOnDuty;
    return true;
  }
  // It has slept on duty; or it ends.
  void wake() { thread_ = Thread::kAwake; }

 private:
  // By the one that is over.
  void choose_rest() {
    const auto drove = static_cast<int64_t>(drove_count_ - seen_count_);
    rest_ns_ = drove * kOftenNs >= rest_ns_ ? std::min(2 * rest_ns_, rest_ns_max_) : kRestNs;
  }
  Thread beside_waiters(int64_t now_ns, bool rested) {
    // The whole rest: one that began while nobody waited says nothing of who has come since.
    const bool parks = (rested && beside_) || thread_ == Thread::kParked;
    if (parks && drove_count_ == seen_count_) return Thread::kParked;
    if (rested || thread_ != Thread::kRests) {
      beside_ = true;
      wake_ns_ = now_ns + rest_ns_;
      seen_count_ = drove_count_;
    }
    return Thread::kRests;
  }
  Thread without_waiters(int64_t now_ns, bool needed) {
    if (needed || drove_count_ == 0 || now_ns >= last_drove_ns_ + kRestNs) return Thread::kAwake;
    beside_ = false;
    wake_ns_ = last_drove_ns_ + rest_ns_;
    seen_count_ = drove_count_;
    return Thread::kRests;
  }

  std::atomic<uint32_t> waiters_{0};
  std::atomic<Thread> thread_{Thread::kAwake};
  uint64_t drove_count_ = 0;  // waits that drove, and are over
  uint64_t seen_count_ = 0;   // of those, when the rest began
  bool beside_ = false;       // the rest began beside a waiter
  int64_t last_drove_ns_ = 0;
  int64_t wake_ns_ = 0;
  int64_t rest_ns_ = kRestNs, rest_ns_max_ = kRestNs;
};

}  // namespace parallax

#endif  // PARALLAX_JOB_PARKING_H_
