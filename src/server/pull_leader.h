// SPDX-License-Identifier: Apache-2.0
// PullLeader: gathers what the ranks of its host want of its column, round by round (PullRounds),
// asks the owners for the union, and hands out to each rank its part of what they answer. So a row
// crosses the wire once per host, and an owner has one peer per host. A rank that leads no column
// has one of these too, and takes nothing. Part of PullExchange.
#ifndef PARALLAX_SERVER_PULL_LEADER_H_
#define PARALLAX_SERVER_PULL_LEADER_H_

#include <cstdint>

#include "message/outbox.h"
#include "server/pull_rounds.h"
#include "server/pulled_variable.h"
#include "world/patterns.h"

namespace parallax {

class PullLeader {
 public:
  // All outlive this object.
  PullLeader(const Columns& columns, Outbox& outbox, const PulledVariables& variables);

  // As PullExchange has them.
  void end_local(uint32_t from, uint64_t step);
  void open(uint64_t step);
  PullWait waiting(uint64_t step) const { return rounds_.waiting(step); }

  [[nodiscard]] bool on_pull_local(uint32_t from, const Section& section);
  [[nodiscard]] bool on_values_host(uint32_t from, const Section& section);

 private:
  using Wanted = PulledVariable::Wanted;

  [[nodiscard]] bool want(PulledVariable& variable, PullRound& round, uint32_t local,
                          const Section& section);
  [[nodiscard]] bool want_rows(const PulledVariable& variable, Wanted& wanted, uint32_t local,
                               const Section& section);
  void ask_if_complete(PullRound& round);
  void ask_rows(PullRound& round, PulledVariable& variable);
  void ask_dense(PullRound& round, PulledVariable& variable);
  void answer_locals(PullRound& round);
  void answer_local_dense(const PullRound& round, PulledVariable& variable, uint32_t rank);

  const Columns& columns_;
  Outbox& outbox_;
  const PulledVariables& variables_;
  PullRounds rounds_;
};

}  // namespace parallax

#endif  // PARALLAX_SERVER_PULL_LEADER_H_
