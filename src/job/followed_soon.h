// SPDX-License-Identifier: Apache-2.0
// FollowedSoon: which calls another call follows at once, such as a reduce that the end of its step
// follows: what they send leaves together then, in one message and for one system call, which
// between hosts takes longer than the few bytes of either. Programs do the same in every step, so
// what a call did the last times is what it will do; one that was wrong once has to prove itself
// anew, since what it has held back waits for a thread to look (parking.h).
//
// Pure: no clock. Whoever has the engine mutex.
#ifndef PARALLAX_JOB_FOLLOWED_SOON_H_
#define PARALLAX_JOB_FOLLOWED_SOON_H_

#include <algorithm>
#include <cstdint>
#include <vector>

namespace parallax {

class FollowedSoon {
 public:
  static constexpr uint32_t kNoKey = UINT32_MAX;
  // A system call that sends takes longer between hosts.
  static constexpr int64_t kSoonNs = 5'000;
  // So often in a row, before it is counted on.
  static constexpr uint8_t kTimes = 4;
  // So many calls may hold back what they send, one behind the other.
  static constexpr uint32_t kHeldMax = 8;

  // A call about `key`: what it sends may be left to the next one.
  bool expects(uint32_t key) const {
    return key < times_.size() && times_[key] >= kTimes && held_ < kHeldMax;
  }
  // A pass has begun: a call's, or of who drives. `held`: it sends nothing.
  void passed(int64_t began_ns, bool held) {
    held_ = held ? held_ + 1 : 0;
    if (key_ == kNoKey) return;
    uint8_t& times = times_[key_];
    times = began_ns - left_ns_ <= kSoonNs ? std::min<uint8_t>(kTimes, times + 1) : uint8_t{0};
    key_ = kNoKey;
  }
  // The call about `key` is over, with its pass.
  void left(uint32_t key, int64_t now_ns) {
    if (key >= times_.size()) times_.resize(key + 1);
    key_ = key;
    left_ns_ = now_ns;
  }

 private:
  std::vector<uint8_t> times_;  // by key: in a row
  uint32_t key_ = kNoKey;       // of the last call
  int64_t left_ns_ = 0;
  uint32_t held_ = 0;  // calls, since the last pass that sent
};

}  // namespace parallax

#endif  // PARALLAX_JOB_FOLLOWED_SOON_H_
