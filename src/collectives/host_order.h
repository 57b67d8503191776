// SPDX-License-Identifier: Apache-2.0
// HostOrder: in which order the devices of a host launch what goes in two legs, sums within the
// host and the totals that come back to it. Launches of one leg follow the order of the plan, but
// when a total is there ahead of the next sum the ranks of a host see at different times. So the
// first of them decides, and tells the others with a section of a few bytes (kLaunchOrder); the
// first one has what they find each other by, too.
//
// Two communicators, one for each leg, would need no word: but their kernels may keep each other
// waiting on devices that cannot run both (adr/0051).
//
// Engine's owner only; nothing blocks.
#ifndef PARALLAX_COLLECTIVES_HOST_ORDER_H_
#define PARALLAX_COLLECTIVES_HOST_ORDER_H_

#include <cstdint>
#include <deque>

#include "device/communicator.h"
#include "message/outbox.h"
#include "world/patterns.h"

namespace parallax {

class HostOrder {
 public:
  // `id`: of the rank that decides. The others outlive this.
  HostOrder(const Columns& columns, Outbox& outbox, const CommunicatorId& id)
      : columns_(columns), outbox_(outbox), id_(id), has_id_(decides()) {}

  // One launch: the first of its variables, a step, a leg.
  struct Next {
    uint32_t variable = 0;
    uint64_t step = 0;
    DeviceLeg leg = DeviceLeg::kToHost;
  };

  const HostMap& hosts() const { return columns_.map(); }
  // The first rank of its host.
  bool decides() const { return columns_.local() == 0; }
  // By that rank: what comes next, here and there.
  void say(const Next& next);
  // From another rank. False: not what that one may say, or not the next.
  [[nodiscard]] bool on_section(uint32_t from, const Section& section);

  // Ranks can find each other.
  bool has_id() const { return has_id_; }
  const CommunicatorId& id() const { return id_; }

  // What was said and is not launched.
  bool empty() const { return next_.empty(); }
  const Next& front() const { return next_.front(); }
  void pop() { next_.pop_front(); }

 private:
  const Columns& columns_;
  Outbox& outbox_;
  CommunicatorId id_;
  bool has_id_;
  uint64_t said_ = 0;
  std::deque<Next> next_;
};

}  // namespace parallax

#endif  // PARALLAX_COLLECTIVES_HOST_ORDER_H_
