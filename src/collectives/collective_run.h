// SPDX-License-Identifier: Apache-2.0
// CollectiveRun: the way of one collective's numbers, where they are too many to travel with the
// reports: its schedule, and the exchange that runs it on the caller's buffers. It is there from
// the call on, since others may learn earlier than this rank that all have called; what it sends
// itself it sends after start().
//
// Sums take memory as a variable's exchange does; what is only copied takes none. Engine's owner
// only; nothing blocks.
#ifndef PARALLAX_COLLECTIVES_COLLECTIVE_RUN_H_
#define PARALLAX_COLLECTIVES_COLLECTIVE_RUN_H_

#include <cstdint>

#include "base/status.h"
#include "collectives/algorithm_choice.h"
#include "collectives/collective.h"
#include "collectives/dense_exchange.h"
#include "message/outbox.h"
#include "world/patterns.h"

namespace parallax {

class CollectiveRun {
 public:
  // Numbers that are scaled and rounded at a time: about a millisecond.
  static constexpr uint64_t kGiveNumbers = 1 << 20;

  // All references outlive this. `ordered`: sums add the ranks of a host in order, then hosts.
  CollectiveRun(const Columns& columns, Outbox& outbox, const Collective& what,
                AlgorithmChoice& algorithms, bool ordered);
  CollectiveRun(const CollectiveRun&) = delete;
  CollectiveRun& operator=(const CollectiveRun&) = delete;

  // *pending counts sends under way until all is sent, or dropped. LIMIT.
  Status reserve(uint32_t* pending);
  // All ranks have called: what this one gives may leave.
  void start();
  // False: not what that rank may send now.
  [[nodiscard]] bool on_section(uint32_t from, const Section& section);
  // As Exchange's.
  std::byte* place_of(uint32_t from, const Section& section) {
    return exchange_.place_of(from, section);
  }
  // Something came: its sender knows that all have called alike.
  bool took() const { return took_; }
  // Everything was received, and queued to be sent.
  bool moved() const { return started_ && exchange_.moved(what_.key.number); }
  // Once moved, and *pending is 0: the result, as the caller wants it; a piece of it, so that
  // leases are kept meanwhile. True when all is given.
  [[nodiscard]] bool give();
  MissingRanks missing() const { return exchange_.missing(what_.key.number); }

 private:
  static Schedule schedule_of(const Columns& columns, const Collective& what,
                              AlgorithmChoice& algorithms, bool ordered);

  const Collective& what_;
  DenseExchange exchange_;
  uint32_t* pending_ = nullptr;
  uint64_t given_ = 0;  // numbers
  bool started_ = false;
  bool took_ = false;
};

}  // namespace parallax

#endif  // PARALLAX_COLLECTIVES_COLLECTIVE_RUN_H_
