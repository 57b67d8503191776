// SPDX-License-Identifier: Apache-2.0
// SpinTime: how long a waiter looks for what it waits for before it blocks. About as long as a
// wake-up costs, so that it never waits for more than twice the better of the two, as long as
// looking pays. It does not where the other rank has no core to work on while this one looks, be it
// that other programs have it or that both ranks run on one: then each look in vain halves the
// time, one that finds something doubles it, and now and then a whole one is tried, since what
// comes after a microsecond more is never found by a shorter one.
//
// One owner at a time: the waiter that drives.
#ifndef PARALLAX_JOB_SPIN_TIME_H_
#define PARALLAX_JOB_SPIN_TIME_H_

#include <algorithm>
#include <cstdint>

namespace parallax {

class SpinTime {
 public:
  static constexpr int64_t kMaxNs = 50 * 1000;
  static constexpr int64_t kMinNs = 1000;
  static constexpr uint32_t kTriedEvery = 64;  // waits in vain

  // Never any, where ranks are more than their cores.
  void forbid() { now_ns_ = max_ns_ = 0; }
  int64_t now_ns() const { return vain_ % kTriedEvery == kTriedEvery - 1 ? max_ns_ : now_ns_; }
  // It found something while it looked, or did not and blocked.
  void found() {
    now_ns_ = std::min(max_ns_, 2 * now_ns());
    vain_ = 0;
  }
  void blocked() {
    now_ns_ = std::min(max_ns_, std::max(kMinNs, now_ns_ / 2));
    ++vain_;
  }

 private:
  int64_t max_ns_ = kMaxNs;
  int64_t now_ns_ = kMaxNs;
  uint32_t vain_ = 0;
};

}  // namespace parallax

#endif  // PARALLAX_JOB_SPIN_TIME_H_
