// SPDX-License-Identifier: Apache-2.0
// SpinTime: how long a waiter looks for what it waits for before it blocks, and how much of that
// without letting others have its core.
//
// Design notes. A waiter looks for about as long as a wake-up costs, so that it never waits for
// more than twice the better of looking and blocking (Karlin et al., "Competitive randomized
// algorithms for non-uniform problems", SODA 1990). Every waiter does, and always: one that blocked
// sooner would make its peers wait for its wake-up, who would then find that looking does not pay
// either. What does not pay is to keep a core that the awaited rank needs, be it that other
// programs have the rest or that both ranks run on one. So it looks in two parts: quietly at first,
// without any system call, then with sched_yield after each look. Looking quietly in vain halves
// the quiet part, finding something doubles it, and now and then a whole one is tried, since what
// comes after a microsecond more is never found by a shorter one. Where the ranks of the machine
// are more than the cores they may use (spin_choice.h), there is no quiet part.
//
// That costs a wake-up of each wait that is a little longer, and between ranks of one host, which
// wait for each other's cores alone, most are: one's rows take a tenth of a millisecond more than
// another's. There a waiter looks for up to kLonger times as long, a millisecond at most, giving
// its core away, while that pays: of the waits that outlast a wake-up, one that ends within it
// doubles how long, one that takes longer, or is given up, halves it. Where hosts are several what
// it waits for is the network's work, for which the kernel needs the core (docs/adr/0115).
//
// For what devices reduce a waiter looks as long, as the driver's own waits do: to be told by it
// costs more than a wake-up, and a reduction of a millisecond would take a twentieth longer.
//
// One owner at a time: the waiter that drives.
#ifndef PARALLAX_JOB_SPIN_TIME_H_
#define PARALLAX_JOB_SPIN_TIME_H_

#include <algorithm>
#include <cstdint>

namespace parallax {

enum class SpinYield : uint32_t { kAuto, kAlways, kNever };  // as spin_yield has them

struct SpinOptions {
  int64_t spin_ns = 50'000;
  SpinYield yield = SpinYield::kAuto;
  bool longer = false;  // while that pays
};

class SpinTime {
 public:
  static constexpr int64_t kQuietMinNs = 1000;
  static constexpr uint32_t kTriedEvery = 64;         // waits in vain
  static constexpr int64_t kLonger = 20;              // times as long, at most
  static constexpr int64_t kLongerNsMax = 1'000'000;  // but for devices, or where more is set

  SpinTime() : SpinTime(SpinOptions()) {}
  explicit SpinTime(const SpinOptions& options)
      : whole_ns_(options.spin_ns),
        adapts_(options.yield == SpinYield::kAuto),
        quiet_ns_(options.yield == SpinYield::kAlways ? 0 : options.spin_ns),
        longer_ns_(options.spin_ns),
        most_ns_(options.longer && options.yield != SpinYield::kNever
                     ? std::max(options.spin_ns, std::min(longest_ns(), kLongerNsMax))
                     : options.spin_ns) {}

  int64_t whole_ns() const { return whole_ns_; }
  // The same with what of it yields alone.
  int64_t longer_ns() const { return longer_ns_; }
  int64_t longest_ns() const { return kLonger * whole_ns_; }
  // What it can come to, but for devices.
  int64_t most_ns() const { return most_ns_; }
  int64_t quiet_ns() const {
    return adapts_ && vain_ % kTriedEvery == kTriedEvery - 1 ? whole_ns_ : quiet_ns_;
  }
  // It found something while it looked quietly, or did not.
  void found() {
    if (!adapts_) return;
    quiet_ns_ = std::min(whole_ns_, 2 * quiet_ns());
    vain_ = 0;
  }
  void vain() {
    if (!adapts_) return;
    quiet_ns_ = std::min(whole_ns_, std::max(kQuietMinNs, quiet_ns_ / 2));
    ++vain_;
  }
  // Something moved, so long after what did before; it looked, or was blocked.
  void waited(int64_t waited_ns) {
    if (waited_ns <= whole_ns_) return;
    if (waited_ns > most_ns_) return gave_up();
    longer_ns_ = std::min(most_ns_, 2 * longer_ns_);
  }
  // Nothing did before the wait's time was over.
  void gave_up() { longer_ns_ = std::max(whole_ns_, longer_ns_ / 2); }

 private:
  int64_t whole_ns_;
  bool adapts_;
  int64_t quiet_ns_;
  int64_t longer_ns_, most_ns_;
  uint32_t vain_ = 0;
};

}  // namespace parallax

#endif  // PARALLAX_JOB_SPIN_TIME_H_
